"""A log over an empty ledger of each kind, with a table to write to, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast import Ledger
from holdfast.compat import Wal
from holdfast.testing import VirtualClock
from tests.compat.wal_support import make_storage, virtual_ledger


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def ledger(ledger_url: str, clock: VirtualClock) -> Iterator[Ledger]:
    with virtual_ledger(ledger_url, clock) as ledger:
        make_storage(ledger)
        yield ledger


@pytest.fixture
def wal(ledger: Ledger) -> Wal:
    return Wal(ledger)
