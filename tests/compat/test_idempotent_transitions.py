"""A repeated request changes nothing: not the job, not its history, not its holder."""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.compat import (
    IdempotentJobQueue,
    IngestionJob,
    JobPriority,
    JobStatus,
    LeaseLostError,
    StateMachineValidator,
    StateTransitionRaceError,
)
from holdfast.core.errors import IdempotencyConflictError
from holdfast.testing import VirtualClock
from tests.compat.actor import Memory, job
from tests.compat.conftest import Open
from tests.compat.support import everything, mark, put, rows


@pytest.mark.req("G-08", "G-26", "X-03")
@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("status", JobStatus)
def test_idempotent_transitions(
    opened: Open, ledger_url: str, clock: VirtualClock, caplog: pytest.LogCaptureFixture, *, status: JobStatus,
    idempotent: bool,
) -> None:  # fmt: skip
    audit = Memory()
    validator = StateMachineValidator(audit)
    queue = opened(validator)
    put(queue, status, "a")
    clock.advance(1)
    before, heard, history = everything(ledger_url), list(audit.events), validator.history
    caplog.set_level(logging.DEBUG, "holdfast.compat")
    caplog.clear()
    for _ in range(3):
        mark(queue, status, "a", idempotent=idempotent)
    assert everything(ledger_url) == before
    assert (audit.events, validator.history) == (heard, history)
    assert [record.levelno for record in caplog.records] == [logging.DEBUG] * 3


@pytest.mark.req("G-05")
@pytest.mark.parametrize("status", JobStatus)
def test_the_validator_allows_the_same_status_and_notes_it_at_debug(
    caplog: pytest.LogCaptureFixture, status: JobStatus
) -> None:
    validator = StateMachineValidator()
    caplog.set_level(logging.DEBUG, "holdfast.compat")
    transition = validator.validate_transition("a", status, status)
    assert transition.is_idempotent()
    assert transition.is_valid()
    assert validator.history == (transition,)
    assert [(record.levelno, record.__dict__["job_id"]) for record in caplog.records] == [(logging.DEBUG, "a")]


@pytest.mark.req("G-19", "K-10")
@pytest.mark.parametrize("status", JobStatus)
def test_enqueueing_again_never_resets_a_job(
    queue: IdempotentJobQueue, other: IdempotentJobQueue, ledger_url: str, status: JobStatus
) -> None:
    put(queue, status, "a")
    before = everything(ledger_url)
    for again in (queue, other):
        assert again.enqueue(job("a")) is False
        assert again.enqueue(job("a", priority=JobPriority.HIGH, max_attempts=9)) is False
        for changed in (IngestionJob("a", "local_files", {"path": "/b"}), IngestionJob("a", "imap_mailbox", {})):
            with pytest.raises(IdempotencyConflictError):
                again.enqueue(changed)
    assert everything(ledger_url) == before


@pytest.mark.req("G-29")
def test_a_claim_says_whether_it_won(queue: IdempotentJobQueue, other: IdempotentJobQueue, clock: VirtualClock) -> None:
    queue.enqueue(job("a"))
    token = queue.claim("a")
    assert token is not None
    assert (token.job_id, token.attempt, token.expires_at) == ("a", 1, clock.after(600))
    assert token.job["payload"] == {"path": "/a"}
    assert (other.claim(), other.claim("a"), queue.claim("a")) == (None, None, None)


@pytest.mark.req("G-29", "G-08", "K-32")
def test_marking_a_running_job_as_running_does_not_make_it_yours(
    queue: IdempotentJobQueue, other: IdempotentJobQueue, ledger_url: str
) -> None:
    put(queue, JobStatus.RUNNING, "a")
    before = everything(ledger_url)
    other.mark_running("a")  # silent, as an idempotent write is
    with pytest.raises(StateTransitionRaceError, match=r"^Job a is running under another worker$"):
        other.mark_running("a", idempotent=False)
    queue.mark_running("a", idempotent=False)  # its own
    for verb in (other.mark_completed, other.mark_failed):
        verb("a")
        with pytest.raises(LeaseLostError):
            verb("a", idempotent=False)
    assert everything(ledger_url) == before
    queue.mark_completed("a", idempotent=False)
    assert other.get_job("a")["status"] is JobStatus.SUCCEEDED


@pytest.mark.req("G-29", "G-18")
def test_fetch_pending_changes_nothing(queue: IdempotentJobQueue, ledger_url: str) -> None:
    queue.enqueue(job("a"))
    before = everything(ledger_url)
    assert [row["job_id"] for row in queue.fetch_pending()] == ["a"]
    assert [row["job_id"] for row in queue.fetch_pending()] == ["a"]
    assert everything(ledger_url) == before


@pytest.mark.req("G-18", "G-24")
def test_higher_priorities_go_first_then_earlier_times(queue: IdempotentJobQueue, clock: VirtualClock) -> None:
    assert [priority.value for priority in (JobPriority.LOW, JobPriority.NORMAL, JobPriority.HIGH)] == [1, 2, 3]
    queue.enqueue(job("later", priority=JobPriority.HIGH, scheduled_for=clock.after(60)))
    for name, priority, delay in (
        ("low", JobPriority.LOW, -30),
        ("normal", JobPriority.NORMAL, -10),
        ("earlier", JobPriority.NORMAL, -20),
        ("high", JobPriority.HIGH, -1),
    ):
        queue.enqueue(job(name, priority=priority, scheduled_for=clock.after(delay)))
    queue.enqueue(job("default", scheduled_for=clock.after(-15)))
    order = ["high", "earlier", "default", "normal", "low"]
    assert [row["job_id"] for row in queue.fetch_pending()] == order
    assert [row["job_id"] for row in queue.fetch_pending(limit=2)] == order[:2]
    claimed = [queue.claim() for _ in range(6)]
    assert [token.job_id if token else None for token in claimed] == [*order, None]
    clock.advance(60)
    assert [row["job_id"] for row in queue.fetch_pending()] == ["later"]


@pytest.mark.req("G-18")
def test_a_listing_reads_all_pages(
    queue: IdempotentJobQueue, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.compat.jobs._PAGE", 3)
    for number in range(8):
        put(queue, JobStatus.PENDING, f"job-{number}")
        clock.advance(1)
    assert [row["job_id"] for row in queue.fetch_pending(limit=100)] == [f"job-{number}" for number in range(8)]
    assert queue.pending_count(since=clock.after(-8)) == 8
    assert queue.pending_count(since=clock.after(-7)) == 7


@pytest.mark.req("G-19")
def test_workers_that_start_together_make_one_ledger(ledger_url: str) -> None:
    start = threading.Barrier(4, timeout=60)

    def work(number: int) -> bool:
        start.wait()
        with IdempotentJobQueue(ledger_url) as queue:
            queue.enqueue(job(f"own-{number}"))
            return queue.enqueue(job("common"))

    with ThreadPoolExecutor(4) as threads:
        new = list(threads.map(work, range(4)))
    assert sorted(new) == [False, False, False, True]
    assert rows(ledger_url, "SELECT key FROM holdfast_calls ORDER BY key") == [
        ("common",), ("own-0",), ("own-1",), ("own-2",), ("own-3",),
    ]  # fmt: skip
