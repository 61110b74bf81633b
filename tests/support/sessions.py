"""Keeps the sessions of ledgers on PostgreSQL that tests close, for the next connections to the same database.

A new session takes 2 ms of CPU, and 15 ms more to read the catalogue of a ledger and to plan its statements; a test of
a command opens several. Only the process of the server is kept, with its plans: each connection is a new object, and
its session is reset by all that DISCARD ALL does, except for the plans.

Invariants: a session is kept only for the same parameters, and never while its database is copied or dropped; a process
uses only sessions of its own; tests of what is new in a database (`ALWAYS_NEW`), and all their shells, have new ones.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

from psycopg import generators, pq
from psycopg.conninfo import conninfo_to_dict

from holdfast.store.postgres.connection import LedgerConnection

ALWAYS_NEW = (
    "tests/bench/",
    "tests/crash/",
    "tests/enforcement/",
    "tests/store/test_failover.py",
    "tests/store/test_identity.py",
    "tests/store/test_pooler.py",
    "tests/store/test_session_settings.py",
    "tests/store/test_watch.py",
)
# The plans stay: the statements of the triggers have many.
RESET = (
    b"ROLLBACK; CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; DEALLOCATE ALL; UNLISTEN *;"
    b" DISCARD SEQUENCES; DISCARD TEMP; SELECT pg_advisory_unlock_all()"
)
KEPT_MAX = 3  # for one set of parameters

_lock = threading.Lock()
_kept: dict[tuple[int, str], list[pq.abc.PGconn]] = {}  # by process and parameters
_parameters: WeakKeyDictionary[LedgerConnection, str] = WeakKeyDictionary()


@contextmanager
def kept(file: str) -> Iterator[None]:
    """Keep sessions in a block, unless the tests of this file need new ones."""
    if file.startswith(ALWAYS_NEW):
        yield
        return
    with (
        mock.patch.object(LedgerConnection, "_connect_gen", classmethod(_connect)),
        mock.patch.object(LedgerConnection, "close", _close),
    ):
        yield


def processes(database: str) -> list[int]:
    """Return the processes of the server whose sessions are kept for a database."""
    with _lock:
        return [pgconn.backend_pid for key in _keys(database) for pgconn in _kept[key]]


def release(database: str) -> None:
    """End the sessions that are kept for a database."""
    with _lock:
        for pgconn in [pgconn for key in _keys(database) for pgconn in _kept.pop(key)]:
            pgconn.finish()


def _keys(database: str) -> list[tuple[int, str]]:
    return [key for key in _kept if key[0] == os.getpid() and _database(key[1]) == database]


@cache
def _database(parameters: str) -> object:
    return conninfo_to_dict(parameters).get("dbname")


def _connect(cls: type[LedgerConnection], parameters: str = "") -> Generator[Any, Any, LedgerConnection]:
    connection = cls(_take(parameters) or (yield from generators.connect(parameters)))
    _parameters[connection] = parameters
    return connection


def _take(parameters: str) -> pq.abc.PGconn | None:
    with _lock:
        free = _kept.get((os.getpid(), parameters), [])
        while free:
            pgconn = free.pop()
            readable = select.poll()
            readable.register(pgconn.socket, select.POLLIN)
            if not readable.poll(0):  # else the server has ended it
                return pgconn
            pgconn.finish()
    return None


def _close(self: LedgerConnection) -> None:
    if self.closed:
        return
    pgconn, self.pgconn, self._closed = self.pgconn, _ENDED, True
    parameters = _parameters.pop(self, None)
    if parameters is not None and _reset(pgconn):
        with _lock:
            free = _kept.setdefault((os.getpid(), parameters), [])
            if len(free) < KEPT_MAX:
                free.append(pgconn)
                return
    pgconn.finish()


def _reset(pgconn: pq.abc.PGconn) -> bool:
    """Return whether the session is as new."""
    status = pgconn.transaction_status
    if status not in (pq.TransactionStatus.IDLE, pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR):
        return False
    pgconn.notice_handler = pgconn.notify_handler = None
    reset = pgconn.exec_(RESET).status == pq.ExecStatus.TUPLES_OK
    while pgconn.notifies() is not None:
        pass  # of the connection that was closed
    return reset and pgconn.pipeline_status == pq.PipelineStatus.OFF


_ENDED = pq.PGconn.connect_start(b"host=/nowhere")
_ENDED.finish()
