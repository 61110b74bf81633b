"""A job is in exactly one state: in its row, in the counts, in the journal, and in what its executions add up to."""

from collections import Counter

import pytest

from holdfast.compat import IdempotentJobQueue, JobStatus
from tests.compat.actor import job
from tests.compat.support import NAMES, check_history, random_histories, rows


@pytest.mark.req("G-07", "G-26", "K-01", "M-02")
def test_invariant_single_state(ledger_url: str) -> None:
    with IdempotentJobQueue(ledger_url) as queue:
        for name in NAMES:
            assert queue.enqueue(job(name))
        history, seen = random_histories(ledger_url, 1000, NAMES)
        assert history.refused > 0

        # In every look, a version of a job had one state and one number of attempts.
        first_seen: dict[tuple[str, int], tuple[str, int]] = {}
        for sight in seen:
            assert first_seen.setdefault((sight.job_id, sight.version), (sight.state, sight.attempts)) == (
                sight.state,
                sight.attempts,
            )
            assert sight.state in set(JobStatus)
        assert len(seen) > len(NAMES)

        # In the end there is one row a job; the journal, the projection and the counts agree with it.
        ended = check_history(ledger_url, queue, NAMES)
        assert sorted(key for (key,) in rows(ledger_url, "SELECT key FROM holdfast_calls")) == sorted(NAMES)
        stated = Counter(
            {
                JobStatus(state): n
                for state, n in rows(ledger_url, "SELECT state, count(*) FROM holdfast_jobs GROUP BY 1")
            }
        )
        assert ended == stated
        assert {status: len(queue.snapshot(status, limit=1000)) for status in JobStatus} == {
            status: stated[status] for status in JobStatus
        }
        for _ in range(2):  # before and after the deltas are folded
            assert [queue.pending_count(), queue.running_count(), queue.completed_count(), queue.failed_count()] == [
                stated[status]
                for status in (JobStatus.PENDING, JobStatus.RUNNING, JobStatus.SUCCEEDED, JobStatus.FAILED)
            ]
            with queue.store.transaction() as transaction:
                transaction.counts.fold()
