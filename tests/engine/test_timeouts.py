"""Handlers that run too long, workers that stop, jobs that are cancelled, leases that are extended.

An attempt ends once. What a handler does after its worker has abandoned it is not written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Cancel, Execution, LeaseLostError, Ledger, Worker
from holdfast.core import commands
from holdfast.core.decide import Move
from holdfast.core.errors import StoreUnavailableError
from holdfast.core.machines import JobState
from holdfast.engine.worker.attempt import HeldAttempt
from holdfast.engine.worker.heartbeat import Heartbeat
from holdfast.engine.worker.outcome import Raised, Returned, Then
from holdfast.engine.worker.unsuccessful import refused
from holdfast.store import Lease, open_store
from holdfast.store.postgres.connection import LedgerConnection
from holdfast.testing import VirtualClock
from tests.engine import handlers
from tests.engine.database import Database
from tests.engine.working import PATIENCE_S, drained, ended, eventually, excuses, threaded, working

TIMEOUT_S = 0.05


@pytest.fixture
def live(ledger_url: str) -> Iterator[Ledger]:
    """A ledger on the real clock, with all the handlers and room for more."""
    with Ledger(ledger_url, handlers.some()) as ledger:
        yield ledger


def nothing() -> None:
    """Do nothing."""


class Sleeper:
    """A handler that sleeps until the test wakes it, then does what it should no longer be able to do."""

    def __init__(self, ledger: Ledger, timeout_s: float | None, then: Callable[[Execution], object] = bool) -> None:
        self.wake = threading.Event()
        self.asleep = threading.Semaphore(0)
        self.awake = threading.Semaphore(0)
        self.late: list[object] = []

        @ledger.operation("sleeps", timeout_s=timeout_s, max_attempts=1)
        def sleeps(run: Execution) -> str:
            run.effect("INSERT INTO late (who) VALUES ('sleeper')")
            self.asleep.release()
            try:
                assert self.wake.wait(PATIENCE_S)
                try:
                    self.late.append(then(run))
                except Exception as error:  # noqa: BLE001 - it is what the test looks at
                    self.late.append(error)
                return "late"
            finally:
                self.awake.release()

        self.call = sleeps.call()

    def wakes(self, n: int = 1) -> None:
        self.wake.set()
        for _ in range(n):
            assert self.awake.acquire(timeout=PATIENCE_S)


@pytest.fixture
def late(database: Database) -> Database:
    database.run("CREATE TABLE late (who TEXT)")
    return database


# -- timeouts ---------------------------------------------------------------------------------------------------------


def checkpoints_late(run: Execution) -> object:
    return run.checkpoint("late", lambda: 1)


def test_a_thread_past_its_timeout_is_given_up_and_its_slot_replaced(live: Ledger, late: Database) -> None:
    sleeper = Sleeper(live, TIMEOUT_S, then=checkpoints_late)
    slow, good = live.submit(sleeper.call).job_id, live.submit("good").job_id
    worker = drained(live, concurrency=1)
    assert worker.recycle is False
    assert ended(live.job(slow)) == ("failed", "timed_out", "the handler ran longer than 0.05 s")
    assert live.job(good).state is JobState.SUCCEEDED  # while the first thread still sleeps
    sleeper.wakes()
    [refusal] = eventually(lambda: sleeper.late)
    assert isinstance(refusal, LeaseLostError)
    drained(live)
    assert ended(live.job(slow))[:2] == ("failed", "timed_out")
    assert late.run("SELECT who FROM late") == []
    with live.store.reading() as reading:
        assert reading.notes.checkpoints(slow) == {}


def test_a_late_completion_in_the_handlers_own_transaction_is_refused(live: Ledger, late: Database) -> None:
    def commits_late(run: Execution) -> None:
        run.staged.effects.clear()
        connection = late.connect()
        connection.execute("BEGIN" if late.is_postgres else "BEGIN IMMEDIATE")
        try:
            connection.execute("INSERT INTO late (who) VALUES ('late')")
            run.commit(connection=connection, result="late")
            connection.execute("COMMIT")
        finally:
            connection.close()

    sleeper = Sleeper(live, TIMEOUT_S, then=commits_late)
    slow = live.submit(sleeper.call).job_id
    drained(live)
    sleeper.wakes()
    [refusal] = eventually(lambda: sleeper.late)
    assert isinstance(refusal, LeaseLostError)
    assert ended(live.job(slow))[:2] == ("failed", "timed_out")
    assert late.run("SELECT who FROM late") == []


def test_a_worker_whose_slots_are_all_stuck_continues_in_new_ones(live: Ledger, late: Database) -> None:
    sleeper = Sleeper(live, TIMEOUT_S)
    slow = [live.submit(sleeper.call).job_id for _ in range(2)]
    good = [live.submit("good").job_id for _ in range(4)]
    worker = drained(live, concurrency=2)
    assert worker.recycle is False
    assert {ended(live.job(job_id))[:2] for job_id in slow} == {("failed", "timed_out")}
    assert {live.job(job_id).state for job_id in good} == {JobState.SUCCEEDED}
    sleeper.wakes(2)


def test_beyond_the_limit_of_stuck_threads_the_worker_ends_to_be_recycled(live: Ledger, late: Database) -> None:
    sleeper = Sleeper(live, TIMEOUT_S)
    slow = [live.submit(sleeper.call).job_id for _ in range(3)]
    worker = Worker(live, concurrency=1, batch_max=1, abandoned_max=1, poll_s=0.05)
    attempts = worker.run()  # it is not stopped
    assert (worker.recycle, attempts) == (True, 2)
    assert [ended(live.job(job_id))[:2] for job_id in slow] == [
        ("failed", "timed_out"),
        ("failed", "timed_out"),
        ("pending", None),
    ]
    assert [live.job(job_id).attempts for job_id in slow] == [1, 1, 0]
    sleeper.wakes(2)
    sleeper.wake.clear()
    assert drained(live).recycle is False  # another worker, as the command starts one: the last job times out in it
    assert ended(live.job(slow[2]))[:2] == ("failed", "timed_out")
    sleeper.wakes()


def test_attempts_of_a_recycling_worker_are_returned(live: Ledger, late: Database) -> None:
    sleeper = Sleeper(live, TIMEOUT_S)

    @live.operation()
    def waits_beside(run: Execution) -> None:
        sleeper.wake.wait(PATIENCE_S)

    slow, waiting = live.submit(sleeper.call).job_id, live.submit(waits_beside.call()).job_id
    worker = Worker(live, concurrency=2, abandoned_max=0, poll_s=0.05, drain_s=0.05)
    worker.run()
    assert worker.recycle is True
    assert ended(live.job(slow))[:2] == ("failed", "timed_out")
    job = live.job(waiting)
    assert (job.state, job.attempts, job.excused, job.spent) == (JobState.PENDING, 1, 1, 0)
    sleeper.wakes()


def test_a_stuck_thread_that_returns_does_not_count_against_the_limit(live: Ledger, late: Database) -> None:
    sleeper = Sleeper(live, TIMEOUT_S)
    before = slots()
    with working(live, abandoned_max=1) as worker:
        for _ in range(4):
            sleeper.wake.clear()
            job_id = live.submit(sleeper.call).job_id
            assert live.receipt(job_id).wait(PATIENCE_S, until_failed=True).error_code == "timed_out"
            sleeper.wakes()
            eventually(lambda: slots() <= before + 1, "the end of the thread that came back")
        assert worker.recycle is False


def slots() -> int:
    return [thread.name for thread in threading.enumerate()].count("holdfast-slot")


def test_an_executor_with_no_thread_left_ends_the_worker(live: Ledger, late: Database) -> None:
    sleeper = Sleeper(live, TIMEOUT_S)
    slow, good = live.submit(sleeper.call).job_id, live.submit("good").job_id
    with ThreadPoolExecutor(1) as pool:
        worker = Worker(live, concurrency=4, executor=pool, poll_s=0.05, drain_s=0.05)
        worker.run()
        assert worker.recycle is True
        assert ended(live.job(slow))[:2] == ("failed", "timed_out")
        job = live.job(good)
        assert (job.state, job.spent) == (JobState.PENDING, 0)
        sleeper.wakes()


def test_an_executor_that_was_shut_down_costs_no_attempt(live: Ledger) -> None:
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    job_id = live.submit("good").job_id
    worker = drained(live, executor=pool)
    assert worker.recycle is True
    job = live.job(job_id)
    assert (job.state, job.attempts, job.spent) == (JobState.PENDING, 1, 0)
    assert excuses(live, job_id) == ["executor_stopped"]


# -- an attempt ends once ---------------------------------------------------------------------------------------------


def claimed(ledger: Ledger) -> HeldAttempt:
    @ledger.operation("held", timeout_s=1, lease_s=30)
    def held(run: Execution) -> None:
        """Be held."""

    ledger.submit(held.call())
    [attempt] = ledger.perform(lambda tx: tx.executions.claim(Lease(owner="worker-1", seconds=30)))
    return HeldAttempt(ledger, attempt)


@pytest.fixture
def running(ledger: Ledger) -> HeldAttempt:
    """An attempt that is held, on each database."""
    return claimed(ledger)


@pytest.fixture
def alone(sqlite_url: str) -> Iterator[HeldAttempt]:
    """An attempt that is held, where no database matters."""
    with Ledger(sqlite_url) as ledger:
        yield claimed(ledger)


def test_the_first_end_of_an_attempt_counts_and_the_later_ones_are_dropped(alone: HeldAttempt) -> None:
    alone.begin()
    timed = alone.deadline
    assert timed is not None
    assert alone.time_out() is True
    first = alone.task
    assert first is not None
    assert isinstance(first.command, commands.Fail)
    assert first.command.code == "timed_out"
    assert alone.finish(Returned("1", [], [])) is False
    assert alone.give_back("worker_stopped") is False
    assert alone.time_out() is False
    assert alone.task is first
    assert alone.deadline is None
    assert alone.cancelled is True


def test_a_handler_that_was_faster_than_its_timeout_is_not_given_up(alone: HeldAttempt) -> None:
    assert alone.finish(Returned("1", [], [])) is True
    assert alone.time_out() is False
    assert alone.task is not None
    assert alone.task.command == commands.Complete(alone.token, "1")


def test_a_timeout_overtaken_by_its_handler_changes_nothing(
    alone: HeldAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([0.0, None])
    monkeypatch.setattr(HeldAttempt, "deadline", property(lambda _: next(answers)))
    worker = Worker(alone.ledger, executor="inline")
    worker._held[1] = alone
    alone.let_go()
    worker._time_out()
    assert worker._ended == []


def test_effects_staged_after_the_handler_returned_are_not_written(alone: HeldAttempt) -> None:
    alone.effect("INSERT INTO notes VALUES ('in time')")
    assert alone.run() is True
    alone.effect("INSERT INTO notes VALUES ('late')")
    assert alone.task is not None
    assert [effect.sql for effect in alone.task.effects] == ["INSERT INTO notes VALUES ('in time')"]


def test_only_a_completion_becomes_a_failure_when_the_ledger_refuses_it(alone: HeldAttempt) -> None:
    alone.finish(Returned("1", [], []))
    assert refused(alone, ValueError("a bad effect")) is True
    assert alone.task is not None
    assert isinstance(alone.task.command, commands.Fail)
    assert alone.task.command.code == "value_error"
    assert refused(alone, ValueError("and again")) is False


# -- leases -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("M-06", "G-15")
def test_a_job_that_runs_longer_than_its_first_lease_completes(
    ledger: Ledger, running: HeldAttempt, clock: VirtualClock
) -> None:
    heartbeat = Heartbeat(ledger, lambda: [running], nothing)
    try:
        for _ in range(5):
            clock.advance(20)
            heartbeat.beat()
    finally:
        heartbeat.stop()
    running.finish(Returned('"done"', [], []))
    task = running.task
    assert task is not None
    ledger.perform_tasks([task])
    assert isinstance(task.outcome, Move)
    job = ledger.job(running.job.job_id)
    assert (job.state, job.attempts, job.result) == (JobState.SUCCEEDED, 1, '"done"')


def test_an_ending_that_waited_is_written_under_the_lease_as_it_is_now(
    ledger: Ledger, running: HeldAttempt, clock: VirtualClock
) -> None:
    running.finish(Raised("x", "x", Then.GIVE_BACK))
    heartbeat = Heartbeat(ledger, lambda: [running], nothing)
    clock.advance(20)
    heartbeat.beat()
    heartbeat.stop()
    clock.advance(20)
    task = running.task
    assert task is not None
    ledger.perform_tasks([task])
    assert isinstance(task.outcome, Move)


def test_the_time_of_a_slow_server_is_never_behind(new_postgres_ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Distant(LedgerConnection):
        """A connection whose answers are slow."""

        def execute(self, *args: Any, **kwargs: Any) -> Any:
            cursor = super().execute(*args, **kwargs)
            time.sleep(0.02)
            return cursor

    monkeypatch.setattr("holdfast.store.postgres.store.LedgerConnection", Distant)
    with open_store(new_postgres_ledger) as store:
        with store.reading() as reading:
            [[at]] = reading.execute("SELECT clock_timestamp()")
        assert store.now() - at >= timedelta(seconds=0.02)


def test_the_heartbeat_is_fast_enough_for_the_shortest_lease_that_may_come(sqlite_url: str) -> None:
    ledger = Ledger(sqlite_url)
    heartbeat = Heartbeat(ledger, list, nothing)
    assert heartbeat.period_s() == 10.0

    @ledger.operation("brief", lease_s=0.3)
    def brief(run: Execution) -> None:
        """Have a short lease."""

    assert heartbeat.period_s() == heartbeat.pause_s() == pytest.approx(0.1)  # before any such job is held
    heartbeat.stop()
    ledger.close()


def test_an_invalid_progress_note_does_not_stop_the_heartbeats_of_others(
    ledger: Ledger, running: HeldAttempt, clock: VirtualClock
) -> None:
    running.progress(0.5, "half\0way \ud800 password=hunter2")
    heartbeat = Heartbeat(ledger, lambda: [running], nothing)
    clock.advance(20)
    heartbeat.beat()
    heartbeat.stop()
    with ledger.store.reading() as reading:
        found = reading.lists.attempt(running.record.execution.exec_id)
    assert found is not None
    assert (found.execution.progress, found.execution.progress_note) == (0.5, "half way password=***")
    assert found.execution.lease_expires_at == clock.after(30)


# -- cancelling -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_a_running_job_sees_its_cancellation_with_the_next_heartbeat(live: Ledger, tmp_path: Path, kind: str) -> None:
    jobs = {}
    for then in ("raise", "return"):
        arguments = {"then": then, "started": str(tmp_path / then)}
        jobs[then] = live.submit("until_cancelled", arguments).job_id
    with working(live, executor=kind, concurrency=2):
        for then, job_id in jobs.items():
            eventually((tmp_path / then).exists)
            assert live.cancel(job_id) is JobState.RUNNING
        for job_id in jobs.values():
            live.receipt(job_id).wait(PATIENCE_S)
    gone, done = live.job(jobs["raise"]), live.job(jobs["return"])
    assert ended(gone) == ("quarantined", "cancelled", "Cancel: as you wish")
    assert (gone.quarantine_code, gone.attempts) == ("cancelled", 1)
    assert ended(done) == ("succeeded", None, None)
    assert (done.result, done.attempts) == ('"cancelled"', 1)


# -- stopping ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("M-06")
def test_pain_14_a_graceful_stop_returns_the_lease_and_uses_no_attempt(live: Ledger, late: Database) -> None:
    sleeper = Sleeper(live, None, then=checkpoints_late)
    job_id = live.submit(sleeper.call).job_id
    worker = Worker(live, concurrency=1, poll_s=0.05, drain_s=0.05)
    with threaded(worker.run):
        assert sleeper.asleep.acquire(timeout=PATIENCE_S)
        worker.stop()
    job = live.job(job_id)
    assert (job.state, job.attempts, job.excused, job.spent) == (JobState.PENDING, 1, 1, 0)
    assert excuses(live, job_id) == ["worker_stopped"]
    assert worker.recycle is False
    sleeper.wakes()  # and returns: a late completion
    [refusal] = eventually(lambda: sleeper.late)
    assert isinstance(refusal, LeaseLostError)
    assert live.job(job_id) == job
    drained(live)  # the handler wakes at once now
    job = live.job(job_id)
    assert (job.state, job.attempts, job.spent, job.result) == (JobState.SUCCEEDED, 2, 1, '"late"')
    assert late.run("SELECT who FROM late") == [("sleeper",)]


def test_a_handler_that_ends_within_the_drain_completes(live: Ledger, late: Database) -> None:
    sleeper = Sleeper(live, None)
    job_id = live.submit(sleeper.call).job_id
    worker = Worker(live, concurrency=1, poll_s=0.05)
    with threaded(worker.run):
        assert sleeper.asleep.acquire(timeout=PATIENCE_S)
        worker.stop()
        eventually(lambda: worker.held()[0].cancelled)
        sleeper.wakes()
    job = live.job(job_id)
    assert (job.state, job.attempts, job.spent) == (JobState.SUCCEEDED, 1, 1)


def test_a_second_stop_does_not_wait_for_the_drain(live: Ledger, late: Database) -> None:
    sleeper = Sleeper(live, None)
    job_id = live.submit(sleeper.call).job_id
    worker = Worker(live, concurrency=1, poll_s=0.05, drain_s=10 * PATIENCE_S)
    with threaded(worker.run):
        assert sleeper.asleep.acquire(timeout=PATIENCE_S)
        worker.stop()
        eventually(lambda: worker.held()[0].cancelled)
        worker.stop(at_once=True)
    job = live.job(job_id)
    assert (job.state, job.attempts, job.spent) == (JobState.PENDING, 1, 0)
    sleeper.wakes()


def test_a_handler_that_raises_cancel_because_the_worker_stops_is_given_back_not_dropped(live: Ledger) -> None:
    started = threading.Event()

    @live.operation("obliging")
    def obliging(run: Execution) -> None:
        started.set()
        eventually(lambda: run.cancelled)
        raise Cancel

    job_id = live.submit(obliging.call()).job_id
    worker = Worker(live, concurrency=1, poll_s=0.05)
    with threaded(worker.run):
        assert started.wait(PATIENCE_S)
        worker.stop()
    job = live.job(job_id)
    assert (job.state, job.quarantine_code, job.attempts, job.spent) == (JobState.PENDING, None, 1, 0)
    assert excuses(live, job_id) == ["worker_stopped"]


def test_attempts_ended_before_an_immediate_stop_are_written(live: Ledger) -> None:
    class Stopped(Worker):
        """A worker that is stopped just before it sees that its handler has returned."""

        def _gather(self, wait_s: float) -> bool:
            eventually(lambda: all(running.ended for running in self.held()))
            self.stop(at_once=True)
            return super()._gather(wait_s)

    job_id = live.submit("good", {"n": 1}).job_id
    Stopped(live, concurrency=1, poll_s=0.05).run()
    job = live.job(job_id)
    assert (job.state, job.attempts, job.excused) == (JobState.SUCCEEDED, 1, 0)


def test_a_worker_that_cannot_start_leaves_no_thread_behind(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(threading.enumerate())
    with Ledger(sqlite_url) as ledger:

        def out_of_reach() -> Any:
            raise StoreUnavailableError("no answer")

        monkeypatch.setattr(ledger.store, "watch", out_of_reach)
        with pytest.raises(StoreUnavailableError):
            Worker(ledger, concurrency=3).run()
        eventually(lambda: set(threading.enumerate()) <= before, "the end of every thread")


def test_a_worker_that_has_ended_leaves_no_thread_behind(live: Ledger) -> None:
    live.submit("good")
    live.submit("runs_on_a_loop")
    before = set(threading.enumerate())
    drained(live, concurrency=3)
    eventually(lambda: set(threading.enumerate()) <= before, "the end of every thread")
