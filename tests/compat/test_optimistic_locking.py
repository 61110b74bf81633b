"""A move is written only if the job is still as it was read: the loser of a race gets an error, or decides again."""

import logging
import threading
from collections.abc import Callable

import pytest

from holdfast.compat import (
    IdempotentJobQueue,
    JobStatus,
    LeaseLostError,
    StateMachineValidator,
    StateTransition,
    StateTransitionRaceError,
)
from holdfast.core.errors import HoldfastError
from holdfast.testing import VirtualClock
from tests.compat.actor import Memory, job
from tests.compat.conftest import Open
from tests.compat.support import everything, job_row, mark, put, rows

PENDING, RUNNING, SUCCEEDED, FAILED, QUARANTINED = JobStatus


class Interrupted(StateMachineValidator):
    """A validator that lets another process write after its first judgement: the gap between read and write."""

    def __init__(self, audit: Memory) -> None:
        super().__init__(audit)
        self.meanwhile: Callable[[], object] | None = None

    def judge(
        self, job_id: str, from_status: JobStatus, to_status: JobStatus, *, operator: str | None = None,
        reason: str | None = None,
    ) -> StateTransition:  # fmt: skip
        judged = super().judge(job_id, from_status, to_status, operator=operator, reason=reason)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile:
            meanwhile()
        return judged


# What was read, what is requested, what another process does meanwhile; then, if the loser decides anew, the last
# state of the job and what the loser did to it.
RACES: dict[str, tuple[JobStatus, JobStatus, JobStatus, JobStatus, list[str]]] = {
    "claimed twice": (PENDING, RUNNING, RUNNING, RUNNING, []),
    "claimed, then to be quarantined": (PENDING, QUARANTINED, RUNNING, RUNNING, []),
    "quarantined, then to be claimed": (PENDING, RUNNING, QUARANTINED, QUARANTINED, []),
    "retried twice": (FAILED, PENDING, PENDING, PENDING, []),
    "retried, then to be quarantined": (
        FAILED, QUARANTINED, PENDING, QUARANTINED, ["transition_pending_to_quarantined"],
    ),
    "quarantined, then to be retried": (FAILED, PENDING, QUARANTINED, QUARANTINED, []),
    "quarantined twice": (FAILED, QUARANTINED, QUARANTINED, QUARANTINED, []),
}  # fmt: skip


@pytest.mark.req("G-10", "G-11", "G-12", "G-26", "K-32")
@pytest.mark.parametrize("name", RACES)
@pytest.mark.parametrize("idempotent", [True, False])
def test_optimistic_locking(
    opened: Open, other: IdempotentJobQueue, ledger_url: str, *, name: str, idempotent: bool
) -> None:
    read, requested, meanwhile, end, done = RACES[name]
    audit = Memory()
    validator = Interrupted(audit)
    queue = opened(validator)
    # Work before the race, on the same connection: a counter of all its changes would hide that this write made none.
    put(queue, SUCCEEDED, "before")
    put(other, read, "a")
    heard = len(audit.events)
    validator.meanwhile = lambda: mark(other, meanwhile, "a", idempotent=False)
    if idempotent:
        mark(queue, requested, "a", idempotent=True)
        assert job_row(ledger_url, "a")["state"] == end
        assert [event.action for event in audit.events[heard:]] == done
    else:
        with pytest.raises(StateTransitionRaceError) as race:
            mark(queue, requested, "a", idempotent=False)
        assert race.value.context == {"job_id": "a", "refusal": "race"}
        assert job_row(ledger_url, "a")["state"] == meanwhile
        assert audit.events[heard:] == []
    assert validator.meanwhile is None


