"""Every transition that the table does not list is refused, and so is every input that names no work."""

import logging
import math
from datetime import datetime

import pytest

from holdfast.compat import (
    VALID_TRANSITIONS,
    DeadlockDetector,
    IdempotentJobQueue,
    IngestionJob,
    InvalidStateTransitionError,
    JobNotFoundError,
    JobStatus,
    StateMachineValidator,
    StateTransitionRaceError,
)
from holdfast.core.errors import (
    BadUrlError,
    EnforcementDriftError,
    InputError,
    PayloadNotJsonError,
    RefusedError,
    StoreUnavailableError,
)
from holdfast.core.records import time_text
from holdfast.governance.switches import lift, throw
from holdfast.store import Submission
from holdfast.testing import VirtualClock
from tests.compat.actor import Memory, job
from tests.compat.conftest import Open
from tests.compat.support import JOBS, everything, mark, put, rows

pytestmark = pytest.mark.attack("input")

ILLEGAL = [(source, target) for source in JobStatus for target in JobStatus if target not in VALID_TRANSITIONS[source]]


def test_thirteen_transitions_are_not_listed() -> None:
    assert len(ILLEGAL) == 13


@pytest.mark.req("G-05", "G-08", "G-26", "K-16")
@pytest.mark.parametrize("source,target", ILLEGAL)
def test_invalid_transitions(
    opened: Open, ledger_url: str, caplog: pytest.LogCaptureFixture, *, source: JobStatus, target: JobStatus
) -> None:
    audit = Memory()
    validator = StateMachineValidator(audit)
    queue = opened(validator)
    put(queue, source, "a")
    before, heard, history = everything(ledger_url), list(audit.events), validator.history
    caplog.clear()

    with pytest.raises(InvalidStateTransitionError, match=f"^Invalid transition: {source} → {target}$"):
        mark(queue, target, "a", idempotent=False)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    caplog.clear()
    mark(queue, target, "a", idempotent=True)
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.WARNING]

    assert everything(ledger_url) == before
    assert (audit.events, validator.history) == (heard, history)


@pytest.mark.req("G-05")
@pytest.mark.parametrize("source,target", ILLEGAL)
def test_the_validator_refuses_logs_it_and_records_nothing(
    caplog: pytest.LogCaptureFixture, source: JobStatus, target: JobStatus
) -> None:
    audit = Memory()
    validator = StateMachineValidator(audit)
    with pytest.raises(InvalidStateTransitionError) as refused:
        validator.validate_transition("a", source, target, operator="ada", reason="because")
    assert str(refused.value) == f"Invalid transition: {source} → {target}"
    assert refused.value.context == {"job_id": "a", "from_status": source, "to_status": target}
    assert [(record.levelno, record.__dict__["job_id"]) for record in caplog.records] == [(logging.ERROR, "a")]
    assert (validator.history, audit.events) == ((), [])


@pytest.mark.req("G-09")
def test_errors_have_the_bases_that_callers_catch() -> None:
    assert issubclass(InvalidStateTransitionError, ValueError)
    assert issubclass(StateTransitionRaceError, RuntimeError)
    assert issubclass(JobNotFoundError, KeyError)


@pytest.mark.req("G-09")
@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("target", JobStatus)
def test_a_job_that_is_not_there_is_an_error_in_both_modes(
    queue: IdempotentJobQueue, target: JobStatus, idempotent: bool
) -> None:
    with pytest.raises(JobNotFoundError) as missing:
        mark(queue, target, "nobody", idempotent=idempotent)
    assert str(missing.value) == "Job nobody not found"


@pytest.mark.req("G-09")
def test_looking_for_a_job_that_is_not_there_is_an_error(queue: IdempotentJobQueue) -> None:
    for look in (queue.get_job, queue.claim, queue.expire, DeadlockDetector(queue).recover_stalled_job):
        with pytest.raises(JobNotFoundError):
            look("nobody")
    assert queue.heartbeat("nobody") is False


