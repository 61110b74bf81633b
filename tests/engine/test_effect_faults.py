"""An error in an effect fails its own job, or is an outage of the database; it never fails another job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Execution, Ledger, Receipt, RetryPolicy, Strategy
from holdfast.core.machines import JobState
from tests.engine.database import Database

ONCE = RetryPolicy(strategy=Strategy.IMMEDIATE, max_attempts=1)


@pytest.fixture
def pg_ledger(new_postgres_ledger: str) -> Iterator[Ledger]:
    with Ledger(new_postgres_ledger) as ledger:
        yield ledger


def run_beside_others(ledger: Ledger, *statements: str) -> tuple[Receipt[Any], list[Receipt[Any]]]:
    """Run a job with these effects among others, with and without effects; return its receipt and the others'."""
    database = Database(ledger.store.url)
    database.run("CREATE TABLE IF NOT EXISTS things (name text)")

    @ledger.operation("bad", retry=ONCE)
    def bad(run: Execution) -> None:
        for statement in statements:
            run.effect(statement)

    @ledger.operation("good")
    def good(run: Execution, n: int) -> None:
        run.effect("INSERT INTO things (name) VALUES (:name)", {"name": str(n)})

    before = [ledger.submit(good.call(n=n)) for n in range(3)]
    receipt = ledger.submit(bad.call())
    after = [ledger.submit(good.call(n=n)) for n in range(3, 6)] + [ledger.submit("noop", {}) for _ in range(3)]
    ledger.run_until_idle()
    names = database.run("SELECT name FROM things ORDER BY name")
    database.close()
    assert names == [(str(n),) for n in range(6)]
    return receipt.wait(20), [one.wait(20) for one in before + after]


@pytest.mark.attack("faults")
@pytest.mark.pg
@pytest.mark.parametrize(
    "statements",
    [
        ("SELECT set_config('statement_timeout', '50ms', true)", "SELECT pg_sleep(30)"),
        ("SELECT pg_terminate_backend(pg_backend_pid())",),
        ("SELECT pg_terminate_backend(pg_backend_pid())", "SELECT pg_sleep(30)"),
        ("SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(30)",),
        ("SELECT currval('holdless')",),
        ("INSERT INTO things SELECT lost_connection()",),
        ("SELECT never_prepared()",),
        ("SELECT prepared_twice()",),
    ],
    ids=[
        *("statement_timeout", "own_backend", "own_backend_and_more", "cancel", "prerequisite", "pretended_outage"),
        *("never_prepared", "prepared_twice"),
    ],
)
def test_an_effect_that_fails_in_the_manner_of_an_outage_fails_its_own_job(
    pg_ledger: Ledger, statements: tuple[str, ...]
) -> None:
    database = Database(pg_ledger.store.url)
    database.run("CREATE SEQUENCE holdless")
    database.run(
        "CREATE FUNCTION lost_connection() RETURNS text LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'as if lost' USING ERRCODE = '08006'; END $$"
    )
    for name, text in (
        ("never_prepared", "EXECUTE 'EXECUTE never'"),
        ("prepared_twice", "EXECUTE 'PREPARE a AS SELECT 1'; EXECUTE 'PREPARE a AS SELECT 1'"),
    ):
        database.run(f"CREATE FUNCTION {name}() RETURNS void LANGUAGE plpgsql AS $$ BEGIN {text}; END $$")
    database.close()
    bad, others = run_beside_others(pg_ledger, *statements)
    assert (bad.state, bad.error_code) == (JobState.FAILED, "effect_failed")
    assert {one.state for one in others} == {JobState.SUCCEEDED}
    assert {pg_ledger.job(one.job_id).attempts for one in others} == {1}
    assert pg_ledger.job(bad.job_id).attempts == 1


@pytest.mark.attack("input")
@pytest.mark.parametrize("number", [2**63, -(10**30)])
def test_an_integer_that_no_column_takes_has_one_code_on_each_database(ledger: Ledger, number: int) -> None:
    with ledger.store.transaction() as transaction:
        transaction.execute("CREATE TABLE numbers (n integer)")

    @ledger.operation("bad", retry=ONCE)
    def bad(run: Execution) -> None:
        run.effect("INSERT INTO numbers (n) VALUES (:n)", {"n": number})

    receipt = ledger.submit(bad.call())
    ledger.run_until_idle()
    assert ledger.job(receipt.job_id).last_error_code == "effect_failed"
