"""What a handler may do: stage effects and calls, keep values, note progress, commit by hand, and say how it ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import (
    Call,
    Cancel,
    Execution,
    LeaseLostError,
    Ledger,
    Quarantine,
    RetryAfter,
    RetryPolicy,
    Snooze,
    Strategy,
    Worker,
)
from holdfast.core.errors import EffectError, HoldfastError, InputError, PayloadNotJsonError
from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.testing import VirtualClock, begin, crash_at, drain
from tests.engine.database import Database
from tests.engine.working import eventually

AT_ONCE = RetryPolicy(strategy=Strategy.IMMEDIATE, max_attempts=3)
INSERT = "INSERT INTO things (name) VALUES (:name)"


@pytest.fixture
def things(database: Database) -> Callable[[], list[str]]:
    """A table of the user's, and what is in it."""
    database.run("CREATE TABLE things (name text NOT NULL)")
    return lambda: sorted(name for (name,) in database.run("SELECT name FROM things"))


def jobs(ledger: Ledger, operation: str) -> list[Job]:
    with ledger.store.reading() as reading:
        return reading.lists.jobs(operation=operation)[::-1]


def ended(job: Job) -> tuple[Any, ...]:
    return job.state.value, job.attempts, job.excused, job.last_error_code, job.quarantine_code


# ---------------------------------------------------------------------------------------------------------------------
# Effects, results, follow-ups


@pytest.mark.req("M-08", "W-04", "X-04")
def test_effects_are_applied_in_order_once_when_the_job_commits(
    ledger: Ledger, things: Callable[[], list[str]]
) -> None:
    during: list[list[str]] = []

    @ledger.operation("stage", retry=AT_ONCE)
    def stage(run: Execution, name: str) -> str:
        run.effect(INSERT, {"name": f"{name}-{run.attempt}"}, rows=1)
        run.effect("UPDATE things SET name = name || '!' WHERE name = :name", {"name": f"{name}-{run.attempt}"}, rows=1)
        run.effect("DELETE FROM things WHERE name = :name", {"name": "nothing"}, rows=0)
        during.append(things())
        if run.attempt == 1:
            raise ConnectionError("the first attempt leaves nothing behind")
        return "done"

    receipt = ledger.submit(stage.call(name="x"))
    assert drain(ledger) == 2
    assert during == [[], []]
    assert things() == ["x-2!"]
    assert ledger.receipt(receipt.job_id).result == "done"


def test_an_effect_that_can_not_be_applied_fails_the_attempt(ledger: Ledger, things: Callable[[], list[str]]) -> None:
    bad: list[tuple[str, dict[str, Any] | None, int | None]] = [
        ("UPDATE things SET name = 'x'", None, 2),
        (INSERT, {"name": None}, None),
        (INSERT, {}, None),
        ("INSERT INTO nowhere VALUES (1)", None, None),
        ("SELECT broken FROM", None, None),
    ]

    @ledger.operation("stage", retry=AT_ONCE)
    def stage(run: Execution, n: int) -> None:
        sql, params, rows = bad[n]
        run.effect(INSERT, {"name": "before"})
        run.effect(sql, params, rows=rows)

    receipts = ledger.submit_many([stage.call(n=n) for n in range(len(bad))])
    assert drain(ledger) == 3 * len(bad)
    for receipt in receipts:
        assert ended(ledger.job(receipt.job_id)) == ("failed", 3, 0, "effect_failed", None)
    assert things() == []


@pytest.mark.parametrize("after", ["INSERT INTO nowhere VALUES (1)", "INSERT INTO things (name) VALUES (NULL)"])
def test_the_first_of_several_effects_that_can_not_be_applied_is_named(
    ledger: Ledger, things: Callable[[], list[str]], after: str
) -> None:
    refused: list[EffectError] = []

    def again(error: EffectError) -> None:
        refused.append(error)
        raise error

    @ledger.operation("stage", retry=RetryPolicy(strategy=Strategy.IMMEDIATE, max_attempts=1))
    def stage(run: Execution) -> None:
        run.if_refused(again)
        run.effect(INSERT, {"name": "before"}, rows=1)
        run.effect("DELETE FROM things WHERE name = 'nothing'", rows=1)
        run.effect(after)
        run.effect(INSERT, {"name": "after"}, rows=1)

    receipt = ledger.submit(stage.call())
    assert drain(ledger) == 1
    assert [error.context["statement"] for error in refused] == ["DELETE FROM things WHERE name = 'nothing'"]
    assert ended(ledger.job(receipt.job_id)) == ("failed", 1, 0, "effect_failed", None)
    assert things() == []


