"""A ledger with a rich history on each database, and a clock that stands after it.

Invariants: no test sees what another has changed: each has a copy of a ledger that was made once and closed, which is
many times faster than making it anew.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.store import create_store
from holdfast.testing import VirtualClock
from tests.audit.rich import Rich, make_rich
from tests.support.ledgers import Original
from tests.support.postgres import Server


def make(url: str) -> Rich:
    clock = VirtualClock()
    with create_store(url, clock) as store:
        return make_rich(store, clock)


RICH = Original(make)


@pytest.fixture
def rich_sqlite(sqlite_url: str) -> tuple[str, Rich]:
    """The URL of a rich ledger on SQLite, and which job is which."""
    return sqlite_url, RICH.to_file(sqlite_url)


@pytest.fixture
def rich_postgres(pg_server: Server, request: pytest.FixtureRequest) -> Iterator[tuple[str, Rich]]:
    """The URL of a rich ledger on PostgreSQL, and which job is which."""
    with RICH.on(pg_server, request.node.nodeid) as copy:
        yield copy


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def rich_ledger(request: pytest.FixtureRequest) -> Iterator[tuple[str, Rich]]:
    """The URL of a rich ledger on each database in turn, and which job is which."""
    with RICH.each(request) as copy:
        yield copy


@pytest.fixture
def rich_clock() -> VirtualClock:
    """A clock that stands some minutes after the rich ledger's last move."""
    clock = VirtualClock()
    clock.advance(600)
    return clock
