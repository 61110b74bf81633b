"""Every error code of a database has one stated meaning, and no error of a driver leaves the store."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from holdfast.core.errors import (
    EffectError,
    HoldfastError,
    RefusedByDatabaseError,
    StoreBusyError,
    StoreError,
    StoreUnavailableError,
)
from holdfast.store import Store, Transaction, open_store
from holdfast.store.effects import staged
from holdfast.store.meanings import Fault, Meaning, meaning_of
from holdfast.store.postgres import errors as postgres_errors
from holdfast.store.postgres import sqlstates
from holdfast.store.sqlite import errors as sqlite_errors
from holdfast.store.sqlite import result_codes

SQLSTATES = {
    kind.sqlstate: kind
    for kind in vars(psycopg.errors).values()
    if isinstance(kind, type) and issubclass(kind, psycopg.Error) and kind.sqlstate
}
PRIMARY = [
    f"SQLITE_{word}"
    for word in [
        "ERROR",
        "INTERNAL",
        "PERM",
        "ABORT",
        "BUSY",
        "LOCKED",
        "NOMEM",
        "READONLY",
        "INTERRUPT",
        "IOERR",
        "CORRUPT",
        "NOTFOUND",
        "FULL",
        "CANTOPEN",
        "PROTOCOL",
        "EMPTY",
        "SCHEMA",
        "TOOBIG",
        "CONSTRAINT",
        "MISMATCH",
        "MISUSE",
        "NOLFS",
        "AUTH",
        "FORMAT",
        "RANGE",
        "NOTADB",
    ]
]
RESULT_CODES = sorted(name for name in vars(sqlite3) if name.startswith(tuple(PRIMARY)))
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
OPEN = type("Open", (), {"closed": False})()
CLOSED = type("Closed", (), {"closed": True})()
URL, SCHEMA = "postgresql://h/d", "public"


def in_effect(error: psycopg.Error, connection: Any) -> HoldfastError:
    return postgres_errors.of_effect(error, connection, "SELECT 1", url=URL, schema=SCHEMA)


def failing(store: Store[Any], work: Callable[[Transaction], object]) -> HoldfastError:
    """Return the error that leaves a transaction of the store in which something is done."""
    with pytest.raises(HoldfastError) as raised, store.transaction() as transaction:
        work(transaction)
    return raised.value


def test_every_sqlstate_of_the_driver_is_in_a_class_with_a_meaning() -> None:
    classes = {entry.code for entry in sqlstates.TABLE}
    assert {state[:2] for state in SQLSTATES} <= classes
    assert len(classes) == len(sqlstates.TABLE)


@pytest.mark.parametrize("table", [sqlstates.TABLE, result_codes.TABLE])
def test_an_error_of_the_database_is_a_store_error(table: tuple[Meaning, ...]) -> None:
    for entry in table:
        assert entry.in_effect in (Fault.EFFECT, Fault.DATABASE)
        assert entry.elsewhere in (Fault.CALLER, Fault.DATABASE)
        if Fault.DATABASE in (entry.elsewhere, entry.in_effect):
            assert issubclass(entry.error, StoreError), entry


def test_every_sqlstate_becomes_the_error_that_the_table_states() -> None:
    for state, kind in SQLSTATES.items():
        error, entry = kind("the server's words"), postgres_errors.meaning(state)
        expected = RefusedByDatabaseError if state in ("42P01", "42703") else entry.error  # of a table that is not ours
        assert type(postgres_errors.translated(error, url=URL, schema=SCHEMA)) is expected, state
        assert type(in_effect(error, CLOSED)) is expected, state
        # A connection that is still open shows that a function of the user has raised the code.
        pretended = state.startswith(("08", "57P")) or state in ("25P03", "25P04")
        own = pretended or entry.in_effect is Fault.EFFECT
        assert isinstance(in_effect(error, OPEN), EffectError if own else StoreError), state


@pytest.mark.parametrize("kind", [psycopg.InterfaceError, psycopg.OperationalError])
def test_a_lost_connection_is_the_databases_fault(kind: type[psycopg.Error]) -> None:
    answer = in_effect(kind("the connection is lost"), CLOSED)
    assert isinstance(answer, StoreUnavailableError)
    assert answer.context["connection_lost"] is True


@pytest.mark.attack("faults")
@pytest.mark.pg
def test_a_connection_that_is_lost_while_effects_run_is_lost_before_the_driver_sees_its_end(pg_url: str) -> None:
    with psycopg.connect(pg_url) as connection, pytest.raises(psycopg.errors.AdminShutdown) as ended:
        connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    for error in (ended.value, psycopg.OperationalError("cannot exit pipeline mode while busy")):
        answer = in_effect(error, OPEN)
        assert isinstance(answer, StoreUnavailableError)
        assert (answer.context["connection_lost"], answer.context["in_effect"]) == (True, True)


def test_every_primary_result_code_of_sqlite_has_a_meaning() -> None:
    assert {entry.code for entry in result_codes.TABLE} >= set(PRIMARY)
    assert len(RESULT_CODES) > len(PRIMARY)


def test_every_result_code_becomes_the_error_that_the_table_states(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    file.write_bytes(b"not SQLite, and holdfast_ is in it")
    for name in RESULT_CODES:
        error = sqlite3.OperationalError("SQLite's words")
        error.sqlite_errorname = name
        entry = meaning_of(name, result_codes.TABLE, result_codes.OTHER)
        assert type(sqlite_errors.translated(file, error)) is entry.error, name
        answer = sqlite_errors.of_effect(file, error, "SELECT 1")
        assert isinstance(answer, EffectError if entry.in_effect is Fault.EFFECT else StoreError), name


# ---------------------------------------------------------------------------------------------------------------------
# On real databases


@pytest.mark.attack("faults")
@pytest.mark.pg
def test_a_transaction_that_was_idle_for_too_long_is_the_databases_fault(new_postgres_ledger: str) -> None:
    def idle(transaction: Transaction) -> None:
        transaction.execute("SET LOCAL idle_in_transaction_session_timeout TO '50ms'")
        time.sleep(0.5)
        transaction.settings.read()

    with open_store(new_postgres_ledger) as store:
        error = failing(store, idle)
        assert (type(error), error.context["sqlstate"]) == (StoreUnavailableError, "25P03")
        with store.reading() as reading:
            assert reading.settings.read()


@pytest.mark.attack("faults")
@pytest.mark.pg
def test_a_prepared_statement_that_is_gone_is_the_databases_fault(new_postgres_ledger: str) -> None:
    def deallocate(transaction: Transaction) -> None:
        for _ in range(8):  # psycopg prepares a statement at its sixth use
            transaction.settings.read()
        transaction.connection.cursor().execute("DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$", prepare=False)
        transaction.settings.read()

    with open_store(new_postgres_ledger) as store:
        error = failing(store, deallocate)
        assert (type(error), error.context["sqlstate"]) == (StoreUnavailableError, "26000")
        with store.transaction() as transaction:
            assert transaction.settings.read()


@pytest.mark.pg
def test_a_statement_that_was_cancelled_outside_of_an_effect_is_busy(new_postgres_ledger: str) -> None:
    def slow(transaction: Transaction) -> None:
        transaction.execute("SET LOCAL statement_timeout TO '20ms'")
        transaction.execute("SELECT pg_sleep(20)")

    with open_store(new_postgres_ledger) as store:
        error = failing(store, slow)
        assert (type(error), error.context["sqlstate"]) == (StoreBusyError, "57014")


@pytest.mark.attack("faults")
@pytest.mark.pg
def test_a_statement_after_a_suppressed_error_is_the_callers_fault_not_an_outage(new_postgres_ledger: str) -> None:
    def suppressed(then: Callable[[Transaction], object]) -> Callable[[Transaction], None]:
        def work(transaction: Transaction) -> None:
            with suppress(psycopg.Error):
                transaction.execute("SELECT * FROM nowhere")
            then(transaction)

        return work

    raising = "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '25P02'; END $$"
    with open_store(new_postgres_ledger) as store:
        read = failing(store, suppressed(lambda transaction: transaction.settings.read()))
        effect = failing(store, suppressed(lambda transaction: transaction.apply([[staged("SELECT 1", None, None)]])))
        raised = failing(store, lambda transaction: transaction.apply([[staged(raising, None, None)]]))
        with store.reading() as reading:
            assert reading.settings.read()
    assert (type(read), read.context["sqlstate"]) == (RefusedByDatabaseError, "25P02")
    assert (type(effect), type(raised)) == (EffectError, EffectError)


@pytest.mark.attack("faults")
@pytest.mark.pg
def test_a_commit_after_a_suppressed_error_is_no_success(new_postgres_ledger: str) -> None:
    def work(transaction: Transaction) -> None:
        transaction.execute("CREATE TABLE things (name text)")
        with suppress(psycopg.Error):
            transaction.execute("SELECT * FROM nowhere")

    with open_store(new_postgres_ledger) as store:
        error = failing(store, work)
        with store.transaction() as transaction:
            transaction.execute("CREATE TABLE things (name text)")  # it does not exist yet
    assert (type(error), error.context["sqlstate"]) == (RefusedByDatabaseError, "25P02")


@pytest.mark.parametrize("statement", ["SELECT nonsense FROM nowhere", "SELEKT", "SELECT 1 WHERE 1 = ?1 AND 2 = ?2"])
def test_no_error_of_a_driver_leaves_the_store(ledger_url: str, statement: str) -> None:
    with open_store(ledger_url) as store:
        assert isinstance(failing(store, lambda transaction: transaction.execute(statement)), RefusedByDatabaseError)
        with pytest.raises(RefusedByDatabaseError), store.reading() as reading:
            reading.execute(statement)


def test_an_io_error_on_a_full_disk_says_to_free_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hints = set()
    for free in (0, 1 << 30):
        monkeypatch.setattr(shutil, "disk_usage", lambda _path, free=free: SimpleNamespace(free=free))
        error = sqlite_errors.error_of(tmp_path / "work.db", "disk I/O error", "SQLITE_IOERR_SHMSIZE")
        assert (type(error), "full" in error.context) == (StoreUnavailableError, free == 0)
        hints.add(error.hint)
    assert len(hints) == 2


@pytest.mark.attack("faults")
def test_a_full_disk_is_the_databases_fault_and_an_interrupted_effect_its_own(new_sqlite_ledger: str) -> None:
    def fill(transaction: Transaction) -> None:
        [[pages]] = transaction.execute("PRAGMA page_count")
        transaction.execute(f"PRAGMA max_page_count = {pages}")
        transaction.apply([[staged("INSERT INTO things VALUES (:name)", {"name": "x" * 100_000}, None)]])

    def interrupt(transaction: Transaction) -> None:
        transaction.connection.set_progress_handler(lambda: 1, 1000)
        transaction.apply([[staged(ENDLESS, None, None)]])

    with open_store(new_sqlite_ledger) as store:
        with store.transaction() as transaction:
            transaction.execute("CREATE TABLE things (name text)")
        full, interrupted = failing(store, fill), failing(store, interrupt)
    assert (type(full), full.context) == (StoreUnavailableError, {"sqlite": "SQLITE_FULL", "full": True})
    assert full.hint != StoreUnavailableError.next_step
    assert (type(interrupted), interrupted.context["sqlite"]) == (EffectError, "SQLITE_INTERRUPT")