@pytest.mark.req("G-19")
def test_cancelling_is_quarantine_and_never_failure(queue: IdempotentJobQueue, ledger_url: str) -> None:
    put(queue, JobStatus.PENDING, "a")
    put(queue, JobStatus.FAILED, "b")
    assert queue.cancel_job("a", operator="ada", reason="not wanted", idempotent=False)
    assert queue.cancel_job("b", idempotent=False)
    assert not queue.cancel_job("a", idempotent=False)  # it has the requested status already
    assert rows(
        ledger_url,
        f"SELECT key, state, quarantine_code, actor, reason FROM {JOBS} ORDER BY key",
    ) == [
        ("a", "quarantined", "cancelled", "ada", "not wanted"),
        ("b", "quarantined", "cancelled", queue.worker, None),
    ]
    put(queue, JobStatus.RUNNING, "c")
    with pytest.raises(InvalidStateTransitionError, match=r"^Invalid transition: running → quarantined$"):
        queue.cancel_job("c", idempotent=False)
    assert not queue.cancel_job("c")
    assert queue.get_job("c")["status"] is JobStatus.RUNNING


@pytest.mark.req("G-19", "X-06")
def test_the_retry_budget_lives_in_the_ledger(queue: IdempotentJobQueue, opened: Open, ledger_url: str) -> None:
    queue.enqueue(job("a", max_attempts=2))
    for attempt in range(1, 8):
        with opened() as worker:  # a new process every time: nothing is remembered outside the ledger
            assert worker.claim("a") is not None
            worker.mark_failed("a", idempotent=False)
            if attempt < 7:
                worker.reschedule("a", idempotent=False)
    # Two attempts and five replays: the seventh failure is the last one there is.
    assert rows(ledger_url, "SELECT state, attempts, quarantine_code FROM holdfast_jobs") == [
        ("quarantined", 7, "failed")
    ]
    last = "SELECT source, target FROM holdfast_edges WHERE machine = 'JOB' ORDER BY version DESC LIMIT 2"
    assert rows(ledger_url, last) == [("failed", "quarantined"), ("running", "failed")]


@pytest.mark.req("G-19", "G-18")
def test_a_delay_is_kept_even_on_the_same_day(queue: IdempotentJobQueue, clock: VirtualClock) -> None:
    put(queue, JobStatus.FAILED, "a")
    queue.reschedule("a", retry_delay_seconds=60, idempotent=False)
    assert queue.get_job("a")["scheduled_for"] == time_text(clock.after(60))
    clock.advance(59.999)
    assert queue.fetch_pending() == []
    assert (queue.claim(), queue.claim("a")) == (None, None)
    with pytest.raises(RefusedError) as refused:
        queue.mark_running("a", idempotent=False)
    assert refused.value.context == {"job_id": "a", "refusal": "not_due"}
    queue.mark_running("a")
    assert queue.get_job("a")["status"] is JobStatus.PENDING
    clock.advance(0.001)
    assert [row["job_id"] for row in queue.fetch_pending()] == ["a"]
    queue.mark_running("a", idempotent=False)


def test_no_job_of_a_paused_queue_is_fetched_or_claimed(queue: IdempotentJobQueue) -> None:
    queue.enqueue(job("a"))
    with queue.store.transaction() as transaction:
        transaction.queues.pause("compat", actor="ada", reason="maintenance")
    assert (queue.claim(), queue.claim("a")) == (None, None)
    with pytest.raises(RefusedError) as caught:
        queue.mark_running("a", idempotent=False)
    assert caught.value.context == {"paused": "compat"}
    queue.mark_running("a")
    assert queue.get_job("a")["status"] is JobStatus.PENDING
    with queue.store.transaction() as transaction:
        assert transaction.queues.resume("compat", actor="ada", reason="done")
    assert queue.claim("a") is not None


@pytest.mark.req("K-55")
def test_a_job_type_that_is_switched_off_is_not_given_out_by_any_way(queue: IdempotentJobQueue) -> None:
    queue.enqueue(job("a"))
    name = f"operation:{job('a').job_type}"
    throw(queue.store, name, actor="ada", reason="it eats disks")
    assert (queue.claim(), queue.claim("a")) == (None, None)
    with pytest.raises(RefusedError) as refusal:
        queue.mark_running("a", idempotent=False)
    assert (refusal.value.context["thrown_by"], refusal.value.context["reason"]) == ("ada", "it eats disks")
    assert refusal.value.context["switch"] == name
    queue.mark_running("a")
    assert (queue.get_job("a")["status"], queue.get_job("a")["attempts"]) == (JobStatus.PENDING, 0)
    lift(queue.store, name, actor="ada", reason="larger disks")
    queue.mark_running("a", idempotent=False)
    assert queue.get_job("a")["status"] is JobStatus.RUNNING


