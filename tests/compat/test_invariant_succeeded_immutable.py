"""A job that succeeded never moves again, by any caller, in any way, at any moment."""

import pytest

from holdfast.compat import IdempotentJobQueue, IngestionJob, JobStatus
from holdfast.core.errors import IdempotencyConflictError, RefusedError
from tests.compat.actor import job
from tests.compat.support import NAMES, check_history, everything, mark, random_histories, rows


@pytest.mark.req("G-07", "G-26", "K-16", "M-05")
def test_invariant_succeeded_immutable(ledger_url: str) -> None:
    with IdempotentJobQueue(ledger_url) as queue, IdempotentJobQueue(ledger_url) as other:
        for name in NAMES:
            queue.enqueue(job(name))
        queue.mark_running(NAMES[0])
        queue.mark_completed(NAMES[0], idempotent=False)
        history, seen = random_histories(ledger_url, 2000, NAMES)
        check_history(ledger_url, queue, NAMES)

        # Success is the last thing the journal has of a job, once, by its one committed execution.
        done = dict(
            rows(
                ledger_url,
                "SELECT key, version FROM holdfast_jobs JOIN holdfast_calls USING (job_id) WHERE state = 'succeeded'",
            )
        )
        assert len(done) > 1
        successes = rows(
            ledger_url,
            "SELECT c.key, g.version FROM holdfast_edges g JOIN holdfast_calls c ON c.job_id = g.subject"
            " WHERE g.machine = 'JOB' AND g.target = 'succeeded'",
        )
        assert sorted(successes) == sorted(done.items())
        assert history.actions()[NAMES[0], "transition_running_to_succeeded"] == 0  # it was there before them
        committed = rows(
            ledger_url,
            "SELECT c.key FROM holdfast_executions e JOIN holdfast_calls c ON c.job_id = e.job_id"
            " WHERE e.status IN ('COMMITTED', 'DONE')",
        )
        assert sorted(key for (key,) in committed) == sorted(done)

        # Each look that saw a success saw the final version.
        for sight in seen:
            if sight.state == JobStatus.SUCCEEDED:
                assert sight.version == done[sight.job_id]

        # And it stays: every verb, by each caller, in both modes, and raw SQL.
        before = everything(ledger_url)
        for name in list(done)[:5]:
            for worker in (queue, other):
                _attack(worker, name)
        for statement in (
            "UPDATE holdfast_jobs SET state = 'pending', version = version + 1, event = 'retry', move_id = 'x'",
            "UPDATE holdfast_jobs SET state = 'failed', version = version + 1, event = 'fail', move_id = 'x'",
            "UPDATE holdfast_jobs SET result = '{}'",
            "DELETE FROM holdfast_jobs",
        ):
            with pytest.raises(Exception, match=r"HF00|holdfast_jobs_\w+_check"):
                rows(ledger_url, f"{statement} WHERE state = 'succeeded'")
        with pytest.raises(Exception, match=r"HF00|holdfast_jobs_\w+_check"):
            rows(ledger_url, "UPDATE holdfast_calls SET payload = '{}'")
        assert everything(ledger_url) == before


def _attack(worker: IdempotentJobQueue, name: str) -> None:
    for target in JobStatus:
        mark(worker, target, name, idempotent=True)
        if target is not JobStatus.SUCCEEDED:
            with pytest.raises(RefusedError):
                mark(worker, target, name, idempotent=False)
    assert worker.claim(name) is None
    assert worker.heartbeat(name) is False
    assert worker.expire(name) is JobStatus.SUCCEEDED
    assert worker.cancel_job(name) is False
    assert worker.enqueue(job(name)) is False
    with pytest.raises(IdempotencyConflictError):
        worker.enqueue(IngestionJob(name, "local_files", {"path": "/elsewhere"}))
