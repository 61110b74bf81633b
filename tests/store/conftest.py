"""A new ledger of each kind with a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.store import Declared, create_store
from tests.store.verbs import Verbs
from tests.support.clock import VirtualClock

OPERATIONS = {name: Declared() for name in ("echo", "thumbnail")}


@pytest.fixture
def verbs(ledger_url: str) -> Iterator[Verbs]:
    """The verbs of a new ledger that knows the operations noop, echo and thumbnail."""
    clock = VirtualClock()
    with create_store(ledger_url, clock) as store:
        with store.transaction() as transaction:
            transaction.declare(OPERATIONS)
        yield Verbs(store, clock)
