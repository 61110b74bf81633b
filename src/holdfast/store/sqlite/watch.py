"""Noticing that another process has committed to a SQLite file.

Invariants: `PRAGMA data_version` changes only by the commits of other connections and costs a few microseconds, so it
is asked every few milliseconds, but only while a worker is idle and has armed the watch.
"""

import sqlite3
import threading
from collections.abc import Callable

from holdfast.store.store import Pool, Watch

PERIOD_S = 0.002


class DataVersionWatch(Watch):
    """A thread that polls the file's data version while it is armed."""

    def __init__(self, pool: Pool[sqlite3.Connection], on_change: Callable[[], None]) -> None:
        self._pool = pool
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
        connection = self._pool.take()
        seen = self._version(connection)
        while not self._closed.is_set():
            self._armed.wait()
            while not self._closed.wait(PERIOD_S):
                version = self._version(connection)
                if version != seen:
                    seen = version
                    self._armed.clear()
                    self._on_change()
                    break
        self._pool.give(connection, sound=True)

    @staticmethod
    def _version(connection: sqlite3.Connection) -> int:
        [version] = connection.execute("PRAGMA data_version").fetchone()
        return int(version)
