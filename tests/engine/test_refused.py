"""A handler whose commit is refused over an effect may read and stage again, in the same attempt."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Cancel, Execution, Ledger, Operations, Quarantine, RetryPolicy, Strategy, Worker
from holdfast.core.errors import EffectError
from holdfast.core.records import Job
from holdfast.engine.worker.unsuccessful import AGAIN_MAX
from holdfast.testing import drain
from tests.engine.database import Database

ONCE = RetryPolicy(strategy=Strategy.NO_RETRY)
operations = Operations()
TAKE = "UPDATE counter SET n = n + 1, label = :label WHERE n = :n"


@operations.operation("take_elsewhere", retry=ONCE)
def take_elsewhere(run: Execution) -> None:
    """Stage an effect that is refused."""
    run.if_refused(lambda _error: None)
    run.effect(TAKE, {"n": 99, "label": "x"}, rows=1)


@pytest.fixture
def counter(database: Database) -> Database:
    """A table of one number, which only grows from the number that was read."""
    database.run("CREATE TABLE counter (n integer NOT NULL, label text)")
    database.run("INSERT INTO counter (n) VALUES (0)")
    return database


def number(ledger: Ledger) -> int:
    with ledger.store.reading() as reading:
        [[n]] = reading.execute("SELECT n FROM counter")
    return int(n)


def only(ledger: Ledger, operation: str) -> Job:
    with ledger.store.reading() as reading:
        [job] = reading.lists.jobs(operation=operation)
    return job


def ended(job: Job) -> tuple[Any, ...]:
    return job.state.value, job.attempts, job.excused, job.last_error_code, job.result


@pytest.mark.req("M-08")
def test_a_refused_attempt_stages_its_effects_again_in_the_same_attempt(ledger: Ledger, counter: Database) -> None:
    errors: list[EffectError] = []

    @ledger.operation("echo", retry=ONCE)
    def echo(_run: Execution, n: int) -> int:
        return n

    @ledger.operation("take", retry=ONCE)
    def take(run: Execution) -> int:
        n = number(ledger)
        run.effect(TAKE, {"n": n, "label": "first"}, rows=1)
        run.after_commit(echo.call(n=n))
        if not errors:
            counter.run("UPDATE counter SET n = 7")  # another was faster

        def again(error: EffectError) -> int:
            errors.append(error)
            return take.fn(run)

        run.if_refused(again)
        return n

    ledger.submit(take.call())
    drain(ledger)
    assert [error.context["statement"] for error in errors] == [TAKE]
    assert counter.run("SELECT n, label FROM counter") == [(8, "first")]
    assert ended(only(ledger, "take")) == ("succeeded", 1, 0, None, "7")
    # What was staged first is dropped, calls too.
    assert ended(only(ledger, "echo")) == ("succeeded", 1, 0, None, "7")


def test_many_concurrent_attempts_are_each_committed(ledger_url: str, counter: Database) -> None:
    with Ledger(ledger_url) as ledger:

        @ledger.operation("take", retry=ONCE)
        def take(run: Execution) -> int:
            run.if_refused(lambda _error: take.fn(run))
            n = number(ledger)
            run.effect(TAKE, {"n": n, "label": "x"}, rows=1)
            return n

        receipts = [ledger.submit(take.call()) for _ in range(8)]
        ledger.run_until_idle(concurrency=8)
        with ledger.store.reading() as reading:
            jobs = reading.jobs.get_many([receipt.job_id for receipt in receipts])
    assert [(job.state.value, job.attempts) for job in jobs] == [("succeeded", 1)] * 8
    assert sorted(int(job.result or "") for job in jobs) == list(range(8))
    assert counter.run("SELECT n FROM counter") == [(8,)]


@pytest.mark.parametrize(
    "raises, expected",
    [
        (None, ("failed", 1, 0, "effect_failed", None)),  # the refusal itself
        (ValueError("no"), ("failed", 1, 0, "value_error", None)),
        (Quarantine("overtaken"), ("quarantined", 1, 0, "overtaken", None)),
        (Cancel(), ("quarantined", 1, 0, "cancelled", None)),
    ],
)
def test_if_refused_may_raise_like_a_handler(
    ledger: Ledger, counter: Database, raises: Exception | None, expected: tuple[Any, ...]
) -> None:
    @ledger.operation("take", retry=ONCE)
    def take(run: Execution) -> None:
        def again(error: EffectError) -> None:
            raise error if raises is None else raises

        run.if_refused(again)
        run.effect(TAKE, {"n": 99, "label": "x"}, rows=1)

    ledger.submit(take.call())
    drain(ledger)
    assert ended(only(ledger, "take")) == expected
    assert counter.run("SELECT n, label FROM counter") == [(0, None)]


def test_an_attempt_that_is_always_refused_fails(ledger: Ledger, counter: Database) -> None:
    tries = []

    @ledger.operation("take", retry=ONCE)
    def take(run: Execution) -> None:
        def again(_error: EffectError) -> None:
            tries.append(run.attempt)
            run.effect(TAKE, {"n": 99, "label": "x"}, rows=1)

        run.if_refused(again)
        run.effect(TAKE, {"n": 99, "label": "x"}, rows=1)

    ledger.submit(take.call())
    drain(ledger)
    assert tries == [1] * AGAIN_MAX
    assert ended(only(ledger, "take")) == ("failed", 1, 0, "effect_failed", None)
    assert counter.run("SELECT n, label FROM counter") == [(0, None)]


def test_if_refused_holds_for_one_attempt_only(ledger: Ledger, counter: Database) -> None:
    """A callback registered in one attempt holds for that attempt only."""
    agains = []

    @ledger.operation("take", retry=RetryPolicy(strategy=Strategy.IMMEDIATE, max_attempts=2))
    def take(run: Execution) -> None:
        def again(error: EffectError) -> None:
            agains.append(run.attempt)
            raise error

        if run.attempt == 1:
            run.if_refused(again)
        run.effect(TAKE, {"n": 99, "label": "x"}, rows=1)

    ledger.submit(take.call())
    drain(ledger)
    assert agains == [1]
    assert ended(only(ledger, "take")) == ("failed", 2, 0, "effect_failed", None)
    assert counter.run("SELECT n FROM counter") == [(0,)]


def test_in_another_process_a_refusal_is_a_failure(ledger_url: str, counter: Database) -> None:
    """A child cannot be called back: its attempt ends when its handler has returned."""
    with Ledger(ledger_url, operations) as ledger:
        ledger.submit(take_elsewhere.call())
        Worker(ledger, executor="processes", concurrency=1).run(until_idle=True)
        assert ended(only(ledger, "take_elsewhere")) == ("failed", 1, 0, "effect_failed", None)
    assert counter.run("SELECT n FROM counter") == [(0,)]
