"""Telling other processes that work was committed to PostgreSQL, and noticing it: NOTIFY and LISTEN.

A NOTIFY inside the transaction that writes would make all commits of the cluster wait for each other, so it is sent
after the commit, by a thread that joins what has gathered. A process that dies in between delays an idle worker until
its next poll, and loses nothing.

Invariants: the watch has a connection of its own and takes a new one when it loses it; each new connection counts as a
change, because what was announced meanwhile is lost; it never gives up while it is open.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import sql

from holdfast.core.errors import StoreError
from holdfast.store.store import Watch

RETRY_S = 0.5
ANNOUNCE_S = 0.001


class ListenWatch(Watch):
    """A connection that listens on the ledger's channel; the thread that sleeps until it is readable looks at it."""

    def __init__(self, connect: Callable[[], Any], channel: str) -> None:
        self._connect = connect
        self._channel = channel
        self._connection: Any = None
        self._retry_at = 0.0

    def fileno(self) -> int | None:
        return None if self._connection is None else int(self._connection.fileno())

    def changed(self) -> bool:
        try:
            if self._connection is not None:
                return self._notified()
            if time.monotonic() < self._retry_at:
                return False
            self._connection = self._connect()
            self._connection.autocommit = True
            self._connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
        except (psycopg.Error, StoreError):
            self.close()
            self._retry_at, self.period_s = time.monotonic() + RETRY_S, RETRY_S
            return False
        self.period_s = None
        return True

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _notified(self) -> bool:
        server = self._connection.pgconn
        server.consume_input()
        found = False
        while server.notifies() is not None:
            found = True
        return found


class Announcer:
    """A thread that notifies the ledger's channel, at most once every few milliseconds."""

    def __init__(self, connect: Callable[[], Any], channel: str) -> None:
        self._connect = connect
        self._channel = channel
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        self._queues: set[str] = set()
        self._thread: threading.Thread | None = None

    def announce(self, queues: set[str]) -> None:
        """Announce these queues soon."""
        with self._lock:
            self._queues |= queues
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="holdfast-announcer", daemon=True)
                self._thread.start()
        self._wake.set()

    def close(self) -> None:
        """Announce what is left, and end the thread."""
        self._closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _run(self) -> None:
        connection: Any = None
        while True:
            self._wake.wait()
            self._wake.clear()
            with self._lock:
                queues, self._queues = self._queues, set()
            try:
                if queues:
                    connection = connection or self._connected()
                    for queue in sorted(queues):
                        connection.execute("SELECT pg_notify(%s, %s)", (self._channel, queue))
            except (psycopg.Error, StoreError):
                # Pollers find the work; the next announcement gets a new connection.
                connection = None
            if self._closed:
                break
            time.sleep(ANNOUNCE_S)
        if connection is not None:
            connection.close()

    def _connected(self) -> Any:
        connection = self._connect()
        connection.autocommit = True
        # A NOTIFY has a transaction of its own, and idle workers hear of it after its sync: nothing in it needs one.
        connection.execute("SET synchronous_commit TO off")
        return connection
