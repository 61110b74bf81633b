"""Which processes hold the locks of a SQLite ledger, by their ids, as /proc/locks lists them.

Invariants: no file of the ledger is opened, because closing it would drop locks of this process; where the system does
not list its locks, the answer is empty.
"""

from collections.abc import Iterator
from pathlib import Path

LOCKS = Path("/proc/locks")
_WRITE_BYTE = 120  # of the -shm file: the write lock of SQLite
_READ_BYTES = range(123, 128)  # of the -shm file: one for each mark that readers use


def writer(path: str) -> int | None:
    """Return the process that holds the write lock of SQLite, or else the turn; None if it is not known."""
    return next(iter([*_held(f"{path}-shm", range(_WRITE_BYTE, _WRITE_BYTE + 1)), *_flocks(f"{path}-turn")]), None)


def readers(path: str) -> list[int]:
    """Return the processes that are reading."""
    return sorted(set(_held(f"{path}-shm", _READ_BYTES)))


def _flocks(path: str) -> Iterator[int]:
    return (pid for kind, pid, _ in _locks(path) if kind == "FLOCK")


def _held(path: str, wanted: range) -> Iterator[int]:
    for kind, pid, area in _locks(path):
        if kind == "POSIX" and area.start < wanted.stop and wanted.start < area.stop:
            yield pid


def _locks(path: str) -> Iterator[tuple[str, int, range]]:
    """Yield the locks that are held on a file: the kind, the process, and the bytes."""
    try:
        inode = Path(path).stat().st_ino
        lines = LOCKS.read_text(encoding="ascii").splitlines()
    except OSError:
        return
    for line in lines:
        words = line.split()  # 1: POSIX ADVISORY READ 4121 00:2a:1234 123 123
        if "->" not in words and len(words) == 8 and words[5].rpartition(":")[2] == str(inode) and int(words[4]) > 0:
            end = (1 << 63) - 1 if words[7] == "EOF" else int(words[7])
            yield words[1], int(words[4]), range(int(words[6]), end + 1)
