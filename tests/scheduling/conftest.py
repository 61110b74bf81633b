"""A ledger of each kind on a virtual clock, and the user's own view of its database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast import Ledger
from holdfast.testing import VirtualClock, virtual_world
from tests.engine.database import Database


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def ledger(ledger_url: str, clock: VirtualClock) -> Iterator[Ledger]:
    with Ledger(ledger_url, world=virtual_world(clock)) as ledger:
        yield ledger


@pytest.fixture
def database(ledger_url: str) -> Iterator[Database]:
    database = Database(ledger_url)
    yield database
    database.close()
