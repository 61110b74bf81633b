"""A running job without recent heartbeats is found; one with heartbeats never is."""

import logging

import pytest

from holdfast.compat import DeadlockDetector, IdempotentJobQueue, JobStatus
from holdfast.testing import VirtualClock
from tests.compat.actor import job
from tests.compat.support import everything, put


@pytest.mark.req("G-14", "G-26", "K-31")
def test_stalled_job_detection(
    queue: IdempotentJobQueue,
    other: IdempotentJobQueue,
    ledger_url: str,
    clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    detector = DeadlockDetector(other)
    for status in (JobStatus.PENDING, JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.QUARANTINED):
        put(queue, status, f"not-running-{status}")
    put(queue, JobStatus.RUNNING, "a")
    clock.advance(100)
    put(queue, JobStatus.RUNNING, "b")
    before = everything(ledger_url)
    clock.advance(499.999)
    assert detector.detect_stalled_jobs() == []
    clock.advance(0.001)
    caplog.clear()
    assert detector.detect_stalled_jobs() == ["a"]
    [record] = caplog.records
    words = record.levelno, record.__dict__["job_id"], record.__dict__["silent_seconds"]
    assert words == (logging.WARNING, "a", 600.0)
    clock.advance(100)
    assert detector.detect_stalled_jobs() == ["a", "b"]
    assert everything(ledger_url) == before  # detection only looks


@pytest.mark.req("G-15")
def test_a_heartbeat_keeps_long_work_from_looking_stalled(
    queue: IdempotentJobQueue, other: IdempotentJobQueue, ledger_url: str, clock: VirtualClock
) -> None:
    detector = DeadlockDetector(other)
    put(queue, JobStatus.RUNNING, "long")
    put(queue, JobStatus.RUNNING, "silent")
    version = queue.get_job("long")["updated_at"]
    for _ in range(20):  # almost two hours, in a queue whose timeout is ten minutes
        clock.advance(350)
        assert queue.heartbeat("long") is True
    assert detector.detect_stalled_jobs() == ["silent"]
    # A heartbeat is not a transition: it moved neither the job nor its journal.
    assert queue.get_job("long")["updated_at"] == version
    queue.mark_completed("long", idempotent=False)
    assert queue.get_job("long")["status"] is JobStatus.SUCCEEDED


@pytest.mark.req("G-15", "G-13")
def test_a_heartbeat_after_the_lease_ran_out_changes_nothing(
    queue: IdempotentJobQueue, ledger_url: str, clock: VirtualClock
) -> None:
    put(queue, JobStatus.RUNNING, "a")
    clock.advance(600)
    before = everything(ledger_url)
    assert queue.heartbeat("a") is False
    assert everything(ledger_url) == before
    assert DeadlockDetector(queue).detect_stalled_jobs() == ["a"]


@pytest.mark.req("G-14")
def test_an_attempt_that_follows_a_stalled_one_is_judged_by_itself(
    queue: IdempotentJobQueue, other: IdempotentJobQueue, clock: VirtualClock
) -> None:
    detector = DeadlockDetector(other)
    queue.enqueue(job("a"))
    queue.claim("a")
    clock.advance(600)
    other.expire("a")
    assert detector.detect_stalled_jobs() == []
    assert other.claim("a") is not None
    clock.advance(599)
    assert detector.detect_stalled_jobs() == []
    clock.advance(1)
    assert detector.detect_stalled_jobs() == ["a"]
