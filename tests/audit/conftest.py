"""A ledger with a rich history on each database, and a clock that stands after it.

Invariants: a test's ledger is its own: a copy of one that was made once and closed, which is many times faster than
making it anew, and the same to the byte.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.store import create_store
from holdfast.testing import VirtualClock
from tests.audit.rich import Rich, make_rich
from tests.support.postgres import Server, tmpfs_directory


def make(url: str) -> Rich:
    clock = VirtualClock()
    with create_store(url, clock) as store:
        return make_rich(store, clock)


@pytest.fixture(scope="session")
def rich_sqlite() -> Iterator[tuple[Path, Rich]]:
    """The SQLite file that rich ledgers are copies of."""
    directory = Path(tempfile.mkdtemp(prefix="holdfast-rich-", dir=tmpfs_directory()))
    yield directory / "ledger.db", make(str(directory / "ledger.db"))
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def rich_postgres(pg_server: Server) -> Iterator[tuple[str, Rich]]:
    """The PostgreSQL database that rich ledgers are copies of."""
    pg_server.start()
    url = pg_server.create_database()
    yield url.rpartition("/")[2], make(url)
    pg_server.start()
    pg_server.drop_database(url)


@pytest.fixture
def rich_sqlite_url(sqlite_url: str, rich_sqlite: tuple[Path, Rich]) -> str:
    """The URL of a rich ledger on SQLite."""
    shutil.copy(rich_sqlite[0], sqlite_url.removeprefix("sqlite:///"))
    return sqlite_url


@pytest.fixture
def rich_postgres_url(pg_server: Server, rich_postgres: tuple[str, Rich]) -> Iterator[str]:
    """The URL of a rich ledger on PostgreSQL, dropped afterwards."""
    pg_server.start()
    url = pg_server.create_database(template=rich_postgres[0])
    yield url
    pg_server.start()
    pg_server.drop_database(url)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def rich_ledger(request: pytest.FixtureRequest) -> tuple[str, Rich]:
    """The URL of a rich ledger on each database in turn, and which job is which."""
    # Requested by name, so that the server starts only for the tests that use it.
    url: str = request.getfixturevalue(f"rich_{request.param}_url")
    return url, request.getfixturevalue(f"rich_{request.param}")[1]


@pytest.fixture
def rich_clock() -> VirtualClock:
    """A clock that stands some minutes after the rich ledger's last move."""
    clock = VirtualClock()
    clock.advance(600)
    return clock