@pytest.mark.req("G-13", "M-06")
@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("end", [SUCCEEDED, FAILED])
def test_a_late_worker_cannot_end_the_attempt_of_another(
    queue: IdempotentJobQueue, other: IdempotentJobQueue, ledger_url: str, clock: VirtualClock, *, end: JobStatus,
    idempotent: bool,
) -> None:  # fmt: skip
    put(queue, RUNNING, "a")
    clock.advance(600)
    assert other.expire("a") is PENDING
    assert other.claim("a") is not None
    before = everything(ledger_url)
    if idempotent:
        mark(queue, end, "a", idempotent=True)
    else:
        with pytest.raises(LeaseLostError):
            mark(queue, end, "a", idempotent=False)
    assert queue.heartbeat("a") is False
    assert everything(ledger_url) == before
    mark(other, end, "a", idempotent=False)
    after = job_row(ledger_url, "a")
    assert (after["state"], after["attempts"], after["actor"]) == (end, 2, other.worker)


@pytest.mark.req("G-13")
def test_a_worker_whose_lease_ran_out_cannot_end_its_own_attempt(
    queue: IdempotentJobQueue, ledger_url: str, clock: VirtualClock
) -> None:
    put(queue, RUNNING, "a")
    clock.advance(600)
    before = everything(ledger_url)
    with pytest.raises(LeaseLostError) as lost:
        queue.mark_completed("a", idempotent=False)
    assert lost.value.context == {"job_id": "a", "refusal": "lease_expired"}
    assert everything(ledger_url) == before


@pytest.mark.req("G-13", "G-29")
def test_threads_that_share_a_queue_tell_their_claims_apart_by_token(
    queue: IdempotentJobQueue, ledger_url: str, clock: VirtualClock
) -> None:
    queue.enqueue(job("a"))
    queue.enqueue(job("b"))
    first = queue.claim("a")
    clock.advance(600)
    queue.expire("a")
    second, foreign = queue.claim("a"), queue.claim("b")
    assert first is not None
    assert second is not None
    assert foreign is not None
    assert first.token < second.token
    before = everything(ledger_url)
    for wrong in (first, foreign):
        with pytest.raises(LeaseLostError):
            queue.mark_completed("a", token=wrong, idempotent=False)
        queue.mark_completed("a", token=wrong)
    assert queue.heartbeat("a", token=first) is False
    assert everything(ledger_url) == before
    assert queue.heartbeat("a", token=second) is True
    queue.mark_completed("a", token=second, idempotent=False)
    assert job_row(ledger_url, "a")["state"] == SUCCEEDED


@pytest.mark.req("G-10", "G-29", "K-32", "K-64")
@pytest.mark.parametrize("how", ["claim", "mark_running"])
def test_of_many_workers_that_claim_one_job_one_gets_it(opened: Open, ledger_url: str, how: str) -> None:
    queues = [opened() for _ in range(8)]
    names = [f"job-{n}" for n in range(10)]
    for name in names:
        queues[0].enqueue(job(name))
    start = threading.Barrier(len(queues))
    won: list[tuple[str, str]] = []
    failures: list[BaseException] = []

    def work(queue: IdempotentJobQueue) -> None:
        try:
            start.wait()
            for name in names:
                if how == "claim":
                    if queue.claim(name):
                        won.append((name, queue.worker))
                else:
                    try:
                        queue.mark_running(name, idempotent=False)
                        won.append((name, queue.worker))
                    except StateTransitionRaceError:
                        pass
        except HoldfastError as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(queue,)) for queue in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(name for name, _ in won) == sorted(names)
    held = rows(
        ledger_url,
        "SELECT c.key, e.lease_owner, e.attempt FROM holdfast_executions e"
        " JOIN holdfast_calls c ON c.job_id = e.job_id WHERE e.status = 'IN_PROGRESS'",
    )
    assert sorted(held) == sorted((name, worker, 1) for name, worker in won)


@pytest.mark.req("G-08")
def test_a_skipped_move_says_why(
    queue: IdempotentJobQueue, other: IdempotentJobQueue, caplog: pytest.LogCaptureFixture
) -> None:
    put(queue, RUNNING, "a")
    caplog.clear()
    other.mark_completed("a")
    [record] = caplog.records
    assert (record.levelno, record.__dict__["job_id"], record.__dict__["code"]) == (logging.WARNING, "a", "lease_lost")
