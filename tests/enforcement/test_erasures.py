"""Tracebacks and erasures: what both databases let a client write of them, and what they refuse."""

from __future__ import annotations

import pytest

from holdfast.core.machines import GRANT, JOB, ExecutionStatus, GrantState, JobState
from holdfast.store.enforcement import ERASE, Refusal
from tests.enforcement.raw import AT, DOOR, LATER, SHUT, Client, Hand

TRACEBACK = "INSERT INTO holdfast_tracebacks (job_id, attempt, text) VALUES (?, ?, 'File a.py, line 1')"
ERASED = (
    "INSERT INTO holdfast_erased (job_id, client, key_hash, erased_at, actor, reason, grant_id, move_id)"
    f" VALUES (?, 'raw', ?, '{AT}', 'ann', 'a request', ?, ?)"
)
NO_KEY = "UPDATE holdfast_calls SET key = NULL WHERE job_id = ?"


def erase_grant(hand: Hand, move_id: str, action: str = ERASE) -> int:
    """Write a grant to erase that a move has consumed."""
    grant = hand.born(GRANT, action=action)
    hand.take(GRANT, grant, GRANT.path("approve", GrantState.DRAFT))
    hand.take(GRANT, grant, GRANT.path("consume", GrantState.ACTIVE), move_id=move_id)
    return grant


@pytest.mark.attack("sql")
def test_a_traceback_belongs_to_an_attempt_and_is_never_changed(client: Client, hand: Hand) -> None:
    job = hand.attempt(ExecutionStatus.IN_PROGRESS)
    assert client.refusal(TRACEBACK, job, 2) == Refusal.ILLEGAL_BIRTH
    assert client.refusal(TRACEBACK, job + 1000, 1) == Refusal.ILLEGAL_BIRTH
    assert client.refusal(TRACEBACK, job, 1) is None
    assert client.refusal("UPDATE holdfast_tracebacks SET text = ''") == Refusal.APPEND_ONLY
    assert client.refusal("DELETE FROM holdfast_tracebacks") == Refusal.NEVER_DELETED
    if client.dialect == "sqlite":
        assert client.refusal(TRACEBACK.replace("INSERT", "INSERT OR REPLACE"), job, 1) == Refusal.ILLEGAL_BIRTH
    client.run(DOOR)
    assert client.refusal("DELETE FROM holdfast_tracebacks") is None
    client.run(SHUT)


@pytest.mark.attack("sql")
def test_an_erasure_needs_the_door_and_a_grant_that_its_move_consumed(client: Client, hand: Hand) -> None:
    job = hand.put(JOB, JobState.SUCCEEDED)
    grant, other = erase_grant(hand, "move-e"), erase_grant(hand, "move-r", action="release")
    assert client.refusal(ERASED, job, "h1", grant, "move-e") == Refusal.GRANT_REQUIRED
    client.run(DOOR)
    for given, move_id in ((grant, "another"), (other, "move-r"), (hand.born(GRANT, action=ERASE), "move-e")):
        assert client.refusal(ERASED, job, "h1", given, move_id) == Refusal.GRANT_REQUIRED
    assert client.refusal(ERASED, job, "h1", grant, "move-e") is None
    assert client.refusal(NO_KEY, job) is None
    client.run(SHUT)


@pytest.mark.attack("sql")
def test_an_erasure_is_kept_for_life_and_its_key_is_taken(client: Client, hand: Hand) -> None:
    job, second = hand.put(JOB, JobState.SUCCEEDED), hand.put(JOB, JobState.SUCCEEDED)
    client.run(DOOR)
    client.run(ERASED, job, "h1", erase_grant(hand, "move-1"), "move-1")
    again = client.refusal(ERASED, second, "h1", erase_grant(hand, "move-2"), "move-2")
    assert again == {"sqlite": Refusal.ILLEGAL_BIRTH, "postgres": "23505"}[client.dialect]
    for change in (f"UPDATE holdfast_erased SET erased_at = '{LATER}'", "DELETE FROM holdfast_erased"):
        assert client.refusal(change) == Refusal.APPEND_ONLY
    client.run(SHUT)
    assert client.count("holdfast_erased") == 1


@pytest.mark.attack("sql")
def test_outside_of_the_door_a_call_keeps_its_key_and_payload(client: Client, hand: Hand) -> None:
    job = hand.put(JOB, JobState.SUCCEEDED)
    assert client.refusal(NO_KEY, job) == Refusal.WRITE_ONCE
    assert client.refusal("UPDATE holdfast_calls SET payload = NULL WHERE job_id = ?", job) == Refusal.WRITE_ONCE
