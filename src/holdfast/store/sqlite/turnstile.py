"""A fair lock for the processes and threads that write one SQLite file.

The busy handler of SQLite is unfair: of four writers, one can take the lock every time. Two file locks make the order
fair: a writer takes the gate, waits there for the turn, releases the gate to the next writer, writes, and releases the
turn.

Invariants: at most one holder at a time, across threads and processes; the kernel releases both locks when a process
ends, even if it was killed or has forked a child; a process that does not use these locks (a shell) still has to wait
for the lock of SQLite itself.
"""

import fcntl
import os
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.core.errors import StoreBusyError

_POLL_S, _POLL_LONG_S = 0.0001, 0.001
_SOON_S = 0.005  # most transactions of others end within this time


class Turnstile:
    """The turnstile of one file, shared by the threads of this process."""

    def __init__(self, database: Path, wait_s: float) -> None:
        self._database = database
        self._gate = Path(f"{database}-gate")
        self._turn = Path(f"{database}-turn")
        self._wait_s = wait_s
        self._threads = threading.Lock()
        self._files: tuple[int, int] | None = None
        _all.add(self)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the turn, in order of arrival, and hold it for the block; raise StoreBusyError after the timeout."""
        deadline = time.monotonic() + self._wait_s
        if not self._threads.acquire(timeout=self._wait_s):
            raise self._busy()
        try:
            gate, turn = self._open()
            self._lock(gate, deadline)
            try:
                self._lock(turn, deadline)
            finally:
                fcntl.flock(gate, fcntl.LOCK_UN)
            try:
                yield
            finally:
                fcntl.flock(turn, fcntl.LOCK_UN)
        finally:
            self._threads.release()

    def close(self) -> None:
        """Close the lock files; the empty files stay on disk for the next process."""
        with self._threads:
            for file in self._files or ():
                os.close(file)
            self._files = None

    def leave_to_parent(self) -> None:
        """Close the inherited lock files in a forked child: they would keep the locks of the parent after it ended."""
        for file in self._files or ():
            os.close(file)
        self._files = None
        self._threads = threading.Lock()

    def _open(self) -> tuple[int, int]:
        if self._files is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            gate = os.open(self._gate, flags, 0o666)
            self._files = gate, os.open(self._turn, flags, 0o666)
        return self._files

    def _lock(self, file: int, deadline: float) -> None:
        """Take a lock; poll until it is free or the deadline has passed."""
        soon = time.monotonic() + _SOON_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                now = time.monotonic()
                if now > deadline:
                    raise self._busy() from None
                time.sleep(_POLL_S if now < soon else _POLL_LONG_S)
            else:
                return

    def _busy(self) -> StoreBusyError:
        from holdfast.store.sqlite.errors import busy  # noqa: PLC0415 - most turns come

        return busy(self._database, f" within {self._wait_s:g} s")


_all: weakref.WeakSet[Turnstile] = weakref.WeakSet()


def _after_fork() -> None:
    for turnstile in list(_all):
        turnstile.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)
