"""A fair lock for the processes and threads that write one SQLite file.

The busy handler of SQLite is unfair: of four writers, one can take the lock every time. Two file locks make the order
fair: a writer takes the gate, waits there for the turn, releases the gate to the next writer, writes, and releases the
turn.

Invariants: at most one holder at a time, across threads and processes; the kernel releases both locks when a process
ends, even if it was killed or has forked a child; an exception from a signal handler, at any moment, leaves no lock
behind; a thread that holds or awaits a turn gets no second one, so a signal handler that writes is refused; a process
that does not use these locks (a shell) still has to wait for the lock of SQLite itself.
"""

import fcntl
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

from holdfast.core.errors import StoreBusyError, StoreReadOnlyError
from holdfast.store.pool import refuse_reentry

T = TypeVar("T")

_POLL_S, _POLL_LONG_S = 0.0001, 0.001
_SOON_S = 0.005  # most transactions of others end within this time


class Turnstile:
    """The turnstile of one file, shared by the threads of this process."""

    def __init__(self, database: Path, wait_s: float) -> None:
        self._database = database
        self._gate = Path(f"{database}-gate")
        self._turn = Path(f"{database}-turn")
        self._wait_s = wait_s
        self._guard = threading.Lock()  # of the queue
        self._queue: deque[threading.Lock] = deque()  # the threads of this process: the first has the turn
        self._files: tuple[int, int] | None = None
        self._own = threading.local()  # of each thread: its token
        _all.add(self)

    def around(self, block: Iterable[T]) -> Iterator[T]:
        """Yield from a block while holding the turn, taken in order of arrival; raise StoreBusyError after the timeout.

        A generator around a generator: between them and their locks there is no step at which an exception could leave
        one locked.
        """
        refuse_reentry(self._own)
        deadline = time.monotonic() + self._wait_s
        token = threading.Lock()
        with token:  # a thread whose token is not locked has left, however it left
            self._own.here = token
            with self._guard:
                self._queue.append(token)
            self._wait_for(partial(self._is_first, token), deadline)
            gate, turn = self._open()
            try:
                try:
                    self._wait_for(partial(_locked, gate), deadline)
                    self._wait_for(partial(_locked, turn), deadline)
                finally:
                    fcntl.flock(gate, fcntl.LOCK_UN)
                yield from block
            finally:
                fcntl.flock(turn, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the lock files; the empty files stay on disk for the next process."""
        if self._files is not None:
            list(self.around(()))  # after the turns of other threads
            files, self._files = self._files, None
            for file in files:
                os.close(file)

    def leave_to_parent(self) -> None:
        """Close the inherited lock files in a forked child: they would keep the locks of the parent after it ended."""
        for file in self._files or ():
            os.close(file)
        self._files, self._guard, self._own = None, threading.Lock(), threading.local()
        self._queue.clear()

    def _is_first(self, token: threading.Lock) -> bool:
        """Return whether every thread of this process that came before has left."""
        with self._guard:
            while not self._queue[0].locked():
                self._queue.popleft()
            return self._queue[0] is token

    def _open(self) -> tuple[int, int]:
        if self._files is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            try:
                gate = os.open(self._gate, flags, 0o666)
                self._files = gate, os.open(self._turn, flags, 0o666)
            except PermissionError as error:
                raise StoreReadOnlyError(f"the lock files {self._gate} and {self._turn} are not writable") from error
        return self._files

    def _wait_for(self, got: Callable[[], bool], deadline: float) -> None:
        """Poll until a lock was got or the deadline has passed."""
        soon = time.monotonic() + _SOON_S
        while not got():
            now = time.monotonic()
            if now > deadline:
                raise self._busy()
            time.sleep(_POLL_S if now < soon else _POLL_LONG_S)

    def _busy(self) -> StoreBusyError:
        from holdfast.store.sqlite.errors import busy  # noqa: PLC0415 - most turns come

        return busy(self._database, f" within {self._wait_s:g} s")


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


_all: weakref.WeakSet[Turnstile] = weakref.WeakSet()


def _after_fork() -> None:
    for turnstile in list(_all):
        turnstile.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)
