"""A ledger with a table of effects, and a fork server for workers that are stopped, killed and starved."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast import Ledger
from tests.support.forkserver import ForkServer, shared_server
from tests.support.roles import counting_ledger, create_effects

LEASE_S = 3.0  # so that a busy machine does not make a heartbeat come too late


@pytest.fixture
def forks() -> Iterator[ForkServer]:
    with shared_server("tests.support.roles", "psycopg") as forks:
        yield forks


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    with counting_ledger(ledger_url, lease_s=LEASE_S) as ledger:
        create_effects(ledger)
        yield ledger
