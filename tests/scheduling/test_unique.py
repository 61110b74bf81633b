"""Unique work and deadlines: scopes while active and for a window, races between processes, and jobs that end late."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from holdfast import Call, Execution, IdempotencyConflictError, Ledger, Worker
from holdfast.core.errors import FlowInvalidError
from holdfast.core.machines import JobState
from holdfast.explain.explain import explain
from holdfast.store import Lease
from holdfast.testing import VirtualClock, drain
from tests.support.forkserver import ForkServer, shared_server

RACERS = 4
ROUNDS, ROUNDS_SLOW = 15, 100
YEAR_2030 = datetime(2030, 1, 1, tzinfo=UTC)


SIZES = pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(ROUNDS_SLOW, marks=pytest.mark.slow)])


@pytest.fixture
def server() -> Iterator[ForkServer]:
    with shared_server("tests.scheduling.test_unique", "psycopg") as server:
        yield server


def refused(error: pytest.ExceptionInfo[FlowInvalidError]) -> object:
    assert error.value.code == "flow_invalid"
    return error.value.context["refusal"]


# ---------------------------------------------------------------------------------------------------------------------
# Unique scopes


def test_while_active_the_same_work_is_one_job(ledger: Ledger) -> None:
    first = ledger.submit("noop", {"page": 7}, unique="active")
    again = ledger.submit("noop", {"page": 7}, unique="active")
    other = ledger.submit("noop", {"page": 8}, unique="active")
    assert (first.is_new, again.is_new, other.is_new) == (True, False, True)
    assert again.job_id == first.job_id != other.job_id
    ledger.run_until_idle()
    after = ledger.submit("noop", {"page": 7}, unique="active")
    assert after.is_new
    assert after.job_id != first.job_id
    assert not ledger.submit("noop", {"page": 7}, unique="active").is_new


def test_a_failed_job_is_active_and_a_cancelled_one_is_not(ledger: Ledger) -> None:
    @ledger.operation(max_attempts=1, unique="active")
    def broken(run: Execution) -> None:
        raise ValueError

    failed = ledger.submit(broken.call())
    ledger.run_until_idle()
    assert ledger.job(failed.job_id).state is JobState.FAILED
    assert ledger.submit(broken.call()).job_id == failed.job_id
    ledger.cancel(failed.job_id)
    assert ledger.submit(broken.call()).is_new


def test_within_a_window_the_same_work_is_one_job_in_every_state(ledger: Ledger, clock: VirtualClock) -> None:
    hourly = {"window_s": 3600}
    first = ledger.submit("noop", {"a": 1}, unique=hourly)
    ledger.run_until_idle()
    clock.advance(3599)
    again = ledger.submit("noop", {"a": 1}, unique=hourly)
    assert (again.job_id, again.is_new, again.state) == (first.job_id, False, JobState.SUCCEEDED)
    clock.advance(1)
    assert ledger.submit("noop", {"a": 1}, unique=hourly).is_new


def test_a_scope_can_count_some_arguments_only(ledger: Ledger) -> None:
    @ledger.operation("bill", unique={"by": ["customer.id"]})
    def bill(run: Execution, customer: dict[str, int], note: str = "") -> None:
        """Bill a customer."""

    first = ledger.submit(bill.call(customer={"id": 1}, note="a"))
    assert ledger.submit(bill.call(customer={"id": 1}, note="b")).job_id == first.job_id
    assert ledger.submit("bill", {"customer": {"id": 1}}).job_id == first.job_id  # by name
    assert ledger.submit(bill.call(customer={"id": 2})).is_new


def test_another_process_follows_what_the_operation_declares(ledger: Ledger, ledger_url: str) -> None:
    @ledger.operation("page", unique="active", deadline_s=60)
    def page(run: Execution, number: int) -> None:
        """Render a page."""

    first = ledger.submit(page.call(number=1))
    with Ledger(ledger_url, world=ledger.world) as other:
        assert other.submit("page", {"number": 1}).job_id == first.job_id
        made = other.submit("page", {"number": 2})
        with other.store.reading() as reading:
            assert reading.flow.deadline_of(made.job_id) == ledger.store.now() + timedelta(seconds=60)


def test_one_submit_of_many_has_one_job_for_each_scope(ledger: Ledger) -> None:
    call = {"operation": "noop", "payload": {"a": 1}, "unique": "active"}
    made = ledger.submit_many([call, {"operation": "noop"}, call, {**call, "payload": {"a": 2}}])
    assert [one.job_id for one in made] == [1, 2, 1, 3]
    assert [one.is_new for one in made] == [True, True, False, True]


def test_a_key_counts_before_the_scope_is_given_to_a_new_job(ledger: Ledger) -> None:
    first = ledger.submit("noop", {"a": 1}, client="c", key="k", unique="active")
    ledger.run_until_idle()
    assert ledger.submit("noop", {"a": 1}, client="c", key="k", unique="active").job_id == first.job_id


def submit_rounds(url: str, start_at: float, rounds: int) -> None:
    """Submit the same work as the other processes at the same moment, round after round."""
    with Ledger(url) as ledger, ThreadPoolExecutor(4) as threads:
        ledger.store.now()
        time.sleep(max(0.0, start_at - time.time()))
        for number in range(rounds):
            calls = [{"round": number, "racer": n} for n in range(4)]
            list(threads.map(lambda call: ledger.submit("noop", call, unique={"by": ["round"]}), calls))


@SIZES
def test_processes_that_submit_at_once_make_one_job_for_each_scope(
    server: ForkServer, ledger_url: str, rounds: int
) -> None:
    with Ledger(ledger_url) as ledger:
        ledger.submit("noop", queue="other")
        racers = [
            server.spawn(
                "tests.scheduling.test_unique:submit_rounds", url=ledger_url, start_at=time.time() + 0.5, rounds=rounds
            )
            for _ in range(RACERS)
        ]
        assert [racer.wait(60) for racer in racers] == [0] * RACERS
        with ledger.store.reading() as reading:
            found = [job for job in reading.lists.jobs(limit=10_000) if job.queue != "other"]
    assert len(found) == rounds


def submit_and_work(url: str, start_at: float, rounds: int) -> None:
    """Submit one piece of unique work again and again, and work on it: its scope is freed all the time."""
    with Ledger(url) as ledger:
        time.sleep(max(0.0, start_at - time.time()))
        for _ in range(rounds):
            ledger.submit("noop", unique="active")
            with ledger.store.transaction() as transaction:
                active = [job for job in transaction.lists.jobs(limit=10_000) if job.state is not JobState.SUCCEEDED]
                assert len(active) <= 1, active
            ledger.run_until_idle(concurrency=1)


@SIZES
def test_a_scope_that_is_freed_and_taken_all_the_time_has_one_active_job(
    server: ForkServer, ledger_url: str, rounds: int
) -> None:
    with Ledger(ledger_url) as ledger:
        ledger.submit("noop", unique="active")
        racers = [
            server.spawn(
                "tests.scheduling.test_unique:submit_and_work",
                url=ledger_url,
                start_at=time.time() + 0.5,
                rounds=rounds,
            )
            for _ in range(3)
        ]
        assert [racer.wait(60) for racer in racers] == [0] * 3, server.log


@pytest.mark.parametrize(
    "unique, cause",
    [
        ("forever", "unique_unknown"),
        ({"window": 5}, "unique_unknown"),
        ({"by": "customer"}, "unique_unknown"),
        ({"window_s": 0}, "seconds_out_of_range"),
        ({"window_s": float("nan")}, "seconds_out_of_range"),
        ({"by": ["customer.id"]}, "path_not_found"),
    ],
)
def test_a_wrong_scope_is_refused_at_submit_and_at_declaration(ledger: Ledger, unique: object, cause: str) -> None:
    with pytest.raises(FlowInvalidError) as error:
        ledger.submit("noop", {"customer": 5}, unique=unique)  # type: ignore[arg-type]  # that is the test
    assert refused(error) == cause
    assert not ledger.counts()
    if cause != "path_not_found":
        with pytest.raises(FlowInvalidError) as error:
            ledger.operation("x", unique=unique)(lambda run: None)  # type: ignore[arg-type]  # that is the test
        assert refused(error) == cause


# ---------------------------------------------------------------------------------------------------------------------
# Deadlines


def test_a_job_whose_deadline_passed_ends_without_running(ledger: Ledger, clock: VirtualClock) -> None:
    late = ledger.submit("noop", deadline_s=60)
    soon = ledger.submit("noop", deadline_at=clock() + timedelta(seconds=61))
    plain = ledger.submit("noop")
    clock.advance(60)
    assert ledger.run_until_idle() == 2
    job = ledger.job(late.job_id)
    assert (job.state, job.quarantine_code, job.attempts) == (JobState.QUARANTINED, "deadline_passed", 0)
    assert [ledger.job(one.job_id).state for one in (soon, plain)] == [JobState.SUCCEEDED] * 2
    with ledger.store.reading() as reading:
        rows = [(row.event, row.source, row.target) for row in reading.journal.of(late.job_id)]
        said = explain(reading, late.job_id, ledger.store.now())
    assert rows == [("submit", None, "pending"), ("lapse", "pending", "quarantined")]
    assert said.findings[0].code == "deadline_passed"
    assert said.findings[0].evidence["deadline_at"] == "2026-03-14T09:27:53.589793Z"


def test_explain_names_the_deadline_of_a_pending_job(ledger: Ledger, clock: VirtualClock) -> None:
    job_id = ledger.submit("noop", run_at=clock() + timedelta(hours=1), deadline_s=7200).job_id
    with ledger.store.reading() as reading:
        [found] = [f for f in explain(reading, job_id, clock()).findings if f.code == "deadline"]
    assert found.evidence == {"deadline_at": "2026-03-14T11:26:53.589793Z"}


def test_a_submit_that_is_repeated_after_the_deadline_gets_its_job(ledger: Ledger, clock: VirtualClock) -> None:
    call = Call(operation="noop", payload={}, client="web", key="order-1", deadline_at=clock.after(60))
    first = ledger.submit(call)
    drain(ledger)
    clock.advance(60)
    for again in (ledger.submit(call), ledger.submit_many([call])[0]):
        assert (again.job_id, again.is_new, again.state) == (first.job_id, False, "succeeded")
    with pytest.raises(IdempotencyConflictError):
        ledger.submit(msgspec.structs.replace(call, payload={"another": 1}))
    with pytest.raises(FlowInvalidError) as error:
        ledger.submit(call.keyed("web", "order-2"))
    assert refused(error) == "deadline_past"


def test_a_retry_after_the_deadline_does_not_run(ledger: Ledger, clock: VirtualClock) -> None:
    @ledger.operation(max_attempts=5, deadline_s=20)
    def broken(run: Execution) -> None:
        clock.advance(21)
        raise ValueError

    job_id = ledger.submit(broken.call()).job_id
    drain(ledger)
    job = ledger.job(job_id)
    assert (job.quarantine_code, job.attempts) == ("deadline_passed", 1)


def test_neither_claim_starts_a_job_whose_deadline_passed(ledger: Ledger, clock: VirtualClock) -> None:
    late = ledger.submit("noop", deadline_s=1).job_id
    clock.advance(1)
    lease = Lease(owner="w", seconds=30, n=5)
    with ledger.store.transaction() as transaction:
        assert transaction.executions.claim(lease) == []
        assert transaction.executions.claim_these([late], lease) == []


def test_a_fleet_ends_many_late_jobs_in_sets(ledger_url: str) -> None:
    with Ledger(ledger_url) as ledger:
        ledger.submit_many([{"operation": "noop", "deadline_s": 0.2} for _ in range(1500)])
        ledger.submit("noop")
        time.sleep(0.3)
        Worker(ledger).run(until_idle=True)
        states = {(count.state, count.n) for count in ledger.counts() if count.n}
        assert states == {(JobState.QUARANTINED, 1500), (JobState.SUCCEEDED, 1)}
        with ledger.store.reading() as reading:
            ends = {row.move_id for n in range(1, 1501) for row in reading.journal.of(n) if row.event == "lapse"}
        assert len(ends) == 2  # 1,000 and 500


@pytest.mark.parametrize(
    "settings, cause",
    [
        ({"deadline_at": datetime(2020, 1, 1, tzinfo=UTC)}, "deadline_past"),
        ({"deadline_at": YEAR_2030, "run_at": YEAR_2030}, "deadline_before_run_at"),
        ({"deadline_s": 60, "run_at": YEAR_2030}, "deadline_before_run_at"),
        ({"deadline_at": datetime(2030, 1, 1)}, "deadline_without_zone"),  # noqa: DTZ001 - that is the test
        ({"deadline_s": -1}, "seconds_out_of_range"),
        ({"deadline_s": 1, "deadline_at": YEAR_2030}, "deadline_twice"),
    ],
)
def test_a_wrong_deadline_is_refused_at_submit(ledger: Ledger, settings: dict[str, object], cause: str) -> None:
    with pytest.raises(FlowInvalidError) as error:
        ledger.submit("noop", **settings)  # type: ignore[arg-type]  # that is the test
    assert refused(error) == cause
    assert not ledger.counts()
