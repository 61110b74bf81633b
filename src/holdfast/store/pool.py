"""A pool of the connections of a store.

Invariants: a connection has one user at a time; a broken connection is closed, not reused; while the pool is held,
`take` waits.
"""

import threading
from collections.abc import Callable
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
        self._out = 0
        self._holds = 0
        # Entered as a lock: an exception from a signal handler while a condition is entered would leave it locked.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)

    def take(self) -> Connection:
        with self._lock:
            while self._holds:
                self._changed.wait()
            self._out += 1
            if self._idle:
                return self._idle.pop()
        try:
            return self._connect()
        except BaseException:
            self._one_less()
            raise

    def give(self, connection: Connection, *, sound: bool) -> None:
        """Return a connection to the pool; if it is not sound, close it and the idle ones, which may be lost too."""
        with self._lock:
            if sound and not self._closed and not self._holds:
                self._idle.append(connection)
                self._out -= 1
                return
        self._disconnect(connection)
        self._drop_idle()
        self._one_less()

    def close(self) -> None:
        self._closed = True
        self._drop_idle()

    @property
    def held(self) -> bool:
        """Whether the pool waits for connections: a caller that keeps one for long must return it and take another."""
        return self._holds > 0

    def hold(self, wait_s: float) -> None:
        """Close all connections and let `take` wait until `release`; wait up to `wait_s` for those in use."""
        with self._lock:
            self._holds += 1
        self._drop_idle()
        with self._lock:
            self._changed.wait_for(lambda: self._out == 0, wait_s)

    def release(self) -> None:
        """Let connections be taken again."""
        with self._lock:
            self._holds -= 1
            self._changed.notify_all()

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            self._disconnect(connection)

    def _one_less(self) -> None:
        with self._lock:
            self._out -= 1
            self._changed.notify_all()
