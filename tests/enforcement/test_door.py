"""The maintenance door: shut it refuses, open it lets its own transaction write, and leaves a record of both.

Invariants: the journal names the actor who opens the door, with the reason; a door never outlives its transaction.
"""

from __future__ import annotations

import sqlite3

import psycopg
import pytest

from holdfast.core.errors import EnforcementDriftError
from holdfast.core.machine import Machine
from holdfast.core.machines import JOB, SWITCH, VALUE, JobState
from holdfast.store import create_store, open_store
from holdfast.store.enforcement import Refusal
from holdfast.store.migrations import DOOR_OPEN
from tests.enforcement.raw import AT, GUARDED_BY_NAME, Client, Hand, Sql, refusal_of

pytestmark = pytest.mark.attack("sql")

OPEN = "INSERT INTO holdfast_maintenance (who, why, grant_id, opened_at) VALUES (?, ?, ?, ?) RETURNING maintenance_id"
SHUT = "DELETE FROM holdfast_maintenance WHERE maintenance_id = ?"


def opened(client: Client, who: str = "ann", why: str = "repair", grant: int | None = None) -> int:
    [[door]] = client.run(OPEN, who, why, grant, AT)
    return int(door)


def commit_refusal(client: Client) -> str | None:
    """Commit; return the code it is refused with, and end the transaction either way."""
    try:
        client.commit()
    except sqlite3.Error as error:
        client.rollback()
        return refusal_of(error)
    except psycopg.Error as error:
        return refusal_of(error)
    return None


def test_acts_refused_without_open_maintenance_pass_within_it_and_are_marked(client: Client, hand: Hand) -> None:
    job = hand.put(JOB, JobState.SUCCEEDED)
    illegal = hand.move(JOB, job, "repair", "failed", 1, actor="ann", reason="was never done", move_id="mend")
    payload = "UPDATE holdfast_calls SET payload = NULL WHERE job_id = ?"
    more = "UPDATE holdfast_jobs SET attempts = attempts + 5 WHERE job_id = ?"
    fewer = "UPDATE holdfast_jobs SET attempts = attempts - 2 WHERE job_id = ?"
    for refused, code in (
        (illegal, Refusal.ILLEGAL_EDGE),
        ((payload, job), Refusal.WRITE_ONCE),
        ((more, job), Refusal.WRITE_ONCE),
        ((fewer.replace("2", "1"), job), Refusal.NOT_MONOTONE),
    ):
        assert client.refusal(*refused) == code
    door = opened(client)
    for allowed in ((more, job), illegal, (payload, job), (fewer, job)):
        assert client.refusal(*allowed) is None
    client.run(SHUT, door)
    assert client.refusal(fewer, job) == Refusal.NOT_MONOTONE
    [*_, marked] = client.journal("JOB", job)
    assert marked == {
        "machine": "JOB", "subject": job, "version": 4, "source": "succeeded", "target": "failed", "event": "repair",
        "actor": "ann", "reason": "was never done", "attempt": 6, "move_id": "mend", "grant_id": None,
        "maintenance_id": door, "at": AT,
    }  # fmt: skip


def test_opening_and_shutting_are_journalled(client: Client, hand: Hand) -> None:
    grant = hand.consumed_grant()
    door = opened(client, "ann", "restore from backup", grant)
    client.run(SHUT, door)
    both = {
        "machine": "MAINTENANCE", "subject": door, "actor": "ann", "reason": "restore from backup", "attempt": None,
        "move_id": f"maintenance-{door}", "grant_id": grant, "maintenance_id": door, "at": AT,
    }  # fmt: skip
    assert client.journal("MAINTENANCE", door) == [
        {**both, "version": 1, "source": None, "target": "open", "event": "open"},
        {**both, "version": 2, "source": "open", "target": "shut", "event": "shut"},
    ]


def test_moves_before_and_after_maintenance_are_not_marked(client: Client, hand: Hand) -> None:
    job = hand.born(JOB)
    door = opened(client)
    hand.take(JOB, job, JOB.path("claim", "pending"))
    client.run(SHUT, door)
    hand.take(JOB, job, JOB.path("succeed", "running"))
    assert [row["maintenance_id"] for row in client.journal("JOB", job)] == [None, door, None]