@pytest.mark.parametrize("ledger_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "sql",
    ["DROP TABLE things", "COMMIT", "", "DELETE FROM holdfast_jobs", "SELECT 1; SELECT 2", "PRAGMA synchronous=OFF"],
)
def test_an_invalid_effect_is_refused_in_the_handler(ledger: Ledger, sql: str) -> None:
    run = begin(ledger, _noop(ledger))
    with pytest.raises(EffectError):
        run.effect(sql)
    assert run.staged.effects == []


def test_a_result_that_is_not_json_is_a_typed_failure(ledger: Ledger) -> None:
    results: list[object] = [float("nan"), {1, 2}, {1: "a"}, object(), b"bytes"]

    @ledger.operation("return", retry=AT_ONCE)
    def returning(run: Execution, n: int) -> object:
        return results[n]

    receipts = ledger.submit_many([returning.call(n=n) for n in range(len(results))])
    assert drain(ledger) == len(results)
    for receipt in receipts:
        assert ended(ledger.job(receipt.job_id)) == ("quarantined", 1, 0, "payload_not_json", "payload_not_json")


@pytest.mark.req("W-16", "X-08")
def test_follow_ups_become_jobs_of_their_own_when_the_job_commits(ledger: Ledger, clock: VirtualClock) -> None:
    @ledger.operation("child")
    def child(run: Execution, n: int) -> int:
        return n

    @ledger.operation("parent", retry=AT_ONCE)
    def parent(run: Execution) -> None:
        run.after_commit(child.call(n=1))
        run.after_commit(child.call(n=2).keyed("own", "key"))
        run.after_commit(child.call(n=3).at(clock.after(60)))
        if run.attempt == 1:
            raise ConnectionError("nothing is submitted")

    receipt = ledger.submit(parent.call())
    with crash_at("after_commit"):
        drain(ledger)
    made = jobs(ledger, "child")
    assert [(job.client, job.key) for job in made] == [
        ("holdfast", f"{receipt.job_id}/1"),
        ("holdfast", f"{receipt.job_id}/3"),
        ("own", "key"),
    ]
    assert drain(ledger) == 2
    assert drain(ledger, until=clock.after(60)) == 1
    assert sorted(job.result or "" for job in jobs(ledger, "child")) == ["1", "2", "3"]


def test_an_invalid_follow_up_fails_the_attempt(ledger: Ledger, things: Callable[[], list[str]]) -> None:
    @ledger.operation("parent", max_attempts=1)
    def parent(run: Execution) -> None:
        run.effect(INSERT, {"name": "x"})
        run.after_commit(Call(operation="nobody", payload={}))

    receipt = ledger.submit(parent.call())
    assert drain(ledger) == 1
    assert ended(ledger.job(receipt.job_id)) == ("failed", 1, 0, "operation_unknown", None)
    assert things() == []


# ---------------------------------------------------------------------------------------------------------------------
# How a handler may end


@pytest.mark.req("X-06", "K-31")
def test_a_snooze_uses_no_attempt_and_the_job_runs_later(ledger: Ledger, clock: VirtualClock) -> None:
    @ledger.operation("wait", max_attempts=1)
    def wait(run: Execution) -> int:
        if run.attempt < 4:
            raise Snooze(60, "not_published")
        return run.attempt

    receipt = ledger.submit(wait.call())
    assert drain(ledger) == 1
    job = ledger.job(receipt.job_id)
    assert (ended(job), job.run_at, job.spent) == (("pending", 1, 1, None, None), clock.after(60), 0)
    assert drain(ledger, until=clock.after(180)) == 3
    assert ended(ledger.job(receipt.job_id)) == ("succeeded", 4, 3, None, None)


