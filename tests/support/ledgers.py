"""Ledgers for tests: each is a copy of one that was made once in this process and closed.

Invariants: no test sees what another has changed; a copy has everything that `make` wrote; with `new_id` a copy has an
id of its own, on PostgreSQL the same as every ninth copy, which no test makes; only the process that made an original
removes it.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar
from unittest import mock
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

import holdfast.store
from holdfast.store import Clock, Store, create_store, migrations, open_store
from holdfast.store.migrations import migrate
from tests.support import sessions
from tests.support.postgres import Server, copy_database, tmpfs_directory
from tests.support.reused import ReusedLedger

T = TypeVar("T")
READ_ID = "SELECT value FROM holdfast_meta WHERE name = 'ledger_id'"
NEW_ID = "UPDATE holdfast_meta SET value = '{}' WHERE name = 'ledger_id'"
GUARD = "holdfast_meta_update"  # refuses another id; taken off for a moment, so that no door is journalled
MADE = ("tests/store/", "tests/enforcement/", "tests/crash/", "tests/compat/", "tests/cli/test_setup.py")
COPYING = threading.Lock()
IDS = 8  # templates on a PostgreSQL server that differ by their id: giving each copy one takes a third of its time
IN_TURN = 3  # copies on a PostgreSQL server that tests use in turn, so that the next test has another URL and id


class LedgerIn(Protocol):
    """What makes a ledger of an environment and returns its URL."""

    def __call__(self, environment: str, *, governed: bool = False) -> str: ...


class Original(Generic[T]):
    """A ledger that `make(url)` makes at its first use, on each database, for tests to copy.

    What `make` returns is returned with each copy.
    """

    def __init__(self, make: Callable[[str], T], *, new_id: bool = False) -> None:
        self._make, self._new_id = make, new_id
        self._file: tuple[bytes, bytes, T] | None = None  # the content, the id in it, what `make` returned
        self._databases: dict[str, tuple[deque[str], T]] = {}  # the templates and what `make` returned, by server

    def to_file(self, url: str) -> T:
        """Make a SQLite file, which does not exist yet, a copy."""
        content, made = self.content()
        Path(url.removeprefix("sqlite:///")).write_bytes(content)
        return made

    def content(self) -> tuple[bytes, T]:
        """Return what is in a SQLite file that is a copy, and what `make` returned."""
        if self._file is None:
            with tempfile.TemporaryDirectory(prefix="holdfast-original-", dir=tmpfs_directory()) as directory:
                path = Path(directory) / "ledger.db"
                made = self._make(f"sqlite:///{path}")
                with contextlib.closing(sqlite3.connect(path)) as file:
                    [[found]] = file.execute(READ_ID)
                self._file = path.read_bytes(), found.encode(), made
        content, found, made = self._file
        # In the bytes, since a connection that changes the id would first read the whole schema.
        return content.replace(found, uuid4().hex.encode()) if self._new_id else content, made

    def to_database(self, server: Server) -> tuple[str, T]:
        """Create a database that is a copy, and return its URL."""
        server.start()
        template, made = self._template(server.url(), lambda template: server.create_database(template=template))
        return server.create_database(template=template), made

    @contextlib.contextmanager
    def on(self, server: Server, file: str) -> Iterator[tuple[str, T]]:
        """Yield the URL of a copy for a test of a file, and what `make` returned.

        After the block the copy is restored for the next test, or dropped.
        """
        server.start()
        if file.startswith(sessions.ALWAYS_NEW):
            url, made = self.to_database(server)
            try:
                yield url, made
            finally:
                server.start()
                server.drop_database(url)
            return
        waiting = _waiting.setdefault((server, self), deque())
        if len(waiting) < IN_TURN:
            waiting.appendleft(ReusedLedger(self.to_database(server)[0]))
        ledger = waiting.popleft()
        try:
            yield ledger.url, self._databases[server.url()][1]
        finally:
            if ledger.restore():
                waiting.append(ledger)
            else:
                ledger.close()
                server.start()
                server.drop_database(ledger.url)

    @contextlib.contextmanager
    def each(self, request: pytest.FixtureRequest) -> Iterator[tuple[str, T]]:
        """Yield the URL of a copy for one test, in the kind of database that the fixture's parameter names."""
        # By name, so that the server starts only for the tests that use it.
        if request.param == "postgres":
            with self.on(request.getfixturevalue("pg_server"), request.node.nodeid) as copy:
                yield copy
        else:
            url: str = request.getfixturevalue("sqlite_url")
            yield url, self.to_file(url)

    def instead_of(self, url: str) -> T:
        """Replace an empty PostgreSQL database by a copy with the same name."""
        at, _, name = url.rpartition("/")
        with psycopg.connect(f"{at}/postgres", autocommit=True) as admin:

            def create(template: str) -> str:
                made = f"test_{uuid4().hex[:12]}"
                copy_database(admin, made, template)
                return f"{at}/{made}"

            template, made = self._template(f"{at}/postgres", create)
            sessions.release(name)
            admin.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))
            copy_database(admin, name, template)
        return made

    def _template(self, server: str, create: Callable[[str], str]) -> tuple[str, T]:
        """Return the name of the next database on a server to copy, and what `make` returned."""
        if server not in self._databases:
            url = create("template1")
            self._databases[server] = deque([url.rpartition("/")[2]]), self._make(url)
        templates, made = self._databases[server]
        if self._new_id and len(templates) < IDS:
            url = create(templates[0])
            _identify(url)
            templates.append(url.rpartition("/")[2])
        templates.rotate()
        return templates[0], made


