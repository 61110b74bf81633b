"""The timeout decides when a silent job is reported; the lease decides when it may be recovered."""

import pytest

from holdfast.compat import DeadlockDetector, JobStatus, LeaseLostError
from holdfast.core.errors import RefusedError
from holdfast.core.records import time_text
from holdfast.testing import VirtualClock
from tests.compat.conftest import Open
from tests.compat.support import put


@pytest.mark.req("G-14", "G-26")
@pytest.mark.parametrize(
    "lease_s,timeout_s,found_at", [(600, 600, 600), (600, 60, 61), (3600, 1800, 1801), (30, 600, 30)]
)
def test_deadlock_timeout_tuning(
    opened: Open, clock: VirtualClock, *, lease_s: float, timeout_s: float, found_at: float
) -> None:
    queue = opened(lease_s=lease_s)
    detector = DeadlockDetector(queue, timeout_seconds=timeout_s)
    put(queue, JobStatus.RUNNING, "a")
    start = clock()
    clock.advance(found_at - 1)
    assert detector.detect_stalled_jobs() == []
    clock.advance(1)
    assert detector.detect_stalled_jobs() == ["a"]

    # Seen early, it may be recovered only when its lease has run out.
    if found_at < lease_s:
        with pytest.raises(RefusedError):
            detector.recover_stalled_job("a")
    clock.jump_to(start)
    clock.advance(lease_s)
    assert detector.recover_stalled_job("a") is JobStatus.PENDING


@pytest.mark.req("G-14", "G-15")
def test_a_timeout_is_counted_from_the_latest_heartbeat(opened: Open, clock: VirtualClock) -> None:
    queue = opened(lease_s=600)
    impatient = DeadlockDetector(queue, timeout_seconds=60)
    put(queue, JobStatus.RUNNING, "a")
    clock.advance(50)
    assert queue.heartbeat("a")
    clock.advance(60)
    assert impatient.detect_stalled_jobs() == []
    clock.advance(1)
    assert impatient.detect_stalled_jobs() == ["a"]
    assert queue.heartbeat("a")
    assert impatient.detect_stalled_jobs() == []


@pytest.mark.req("G-14")
def test_the_defaults_are_ten_minutes_and_one_minute(opened: Open, clock: VirtualClock) -> None:
    queue = opened()
    assert queue.lease_s == 600
    put(queue, JobStatus.RUNNING, "a")
    clock.advance(600)
    DeadlockDetector(queue).recover_stalled_job("a")
    assert queue.get_job("a")["scheduled_for"] == time_text(clock.after(60))


@pytest.mark.req("G-14")
def test_automatic_recovery_revokes_what_runs_longer_than_the_timeout(opened: Open, clock: VirtualClock) -> None:
    """A hung handler whose worker still sends heartbeats: the lease lives, and is revoked."""
    queue = opened(lease_s=600)
    other = opened(lease_s=600)
    detector = DeadlockDetector(other, timeout_seconds=900, automatic=True)
    put(queue, JobStatus.RUNNING, "a")
    for _ in range(9):
        clock.advance(100)
        assert queue.heartbeat("a")
    assert detector.detect_stalled_jobs() == []
    with pytest.raises(RefusedError) as refused:
        detector.recover_stalled_job("a")
    assert refused.value.context == {"job_id": "a", "refusal": "lease_live"}
    clock.advance(1)
    assert detector.detect_stalled_jobs() == ["a"]
    assert detector.recover_stalled_jobs() == ["a"]
    assert queue.heartbeat("a") is False
    row = queue.get_job("a")
    assert (row["status"], row["last_error_code"]) == (JobStatus.PENDING, "lease_revoked")
    clock.advance(60)
    assert other.claim() is not None
    with pytest.raises(LeaseLostError):
        queue.mark_completed("a", idempotent=False)
    other.mark_completed("a", idempotent=False)