def test_retry_after_sets_the_time_of_the_next_attempt(ledger: Ledger, clock: VirtualClock) -> None:
    @ledger.operation("later", max_attempts=2)
    def later(run: Execution) -> None:
        raise RetryAfter(5, "the service said so")

    receipt = ledger.submit(later.call())
    assert drain(ledger) == 1
    job = ledger.job(receipt.job_id)
    assert (ended(job), job.run_at) == (("pending", 1, 0, "retry_after", None), clock.after(5))
    assert job.last_error_message == "RetryAfter: the service said so"
    assert drain(ledger, until=clock.after(3600)) == 1
    assert ended(ledger.job(receipt.job_id)) == ("failed", 2, 0, "retry_after", None)


@pytest.mark.req("K-18", "K-37")
def test_quarantine_and_cancel_end_the_job(ledger: Ledger, things: Callable[[], list[str]]) -> None:
    @ledger.operation("give-up", retry=AT_ONCE)
    def give_up(run: Execution, how: str) -> None:
        run.effect(INSERT, {"name": how})
        raise Cancel if how == "cancel" else Quarantine("governance_hard_fail", "it may not be kept")

    hard, cancelled = ledger.submit(give_up.call(how="quarantine")), ledger.submit(give_up.call(how="cancel"))
    assert drain(ledger) == 2
    job = ledger.job(hard.job_id)
    assert ended(job) == ("quarantined", 1, 0, "governance_hard_fail", "governance_hard_fail")
    assert job.last_error_message == "Quarantine: it may not be kept"
    assert ended(ledger.job(cancelled.job_id)) == ("quarantined", 1, 0, "cancelled", "cancelled")
    assert things() == []
    with ledger.store.reading() as reading:
        rows = reading.journal.of(hard.job_id)[-2:]
    assert [(row.source, row.target, row.event) for row in rows] == [
        ("running", "failed", "quarantine"),
        ("failed", "quarantined", "quarantine"),
    ]


# ---------------------------------------------------------------------------------------------------------------------
# Checkpoints and progress


def test_a_checkpoint_is_computed_once_and_kept_across_attempts(ledger: Ledger, clock: VirtualClock) -> None:
    computed: list[str] = []
    seen: list[tuple[Any, ...]] = []

    def compute(name: str) -> dict[str, Any]:
        computed.append(name)
        return {"name": name, "half": 0.5, "list": [1, None]}

    @ledger.operation("steps", retry=AT_ONCE, lease_s=30)
    def steps(run: Execution) -> None:
        one = run.checkpoint("one", lambda: compute("one"))
        same = run.checkpoint("one", lambda: compute("again"))
        seen.append((run.attempt, one, same))
        if run.attempt == 1:
            raise ConnectionError("between the steps")
        run.checkpoint("two", lambda: compute("two"))

    receipt = ledger.submit(steps.call())
    with crash_at("before_commit"):
        drain(ledger)
    assert drain(ledger, until=clock.after(30)) == 1
    assert ledger.receipt(receipt.job_id).state is JobState.SUCCEEDED
    assert computed == ["one", "two"]
    one = {"name": "one", "half": 0.5, "list": [1, None]}
    assert seen == [(attempt, one, one) for attempt in (1, 2, 3)]


@pytest.mark.parametrize("ending", ["returns", "raises", "dies"])
def test_a_checkpoint_may_wait_for_the_next_one_or_the_end(ledger: Ledger, clock: VirtualClock, ending: str) -> None:
    computed: list[str] = []
    kept: list[dict[str, str]] = []

    def compute(name: str) -> str:
        computed.append(name)
        return name

    def look(run: Execution) -> None:
        with ledger.store.reading() as reading:
            kept.append(reading.notes.checkpoints(run.job.job_id))

    @ledger.operation("steps", retry=AT_ONCE, lease_s=30)
    def steps(run: Execution) -> None:
        assert run.checkpoint("one", lambda: compute("one"), with_next=True) == "one"
        look(run)
        assert run.checkpoint("two", lambda: compute("two")) == "two"
        look(run)
        assert run.checkpoint("three", lambda: compute("three"), with_next=True) == "three"
        if ending == "raises" and run.attempt == 1:
            raise ConnectionError("after the third")
        look(run)

    receipt = ledger.submit(steps.call())
    if ending == "dies":
        with crash_at("before_commit"):  # after the handler's end
            drain(ledger)
        drain(ledger, until=clock.after(30))
    else:
        drain(ledger)
    assert ledger.receipt(receipt.job_id).state is JobState.SUCCEEDED
    # What waited is kept by the write of the end, however that was, and computed again if that was not written.
    assert computed == ["one", "two", "three", *(["three"] if ending == "dies" else [])]
    assert kept[:2] == [{}, {"one": '"one"', "two": '"two"'}]
    with ledger.store.reading() as reading:
        assert reading.notes.checkpoints(receipt.job_id) == {"one": '"one"', "two": '"two"', "three": '"three"'}