def test_a_restored_record_brings_its_own_journal(client: Client, hand: Hand) -> None:
    """Under maintenance a record is inserted in any state with its own history: the database adds nothing."""
    door = opened(client)
    [[job]] = client.run(*hand.birth(JOB, "succeed", "succeeded", 3))
    assert client.journal("JOB", job) == []
    row = (
        "INSERT INTO holdfast_journal (epoch, xid, machine, subject, version, source, target, event, actor, move_id,"
        " maintenance_id, at) VALUES (1, 0, 'JOB', ?, ?, NULL, 'pending', 'submit', 'ann', 'm', ?, ?)"
    )
    assert client.refusal(row, job, 1, door, AT) is None
    client.run(SHUT, door)
    assert client.refusal(row, job, 4, door, AT) == Refusal.WRITTEN_BY_HAND


def test_a_record_and_its_journal_leave_only_through_the_door(client: Client, hand: Hand) -> None:
    """Archiving: rows go out under maintenance, never otherwise."""
    job = hand.put(JOB, JobState.SUCCEEDED)
    journal = "DELETE FROM holdfast_journal WHERE machine = 'JOB' AND subject = ?"
    record = "DELETE FROM holdfast_jobs WHERE job_id = ?"
    others = [f"DELETE FROM {table} WHERE job_id = ?" for table in ("holdfast_aborted", "holdfast_calls")]
    hand.put(JOB, JobState.FAILED)
    assert client.refusal(journal, job) == Refusal.APPEND_ONLY
    assert client.refusal(record, job) == Refusal.NEVER_DELETED
    for sql in others:
        assert client.refusal(sql.partition(" WHERE")[0]) == Refusal.NEVER_DELETED
    door = opened(client)
    assert client.refusal(journal, job) is None
    for sql in (record, *others):
        assert client.refusal(sql, job) is None
    assert client.refusal("DELETE FROM holdfast_aborted") is None
    client.run(SHUT, door)
    assert client.journal("JOB", job) == []


def test_the_door_does_not_open_everything(client: Client, hand: Hand) -> None:
    """Even under maintenance the journal is not rewritten, a move is signed, and a release needs its grant."""
    job = hand.put(JOB, JobState.QUARANTINED)
    opened(client)
    assert client.refusal("UPDATE holdfast_journal SET actor = 'nobody'") == Refusal.APPEND_ONLY
    assert client.refusal(*hand.move(JOB, job, "fail", "failed", 1, move_id=Sql("move_id"))) == Refusal.UNSIGNED
    assert client.refusal(*hand.move(JOB, job, "release", "pending", 1)) == Refusal.GRANT_REQUIRED
    assert client.refusal("UPDATE holdfast_aborted SET actor = 'x'") is None  # there is no such grant
    hand.put(JOB, JobState.FAILED)
    assert client.refusal("UPDATE holdfast_aborted SET actor = 'x'") == Refusal.APPEND_ONLY
    # A job and its attempt are mended as one row: half of it is refused.
    for half in ("state = 'running'", "status = 'DONE'", "due_at = run_at", "resting = NULL"):
        refusal = client.refusal(f"UPDATE holdfast_jobs SET {half}, move_id = 'half', version = version + 1")
        assert refusal == Refusal.ILLEGAL_EDGE, half


@pytest.mark.parametrize(
    "machine, event", [(VALUE, "retire"), (VALUE, "supersede"), (SWITCH, "lift")], ids=["retire", "supersede", "lift"]
)
def test_under_maintenance_a_governed_state_still_needs_its_grant(
    client: Client, hand: Hand, machine: Machine, event: str
) -> None:
    guarded = GUARDED_BY_NAME[machine.name]
    path = machine.path(event, next(machine.births()).target)
    moved, other = hand.put(machine, path.target), hand.born(machine)
    door = opened(client)
    back = hand.move(machine, moved, "repair", str(path.source), 1)  # as if it had been edited
    assert client.refusal(*back) is None
    assert client.refusal(*hand.move(machine, other, event, path.target, 1)) == Refusal.GRANT_REQUIRED
    client.run(SHUT, door)
    again = hand.move(machine, moved, event, path.target, 1)
    assert client.refusal(*again) == Refusal.GRANT_REQUIRED
    door = opened(client)
    assert client.refusal(*again) is None
    [[state]] = client.run(f"SELECT state FROM {guarded.table} WHERE {guarded.id} = ?", moved)
    assert state == path.target
    assert client.journal(machine.name, moved)[-1]["maintenance_id"] == door


@pytest.mark.parametrize("column", ["who", "why", "opened_at", "maintenance_id"])
def test_a_door_is_never_changed(client: Client, column: str) -> None:
    door = opened(client)
    other = {"opened_at": "2031-01-02T03:04:05.000006Z", "maintenance_id": door + 1}.get(column, "somebody else")
    assert client.refusal(f"UPDATE holdfast_maintenance SET {column} = ?", other) == Refusal.WRITE_ONCE


