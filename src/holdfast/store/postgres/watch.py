"""Telling other processes that work was committed to PostgreSQL, and noticing it: NOTIFY and LISTEN.

A NOTIFY inside the transaction that writes would make all commits of the cluster wait for each other, so it is sent
after the commit, on a connection of its own, and its answer is not waited for. A process that dies in between delays an
idle worker until its next poll, and loses nothing.

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
NOTIFY = b"SELECT pg_notify($1, q) FROM unnest($2::text[]) q"


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
    """Notifies the ledger's channel without waiting for the answer; a thread sends what could not be sent at once."""

    def __init__(self, connect: Callable[[], Any], channel: str) -> None:
        self._connect = connect
        self._channel = channel.encode()
        self._lock = threading.Lock()
        self._connection: Any = None
        self._waiting: set[str] = set()
        self.pooled = False  # behind a pooler a setting of the session would reach other clients
        self._thread: threading.Thread | None = None

    def announce(self, queues: set[str]) -> None:
        """Announce these queues now, or as soon as the announcement before is answered."""
        with self._lock:
            self._waiting |= queues
            # A thread that is not alive was made by a caller whom an exception stopped before it could start.
            if not self._sent() and not (self._thread and self._thread.is_alive()):
                self._thread = threading.Thread(target=self._run, name="holdfast-announcer", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Announce what is left, and close the connection."""
        thread = self._thread
        if thread is not None and thread.is_alive():
            thread.join(timeout=5)
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _sent(self) -> bool:
        """Send what waits; return False if the announcement before is not answered yet."""
        for _ in range(2):  # a connection that was lost since the last announcement is replaced once
            try:
                if self._connection is None:
                    self._connection = self._connected()
                return self._sent_on(self._connection.pgconn)
            except (psycopg.Error, StoreError):
                connection, self._connection = self._connection, None
                if connection is not None:
                    connection.close()
        self._waiting.clear()  # workers find the work when they poll
        return True

    def _sent_on(self, server: Any) -> bool:
        server.consume_input()
        while not server.is_busy():
            if server.get_result() is None:
                queues = "{" + ",".join(map(quoted_element, sorted(self._waiting))) + "}"
                server.send_query_params(NOTIFY, [self._channel, queues.encode()])
                server.flush()
                self._waiting.clear()
                return True
        return False

    def _connected(self) -> Any:
        connection = self._connect()
        connection.autocommit = True
        # A NOTIFY has a transaction of its own, and idle workers hear of it after its sync: nothing in it needs one.
        if not self.pooled:
            connection.execute("SET synchronous_commit TO off")
        return connection

    def _run(self) -> None:
        while True:
            time.sleep(ANNOUNCE_S)
            with self._lock:
                if self._sent():
                    self._thread = None
                    return


def quoted_element(element: str) -> str:
    """Return an element of an array as PostgreSQL writes it."""
    return '"' + element.replace("\\", "\\\\").replace('"', '\\"') + '"'
