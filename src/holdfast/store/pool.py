"""A pool of the connections of a store.

Invariants: a connection has one user at a time; a broken connection is closed, not reused; while the pool is held,
`take` waits; no lock is held while connections are taken and given, because a signal handler can stop a thread there;
a connection that is lost so is not in use.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar
from weakref import ReferenceType, ref

Connection = TypeVar("Connection")


class _Use:
    """The use of a connection, which refers to it: if the connection is lost, it ends too."""


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
        self._out: list[ReferenceType[_Use]] = []  # of the connections in use; without callbacks, which can be stopped
        self._holds = 0
        # Entered as a lock: an exception from a signal handler while a condition is entered would leave it locked.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)

    def take(self) -> Connection:
        use, connection = _Use(), None
        self._out.append(ref(use))
        # Looked at after this caller is counted: `hold` sets it before it counts, so one of the two sees the other.
        if self._holds:
            self._end(use)
            with self._lock:
                self._changed.wait_for(lambda: not self._holds)
            return self.take()
        with suppress(IndexError):
            connection = self._idle.pop()
        try:
            connection = connection or self._connect()
        except BaseException:
            self._end(use)
            raise
        connection.__dict__["use"] = use
        return connection

    def give(self, connection: Connection, *, sound: bool) -> None:
        """Return a connection to the pool; if it is not sound, close it and the idle ones, which may be lost too."""
        use = connection.__dict__.pop("use")
        if sound:
            self._idle.append(connection)
        else:
            self._disconnect(connection)
        if not sound or self._closed or self._holds:
            self._drop_idle()
        self._end(use)

    def close(self) -> None:
        self._closed = True
        self._drop_idle()

    def hold(self, wait_s: float) -> None:
        """Close all connections and let `take` wait until `release`; wait up to `wait_s` for those in use."""
        with self._lock:
            self._holds += 1
            self._changed.wait_for(lambda: not any(use() for use in self._out), wait_s)
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

    def _end(self, use: _Use) -> None:
        with suppress(ValueError):  # it began before a fork
            self._out.remove(ref(use))
        if self._holds:
            with self._lock:
                self._changed.notify_all()


def refuse_reentry(own: threading.local) -> None:
    """Raise StoreBusyError if this thread holds the lock `own.here`: a signal handler interrupted what it is doing."""
    if "here" in own.__dict__ and own.here.locked():
        from holdfast.store.interruption import reentered  # noqa: PLC0415 - only in a signal handler

        raise reentered()
