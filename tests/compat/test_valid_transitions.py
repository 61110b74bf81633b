"""Every transition that the table lists can be made, and leaves exactly its own mark in the database."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from holdfast.compat import VALID_TRANSITIONS, IdempotentJobQueue, JobStatus, StateTransition
from holdfast.core.decide import Move
from holdfast.core.errors import RefusedError
from holdfast.core.governed import GrantEvent, Release
from holdfast.core.machines import JobState
from holdfast.core.records import time_text
from holdfast.testing import START, VirtualClock
from tests.compat.actor import job
from tests.compat.support import job_row, mark, put, rows

PENDING, RUNNING, SUCCEEDED, FAILED, QUARANTINED = JobStatus

# The table as its source has it. Nothing else in the project restates it; that is why it stands here.
TABLE_OF_G = {
    PENDING: {RUNNING, PENDING},
    RUNNING: {SUCCEEDED, FAILED, RUNNING},
    FAILED: {PENDING, QUARANTINED, FAILED},
    SUCCEEDED: {SUCCEEDED},
    QUARANTINED: {PENDING, QUARANTINED},
}


@pytest.mark.req("G-01")
def test_statuses_are_the_five_words_and_are_text() -> None:
    assert [status.value for status in JobStatus] == ["pending", "running", "succeeded", "failed", "quarantined"]
    assert JobStatus is JobState
    assert isinstance(JobStatus.PENDING, str)
    assert f"{JobStatus.PENDING}" == "pending"


@pytest.mark.req("G-02", "G-03", "X-01")
def test_table_is_that_of_g_and_one_named_edge_more() -> None:
    joined = {source: set(targets) for source, targets in TABLE_OF_G.items()}
    joined[PENDING].add(QUARANTINED)  # X-01: the union of the sources' edges
    assert {source: set(targets) for source, targets in VALID_TRANSITIONS.items()} == joined
    assert PENDING not in VALID_TRANSITIONS[RUNNING]


@pytest.mark.req("G-04")
def test_a_transition_knows_whether_it_is_legal_and_whether_it_is_a_no_op() -> None:
    for source in JobStatus:
        for target in JobStatus:
            transition = StateTransition("a", source, target, START)
            assert transition.is_valid() == (target in VALID_TRANSITIONS[source])
            assert transition.is_idempotent() == (source is target)
            assert (transition.operator, transition.reason, transition.metadata) == (None, None, {})


EVENTS = {
    (PENDING, RUNNING): "claim",
    (PENDING, QUARANTINED): "quarantine",
    (RUNNING, SUCCEEDED): "succeed",
    (RUNNING, FAILED): "fail",
    (FAILED, PENDING): "retry",
    (FAILED, QUARANTINED): "quarantine",
}


@pytest.mark.req("G-02", "G-08", "G-10", "G-26", "K-11")
@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("source,target", EVENTS)
def test_valid_transitions(
    queue: IdempotentJobQueue, ledger_url: str, *, source: JobStatus, target: JobStatus, idempotent: bool
) -> None:
    put(queue, source, "a")
    before = job_row(ledger_url, "a")
    mark(queue, target, "a", idempotent=idempotent)
    after = job_row(ledger_url, "a")
    attempts = before["attempts"] + (target is RUNNING)
    assert (after["state"], after["version"], after["attempts"]) == (target, before["version"] + 1, attempts)
    journal = "SELECT source, target, event, actor, attempt FROM holdfast_edges WHERE machine = 'JOB'"
    assert rows(ledger_url, f"{journal} AND version = {after['version']}") == [
        (source, target, EVENTS[source, target], queue.worker, attempts)
    ]


def test_the_edges_tried_are_all_that_the_table_lists() -> None:
    tried = EVENTS.keys() | {(QUARANTINED, PENDING)}
    assert tried == {
        (source, target) for source, targets in VALID_TRANSITIONS.items() for target in targets if source is not target
    }


@pytest.mark.req("X-01", "G-02", "K-17")
def test_quarantined_to_pending_needs_a_grant(queue: IdempotentJobQueue, ledger_url: str, clock: VirtualClock) -> None:
    put(queue, QUARANTINED, "a")
    with pytest.raises(RefusedError) as refused:
        queue.reschedule("a", operator="ada", reason="fixed", idempotent=False)
    assert refused.value.context["refusal"] == "grant_required"
    queue.reschedule("a", operator="ada", reason="fixed")
    assert job_row(ledger_url, "a")["state"] == QUARANTINED

    with queue.store.transaction() as transaction:
        [found] = transaction.jobs.by_key([("compat", "a")]).values()
        grant_id = transaction.grants.request(
            action="release", target="a", scope="{}", actor="ada", reason="fixed", expires_at=clock.after(60)
        )
        for event, move_id in (("approve", "an act before"), ("consume", "one act")):
            grant = transaction.grants.get(grant_id)
            assert grant is not None
            command = GrantEvent(event, "ada", may_self_approve=True)
            assert isinstance(transaction.grants.move(grant, command, move_id=move_id), Move)
        [answer] = transaction.rulings.rule(
            [(found, Release("ada", "fixed", grant_id))],
            actor="ada",
            reason="fixed",
            move_id="one act",
            grant_id=grant_id,
        )
    assert isinstance(answer, Move)
    assert queue.get_job("a")["status"] is PENDING
    assert job_row(ledger_url, "a")["version"] == 3


@pytest.mark.req("G-18", "G-17", "G-24")
def test_rows_and_counts_follow_the_states_of_a_job(
    queue: IdempotentJobQueue, other: IdempotentJobQueue, clock: VirtualClock
) -> None:
    for name in ("a", "b", "c", "d"):
        queue.enqueue(job(name))
        clock.advance(1)
    queue.mark_running("a")
    queue.mark_running("b")
    queue.mark_completed("a")
    clock.advance(1)
    later = clock()
    queue.mark_failed("b", error_code="timeout", error_message="it took too long")
    queue.mark_running("c")

    counts: list[Callable[..., int]] = [
        other.pending_count, other.running_count, other.completed_count, other.failed_count,
    ]  # fmt: skip
    assert [count() for count in counts] == [1, 1, 1, 1]
    assert [count(since=later) for count in counts] == [0, 1, 0, 1]
    assert [count(START) for count in counts] == [1, 1, 1, 1]
    assert other.get_job("b") == {
        "job_id": "b",
        "ledger_id": 2,
        "job_type": "local_files",
        "payload": {"path": "/b"},
        "priority": 2,
        "scheduled_for": time_text(START + timedelta(seconds=1)),
        "status": FAILED,
        "attempts": 1,
        "created_at": time_text(START + timedelta(seconds=1)),
        "updated_at": time_text(later),
        "last_error_code": "timeout",
        "last_error_message": "it took too long",
    }
    assert [row["job_id"] for row in other.snapshot()] == ["d", "c", "b", "a"]
    assert [row["job_id"] for row in other.snapshot(limit=2)] == ["d", "c"]
    assert [row["job_id"] for row in other.snapshot(status=SUCCEEDED)] == ["a"]
    assert all(datetime.fromisoformat(row["updated_at"]).tzinfo is not None for row in other.snapshot())
