"""An effect that waits, for a lock or for itself, holds up no other job, and no heartbeat."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast import Call, Execution, Ledger, RetryPolicy, Strategy
from holdfast.core.commands import Complete
from holdfast.core.errors import EffectError
from holdfast.core.machines import JobState
from holdfast.engine.tasks import ClaimTask, EndTask
from holdfast.store import Lease
from holdfast.store.effects import staged
from holdfast.store.postgres.store import PostgresStore
from tests.engine.database import Database
from tests.engine.working import eventually, working

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
UPDATE = "UPDATE locked SET n = n + 1"
ONCE = RetryPolicy(strategy=Strategy.IMMEDIATE, max_attempts=1)


@pytest.fixture
def database(ledger_url: str) -> Iterator[Database]:
    database = Database(ledger_url)
    for statement in (
        "CREATE TABLE locked (n integer)",
        "INSERT INTO locked VALUES (1)",
        "CREATE TABLE things (n integer)",
    ):
        database.run(statement)
    yield database
    database.close()


@contextmanager
def waiting(database: Database) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield an effect that waits for longer than a worker lets it, and what ends the reason for that."""
    if not database.is_postgres:
        yield ENDLESS, lambda: None
        return
    holder = database.connect()
    holder.execute("BEGIN")
    holder.execute(UPDATE)
    try:
        yield UPDATE, holder.rollback
    finally:
        holder.close()


@contextmanager
def four_waiting(database: Database) -> Iterator[list[str]]:
    """Yield four effects, each of which waits for another reason."""
    if not database.is_postgres:
        yield [f"{ENDLESS} WHERE i > {n}" for n in range(4)]
        return
    effects = [UPDATE.replace("locked", f"locked_{n}") for n in range(4)]
    for n in range(4):
        database.run(f"CREATE TABLE locked_{n} (n integer)")
        database.run(f"INSERT INTO locked_{n} VALUES (1)")
    holder = database.connect()
    holder.execute("BEGIN")
    for effect in effects:
        holder.execute(effect)
    try:
        yield effects
    finally:
        holder.close()


@pytest.mark.attack("faults")
def test_no_lease_is_lost_because_effects_wait(ledger_url: str, database: Database) -> None:
    with Ledger(ledger_url) as ledger, four_waiting(database) as effects:

        @ledger.operation("stuck", lease_s=3, retry=ONCE)
        def stuck(run: Execution, n: int) -> None:
            run.effect(effects[n % 4])

        @ledger.operation("long", lease_s=3)
        def long(run: Execution) -> None:
            time.sleep(5)

        @ledger.operation("insert", lease_s=3)
        def insert(run: Execution, n: int) -> None:
            run.effect("INSERT INTO things VALUES (:n)", {"n": n})

        bad = [ledger.submit(stuck.call(n=n)) for n in range(8)]
        good = [ledger.submit(long.call()), *(ledger.submit(insert.call(n=n)) for n in range(20))]
        good += ledger.submit_many([Call(operation="noop", payload={})] * 50)
        with working(ledger, concurrency=12):
            ended = [receipt.wait(60) for receipt in (*bad, *good)]
    assert [(one.state, one.error_code) for one in ended[:8]] == [(JobState.FAILED, "effect_failed")] * 8
    assert {one.state for one in ended[8:]} == {JobState.SUCCEEDED}
    with Ledger(ledger_url) as ledger:
        more = {one.job_id: ledger.job(one.job_id) for one in ended if ledger.job(one.job_id).attempts != 1}
        assert more == {}
    assert database.run("SELECT count(*) FROM things") == [(20,)]


@pytest.mark.attack("faults")
@pytest.mark.pg
@pytest.mark.parametrize("ledger_url", ["postgres"], indirect=True)
@pytest.mark.parametrize("listening", [False, True])
def test_other_jobs_end_while_an_effect_waits_for_a_lock(
    ledger_url: str, database: Database, monkeypatch: pytest.MonkeyPatch, *, listening: bool
) -> None:
    monkeypatch.setattr("holdfast.store.postgres.store.LOCK_S", 120)
    with Ledger(ledger_url) as ledger, waiting(database) as (effect, release):
        if listening:
            ledger.subscribe(lambda _: None)

        @ledger.operation("stuck", lease_s=600)
        def stuck(run: Execution) -> None:
            run.effect(effect)

        with working(ledger, concurrency=4, drain_s=30):
            receipt = ledger.submit(stuck.call())
            locks = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            eventually(lambda: database.run(locks) != [(0,)], "the effect waits")
            for other in [ledger.submit("noop", {}) for _ in range(50)]:
                assert other.wait(60).state is JobState.SUCCEEDED
            assert ledger.receipt(receipt.job_id).state is JobState.RUNNING
            release()
            assert receipt.wait(60).state is JobState.SUCCEEDED
        assert ledger.job(receipt.job_id).attempts == 1
    assert database.run("SELECT n FROM locked") == [(2,)]


