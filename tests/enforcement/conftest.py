"""Ledgers to be attacked: one shared by all tests that roll back, and a fresh one for those that commit.

Invariants: a `client` never commits, so the shared ledger is as new for every test.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.store import create_store
from tests.enforcement.raw import Client, Hand
from tests.support.postgres import Server, tmpfs_directory


@pytest.fixture(scope="session")
def shared_sqlite() -> Iterator[str]:
    directory = Path(tempfile.mkdtemp(prefix="holdfast-sqlite-", dir=tmpfs_directory()))
    url = f"sqlite:///{directory / 'ledger.db'}"
    create_store(url).close()
    yield url
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def shared_postgres(pg_server: Server) -> str:
    pg_server.start()
    url = pg_server.create_database()
    create_store(url).close()
    return url


@pytest.fixture
def sqlite_client(shared_sqlite: str) -> Iterator[Client]:
    yield from _rolled_back(shared_sqlite)


@pytest.fixture
def postgres_client(shared_postgres: str, pg_server: Server) -> Iterator[Client]:
    pg_server.start()
    yield from _rolled_back(shared_postgres)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def client(request: pytest.FixtureRequest) -> Client:
    """A raw client of each database in turn, whose transaction is rolled back at the end."""
    found: Client = request.getfixturevalue(f"{request.param}_client")
    return found


@pytest.fixture
def hand(client: Client) -> Hand:
    return Hand(client)


@pytest.fixture
def ledger(ledger_url: str) -> str:
    """The URL of a fresh ledger, for what must commit or change the schema."""
    create_store(ledger_url).close()
    return ledger_url


@pytest.fixture
def committing(ledger: str) -> Iterator[Client]:
    """A raw client of a fresh ledger, which may commit."""
    client = Client(ledger)
    yield client
    client.close()


def _rolled_back(url: str) -> Iterator[Client]:
    client = Client(url)
    yield client
    client.close()
