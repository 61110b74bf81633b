"""A running job has one worker, which holds it under a lease; a job that does not run has none."""

import time

import pytest

from holdfast.compat import DeadlockDetector, IdempotentJobQueue, JobStatus
from holdfast.testing import VirtualClock
from tests.compat.actor import LEASE_S, job
from tests.compat.conftest import Open
from tests.compat.support import JOURNAL, NAMES, check_history, random_histories, rows

HELD = (
    "SELECT c.key, e.lease_owner FROM holdfast_executions e JOIN holdfast_calls c ON c.job_id = e.job_id"
    " WHERE e.status IN ('LEASED', 'IN_PROGRESS', 'COMMITTED')"
)


@pytest.mark.req("G-07", "G-26", "M-03", "M-04")
def test_invariant_running_workers(ledger_url: str) -> None:
    with IdempotentJobQueue(ledger_url, lease_s=LEASE_S) as queue:
        for name in NAMES:
            queue.enqueue(job(name, max_attempts=100))
        history, seen = random_histories(ledger_url, 4000, NAMES)
        check_history(ledger_url, queue, NAMES)

        # In every look: one open execution if it runs, else none.
        assert {(sight.state == JobStatus.RUNNING, sight.held) for sight in seen} == {(True, 1), (False, 0)}

        # In the end each running job is held by the worker that claimed it last.
        queue.enqueue(job("last"))
        assert queue.claim("last") is not None
        claimed = {key: actor for key, _, _, target, _, actor, *_ in rows(ledger_url, JOURNAL) if target == "running"}
        running = sorted(row["job_id"] for row in queue.snapshot(JobStatus.RUNNING))
        held = dict(rows(ledger_url, HELD))
        assert held == {name: claimed[name] for name in running}
        assert held["last"] == queue.worker
        assert set(held.values()) <= history.workers() | {queue.worker}

        # No worker beats for them. Their leases expire, recovery finds every one, and nothing is left held.
        time.sleep(2 * LEASE_S)
        detector = DeadlockDetector(queue)
        stalled = detector.detect_stalled_jobs()
        assert sorted(stalled) == running
        assert {detector.recover_stalled_job(name) for name in stalled} == {JobStatus.PENDING}
        assert rows(ledger_url, HELD) == []
        assert (queue.running_count(), detector.detect_stalled_jobs()) == (0, [])
        check_history(ledger_url, queue, NAMES)


@pytest.mark.req("G-07", "G-13")
def test_only_the_worker_that_holds_a_job_can_keep_it(opened: Open, ledger_url: str, clock: VirtualClock) -> None:
    workers = [opened() for _ in range(3)]
    for number, worker in enumerate(workers):
        worker.enqueue(job(f"job-{number}"))
        assert worker.claim(f"job-{number}") is not None
    clock.advance(599)
    held = [[worker.heartbeat(f"job-{number}") for number in range(3)] for worker in workers]
    assert held == [[True, False, False], [False, True, False], [False, False, True]]
    assert dict(rows(ledger_url, HELD)) == {f"job-{number}": worker.worker for number, worker in enumerate(workers)}
    clock.advance(599)
    workers[0].mark_completed("job-0", idempotent=False)
    assert sorted(dict(rows(ledger_url, HELD))) == ["job-1", "job-2"]