@pytest.mark.parametrize("who, why", [("", "why"), ("who", ""), (None, "why"), ("who", None)])
def test_a_door_names_who_and_why(client: Client, who: str | None, why: str | None) -> None:
    assert client.refusal(OPEN, who, why, None, AT) is not None
    assert client.count("holdfast_maintenance") == 0


def test_two_doors_at_once_are_refused(sqlite_client: Client) -> None:
    door = opened(sqlite_client)
    for verb in ("INSERT", "INSERT OR REPLACE"):
        again = OPEN.replace("INSERT", verb, 1)
        assert sqlite_client.refusal(again, "bob", "too", None, AT) == Refusal.DOOR_LEFT_OPEN
    sqlite_client.run(SHUT, door)
    assert sqlite_client.refusal(OPEN, "bob", "too", None, AT) is None


def test_a_door_left_open_keeps_its_transaction_from_committing(committing: Client) -> None:
    hand = Hand(committing)
    job = hand.put(JOB, JobState.SUCCEEDED)
    committing.commit()
    committing.begin()
    opened(committing)
    committing.run(*hand.move(JOB, job, "repair", "failed", 1))
    refusal = commit_refusal(committing)
    assert refusal == {"sqlite": "SQLITE_CONSTRAINT_FOREIGNKEY", "postgres": Refusal.DOOR_LEFT_OPEN}[committing.dialect]
    assert committing.count("holdfast_maintenance") == 0
    assert committing.run("SELECT state FROM holdfast_jobs") == [("succeeded",)]
    assert committing.run("SELECT count(*) FROM holdfast_journal WHERE machine = 'MAINTENANCE'") == [(0,)]


def test_a_door_that_was_shut_lets_its_transaction_commit(committing: Client) -> None:
    hand = Hand(committing)
    job = hand.put(JOB, JobState.SUCCEEDED)
    door = opened(committing)
    committing.run(*hand.move(JOB, job, "repair", "failed", 1))
    committing.run(SHUT, door)
    assert commit_refusal(committing) is None
    assert committing.run("SELECT state FROM holdfast_jobs") == [("failed",)]
    assert [row["event"] for row in committing.journal("MAINTENANCE", door)] == ["open", "shut"]


def test_no_column_or_setting_hides_an_open_door(committing: Client) -> None:
    """The columns that the deferred check reads cannot be written by the one who opens the door."""
    attempts = {
        "sqlite": [
            "INSERT INTO holdfast_maintenance (who, why, opened_at, shut_before_commit) VALUES ('a', 'b', '', 'epoch')",
            "INSERT INTO holdfast_meta (name, value) VALUES ('must be gone at commit', '')",
        ],
        "postgres": ["INSERT INTO holdfast_maintenance (who, why, xid) VALUES ('a', 'b', 1)"],
    }[committing.dialect]
    for attempt in attempts:
        committing.refusal(attempt)
        committing.refusal(OPEN, "ann", "why", None, AT)
        assert commit_refusal(committing) is not None, attempt
        committing.begin()


def test_a_ledger_with_an_open_door_is_not_opened(sqlite_url: str) -> None:
    """A client that does not check references can leave one; the next opening of the ledger must report it."""
    create_store(sqlite_url).close()
    client = Client(sqlite_url)
    client.rollback()
    client.run("PRAGMA foreign_keys = OFF")
    opened(client)
    client.close()
    with pytest.raises(EnforcementDriftError) as caught:
        open_store(sqlite_url)
    assert caught.value.context == {"differs": [DOOR_OPEN]}


def test_the_door_of_another_transaction_opens_nothing(new_postgres_ledger: str) -> None:
    """On PostgreSQL two transactions write at once; a door belongs to one of them."""
    one, other = Client(new_postgres_ledger), Client(new_postgres_ledger)
    hand = Hand(one)
    job = hand.put(JOB, JobState.SUCCEEDED)
    one.commit()
    one.begin()
    opened(one)
    illegal = hand.move(JOB, job, "repair", "failed", 1)
    assert other.refusal(*illegal) == Refusal.ILLEGAL_EDGE
    # Nor can a door be opened under the other's number.
    [[xid]] = one.run("SELECT pg_current_xact_id()::text::bigint")
    borrowed = "INSERT INTO holdfast_maintenance (who, why, xid) VALUES ('a', 'b', ?)"
    assert other.refusal(borrowed, xid) == Refusal.WRITTEN_BY_HAND
    other.close()
    assert one.refusal(*illegal) is None
    one.close()
