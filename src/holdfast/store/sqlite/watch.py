"""Noticing that another process has committed to a SQLite file.

Invariants: `PRAGMA data_version` changes only by the commits of other connections and costs a few microseconds, so it
is asked every few milliseconds, but only while a worker is idle and has armed the watch.
"""

import sqlite3
import threading
from collections.abc import Callable

from holdfast.store.pool import Pool
from holdfast.store.store import Watch

PERIOD_S = 0.002
HELD_S = 0.05  # how soon it notices, while it is not armed, that the pool wants its connection back


class DataVersionWatch(Watch):
    """A thread that polls the file's data version while it is armed."""

    def __init__(self, pool: Pool[sqlite3.Connection], on_change: Callable[[], None]) -> None:
        self.pool = pool
        self._on_change = on_change
        self._armed = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-watch", daemon=True)
        self._thread.start()

    def arm(self) -> None:
        self._armed.set()

    def close(self) -> None:
        self._closed.set()
        self._armed.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._closed.is_set():
            connection = self.pool.take()
            sound = False
            try:
                self._watch(connection)
                sound = True
            finally:
                self.pool.give(connection, sound=sound)
            # A new connection tells nothing of what was written before it.
            self._on_change()

    def _watch(self, connection: sqlite3.Connection) -> None:
        """Watch until closed, or until the pool wants the connection back."""
        seen = self._version(connection)
        while not self._closed.is_set() and not self.pool.held:
            if not self._armed.wait(HELD_S):
                continue
            while not self._closed.wait(PERIOD_S) and not self.pool.held:
                version = self._version(connection)
                if version != seen:
                    seen = version
                    self._armed.clear()
                    self._on_change()
                    break

    @staticmethod
    def _version(connection: sqlite3.Connection) -> int:
        [version] = connection.execute("PRAGMA data_version").fetchone()
        return int(version)