# The copies that wait for the next test, on each server.
_waiting: dict[tuple[Server, Original[Any]], deque[ReusedLedger]] = {}


def forget(server: Server) -> None:
    """Close the copies that wait on a server that ends."""
    for key in [key for key in _waiting if key[0] is server]:
        for ledger in _waiting.pop(key):
            ledger.close()


def _identify(url: str) -> None:
    with psycopg.connect(url) as session:
        change, alter = NEW_ID.format(uuid4().hex), "ALTER TABLE holdfast_meta"
        for statement in (f"{alter} DISABLE TRIGGER {GUARD}", change, f"{alter} ENABLE ALWAYS TRIGGER {GUARD}"):
            session.execute(statement.encode())


@cache
def new_ledger(environment: str = "dev", *, governed: bool = False) -> Original[None]:
    """Return the original of new ledgers of an environment."""

    def make(url: str) -> None:
        with mock.patch.object(holdfast.store, "migrate", migrate):
            create_store(url, environment=environment, governed=governed).close()

    return Original(make, new_id=True)


@contextlib.contextmanager
def copied(file: str) -> Iterator[None]:
    """Make new SQLite ledgers copies in a block, unless the tests of this file are about how a ledger is made.

    A copy takes a fourth of the CPU. Ledgers with a clock of their own, and beside other tables, are made as always.
    """
    if file.startswith(MADE):
        yield
        return
    with mock.patch.object(holdfast.store, "migrate", _copy), mock.patch.object(migrations, "migrate", _copy):
        yield


def _copy(
    store: Store[Any], *, environment: str = "dev", governed: bool = False, only_empty: bool = False
) -> tuple[str, ...]:
    if store.dialect == "sqlite" and store.clock is None:
        content, _ = new_ledger(environment, governed=governed).content()
        with COPYING, contextlib.closing(sqlite3.connect(":memory:")) as source:
            # Without the mark of a write-ahead log, which a database in memory cannot have.
            source.deserialize(content[:18] + b"\1\1" + content[20:])
            connection = store.take()
            empty = not connection.execute("SELECT 1 FROM sqlite_master").fetchall()
            if empty:
                source.backup(connection)
            store.pool.give(connection, sound=True)
        if empty:
            return tuple(one.name for one in migrations.migrations(store.dialect))
    return migrate(store, environment=environment, governed=governed, only_empty=only_empty)


def new_store(url: str, clock: Clock | None = None, *, environment: str = "dev", governed: bool = False) -> Store[Any]:
    """Return the store of a new ledger, as `create_store` does; at a URL that has a ledger, open that one."""
    if not _has_tables(url):
        original = new_ledger(environment, governed=governed)
        (original.instead_of if url.startswith("postgresql") else original.to_file)(url)
    return open_store(url, clock)


def _has_tables(url: str) -> bool:
    if not url.startswith("postgresql"):
        return Path(url.removeprefix("sqlite:///")).exists()
    with psycopg.connect(url) as session:
        return session.execute("SELECT 1 FROM pg_class WHERE relname = 'holdfast_meta'").fetchone() is not None
