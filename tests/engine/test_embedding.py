"""A ledger inside another program: in the caller's own transaction, opened late, rebound, and after a fork."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from holdfast import Execution, IdempotencyConflictError, Ledger, Operation
from holdfast.core.errors import ConnectionUnfitError, StoreBusyError, StoreError, UnknownOperationError
from holdfast.core.machines import JobState
from holdfast.testing import VirtualClock, drain, virtual_world
from tests.engine.database import Database
from tests.support.postgres import Server

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def echo(ledger: Ledger) -> Operation[..., Any]:
    @ledger.operation("echo")
    def echo(run: Execution, value: Any = None) -> Any:
        return value

    return echo


@pytest.fixture
def own(ledger: Ledger, database: Database) -> Iterator[Any]:
    """A connection of the caller's own, inside a transaction."""
    ledger.counts()  # the ledger is there before a transaction begins on it
    connection = database.connect()
    connection.execute("BEGIN" if database.is_postgres else "BEGIN IMMEDIATE")
    yield connection
    connection.close()


def states(ledger: Ledger) -> list[str]:
    with ledger.store.reading() as reading:
        return [job.state.value for job in reading.lists.jobs()]


# ---------------------------------------------------------------------------------------------------------------------
# In the caller's own transaction


@pytest.mark.req("W-03")
def test_a_job_commits_and_rolls_back_with_the_callers_rows(
    ledger: Ledger, database: Database, echo: Operation[..., Any]
) -> None:
    database.run("CREATE TABLE orders (n integer NOT NULL)")
    ledger.counts()
    connection = database.connect()
    receipts = []
    for n, end in enumerate(["ROLLBACK", "COMMIT"]):
        connection.execute("BEGIN" if database.is_postgres else "BEGIN IMMEDIATE")
        connection.execute(f"INSERT INTO orders (n) VALUES ({n})")
        receipts.append(ledger.submit(echo.call(value=n), client="shop", key="order", connection=connection))
        assert states(ledger) == []  # no other connection sees it yet
        connection.execute(end)
    connection.close()
    assert [(receipt.is_new, receipt.state) for receipt in receipts] == [(True, JobState.PENDING)] * 2
    assert database.run("SELECT n FROM orders") == [(1,)]
    assert drain(ledger) == 1
    assert ledger.receipt(receipts[1].job_id).result == 1


def test_keys_hold_in_the_callers_transaction_too(ledger: Ledger, own: Any, echo: Operation[..., Any]) -> None:
    first = ledger.submit(echo.call(value=1), client="c", key="k", connection=own)
    again = ledger.submit(echo.call(value=1), client="c", key="k", connection=own)
    assert (again.job_id, again.is_new) == (first.job_id, False)
    with pytest.raises(IdempotencyConflictError):
        ledger.submit(echo.call(value=2), client="c", key="k", connection=own)
    with pytest.raises(UnknownOperationError):
        ledger.submit("nobody", connection=own)
    own.execute("COMMIT")
    assert ledger.submit(echo.call(value=1), client="c", key="k").job_id == first.job_id
    assert states(ledger) == ["pending"]


def test_the_first_use_of_a_ledger_may_be_in_the_callers_transaction(ledger_url: str, database: Database) -> None:
    # The caller holds SQLite's write lock: opening and declaring must not wait for it.
    with Ledger(ledger_url) as before:
        before.counts()
    ledger = Ledger(ledger_url, world=virtual_world())

    @ledger.operation("late")
    def late(run: Execution) -> str:
        return "done"

    connection = database.connect()
    for end in ("ROLLBACK", "COMMIT"):
        connection.execute("BEGIN" if database.is_postgres else "BEGIN IMMEDIATE")
        assert ledger.submit(late.call(), connection=connection).is_new
        connection.execute(end)
        rolled_back = end == "ROLLBACK" and not database.is_postgres
        with ledger._open().store.reading() as reading:
            assert sorted(reading.operations.declared()) == (["noop"] if rolled_back else ["late", "noop"])
    connection.close()
    assert drain(ledger) == 1
    ledger.close()