@pytest.mark.req("G-19")
@pytest.mark.parametrize(
    "bad",
    [
        IngestionJob("", "local_files", {}),
        IngestionJob("a\0b", "local_files", {}),
        IngestionJob("\ud800", "local_files", {}),
        IngestionJob("a", "", {}),
        IngestionJob("a", "local_files", {}, priority=4),  # type: ignore[arg-type]
        IngestionJob("a", "local_files", {}, priority=0),  # type: ignore[arg-type]
        IngestionJob("a", "local_files", {}, scheduled_for=datetime(2026, 3, 14)),  # noqa: DTZ001 - naive on purpose
        IngestionJob("a", "local_files", {}, max_attempts=0),
        IngestionJob("a", "local_files", {"x": math.nan}),
        IngestionJob("a", "local_files", {"x": object()}),
    ],
)
def test_bad_work_is_refused_before_anything_is_written(
    queue: IdempotentJobQueue, ledger_url: str, bad: IngestionJob
) -> None:
    with pytest.raises(InputError):
        queue.enqueue(bad)
    assert rows(ledger_url, "SELECT count(*) FROM holdfast_jobs") == [(0,)]
    assert rows(ledger_url, "SELECT operation FROM holdfast_operations") == [("noop",)]


def test_bad_numbers_and_times_are_refused(queue: IdempotentJobQueue) -> None:
    put(queue, JobStatus.FAILED, "a")
    for delay in (-1, math.nan, math.inf, 1e300):
        with pytest.raises(InputError):
            queue.reschedule("a", delay)
    for limit in (queue.fetch_pending, queue.snapshot):
        with pytest.raises(InputError):
            limit(limit=-1)
    with pytest.raises(InputError):
        queue.failed_count(datetime(2026, 3, 14))  # noqa: DTZ001 - naive on purpose
    for timeout in (0, -1, math.nan):
        with pytest.raises(InputError):
            DeadlockDetector(queue, timeout)
    assert queue.get_job("a")["status"] is JobStatus.FAILED


def test_a_ledger_that_cannot_be_opened_is_a_typed_error(sqlite_url: str) -> None:
    for lease_s in (0, -1, math.nan, math.inf):
        with pytest.raises(InputError):
            IdempotentJobQueue(sqlite_url, lease_s=lease_s)
    with pytest.raises(BadUrlError):
        IdempotentJobQueue("mysql://localhost/x")
    with pytest.raises(StoreUnavailableError):
        IdempotentJobQueue(f"{sqlite_url}/no/such/directory/ledger.db")


def test_opening_does_not_repair_a_tampered_ledger(sqlite_url: str) -> None:
    IdempotentJobQueue(sqlite_url).close()
    rows(sqlite_url, "DROP TRIGGER holdfast_jobs_move")
    with pytest.raises(EnforcementDriftError) as caught:
        IdempotentJobQueue(sqlite_url)
    assert caught.value.context == {"differs": ["holdfast_jobs_move"]}


def test_jobs_of_another_client_in_the_queue_are_refused_and_stay(queue: IdempotentJobQueue, ledger_url: str) -> None:
    with queue.store.transaction() as transaction:
        transaction.jobs.submit([Submission(operation="noop", payload="{}", queue="compat", client="web")], actor="web")
    with pytest.raises(InputError) as caught:
        queue.claim()
    assert caught.value.context["client"] == "web"
    assert rows(ledger_url, "SELECT state, attempts FROM holdfast_jobs") == [("pending", 0)]
    assert (queue.fetch_pending(), queue.snapshot()) == ([], [])


def test_a_payload_that_is_not_json_has_its_own_error(queue: IdempotentJobQueue) -> None:
    with pytest.raises(PayloadNotJsonError):
        queue.enqueue(IngestionJob("a", "local_files", {1: "keys are texts"}))