def noting(answered: list[EndTask], answer: Callable[[EndTask, Any], None]) -> Callable[[EndTask, Any], None]:
    """Return what answers a task, and adds it to a list."""

    def note(task: EndTask, value: Any) -> None:
        answered.append(task)
        answer(task, value)

    return note


def ends_with(ledger: Ledger, statements: list[str]) -> list[EndTask]:
    """Return the ends of jobs that a worker holds, each with one effect."""
    ledger.submit_many([Call(operation="noop", payload={})] * len(statements))
    claim = ClaimTask(Lease(owner="worker-of-the-test", seconds=60, n=len(statements)))
    ledger.perform_tasks([claim])
    return [
        EndTask(attempt, Complete(attempt.execution.lease_token, "1"), [staged(statement, None, None)])
        for attempt, statement in zip(claim.result(), statements, strict=True)
    ]


@pytest.mark.attack("faults")
def test_an_end_does_not_wait_for_several_others_that_wait_for_different_reasons(
    ledger_url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.postgres.store.LOCK_S", 0.4)
    monkeypatch.setattr("holdfast.store.sqlite.effects.LIMIT_S", 0.4)
    answered: list[EndTask] = []
    for name in ("succeeded", "failed"):
        monkeypatch.setattr(EndTask, name, noting(answered, getattr(EndTask, name)))
    insert = "INSERT INTO things VALUES (1)"
    with Ledger(ledger_url) as ledger, four_waiting(database) as effects:
        tasks = ends_with(ledger, [insert, *effects, effects[0], insert])
        ledger.perform_tasks(tasks)
    assert [task.error is None for task in tasks] == [True, False, False, False, False, False, True]
    assert {tasks.index(task) for task in answered[:2]} == {0, 6}  # before the first that waits as long as it may
    limits = [error.context["limit_s"] for task in tasks if isinstance(error := task.error, EffectError)]
    assert limits == [0.4, 0.4, 0.4, 0.4, 0.04]
    assert database.run("SELECT count(*) FROM things") == [(2,)]


@pytest.mark.pg
@pytest.mark.parametrize("ledger_url", ["postgres"], indirect=True)
def test_of_ends_written_alone_those_that_may_wait_are_written_last(
    ledger_url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.postgres.store.LOCK_S", 0.2)
    answered: list[EndTask] = []
    for name in ("succeeded", "failed"):
        monkeypatch.setattr(EndTask, name, noting(answered, getattr(EndTask, name)))
    with Ledger(ledger_url) as ledger, waiting(database) as (effect, _):
        tasks = ends_with(ledger, [effect, effect, effect, "INSERT INTO things VALUES (1)"])
        ledger.perform_tasks(tasks)
    assert [task.error is None for task in tasks] == [False, False, False, True]
    assert [tasks.index(task) for task in answered] == [3, 0, 1, 2]


@pytest.mark.attack("faults")
def test_the_waits_of_one_group_are_not_added_up(
    ledger_url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.postgres.store.LOCK_S", 0.4)
    monkeypatch.setattr("holdfast.store.sqlite.effects.LIMIT_S", 0.4)
    with Ledger(ledger_url) as ledger, waiting(database) as (effect, _):
        tasks = ends_with(ledger, [effect] * 8)
        ledger.perform_tasks(tasks)
    errors = [task.error for task in tasks]
    limits = [error.context.get("limit_s") for error in errors if isinstance(error, EffectError)]
    assert limits == [0.4] + [0.04] * 7


@pytest.mark.pg
@pytest.mark.parametrize("ledger_url", ["postgres"], indirect=True)
def test_events_are_in_order_although_ends_with_effects_have_a_connection_of_their_own(
    ledger_url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce = PostgresStore.announce

    def slowly(store: PostgresStore, connection: Any, queues: set[str]) -> None:
        announce(store, connection, queues)
        if threading.current_thread().name == "holdfast-effects":
            time.sleep(0.5)  # after COMMIT, and before the events are published: the worker claims what follows

    monkeypatch.setattr(PostgresStore, "announce", slowly)
    seen: list[tuple[object, str]] = []
    with Ledger(ledger_url) as ledger:

        @ledger.operation("insert")
        def insert(run: Execution) -> None:
            run.effect("INSERT INTO things VALUES (1)")
            run.after_commit(Call(operation="noop", payload={}))

        subscription = ledger.subscribe(
            lambda event: seen.append((event.subject, event.event)) if event.machine == "JOB" else None
        )
        first = [ledger.submit(insert.call()).job_id for _ in range(2)]
        with working(ledger):
            eventually(lambda: len(seen) == 12, "both jobs and what follows them have ended")
        subscription.flush()
    events: dict[object, list[str]] = {}
    for job_id, event in seen:
        events.setdefault(job_id, []).append(event)
    assert len(events) == 4
    assert all(of_job == ["submit", "claim", "succeed"] for of_job in events.values()), events
    assert set(first) < set(events)
