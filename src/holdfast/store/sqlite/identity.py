"""The identity of a ledger's file and of its write-ahead log: the path must keep naming the files that are open.

SQLite holds POSIX locks, and the kernel drops all locks of a process on a file when the process closes any descriptor
of it, for example after `shutil.copy`. Another process then believes that it is alone and deletes the log, while this
process goes on writing to it. So each connection also has a lock that belongs to its descriptor (an OFD lock).

Invariants: while a connection is open, no other process can delete the log, whatever this process opens and closes
(Linux); the device, inode and number of names of both files are compared after each commit, before it is
acknowledged; no descriptor of the files is opened or closed here.
"""

import fcntl
import os
import sqlite3
import struct
import threading
from contextlib import suppress
from pathlib import Path
from weakref import WeakKeyDictionary

LOG_BYTES_MAX = 128 << 20  # checkpoints begin at 16 MiB: a log of this size cannot be written back
DESCRIPTORS = "/proc/self/fd"
# The bytes by which SQLite marks that a database is open: SHARED of the file, and "dead man's switch" of the -shm file.
_OPEN, _SHM_OPEN = (0x40000002, 510), (128, 1)
_SET = getattr(fcntl, "F_OFD_SETLK", None)

# The descriptors locked for each connection, as long as it exists: a signal handler's exception can lose one unclosed.
_guarded: WeakKeyDictionary[sqlite3.Connection, tuple["LedgerFiles", list[int]]] = WeakKeyDictionary()
_lock = threading.RLock()  # a signal handler may open a connection too


class LedgerConnection(sqlite3.Connection):
    """A connection to which there can be weak references."""


class LedgerFiles:
    """The file of a ledger and its log, as they were when the store opened them."""

    def __init__(self, path: Path) -> None:
        self.path, self.log, self.shm = str(path), f"{path}-wal", f"{path}-shm"
        self.seen: tuple[int, ...] | None = None
        self.log_bytes_max = LOG_BYTES_MAX
        self.changed = False

    def opening(self) -> None:
        """Raise LedgerFileError before SQLite opens a file with two names, or another file than before."""
        now: tuple[int, ...] = ()
        with suppress(FileNotFoundError):
            now = (*_identity(self.path), os.stat(self.path).st_nlink)  # noqa: PTH116 - half the time of Path.stat
        if now != (*self.seen[:2], 1) if self.seen else now[2:] > (1,):
            from holdfast.store.sqlite.changed import require_file  # noqa: PLC0415 - rarely needed

            require_file(self)

    def opened(self, connection: sqlite3.Connection) -> None:
        """Guard a new connection, which has read; raise LedgerFileError if it is to other files than before."""
        with _lock, suppress(FileNotFoundError):  # `require_same` reports it
            now = (*_identity(self.path), *_identity(self.log), 1, 1)
            alone = all(files is not self for files, _ in _guarded.values())
            if self.seen is None or (alone and now[:2] == self.seen[:2]):  # the log of a closed ledger is deleted
                self.seen = now
            taken = {number for _, numbers in _guarded.values() for number in numbers}
            numbers = [number for number in _descriptors(now[:2]) if number not in taken]
            _guarded[connection] = self, numbers
            _set_locks(numbers, fcntl.F_RDLCK, _OPEN)
            _set_locks(_descriptors(_identity(self.shm)), fcntl.F_RDLCK, _SHM_OPEN)
        self.require_same()

    def closing(self, connection: sqlite3.Connection) -> None:
        """Give up the guard of a connection, so that SQLite can delete the log; not if the files were changed."""
        with _lock:
            _, numbers = _guarded.pop(connection, (self, []))
            if not self.changed:
                _set_locks(numbers, fcntl.F_UNLCK, _OPEN)

    def require_same(self) -> None:
        """Raise LedgerFileError if the path names another file, or the log is another one, or one has a second name."""
        try:
            file, log = os.stat(self.path), os.stat(self.log)  # noqa: PTH116 - as above
            now = (file.st_dev, file.st_ino, log.st_dev, log.st_ino, file.st_nlink, log.st_nlink)
            if now == self.seen and log.st_size <= self.log_bytes_max:
                return
        except FileNotFoundError:
            pass
        from holdfast.store.sqlite.changed import require_unchanged  # noqa: PLC0415 - rarely needed

        require_unchanged(self)


def _identity(path: str) -> tuple[int, int]:
    found = os.stat(path)  # noqa: PTH116 - as above
    return found.st_dev, found.st_ino


def _descriptors(identity: tuple[int, ...]) -> list[int]:
    """Return the descriptors of this process for one file."""
    found = []
    with suppress(OSError):  # a system without this directory
        for name in os.listdir(DESCRIPTORS):  # noqa: PTH208 - as above
            with suppress(OSError):  # the listing's own, or one that another thread has closed
                status = os.fstat(int(name))
                if (status.st_dev, status.st_ino) == identity:
                    found.append(int(name))
    return found


def _set_locks(numbers: list[int], kind: int, area: tuple[int, int]) -> None:
    for number in numbers:
        with suppress(OSError):  # closed meanwhile, or a file system without such locks
            if _SET is not None:
                fcntl.fcntl(number, _SET, struct.pack("hhqqi4x", kind, os.SEEK_SET, *area, 0))


def _after_fork() -> None:
    """Begin anew in a forked child: a thread of the parent may have held the lock."""
    global _guarded, _lock
    _guarded, _lock = WeakKeyDictionary(), threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
