"""A stalled job goes back through failed, due in a minute, and its first worker can no longer touch it."""

import pytest

from holdfast.compat import DeadlockDetector, IdempotentJobQueue, JobStatus, LeaseLostError
from holdfast.core.commands import Commit
from holdfast.core.errors import RefusedError
from holdfast.core.records import time_text
from holdfast.testing import VirtualClock
from tests.compat.actor import job
from tests.compat.support import JOURNAL, everything, job_row, put, rows


@pytest.mark.req("G-14", "G-13", "G-03", "G-26", "K-19")
def test_stalled_job_recovery(
    queue: IdempotentJobQueue, other: IdempotentJobQueue, ledger_url: str, clock: VirtualClock
) -> None:
    detector = DeadlockDetector(other)
    put(queue, JobStatus.RUNNING, "a")
    clock.advance(600)
    assert detector.detect_stalled_jobs() == ["a"]
    assert detector.recover_stalled_job("a") is JobStatus.PENDING

    # running → failed → pending, both edges on record, by the one who recovered it.
    assert [step[2:7] for step in rows(ledger_url, JOURNAL)[2:]] == [
        ("running", "failed", "expire", other.worker, "stalled"),
        ("failed", "pending", "expire", other.worker, "stalled"),
    ]
    assert rows(ledger_url, "SELECT status, error_code, finished_at IS NOT NULL FROM holdfast_executions") == [
        ("ABORTED", "lease_expired", True)
    ]
    row = other.get_job("a")
    assert (row["status"], row["attempts"], row["last_error_code"]) == (JobStatus.PENDING, 1, None)
    assert row["scheduled_for"] == time_text(clock.after(60))

    clock.advance(59)
    assert other.claim() is None
    clock.advance(1)
    assert other.claim() is not None

    before = everything(ledger_url)
    with pytest.raises(LeaseLostError):
        queue.mark_completed("a", idempotent=False)
    assert everything(ledger_url) == before
    other.mark_completed("a", idempotent=False)
    assert (job_row(ledger_url, "a")["state"], job_row(ledger_url, "a")["attempts"]) == ("succeeded", 2)


@pytest.mark.req("G-14", "G-15")
def test_a_live_lease_is_never_taken_away(
    queue: IdempotentJobQueue, other: IdempotentJobQueue, ledger_url: str, clock: VirtualClock
) -> None:
    put(queue, JobStatus.RUNNING, "a")
    clock.advance(599.999)
    before = everything(ledger_url)
    with pytest.raises(RefusedError) as refused:
        DeadlockDetector(other, timeout_seconds=1).recover_stalled_job("a")
    assert refused.value.context == {"job_id": "a", "refusal": "lease_live"}
    assert everything(ledger_url) == before
    queue.mark_completed("a", idempotent=False)


@pytest.mark.req("G-14")
@pytest.mark.parametrize("status", [JobStatus.PENDING, JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.QUARANTINED])
def test_a_job_that_does_not_run_is_left_alone(
    queue: IdempotentJobQueue, ledger_url: str, clock: VirtualClock, status: JobStatus
) -> None:
    put(queue, status, "a")
    clock.advance(10_000)
    before = everything(ledger_url)
    assert DeadlockDetector(queue).recover_stalled_job("a") is status
    assert everything(ledger_url) == before


@pytest.mark.req("G-14", "X-06")
def test_recovery_spends_the_budget_and_then_rests_in_failed(
    queue: IdempotentJobQueue, ledger_url: str, clock: VirtualClock
) -> None:
    queue.enqueue(job("a", max_attempts=2))
    detector = DeadlockDetector(queue)
    ends = []
    for _ in range(4):  # the first two lost leases are excused
        assert queue.claim("a") is not None
        clock.advance(600)
        ends.append(detector.recover_stalled_job("a"))
        clock.advance(60)
    assert ends == [JobStatus.PENDING] * 3 + [JobStatus.FAILED]
    assert job_row(ledger_url, "a")["state"] == "failed"
    assert queue.claim() is None


@pytest.mark.req("M-09", "M-10")
def test_an_attempt_that_had_committed_is_finished_and_not_repeated(
    queue: IdempotentJobQueue, other: IdempotentJobQueue, ledger_url: str, clock: VirtualClock
) -> None:
    queue.enqueue(job("a"))
    token = queue.claim("a")
    assert token is not None
    with queue.store.transaction() as transaction:
        attempt = transaction.lists.current_attempt(1)
        assert attempt is not None
        transaction.executions.move([(attempt, Commit(token.token))], actor=queue.worker)
    clock.advance(600)
    assert DeadlockDetector(other).recover_stalled_job("a") is JobStatus.SUCCEEDED
    assert rows(ledger_url, "SELECT status FROM holdfast_executions") == [("DONE",)]
    assert job_row(ledger_url, "a")["attempts"] == 1


@pytest.mark.req("G-14", "G-28")
@pytest.mark.parametrize("approved", [None, ("b",), ()])
def test_recovery_is_automatic_or_by_approval(
    queue: IdempotentJobQueue, other: IdempotentJobQueue, clock: VirtualClock, approved: tuple[str, ...] | None
) -> None:
    for name in ("a", "b"):
        put(queue, JobStatus.RUNNING, name)
    clock.advance(600)
    approve = None if approved is None else approved.__contains__
    expected = ["a", "b"] if approved is None else list(approved)
    assert DeadlockDetector(other).recover_stalled_jobs(approve) == expected
    left = [name for name in ("a", "b") if name not in expected]
    assert [other.get_job(name)["status"] for name in expected] == [JobStatus.PENDING] * len(expected)
    assert [other.get_job(name)["status"] for name in left] == [JobStatus.RUNNING] * len(left)


@pytest.mark.req("G-14", "G-15")
def test_automatic_recovery_leaves_live_leases_alone(
    queue: IdempotentJobQueue, other: IdempotentJobQueue, clock: VirtualClock
) -> None:
    put(queue, JobStatus.RUNNING, "a")
    clock.advance(599)
    detector = DeadlockDetector(other, timeout_seconds=1)
    assert detector.detect_stalled_jobs() == ["a"]
    assert detector.recover_stalled_jobs() == []
    assert other.get_job("a")["status"] is JobStatus.RUNNING
