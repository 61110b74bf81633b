"""A ledger with the application's tables, on each database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Ledger
from holdfast.nodd.dataset import shipped
from holdfast.nodd.ingest import Settings, declare
from holdfast.nodd.tables import prepare
from holdfast.store import Store, create_store
from tests.nodd.aws import cloud  # noqa: F401 - a fixture
from tests.nodd.objects import MemorySource


@pytest.fixture
def store(ledger_url: str) -> Iterator[Store[Any]]:
    with create_store(ledger_url) as store:
        prepare(store)
        yield store


@pytest.fixture
def source() -> MemorySource:
    return MemorySource()


@pytest.fixture
def ledger(ledger_url: str, source: MemorySource) -> Iterator[Ledger]:
    create_store(ledger_url).close()
    with Ledger(ledger_url) as ledger:
        prepare(ledger.store)
        declare(ledger, Settings(datasets=shipped(), source=source))
        yield ledger