def test_a_checkpoint_that_waits_and_cannot_be_stored_fails_its_job_alone(ledger: Ledger) -> None:
    @ledger.operation("steps", retry=RetryPolicy(max_attempts=1))
    def steps(run: Execution, name: str, *, fails: bool = False) -> None:
        run.checkpoint(name, lambda: 1, with_next=True)
        if fails:
            raise ValueError("after the checkpoint")

    calls = [steps.call(name="good"), steps.call(name="\0"), steps.call(name="\0", fails=True), steps.call(name="also")]
    receipts = [ledger.submit(call) for call in calls]
    drain(ledger)
    states = [ledger.receipt(receipt.job_id).state for receipt in receipts]
    stored = JobState.SUCCEEDED if ledger.store.one_writer else JobState.FAILED  # SQLite stores any text
    assert states == [JobState.SUCCEEDED, stored, JobState.FAILED, JobState.SUCCEEDED]


def test_a_checkpoint_that_waits_is_lost_with_its_process_and_computed_again(ledger: Ledger) -> None:
    run = begin(ledger, _noop(ledger))
    assert run.checkpoint("waits", lambda: 1, with_next=True) == 1
    again = Execution(ledger, run.record)  # as another process would see it
    assert again.checkpoint("waits", lambda: 2) == 2


def test_a_checkpoint_needs_the_lease_and_json(ledger: Ledger, clock: VirtualClock) -> None:
    run = begin(ledger, _noop(ledger), lease_s=10)
    with pytest.raises(PayloadNotJsonError):
        run.checkpoint("bad", object)
    assert run.checkpoint("good", lambda: [1]) == [1]
    clock.advance(10)
    assert run.checkpoint("good", lambda: [2]) == [1]  # what is kept can still be read
    with pytest.raises(LeaseLostError):
        run.checkpoint("late", lambda: 1)
    with ledger.store.reading() as reading:
        assert reading.notes.checkpoints(run.job.job_id) == {"good": "[1]"}


def test_progress_is_visible_while_the_job_runs(ledger_url: str) -> None:
    go_on = threading.Event()
    with Ledger(ledger_url) as ledger:

        @ledger.operation("slow", lease_s=6)  # a heartbeat every 2 s writes the progress
        def slow(run: Execution) -> None:
            run.progress(0.25, "a quarter")
            assert go_on.wait(20)

        receipt = ledger.submit(slow.call())
        worker = Worker(ledger, concurrency=1)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:

            def seen() -> list[tuple[float | None, str | None]]:
                with ledger.store.reading() as reading:
                    found = [(run.progress, run.progress_note) for run in reading.lists.executions(receipt.job_id)]
                return [] if found == [(None, None)] else found

            assert eventually(seen, "the heartbeat has written the progress") == [(0.25, "a quarter")]
            assert ledger.receipt(receipt.job_id).state is JobState.RUNNING
            go_on.set()
            assert receipt.wait(20).state is JobState.SUCCEEDED
        finally:
            go_on.set()
            worker.stop()
            thread.join(20)


def test_progress_is_from_0_to_1(ledger: Ledger) -> None:
    @ledger.operation("half")
    def half(run: Execution) -> None:
        for fraction in (-0.1, 1.1):
            with pytest.raises(InputError):
                run.progress(fraction)
        run.progress(0.5)

    receipt = ledger.submit(half.call())
    drain(ledger)
    with ledger.store.reading() as reading:
        [execution] = reading.lists.executions(receipt.job_id)
    assert (execution.status.value, execution.progress, execution.progress_note) == ("DONE", 0.5, None)


def test_an_execution_knows_its_job_and_attempt(ledger: Ledger) -> None:
    run = begin(ledger, _noop(ledger).keyed("c", "k"))
    assert (run.job.client, run.job.key, run.job.state, run.attempt) == ("c", "k", JobState.RUNNING, 1)
    assert (run.cancelled, repr(run)) == (False, f"Execution(job_id={run.job.job_id}, attempt=1)")
    run.stop()
    assert run.cancelled


