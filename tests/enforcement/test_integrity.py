"""The damage that an integrity check looks for cannot be written by any client."""

from __future__ import annotations

import pytest

from holdfast.core.machines import JOB
from tests.enforcement.raw import Client, Hand

pytestmark = pytest.mark.attack("sql")

REQUIRED = {
    "holdfast_jobs": ("operation", "queue", "state", "version", "attempts", "run_at", "move_id"),
    "holdfast_calls": ("client", "digest", "created_at"),
}
COLUMNS = [(table, column) for table, columns in REQUIRED.items() for column in columns]


@pytest.mark.req("G-16")
def test_no_job_has_the_id_of_another(client: Client, hand: Hand) -> None:
    job = hand.born(JOB)
    assert client.refusal(*hand.birth(JOB, "submit", "pending", 1, job_id=job)) is not None


@pytest.mark.req("G-16")
@pytest.mark.parametrize("state", ["done", "PENDING", "", "in_progress"])
def test_an_unknown_state_of_a_job_is_refused(client: Client, hand: Hand, state: str) -> None:
    assert client.refusal(*hand.birth(JOB, "submit", state, 1)) is not None
    job = hand.born(JOB)
    assert client.refusal(*hand.move(JOB, job, "claim", state, 1)) is not None


@pytest.mark.req("G-16")
@pytest.mark.parametrize("column", ["attempts", "excused"])
def test_no_count_of_a_job_is_negative(client: Client, hand: Hand, column: str) -> None:
    assert client.refusal(*hand.birth(JOB, "submit", "pending", 1, **{column: -1})) is not None
    job = hand.born(JOB)
    assert client.refusal(f"UPDATE holdfast_jobs SET {column} = -1 WHERE job_id = ?", job) is not None


@pytest.mark.req("G-16")
@pytest.mark.parametrize("column", ["replay_attempts", "max_attempts"])
def test_no_count_of_a_call_is_negative(client: Client, hand: Hand, column: str) -> None:
    assert client.refusal(*hand.call(**{column: -1})) is not None
    job = hand.born(JOB)
    assert client.refusal(f"UPDATE holdfast_calls SET {column} = -1 WHERE job_id = ?", job) is not None


@pytest.mark.req("G-16")
@pytest.mark.parametrize("table, column", COLUMNS)
def test_no_required_field_of_a_job_is_missing(client: Client, hand: Hand, table: str, column: str) -> None:
    job = hand.born(JOB)
    assert client.refusal(f"UPDATE {table} SET {column} = NULL WHERE job_id = ?", job) is not None
