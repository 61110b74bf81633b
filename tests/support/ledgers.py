"""Ledgers for tests: each is a copy of one that was made once in this process and closed.

Invariants: a test's ledger is its own; a copy has everything that `make` wrote, and with `new_id` an id of its own;
only the process that made an original removes it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar
from uuid import uuid4

import psycopg
from psycopg import sql

from holdfast.store import Clock, Store, create_store, open_store
from tests.support.postgres import Server, copy_database, tmpfs_directory

T = TypeVar("T")
NEW_ID = "UPDATE holdfast_meta SET value = '{}' WHERE name = 'ledger_id'"
GUARD = "holdfast_meta_update"  # refuses another id; taken off for a moment, so that no door is journalled


class Original(Generic[T]):
    """A ledger that `make(url)` makes at its first use, on each database, for tests to copy.

    What `make` returns is returned with each copy.
    """

    def __init__(self, make: Callable[[str], T], *, new_id: bool = False) -> None:
        self._make, self._new_id = make, new_id
        self._file: tuple[Path, T] | None = None
        self._databases: dict[str, tuple[str, T]] = {}  # by the URL of the server

    def to_file(self, url: str) -> T:
        """Make a SQLite file, which does not exist yet, a copy."""
        if self._file is None:
            directory = Path(tempfile.mkdtemp(prefix="holdfast-original-", dir=tmpfs_directory()))
            atexit.register(_remove, directory, os.getpid())
            self._file = directory / "ledger.db", self._make(f"sqlite:///{directory / 'ledger.db'}")
        shutil.copy(self._file[0], url.removeprefix("sqlite:///"))
        if self._new_id:
            with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
                [[guard]] = file.execute("SELECT sql FROM sqlite_master WHERE name = ?", (GUARD,))
                for statement in (f"DROP TRIGGER {GUARD}", NEW_ID.format(uuid4().hex), guard):
                    file.execute(statement)
        return self._file[1]

    def to_database(self, server: Server) -> tuple[str, T]:
        """Create a database that is a copy, and return its URL."""
        server.start()
        name, made = self._database(server.url(), server.create_database)
        url = server.create_database(template=name)
        self._identify(url)
        return url, made

    def instead_of(self, url: str) -> T:
        """Replace an empty PostgreSQL database by a copy with the same name."""
        at, _, name = url.rpartition("/")
        with psycopg.connect(f"{at}/postgres", autocommit=True) as admin:

            def create() -> str:
                made = f"test_{uuid4().hex[:12]}"
                copy_database(admin, made, "template1")
                return f"{at}/{made}"

            template, made = self._database(f"{at}/postgres", create)
            admin.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))
            copy_database(admin, name, template)
        self._identify(url)
        return made

    def _database(self, server: str, create: Callable[[], str]) -> tuple[str, T]:
        if server not in self._databases:
            url = create()
            self._databases[server] = url.rpartition("/")[2], self._make(url)
        return self._databases[server]

    def _identify(self, url: str) -> None:
        if self._new_id:
            with psycopg.connect(url) as session:
                change, alter = NEW_ID.format(uuid4().hex), "ALTER TABLE holdfast_meta"
                for statement in (f"{alter} DISABLE TRIGGER {GUARD}", change, f"{alter} ENABLE ALWAYS TRIGGER {GUARD}"):
                    session.execute(statement.encode())


def _remove(directory: Path, owner_pid: int) -> None:
    # A forked child inherits the exit handler, but not the directory.
    if os.getpid() == owner_pid:
        shutil.rmtree(directory, ignore_errors=True)


@cache
def new_ledger(environment: str = "dev", *, governed: bool = False) -> Original[None]:
    """Return the original of new ledgers of an environment."""
    return Original(lambda url: create_store(url, environment=environment, governed=governed).close(), new_id=True)


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