def test_a_running_job_gets_a_request_to_stop(ledger_url: str) -> None:
    with Ledger(ledger_url) as ledger:
        begun = threading.Event()

        @ledger.operation("patient", lease_s=3)
        def patient(run: Execution) -> None:
            begun.set()
            while not run.cancelled:
                time.sleep(0.01)
            raise Cancel("as requested")

        receipt = ledger.submit(patient.call())
        worker = Worker(ledger, concurrency=1)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            assert begun.wait(20)
            assert ledger.cancel(receipt.job_id) is JobState.RUNNING
            done = receipt.wait(20)
        finally:
            worker.stop()
            thread.join(20)
        assert (done.state, ledger.job(receipt.job_id).quarantine_code) == (JobState.QUARANTINED, "cancelled")


# ---------------------------------------------------------------------------------------------------------------------
# Committing in the handler's own transaction


@pytest.mark.req("M-06", "M-07", "M-08")
def test_a_handler_may_complete_its_job_in_its_own_transaction(
    ledger: Ledger, database: Database, things: Callable[[], list[str]]
) -> None:
    @ledger.operation("own", max_attempts=1)
    def own(run: Execution) -> None:
        connection = database.connect()
        begin_writing(connection)
        connection.execute("INSERT INTO things (name) VALUES ('own')")
        run.after_commit(_noop(ledger))
        run.commit(connection=connection, result={"by": "hand"})
        with pytest.raises(InputError):
            run.effect(INSERT, {"name": "late"})
        with pytest.raises(InputError):
            run.commit(connection=connection)
        connection.execute("COMMIT")
        connection.close()

    receipt = ledger.submit(own.call())
    assert drain(ledger) == 2
    done = ledger.receipt(receipt.job_id)
    assert (done.state, done.result, things()) == (JobState.SUCCEEDED, {"by": "hand"}, ["own"])
    [followed] = jobs(ledger, "noop")
    assert (followed.client, followed.key, followed.state) == (
        "holdfast", f"{receipt.job_id}/1", JobState.SUCCEEDED,
    )  # fmt: skip


@pytest.mark.req("M-06", "M-18", "G-13")
def test_a_commit_by_hand_is_fenced(
    ledger: Ledger, clock: VirtualClock, database: Database, things: Callable[[], list[str]]
) -> None:
    run = begin(ledger, _noop(ledger), lease_s=1)
    clock.advance(1)
    assert drain(ledger) == 1  # another worker takes over and completes it
    connection = database.connect()
    begin_writing(connection)
    connection.execute("INSERT INTO things (name) VALUES ('late')")
    with pytest.raises(LeaseLostError):
        run.commit(connection=connection, result="late")
    connection.execute("ROLLBACK")
    connection.close()
    assert things() == []
    assert ledger.receipt(run.job.job_id).result is None
    with ledger.store.reading() as reading:
        assert [e.status.value for e in reading.lists.executions(run.job.job_id)] == ["ABORTED", "DONE"]


def test_a_commit_by_hand_and_staged_effects_do_not_mix(ledger: Ledger, database: Database) -> None:
    run = begin(ledger, _noop(ledger))
    run.effect("SELECT 1")
    connection = database.connect()
    begin_writing(connection)
    with pytest.raises(InputError) as refused:
        run.commit(connection=connection)
    assert refused.value.context == {"staged": 1}
    connection.close()


def test_a_commit_by_hand_needs_a_fit_connection(ledger: Ledger, database: Database) -> None:
    run = begin(ledger, _noop(ledger))
    connection = database.connect()
    with pytest.raises(HoldfastError) as unfit:
        run.commit(connection=connection)  # nothing was begun on it
    assert unfit.value.code == "connection_unfit"
    connection.close()
    assert ledger.receipt(run.job.job_id).state is JobState.RUNNING


def begin_writing(connection: Any) -> None:
    connection.execute("BEGIN" if hasattr(connection, "pgconn") else "BEGIN IMMEDIATE")


def _noop(ledger: Ledger) -> Any:
    noop = ledger.operations.get("noop")
    assert noop is not None
    return noop.call()
