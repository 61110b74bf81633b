"""`connection=` takes what frameworks have: SQLAlchemy's Session and Connection."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from holdfast import Execution, Ledger
from holdfast.core.errors import ConnectionUnfitError, HoldfastError, StoreBusyError
from holdfast.core.machines import JobState
from holdfast.testing import drain
from tests.engine.database import Database

INSERT = text("INSERT INTO orders (n) VALUES (:n)")


@pytest.fixture
def orders(ledger: Ledger, database: Database) -> Database:
    database.run("CREATE TABLE orders (n integer NOT NULL)")
    ledger.counts()
    return database


@pytest.fixture
def engine(orders: Database) -> Iterator[Engine]:
    url = orders.url.replace("postgresql://", "postgresql+psycopg://") if orders.is_postgres else orders.url
    engine = create_engine(url, poolclass=NullPool)
    yield engine
    engine.dispose()


def keys(ledger: Ledger) -> list[str]:
    with ledger.store.reading() as reading:
        return sorted(job.key or "" for job in reading.lists.jobs())


OPENED: dict[str, Callable[[Engine], Any]] = {
    "session": Session,
    "scoped session": lambda engine: scoped_session(sessionmaker(engine)),
    "connection": Engine.connect,
}


@pytest.mark.parametrize("first", ["job first", "row first"])
@pytest.mark.parametrize("opened", OPENED.values(), ids=OPENED)
def test_a_job_commits_and_rolls_back_with_the_rows_of_the_framework(
    ledger: Ledger, orders: Database, engine: Engine, opened: Callable[[Engine], Any], first: str
) -> None:
    given = opened(engine)
    for n, end in enumerate(["rollback", "commit"]):
        if first == "row first":
            given.execute(INSERT, {"n": n})
        receipt = ledger.submit("noop", client="shop", key=f"order-{n}", connection=given)
        assert (receipt.is_new, receipt.state, keys(ledger)) == (True, JobState.PENDING, [])
        if first == "job first":
            given.execute(INSERT, {"n": n})
        getattr(given, end)()
    given.close()
    assert (orders.run("SELECT n FROM orders"), keys(ledger)) == ([(1,)], ["order-1"])
    assert drain(ledger) == 1


def test_blocks_of_the_framework_commit_and_roll_back(ledger: Ledger, orders: Database, engine: Engine) -> None:
    with engine.begin() as connection:
        ledger.submit("noop", key="engine.begin", client="c", connection=connection)
    with Session(engine) as session, session.begin():
        ledger.submit("noop", key="session.begin", client="c", connection=session)
    with Session(engine) as session:
        ledger.submit("noop", key="closed", client="c", connection=session)  # closed without a commit
    with suppress(ZeroDivisionError), Session(engine) as session, session.begin():
        ledger.submit("noop", key="raised", client="c", connection=session)
        raise ZeroDivisionError
    with Session(engine) as session:
        session.execute(INSERT, {"n": 1})
        with session.begin_nested() as savepoint:
            ledger.submit("noop", key="savepoint", client="c", connection=session)
            savepoint.rollback()
        session.commit()
    assert keys(ledger) == ["engine.begin", "session.begin"]
    assert orders.run("SELECT n FROM orders") == [(1,)]


def test_a_handler_completes_its_job_in_a_session(ledger: Ledger, orders: Database, engine: Engine) -> None:
    @ledger.operation("ordered")
    def ordered(run: Execution, n: int) -> None:
        with Session(engine) as session:
            session.execute(INSERT, {"n": n})
            run.commit(connection=session, result={"n": n})
            session.commit()

    receipt = ledger.submit(ordered.call(n=7))
    assert drain(ledger) == 1
    assert ledger.receipt(receipt.job_id).result == {"n": 7}
    assert orders.run("SELECT n FROM orders") == [(7,)]


# -- what cannot be used ----------------------------------------------------------------------------------------------


class Strange:
    """An object that no framework has made, with names that some of them use."""

    connection = None

    def begin(self) -> None:
        raise AssertionError

    in_transaction = "never"


@pytest.mark.parametrize("given", [object(), Strange(), 7, "postgresql://", b"", [], json])
def test_an_unknown_object_is_a_typed_error_with_a_next_step(ledger: Ledger, orders: Database, given: Any) -> None:
    with pytest.raises(ConnectionUnfitError) as refused:
        ledger.submit("noop", connection=given)
    assert refused.value.context == {"needs": "psycopg" if orders.is_postgres else "sqlite3"}
    assert "SQLAlchemy" in refused.value.hint
    assert keys(ledger) == []


def test_a_session_without_a_connection_is_a_typed_error(ledger: Ledger, engine: Engine) -> None:
    closed = engine.connect()
    closed.close()
    for given, needs in ((closed, "connection"), (Session(), "connection"), (AsyncSession(), "synchronous")):
        with pytest.raises(ConnectionUnfitError) as refused:
            ledger.submit("noop", connection=given)
        assert refused.value.context == {"needs": needs}
        assert refused.value.hint
    assert keys(ledger) == []


def test_an_engine_in_autocommit_is_refused(ledger: Ledger, engine: Engine) -> None:
    with Session(engine.execution_options(isolation_level="AUTOCOMMIT")) as session:
        with pytest.raises(ConnectionUnfitError) as refused:
            ledger.submit("noop", connection=session)
        assert refused.value.context == {"needs": "transaction"}
    assert keys(ledger) == []


def test_a_framework_that_cannot_connect_is_a_typed_error(ledger: Ledger, orders: Database) -> None:
    unreachable = create_engine("postgresql+psycopg://127.0.0.1:1/none")
    with Session(unreachable) as session, pytest.raises(HoldfastError) as refused:
        ledger.submit("noop", connection=session)
    assert refused.value.code == ("store_unavailable" if orders.is_postgres else "connection_unfit")
    assert keys(ledger) == []


def test_sqlite_another_writer_and_another_file_are_typed_errors(sqlite_url: str, tmp_path: Path) -> None:
    with Ledger(sqlite_url) as ledger:
        ledger.counts()
        blocking = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
        blocking.execute("BEGIN IMMEDIATE")
        engine = create_engine(sqlite_url, connect_args={"timeout": 0.1}, poolclass=NullPool)
        with Session(engine) as session, pytest.raises(StoreBusyError):
            ledger.submit("noop", connection=session)
        blocking.close()
        elsewhere = create_engine(f"sqlite:///{tmp_path}/other.db", poolclass=NullPool)
        with Session(elsewhere) as session, pytest.raises(ConnectionUnfitError) as refused:
            ledger.submit("noop", connection=session)
        assert refused.value.context == {"needs": "file"}
        assert keys(ledger) == []
