"""The store's verb beneath `mark_running`: it leases the named jobs that can be leased."""

import threading

import pytest

from holdfast.core.commands import Cancel
from holdfast.core.decide import Move
from holdfast.core.records import Job
from holdfast.governance.switches import lift, throw
from holdfast.store import Declared, Lease, Store, Submission, create_store
from holdfast.testing import VirtualClock
from tests.compat.support import everything, rows

LEASE = Lease(owner="ada", seconds=30)


@pytest.fixture
def store(ledger_url: str, clock: VirtualClock) -> Store[object]:
    return create_store(ledger_url, clock)


def _submit(store: Store[object], *submissions: Submission) -> list[int]:
    with store.transaction() as transaction:
        return [admission.job_id for admission in transaction.jobs.submit(submissions, actor="test")]


@pytest.mark.req("K-11", "K-32", "G-29")
def test_claim_these_leases_only_the_named_jobs(store: Store[object], ledger_url: str, clock: VirtualClock) -> None:
    due = Submission(operation="noop", payload="{}")
    later = Submission(operation="noop", payload="{}", run_at=clock.after(1))
    elsewhere = Submission(operation="noop", payload="{}", queue="elsewhere")
    first, second, not_due, other_queue, unnamed = _submit(store, due, due, later, elsewhere, due)
    with store.transaction() as transaction:
        won = transaction.executions.claim_these([second, first, second, not_due, other_queue, 999], LEASE)
        assert transaction.executions.claim_these([first, second], LEASE) == []
        assert transaction.executions.claim_these([], LEASE) == []
    assert [attempt.job.job_id for attempt in won] == [first, second, other_queue]
    assert {attempt.execution.lease_expires_at for attempt in won} == {clock.after(30)}
    assert rows(ledger_url, "SELECT job_id, state, attempts FROM holdfast_jobs ORDER BY job_id") == [
        (first, "running", 1),
        (second, "running", 1),
        (not_due, "pending", 0),
        (other_queue, "running", 1),
        (unnamed, "pending", 0),
    ]
    with store.reading() as reading:
        for attempt in won:
            assert reading.lists.attempt(attempt.execution.exec_id) == attempt
    clock.advance(1)
    with store.transaction() as transaction:
        [late] = transaction.executions.claim_these([not_due], LEASE)
    assert late.job.job_id == not_due
    store.close()


def test_a_paused_queue_is_not_leased_from(store: Store[object], ledger_url: str) -> None:
    [job_id] = _submit(store, Submission(operation="noop", payload="{}"))
    with store.transaction() as transaction:
        transaction.queues.pause("default", actor="ada", reason="maintenance")
    before = everything(ledger_url)
    with store.transaction() as transaction:
        assert transaction.executions.claim_these([job_id], LEASE) == []
    assert everything(ledger_url) == before
    store.close()


@pytest.mark.req("K-55")
def test_an_operation_that_is_switched_off_is_not_leased(store: Store[object], ledger_url: str) -> None:
    with store.transaction() as transaction:
        transaction.operations.declare({name: Declared() for name in ("a", "ab")})
    stopped, alike = _submit(store, *(Submission(operation=name, payload="{}") for name in ("a", "ab")))
    throw(store, "operation:a", actor="ada", reason="it eats disks")
    before = everything(ledger_url)
    with store.transaction() as transaction:
        assert transaction.executions.claim_these([stopped], LEASE) == []
    assert everything(ledger_url) == before
    with store.transaction() as transaction:
        assert [attempt.job.job_id for attempt in transaction.executions.claim_these([stopped, alike], LEASE)] == [
            alike
        ]
    lift(store, "operation:a", actor="ada", reason="larger disks")
    with store.transaction() as transaction:
        assert [attempt.job.job_id for attempt in transaction.executions.claim_these([stopped], LEASE)] == [stopped]
    store.close()


@pytest.mark.req("K-32")
def test_claim_these_waits_for_a_transaction_that_has_locked_the_job(
    store: Store[object], ledger_url: str, clock: VirtualClock
) -> None:
    [job_id] = _submit(store, Submission(operation="noop", payload="{}"))
    rival = create_store(ledger_url, clock)
    answers: list[list[object]] = []

    def claim() -> None:
        with rival.transaction() as transaction:
            answers.append(list(transaction.executions.claim_these([job_id], LEASE)))

    with store.transaction() as transaction:
        job: Job = transaction.jobs.get(job_id)
        [answer] = transaction.rulings.rule([(job, Cancel())], actor="ada")
        assert isinstance(answer, Move)
        waiting = threading.Thread(target=claim)
        waiting.start()
        waiting.join(timeout=0.3)
        assert waiting.is_alive()
        assert answers == []
    waiting.join()
    assert answers == [[]]
    assert rows(ledger_url, "SELECT state, attempts FROM holdfast_jobs") == [("quarantined", 0)]
    assert rows(ledger_url, "SELECT count(*) FROM holdfast_executions") == [(0,)]
    for opened in (store, rival):
        opened.close()
