"""A ledger of each kind for every test, with a clock that the test moves.

Invariants: no test sees what another has changed: each has a copy of a ledger that was made once and closed, which is
many times faster than making it anew.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import Phase, settings

from holdfast.store import Declared, create_store, open_store
from holdfast.testing import VirtualClock
from tests.store.verbs import Verbs
from tests.support.ledgers import Original
from tests.support.postgres import Server

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


ORIGINAL = Original(make)


@pytest.fixture
def pg_ledger(pg_server: Server, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a ledger on PostgreSQL."""
    with ORIGINAL.on(pg_server, request.node.nodeid) as (url, _):
        yield url


@pytest.fixture
def sqlite_ledger(sqlite_url: str) -> str:
    """The URL of a ledger on SQLite."""
    ORIGINAL.to_file(sqlite_url)
    return sqlite_url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def verbs(request: pytest.FixtureRequest) -> Iterator[Verbs]:
    """The verbs of a ledger of each kind in turn; it knows the operations noop, echo and thumbnail."""
    # Requested by name, so that the server starts only for the tests that use it.
    url: str = request.getfixturevalue({"sqlite": "sqlite_ledger", "postgres": "pg_ledger"}[request.param])
    clock = VirtualClock()
    with open_store(url, clock) as store:
        yield Verbs(store, clock)
