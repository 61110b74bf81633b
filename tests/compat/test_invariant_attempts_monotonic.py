"""Attempts only grow: by one at each claim, and by nothing else."""

import pytest

from holdfast.compat import IdempotentJobQueue
from tests.compat.actor import job
from tests.compat.support import JOURNAL, NAMES, check_history, random_histories, rows


@pytest.mark.req("G-07", "G-26", "K-20", "X-06")
def test_invariant_attempts_monotonic(ledger_url: str) -> None:
    with IdempotentJobQueue(ledger_url) as queue:
        for name in NAMES:
            queue.enqueue(job(name, max_attempts=100))
        history, seen = random_histories(ledger_url, 3000, NAMES)
        check_history(ledger_url, queue, NAMES)

    # In the journal, each claim adds one and no other move adds or takes any.
    attempts = dict.fromkeys(NAMES, 0)
    for key, _, source, target, _, _, _, attempt, _ in rows(ledger_url, JOURNAL):
        attempts[key] += (source, target) == ("pending", "running")
        assert attempt == attempts[key]
    assert (
        dict(rows(ledger_url, "SELECT key, attempts FROM holdfast_jobs JOIN holdfast_calls USING (job_id)")) == attempts
    )
    assert max(attempts.values()) > 1

    # As many as the claims that workers won.
    won = history.actions()
    assert attempts == {name: won[name, "transition_pending_to_running"] for name in NAMES}

    # No look saw fewer than a look before it.
    for name in NAMES:
        sights = sorted((sight for sight in seen if sight.job_id == name), key=lambda sight: sight.version)
        numbers = [sight.attempts for sight in sights]
        assert numbers == sorted(numbers)

    # The database itself refuses to go back.
    with pytest.raises(Exception, match="HF007"):
        rows(ledger_url, "UPDATE holdfast_jobs SET attempts = attempts - 1 WHERE attempts > excused")
