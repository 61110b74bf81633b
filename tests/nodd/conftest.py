"""A ledger with the application's tables, on each database."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Ledger
from holdfast.nodd.dataset import Datasets, shipped
from holdfast.nodd.ingest import IngestSettings, declare
from holdfast.nodd.tables import prepare
from holdfast.store import Store, create_store, open_store
from tests.nodd.aws import cloud  # noqa: F401 - a fixture
from tests.nodd.busy import Busy, lenient, make_busy
from tests.nodd.objects import MemorySource
from tests.support.ledgers import LedgerIn, Original
from tests.support.postgres import Server, tmpfs_directory


def _prepare(url: str) -> None:
    with create_store(url) as store:
        prepare(store)


PREPARED = Original(_prepare, new_id=True)


@pytest.fixture
def new_sqlite_ledger(sqlite_url: str) -> str:
    """The URL of a new SQLite ledger with the application's tables: `ledger_url` of these tests."""
    PREPARED.to_file(sqlite_url)
    return sqlite_url


@pytest.fixture
def new_postgres_ledger(pg_server: Server, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a PostgreSQL ledger with the application's tables: `ledger_url` of these tests."""
    with PREPARED.on(pg_server, request.node.nodeid) as (url, _):
        yield url


@pytest.fixture
def bare_url(ledger_in: LedgerIn) -> str:
    """The URL of a new ledger of each kind in turn, without the application's tables."""
    return ledger_in("dev")


@pytest.fixture
def store(ledger_url: str) -> Iterator[Store[Any]]:
    with open_store(ledger_url) as store:
        yield store


@pytest.fixture
def source() -> MemorySource:
    return MemorySource()


@pytest.fixture
def ledger(ledger_url: str, source: MemorySource) -> Iterator[Ledger]:
    with Ledger(ledger_url) as ledger:
        declare(ledger, IngestSettings(datasets=shipped(), source=source))
        yield ledger


# ---------------------------------------------------------------------------------------------------------------------
# Busy ledgers: copies of one that was made once and closed


def _make_busy(url: str) -> Busy:
    with tempfile.TemporaryDirectory(prefix="holdfast-busy-", dir=tmpfs_directory()) as directory:
        return make_busy(url, Path(directory))


BUSY = Original(_make_busy)


@pytest.fixture
def busy_sqlite(sqlite_url: str) -> tuple[str, Busy]:
    """The URL of a busy ledger on SQLite, and which unit is which."""
    return sqlite_url, BUSY.to_file(sqlite_url)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def busy_ledger(request: pytest.FixtureRequest) -> Iterator[tuple[str, Busy]]:
    """The URL of a busy ledger on each database in turn, and which unit is which."""
    with BUSY.each(request) as copy:
        yield copy


@pytest.fixture(scope="session")
def busy_datasets(tmp_path_factory: pytest.TempPathFactory) -> Datasets:
    """The datasets that a busy ledger was made by."""
    return lenient(tmp_path_factory.mktemp("datasets"))
