"""Notices by LISTEN that another process has committed work to PostgreSQL; that process sends NOTIFY (`connection`).

Invariants: the watch has a connection of its own and takes a new one when it loses it; each new connection counts as a
change, because notifications were lost meanwhile; it never gives up while it is open.
"""

import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import sql

from holdfast.core.errors import StoreError
from holdfast.store.watch import Watch

RETRY_S = 0.5


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
