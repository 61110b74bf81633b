"""How many statements a read of the ledger sends to PostgreSQL, and what a failed one leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Ledger
from holdfast.core.errors import JobNotFoundError, StoreUnavailableError
from holdfast.store.store import Store
from holdfast.store.transaction import Reading

View = Callable[[Store[Any]], AbstractContextManager[Reading]]


@pytest.fixture
def store(pg_url: str) -> Iterator[Store[Any]]:
    with Ledger(pg_url) as ledger:
        yield ledger.store


def sent(store: Store[Any], view: View, path: Path) -> int:
    """Return how often the server answered that it is ready for the next statement, while one view read a job."""
    connection = store.take()
    store.pool.give(connection, sound=True)
    with path.open("w") as trace:
        connection.pgconn.trace(trace.fileno())
        with pytest.raises(JobNotFoundError), view(store) as reading:
            reading.jobs.get(7)
        connection.pgconn.untrace()
    assert store.take() is connection  # an error of the ledger does not cost the connection
    store.pool.give(connection, sound=True)
    return path.read_text().count("ReadyForQuery")


def test_one_statement_needs_one_round_trip_and_a_snapshot_two_more(store: Store[Any], tmp_path: Path) -> None:
    assert sent(store, lambda store: store.reading(), tmp_path / "trace") == 3
    assert sent(store, lambda store: store.glance(), tmp_path / "trace") == 1


def test_a_view_of_several_statements_sees_one_snapshot_and_cannot_write(store: Store[Any], pg_url: str) -> None:
    with store.reading() as reading:
        assert reading.counts.current() == []
        with Ledger(pg_url) as other:
            other.operation("noop")(lambda run: None)
            other.submit("noop")
        assert reading.counts.current() == []
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            reading.execute("DELETE FROM holdfast_queues")


def test_what_a_lost_connection_answers_is_translated(store: Store[Any]) -> None:
    with pytest.raises(StoreUnavailableError), store.glance() as reading:
        reading.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    with store.glance() as reading:
        assert reading.execute("SELECT 1") == [(1,)]
