"""Many workers at once, in threads and in processes: each job is worked on by one of them, once."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.compat import IdempotentJobQueue, JobStatus, LeaseToken
from tests.compat.actor import job
from tests.compat.conftest import Open
from tests.compat.support import NAMES, check_history, edges, random_histories, rows


def _drain(queue: IdempotentJobQueue, start: threading.Barrier) -> list[LeaseToken]:
    """Claim until nothing is left; every third attempt fails and goes back."""
    start.wait()
    worked = []
    while token := queue.claim():
        worked.append(token)
        if token.token % 3:
            queue.mark_completed(token.job_id, token=token, idempotent=False)
        else:
            queue.mark_failed(token.job_id, token=token, idempotent=False)
            queue.reschedule(token.job_id, idempotent=False)
    return worked


@pytest.mark.req("G-26", "G-29", "K-32", "K-64")
@pytest.mark.parametrize("sharing", ["one queue each", "one queue for all"])
def test_concurrent_transitions(opened: Open, ledger_url: str, sharing: str) -> None:
    first = opened()
    queues = [first] * 6 if sharing == "one queue for all" else [first, *(opened() for _ in range(5))]
    names = [f"job-{n}" for n in range(60)]
    for name in names:
        first.enqueue(job(name, max_attempts=100))
    start = threading.Barrier(len(queues), timeout=60)
    with ThreadPoolExecutor(len(queues)) as threads:
        worked = [token for tokens in threads.map(_drain, queues, [start] * len(queues)) for token in tokens]

    # Every claim that a worker was given is an execution of its own, and ended as its winner said.
    executions = rows(
        ledger_url,
        "SELECT c.key, e.attempt, e.lease_token, e.status FROM holdfast_executions e"
        " JOIN holdfast_calls c ON c.job_id = e.job_id",
    )
    expected = [
        (token.job_id, token.attempt, token.token, "DONE" if token.token % 3 else "ABORTED") for token in worked
    ]
    assert sorted(expected) == sorted(executions)
    assert len({(token.job_id, token.token) for token in worked}) == len(worked)
    assert Counter(token.job_id for token in worked if token.token % 3) == dict.fromkeys(names, 1)
    assert check_history(ledger_url, first, names) == {JobStatus.SUCCEEDED: len(names)}
    assert (first.completed_count(), first.pending_count(), first.running_count()) == (len(names), 0, 0)


@pytest.mark.req("G-26", "G-12", "K-64")
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_concurrent_random_histories_leave_every_job_whole(ledger_url: str, seed: int) -> None:
    with IdempotentJobQueue(ledger_url) as queue:
        for name in NAMES:
            queue.enqueue(job(name))
        history, _ = random_histories(ledger_url, 100 * seed, NAMES)
        ended = check_history(ledger_url, queue, NAMES)
    assert ended.total() == len(NAMES)
    assert history.actions() == edges(ledger_url)
    # The histories are not trivial: several workers moved jobs, some conflicted, and some jobs ended.
    assert len(history.workers()) >= 2
    assert history.refused > 0
    assert ended[JobStatus.SUCCEEDED] > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 13))
def test_concurrent_random_histories_at_length(ledger_url: str, seed: int) -> None:
    names = [f"job-{n}" for n in range(100)]
    with IdempotentJobQueue(ledger_url) as queue:
        for name in names:
            queue.enqueue(job(name, max_attempts=1000))
        history, _ = random_histories(ledger_url, 100 * seed, names, steps=1500)
        assert check_history(ledger_url, queue, names).total() == len(names)
    assert history.actions() == edges(ledger_url)
