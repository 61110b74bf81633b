"""A ledger of each kind for every test, with a clock that the test moves.

Invariants: a test's ledger is its own: a copy of one that was made once and closed, which is many times faster than
making it anew, and the same to the byte.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from holdfast.store import Declared, create_store, open_store
from holdfast.testing import VirtualClock
from tests.store.verbs import Verbs
from tests.support.postgres import Server, tmpfs_directory

OPERATIONS = {name: Declared() for name in ("echo", "thumbnail")}


def phases() -> list[Phase]:
    """Return the phases of a property test: a failure is shrunk only where time does not matter.

    Shrinking on a database takes minutes, and the failing steps are printed in any case.
    """
    thorough = settings.get_current_profile_name() == "prove"
    return [phase for phase in Phase if thorough or phase not in (Phase.shrink, Phase.explain)]


def make(url: str) -> None:
    with create_store(url, VirtualClock()) as store, store.transaction() as transaction:
        transaction.operations.declare(OPERATIONS)


@pytest.fixture(scope="session")
def sqlite_original() -> Iterator[Path]:
    """The SQLite file that the tests' ledgers are copies of."""
    directory = Path(tempfile.mkdtemp(prefix="holdfast-original-", dir=tmpfs_directory()))
    make(str(directory / "ledger.db"))
    yield directory / "ledger.db"
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def pg_original(pg_server: Server) -> Iterator[str]:
    """The PostgreSQL database that the tests' ledgers are copies of."""
    pg_server.start()
    url = pg_server.create_database()
    make(url)
    yield url.rpartition("/")[2]
    pg_server.start()
    pg_server.drop_database(url)


@pytest.fixture
def pg_ledger(pg_server: Server, pg_original: str) -> Iterator[str]:
    """The URL of a ledger on PostgreSQL, dropped afterwards."""
    pg_server.start()
    url = pg_server.create_database(template=pg_original)
    yield url
    pg_server.start()
    pg_server.drop_database(url)


@pytest.fixture
def sqlite_ledger(sqlite_url: str, sqlite_original: Path) -> str:
    """The URL of a ledger on SQLite."""
    shutil.copy(sqlite_original, sqlite_url.removeprefix("sqlite:///"))
    return sqlite_url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def verbs(request: pytest.FixtureRequest) -> Iterator[Verbs]:
    """The verbs of a ledger of each kind in turn; it knows the operations noop, echo and thumbnail."""
    # Requested by name, so that the server starts only for the tests that use it.
    url: str = request.getfixturevalue({"sqlite": "sqlite_ledger", "postgres": "pg_ledger"}[request.param])
    clock = VirtualClock()
    with open_store(url, clock) as store:
        yield Verbs(store, clock)
