"""A pool of the connections of a store.

Invariants: a connection has one user at a time; a broken connection is closed, not reused; while the pool is held,
`take` waits; no lock is held while connections are taken and given, because a signal handler can stop a thread there.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

Connection = TypeVar("Connection")


class Pool(Generic[Connection]):
    """Connections that are reused; the pool has as many as were in use at the same time."""

    def __init__(self, connect: Callable[[], Connection], disconnect: Callable[[Connection], None]) -> None:
        self._connect = connect
        self._disconnect = disconnect
        self._closed = False
        self.reset()

    def reset(self) -> None:
        """Forget every connection without closing it: in a forked child they belong to the parent."""
        self._idle: list[Connection] = []
        self._out: list[None] = []  # as long as connections are in use
        self._holds = 0
        # Entered as a lock: an exception from a signal handler while a condition is entered would leave it locked.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)

    def take(self) -> Connection:
        self._out.append(None)
        # Looked at after this caller is counted: `hold` sets it before it counts, so one of the two sees the other.
        if self._holds:
            self._one_less()
            with self._lock:
                self._changed.wait_for(lambda: not self._holds)
            return self.take()
        with suppress(IndexError):
            return self._idle.pop()
        try:
            return self._connect()
        except BaseException:
            self._one_less()
            raise

    def give(self, connection: Connection, *, sound: bool) -> None:
        """Return a connection to the pool; if it is not sound, close it and the idle ones, which may be lost too."""
        if sound:
            self._idle.append(connection)
        else:
            self._disconnect(connection)
        if not sound or self._closed or self._holds:
            self._drop_idle()
        self._one_less()

    def close(self) -> None:
        self._closed = True
        self._drop_idle()

    def hold(self, wait_s: float) -> None:
        """Close all connections and let `take` wait until `release`; wait up to `wait_s` for those in use."""
        with self._lock:
            self._holds += 1
            self._changed.wait_for(lambda: not self._out, wait_s)
        self._drop_idle()

    def release(self) -> None:
        """Let connections be taken again."""
        with self._lock:
            self._holds -= 1
            self._changed.notify_all()

    def _drop_idle(self) -> None:
        with suppress(IndexError):
            while True:
                self._disconnect(self._idle.pop())

    def _one_less(self) -> None:
        self._out.pop()
        if self._holds:
            with self._lock:
                self._changed.notify_all()


def refuse_reentry(own: threading.local) -> None:
    """Raise StoreBusyError if this thread holds the lock `own.here`: a signal handler interrupted what it is doing."""
    if "here" in own.__dict__ and own.here.locked():
        from holdfast.store.interruption import reentered  # noqa: PLC0415 - only in a signal handler

        raise reentered()
