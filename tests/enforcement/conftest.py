"""Ledgers to be attacked: one shared by all tests that roll back, and a fresh one for those that commit.

Invariants: a `client` never commits, so the shared ledger is as new for every test; its connection goes from test to
test, because a new one reads the whole schema and compiles every trigger, unless a test has changed its session.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
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


@pytest.fixture(scope="session")
def kept() -> Iterator[dict[str, Client]]:
    """The clients of the shared ledgers, by URL, while no test uses them."""
    clients: dict[str, Client] = {}
    yield clients
    for client in clients.values():
        client.close()


@pytest.fixture
def sqlite_client(shared_sqlite: str, kept: dict[str, Client]) -> Iterator[Client]:
    yield from _rolled_back(shared_sqlite, kept)


@pytest.fixture
def postgres_client(shared_postgres: str, pg_server: Server, kept: dict[str, Client]) -> Iterator[Client]:
    pg_server.start()
    yield from _rolled_back(shared_postgres, kept)


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


def _rolled_back(url: str, kept: dict[str, Client]) -> Iterator[Client]:
    client = _begun(url, kept)
    begun = client.begun
    yield client
    if client.begun == begun and client.in_transaction and not client.settings_changed:
        client.rollback()
        kept[url] = client
    else:
        client.close()


def _begun(url: str, kept: dict[str, Client]) -> Client:
    client = kept.pop(url, None)
    if client is not None:
        try:
            client.begin()
        except psycopg.OperationalError:  # the server was started again
            client.close()
        else:
            return client
    return Client(url)
