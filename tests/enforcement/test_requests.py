"""Requests to cancel and counts of lost leases: what both databases journal and refuse, from any client."""

from __future__ import annotations

import pytest

from holdfast.core.machines import JOB, ExecutionStatus, JobState
from holdfast.store.enforcement import Refusal
from tests.enforcement.raw import AT, LATER, Client, Hand

HELD = (ExecutionStatus.LEASED, ExecutionStatus.IN_PROGRESS)
UNWANTED = "UPDATE holdfast_jobs SET {} WHERE job_id = ?"


@pytest.mark.parametrize("status", HELD)
def test_a_request_is_journalled_with_who_and_why(client: Client, hand: Hand, status: str) -> None:
    job = hand.requested(status)
    [row] = client.journal("REQUEST", job)
    [[move_id]] = client.run("SELECT cancel_move_id FROM holdfast_jobs WHERE job_id = ?", job)
    assert row == {
        "machine": "REQUEST", "subject": job, "version": 1, "source": None, "target": "requested",
        "event": "request_cancel", "actor": "ann", "reason": "not wanted", "attempt": 1, "move_id": move_id,
        "grant_id": None, "maintenance_id": None, "at": LATER,
    }  # fmt: skip


@pytest.mark.attack("sql")
@pytest.mark.parametrize("event", ["fail", "retry", "expire", "revoke", "give_back", "quarantine"])
def test_an_attempt_with_a_request_does_not_end_in_another_way(client: Client, hand: Hand, event: str) -> None:
    job = hand.requested()
    path = JOB.path(event, JobState.RUNNING)
    move = hand.move(JOB, job, event, path.target, len(path.edges), last_error_code="x", quarantine_code="x")
    assert client.refusal(*move) == Refusal.ILLEGAL_EDGE
    path = JOB.path("cancel", JobState.RUNNING)
    hand.take(JOB, job, path, last_error_code="cancelled", quarantine_code="cancelled")


def test_an_attempt_with_a_request_may_commit(client: Client, hand: Hand) -> None:
    job = hand.requested()
    hand.take(JOB, job, JOB.path("succeed", JobState.RUNNING))
    [[cancel_by]] = client.run("SELECT cancel_by FROM holdfast_jobs WHERE job_id = ?", job)
    assert cancel_by == "ann"  # too late, and it shows


@pytest.mark.attack("sql")
def test_a_request_is_signed_made_once_and_never_changed(client: Client, hand: Hand) -> None:
    job = hand.attempt(ExecutionStatus.IN_PROGRESS)
    assert client.refusal(*hand.request(job, cancel_by=None)) == Refusal.WRITE_ONCE
    assert client.refusal(*hand.request(job, cancel_move_id=None)) == Refusal.WRITE_ONCE
    assert client.refusal(*hand.request(job, cancel_requested_at=None)) == Refusal.WRITE_ONCE
    client.run(*hand.request(job))
    assert client.refusal(*hand.request(job, cancel_by="eve")) == Refusal.WRITE_ONCE
    for column in ("cancel_requested_at", "cancel_by", "cancel_reason", "cancel_move_id"):
        assert client.refusal(UNWANTED.format(f"{column} = NULL"), job) == Refusal.WRITE_ONCE, column
    assert len(client.journal("REQUEST", job)) == 1


@pytest.mark.attack("sql")
@pytest.mark.parametrize("state", [JobState.PENDING, JobState.FAILED, JobState.QUARANTINED, JobState.SUCCEEDED])
def test_only_a_running_attempt_gets_a_request(client: Client, hand: Hand, state: str) -> None:
    assert client.refusal(*hand.request(hand.put(JOB, state))) == Refusal.WRITE_ONCE
    assert client.refusal(*hand.request(hand.attempt(ExecutionStatus.COMMITTED))) == Refusal.WRITE_ONCE


@pytest.mark.attack("sql")
def test_lost_leases_are_counted_one_by_one(client: Client, hand: Hand) -> None:
    job = hand.attempt(ExecutionStatus.IN_PROGRESS)
    expire = JOB.path("expire", JobState.RUNNING)
    for lost in (2, 0, -1):
        move = hand.move(JOB, job, "expire", expire.target, len(expire.edges), lost=lost)
        assert client.refusal(*move) == Refusal.WRITE_ONCE
    hand.take(JOB, job, expire, lost=1)
    for other in (0, 2, None):
        assert client.refusal("UPDATE holdfast_jobs SET lost = ? WHERE job_id = ?", other, job) == Refusal.WRITE_ONCE
        claim = hand.move(JOB, job, "claim", "running", 1, lost=other)
        assert client.refusal(*claim) == Refusal.WRITE_ONCE
    birth = hand.birth(JOB, "submit", "pending", 1, lost=1, run_at=AT)
    assert client.refusal(*birth) == Refusal.ILLEGAL_BIRTH
