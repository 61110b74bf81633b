"""Notices by LISTEN that another process has committed work to PostgreSQL; that process sends NOTIFY (`connection`).

Invariants: a thread listens on the connection on which it writes, so a watch takes no connection of its own; no other
thread uses that connection; a connection that begins to listen counts as a change, because nothing is known of the time
before; a watch never gives up while it is open.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg

from holdfast.core.errors import StoreError
from holdfast.store.pool import Pool
from holdfast.store.postgres.connection import LedgerConnection
from holdfast.store.watch import Watch

if TYPE_CHECKING:
    from holdfast.store.postgres.store import PostgresStore

RETRY_S = 0.5


class _Kept(threading.local):
    """What a thread has kept for itself."""

    connection: LedgerConnection | None = None
    idle = False


class ListeningPool(Pool[LedgerConnection]):
    """A pool of which a thread can keep one connection: what it takes next is that one, and others do not get it."""

    def reset(self) -> None:
        super().reset()
        self._kept = _Kept()

    def take(self) -> LedgerConnection:
        kept = self._kept
        if kept.idle and kept.connection is not None:
            kept.idle = False
            return kept.connection
        return super().take()

    def give(self, connection: LedgerConnection, *, sound: bool) -> None:
        kept = self._kept
        if connection is kept.connection:
            kept.idle = sound
            if sound:
                return
            kept.connection = None
        super().give(connection, sound=sound)

    def keep(self, connection: LedgerConnection) -> None:
        """Keep a connection that was taken, unless this thread has kept another one."""
        if self._kept.connection is None:
            self._kept.connection = connection

    def unkeep(self) -> LedgerConnection | None:
        """Keep no connection any more; return the one that was kept."""
        kept = self._kept
        connection, kept.connection, kept.idle = kept.connection, None, False
        return connection


class ListenWatch(Watch):
    """Listens on the ledger's channel; the thread that sleeps until the connection is readable looks at it."""

    def __init__(self, store: PostgresStore, channel: str) -> None:
        self._store = store
        self._channel = channel
        self._connection: LedgerConnection | None = None
        self._retry_at = 0.0

    def fileno(self) -> int | None:
        return None if self._connection is None else self._connection.fileno()

    def changed(self) -> bool:
        if time.monotonic() < self._retry_at:
            return False
        self._connection, self.period_s = None, RETRY_S
        pool = self._store.pool
        with suppress(psycopg.Error, StoreError):
            connection, sound = self._store.take(), False
            try:
                found = connection.heard(self._channel)
                pool.keep(connection)
                sound = True
            finally:
                pool.give(connection, sound=sound)
            self._connection, self.period_s = connection, None
            return found
        self._retry_at = time.monotonic() + RETRY_S
        return False

    def close(self) -> None:
        self._connection = None
        connection = self._store.pool.unkeep()
        if connection is None:
            return
        sound = False
        with suppress(psycopg.Error):
            connection.unlisten()
            sound = True
        self._store.pool.give(connection, sound=sound)