def test_the_callers_row_factory_does_not_matter(ledger: Ledger, own: Any, echo: Operation[..., Any]) -> None:
    own.row_factory = dict_row if isinstance(own, psycopg.Connection) else sqlite3.Row
    ledger.submit(echo.call(value=1), client="c", key="k", connection=own)
    assert not ledger.submit(echo.call(value=1), client="c", key="k", connection=own).is_new
    own.execute("COMMIT")
    assert states(ledger) == ["pending"]


# ---------------------------------------------------------------------------------------------------------------------
# Connections on which the promises cannot be kept


def refuses(ledger: Ledger, connection: Any, needs: str) -> None:
    with pytest.raises(ConnectionUnfitError) as refused:
        ledger.submit("noop", connection=connection)
    assert refused.value.context == {"needs": needs}


@pytest.fixture
def on_sqlite(sqlite_url: str) -> Iterator[Ledger]:
    with Ledger(sqlite_url) as ledger:
        yield ledger
        assert states(ledger) == []


@pytest.fixture
def on_postgres(new_postgres_ledger: str) -> Iterator[Ledger]:
    with Ledger(new_postgres_ledger) as ledger:
        yield ledger
        assert states(ledger) == []


def test_a_closed_connection_is_refused(ledger: Ledger, database: Database) -> None:
    connection = database.connect()
    connection.close()
    refuses(ledger, connection, "open")
    assert states(ledger) == []


def test_a_connection_of_another_thread_is_refused(on_sqlite: Ledger, sqlite_url: str) -> None:
    with ThreadPoolExecutor(1) as elsewhere:
        connection = elsewhere.submit(sqlite3.connect, sqlite_url.removeprefix("sqlite:///")).result()
        refuses(on_sqlite, connection, "open")
        elsewhere.submit(connection.close).result()


def test_sqlite_refuses_an_unsuitable_connection(on_sqlite: Ledger, sqlite_url: str, tmp_path: Path) -> None:
    path = sqlite_url.removeprefix("sqlite:///")
    connection = sqlite3.connect(path, isolation_level=None)
    refuses(on_sqlite, connection, "transaction")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("BEGIN IMMEDIATE")
    refuses(on_sqlite, connection, "synchronous")
    connection.close()

    elsewhere = sqlite3.connect(tmp_path / "other.db", isolation_level=None)
    elsewhere.execute("BEGIN IMMEDIATE")
    refuses(on_sqlite, elsewhere, "file")
    elsewhere.execute("ROLLBACK")
    elsewhere.execute("ATTACH ? AS ledger", (path,))
    elsewhere.execute("BEGIN IMMEDIATE")
    refuses(on_sqlite, elsewhere, "file")  # in WAL mode a commit over two files is not atomic
    elsewhere.close()
    refuses(on_sqlite, object(), "sqlite3")


def test_sqlite_a_transaction_that_read_too_early_is_refused_with_its_cause(sqlite_url: str) -> None:
    with Ledger(sqlite_url) as ledger:
        receipt = ledger.submit("noop")
        connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM holdfast_jobs").fetchall()
        ledger.cancel(receipt.job_id)  # another connection writes meanwhile, so this transaction no longer can
        with pytest.raises(StoreBusyError):
            ledger.submit("noop", connection=connection)
        connection.close()
        assert states(ledger) == ["quarantined"]


def test_postgres_refuses_an_unsuitable_connection(
    on_postgres: Ledger, new_postgres_ledger: str, pg_server: Server
) -> None:
    on_postgres.counts()
    with psycopg.connect(new_postgres_ledger, autocommit=True) as connection:
        refuses(on_postgres, connection, "transaction")
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        refuses(on_postgres, connection, "isolation")
        connection.execute("ROLLBACK")
        connection.execute("SET synchronous_commit TO off")
        connection.execute("BEGIN")
        refuses(on_postgres, connection, "synchronous_commit")
        connection.execute("ROLLBACK")
        connection.execute("SET synchronous_commit TO on")
        connection.execute("BEGIN")
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT 1/0")
        refuses(on_postgres, connection, "rollback")
    with closing(sqlite3.connect(":memory:")) as of_sqlite:
        refuses(on_postgres, of_sqlite, "psycopg")

    other_url = pg_server.create_database()
    try:
        with psycopg.connect(other_url) as elsewhere:
            refuses(on_postgres, elsewhere, "database")
        with Ledger(other_url) as other:
            other.counts()  # a ledger too, with the very same tables
        with psycopg.connect(other_url) as elsewhere:
            refuses(on_postgres, elsewhere, "database")
    finally:
        pg_server.drop_database(other_url)


