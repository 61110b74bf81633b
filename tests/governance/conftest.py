"""What the tests of governance share: a clock of their own, and a ledger under it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.store import Store, create_store
from holdfast.testing import VirtualClock
from tests.support.ledgers import new_store


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(ledger_url: str, clock: VirtualClock) -> Iterator[Store[Any]]:
    with create_store(ledger_url, clock) as store:
        yield store


@pytest.fixture
def local(sqlite_url: str, clock: VirtualClock) -> Iterator[Store[Any]]:
    """A store for what does not depend on the database."""
    with new_store(sqlite_url, clock) as store:
        yield store