def test_postgres_accepts_a_transaction_block_of_psycopg(new_postgres_ledger: str) -> None:
    with Ledger(new_postgres_ledger) as ledger, psycopg.connect(new_postgres_ledger, autocommit=True) as connection:
        with connection.transaction():
            ledger.submit("noop", connection=connection)
        with suppress(RuntimeError), connection.transaction():
            ledger.submit("noop", connection=connection)
            raise RuntimeError
        assert states(ledger) == ["pending"]


def test_postgres_a_ledger_in_a_schema_of_its_own(pg_url: str) -> None:
    with psycopg.connect(pg_url, autocommit=True) as connection:
        connection.execute('CREATE SCHEMA "of its own"')
    with Ledger(pg_url, schema="of its own") as ledger, psycopg.connect(pg_url) as connection:
        ledger.submit("noop", connection=connection)
        connection.commit()
        assert ledger.run_until_idle() == 1
        assert states(ledger) == ["succeeded"]
    with Ledger(pg_url) as public:
        assert states(public) == []


# ---------------------------------------------------------------------------------------------------------------------
# Opened late, bound elsewhere, after a fork


def test_a_ledger_opens_nothing_until_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ledger = Ledger(tmp_path / "work.db")
    nowhere = Ledger("postgresql://nobody@127.0.0.1:1/none")

    @nowhere.operation("echo")
    def echo(run: Execution, value: int) -> int:
        return value

    echo.call(value=1)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StoreError):
        nowhere.submit(echo.call(value=1))
    assert ledger.submit("noop").is_new
    assert (tmp_path / "work.db").exists()
    ledger.close()
    assert ledger.submit("noop").is_new  # it opens again when it is used again
    ledger.close()


def test_without_a_url_the_environment_is_read_at_first_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger()
    monkeypatch.setenv("HOLDFAST_URL", str(tmp_path / "named.db"))
    assert ledger.submit("noop").is_new
    ledger.close()
    assert (tmp_path / "named.db").exists()


def test_a_ledger_is_bound_temporarily_to_another_database_and_clock(ledger_url: str, tmp_path: Path) -> None:
    with Ledger(tmp_path / "own.db") as ledger:

        @ledger.operation("echo")
        def echo(run: Execution, value: int) -> int:
            return value

        outside = ledger.submit(echo.call(value=1))
        clock = VirtualClock()
        with ledger.bound_to(ledger_url, world=virtual_world(clock)) as bound:
            assert bound is ledger
            inside = ledger.submit(echo.call(value=2))
            assert (states(ledger), drain(ledger)) == (["pending"], 1)
            assert ledger.job(inside.job_id).created_at == clock()
            with ledger.bound_to(tmp_path / "third.db"):
                assert states(ledger) == []
            assert ledger.receipt(inside.job_id).result == 2
        assert states(ledger) == ["pending"]
        assert ledger.run_until_idle() == 1
        assert outside.wait(5).result == 1


FORK = """
import json, os, signal, sys, threading
from holdfast import Ledger

ledger = Ledger(sys.argv[1])
ledger.subscribe(lambda event: None)
ledger.submit("noop", client="c", key="parent")
opened = ledger._open()
held, go_on = threading.Event(), threading.Event()

def hold():  # the worst moment: locks of another thread, which no thread of the child will release
    with opened.lock, ledger.bus._subscriptions[0]._wake:
        held.set()
        go_on.wait()

threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(30)  # a child that hangs must not outlive the test
    ledger.submit("noop", client="c", key="child")
    ledger.run_until_idle()
    os._exit(0 if ledger._open() is not opened and ledger._open().pid == os.getpid() else 1)
_, status = os.waitpid(child, 0)
go_on.set()
again = ledger.submit("noop", client="c", key="child")
assert ledger._open() is opened
print(json.dumps([status, again.is_new, again.wait(5).state.value]))
"""


def test_a_forked_child_opens_for_itself(ledger_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK, ledger_url], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [0, False, "succeeded"]
