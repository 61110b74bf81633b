"""The journal row that the database writes for every edge: every column of it, in the transaction of the move.

Invariants: nothing here writes to the journal; what it says is compared with what the moves said.
"""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.machine import Machine, Path
from holdfast.core.machines import EXECUTION, GRANT, JOB, ExecutionStatus, JobState
from holdfast.core.pairing import DEPTH, JointMove, joint_moves
from tests.enforcement.raw import (
    AT,
    EXEC_IDS,
    GUARDED_BY_NAME,
    LATER,
    MACHINES_WITH_TABLES,
    Client,
    Hand,
    shortest,
    stored_time,
)

every_machine = pytest.mark.parametrize("machine", MACHINES_WITH_TABLES.values(), ids=MACHINES_WITH_TABLES)

LAST = "2030-01-02T03:04:05.000008Z"


def test_the_journal_of_a_job_has_every_column_of_every_move(client: Client, hand: Hand) -> None:
    """A whole life: submitted, claimed, lost, claimed, failed for good, released, claimed, done."""
    job = hand.born(JOB, actor="ann", reason="wanted", move_id="m1", updated_at=AT, created_at=AT)
    grant = hand.consumed_grant("m6")
    walk: list[tuple[str, str, int, dict[str, object]]] = [
        ("claim", "running", 1, {"actor": "w1", "reason": None, "move_id": "m2", "attempts": 1}),
        ("expire", "pending", 2, {"actor": "reaper", "reason": "lost", "move_id": "m3", "updated_at": LATER}),
        ("claim", "running", 1, {"actor": "w2", "reason": None, "move_id": "m4", "attempts": 2, "updated_at": LATER}),
        ("quarantine", "quarantined", 2, {"actor": "w2", "reason": "bad", "move_id": "m5", "updated_at": LATER}),
        ("release", "pending", 1, {"actor": "op", "reason": "ok", "move_id": "m6", "updated_at": LAST}),
        ("claim", "running", 1, {"actor": "w3", "reason": None, "move_id": "m7", "attempts": 3, "updated_at": LAST}),
        ("succeed", "succeeded", 1, {"actor": "w3", "reason": None, "move_id": "m8", "updated_at": LAST}),
    ]
    for event, target, edges, columns in walk:
        move = hand.move(JOB, job, event, target, edges, grant_id=grant if event == "release" else None, **columns)
        assert client.refusal(*move) is None

    def row(version: int, source: str | None, target: str, signed: str) -> dict[str, Any]:
        event, actor, reason, attempt, move_id, at = signed.split("/")
        return {
            "machine": "JOB", "subject": job, "version": version, "source": source, "target": target, "event": event,
            "actor": actor, "reason": reason or None, "attempt": int(attempt), "move_id": move_id,
            "grant_id": grant if event == "release" else None, "maintenance_id": None, "at": at,
        }  # fmt: skip

    assert client.journal("JOB", job) == [
        row(1, None, "pending", f"submit/ann/wanted/0/m1/{AT}"),
        row(2, "pending", "running", f"claim/w1//1/m2/{AT}"),
        row(3, "running", "failed", f"expire/reaper/lost/1/m3/{LATER}"),
        row(4, "failed", "pending", f"expire/reaper/lost/1/m3/{LATER}"),
        row(5, "pending", "running", f"claim/w2//2/m4/{LATER}"),
        row(6, "running", "failed", f"quarantine/w2/bad/2/m5/{LATER}"),
        row(7, "failed", "quarantined", f"quarantine/w2/bad/2/m5/{LATER}"),
        row(8, "quarantined", "pending", f"release/op/ok/2/m6/{LAST}"),
        row(9, "pending", "running", f"claim/w3//3/m7/{LAST}"),
        row(10, "running", "succeeded", f"succeed/w3//3/m8/{LAST}"),
    ]


@pytest.mark.req("K-17", "K-18", "K-19", "M-03")
@every_machine
def test_every_edge_of_every_machine_is_journalled_with_what_its_move_said(
    client: Client, hand: Hand, machine: Machine
) -> None:
    guarded = GUARDED_BY_NAME[machine.name]
    for path in machine.paths:
        subject, moved = _taken(hand, machine, path)
        columns = ["version", "actor", "reason", "move_id", "updated_at", "event"]
        columns += [] if guarded.attempt == "NULL" else [guarded.attempt]
        columns += ["grant_id"] if path.governed or machine is GRANT else []
        [values] = client.run(f"SELECT {', '.join(columns)} FROM {guarded.table} WHERE {guarded.id} = ?", subject)
        stored = dict(zip(columns, values, strict=True))
        journal = client.journal(machine.name, subject)
        assert [row["version"] for row in journal] == list(range(1, stored["version"] + 1))
        assert [(row["source"], row["target"]) for row in journal[-len(path.edges) :]] == [
            (edge.source, edge.target) for edge in path.edges
        ]
        for row in journal[-len(path.edges) :]:
            assert row["machine"] == machine.name
            assert (row["event"], row["actor"], row["reason"]) == (path.event, *moved)
            assert row["move_id"] == stored["move_id"]
            assert row["attempt"] == (None if guarded.attempt == "NULL" else stored[guarded.attempt])
            assert row["grant_id"] == stored.get("grant_id")
            assert row["maintenance_id"] is None
            # The same moment on both databases, whatever the session's time zone.
            assert stored_time(row["at"]) == stored_time(stored["updated_at"])
            assert row["at"] == AT


def _taken(hand: Hand, machine: Machine, path: Path) -> tuple[int, tuple[str, str]]:
    """Write a record that has just taken a path; return its id, and who moved it and why."""
    signed = {"actor": f"actor of {path.event}", "reason": f"reason of {path.event}"}
    if path.source is None:
        return hand.born(machine, path, **signed), (signed["actor"], signed["reason"])
    subject = hand.put(machine, path.source)
    hand.take(machine, subject, path, **signed)
    return subject, (signed["actor"], signed["reason"])


JOINT = [move for move in joint_moves() if move.execution]


@pytest.mark.req("K-17", "K-18", "K-19", "M-03")
@pytest.mark.parametrize("move", JOINT, ids=[f"{m.job or 'alone'}, {m.execution}, {m.event}" for m in JOINT])
def test_every_edge_of_an_attempt_is_shown_with_what_its_move_said(client: Client, hand: Hand, move: JointMove) -> None:
    """One stored row a move; the view has a row for each edge of the attempt, then for each edge of the job."""
    path = move.execution
    assert path is not None
    job = hand.attempt(path.source) if path.source else hand.born(JOB)
    [[version]] = client.run("SELECT version FROM holdfast_jobs WHERE job_id = ?", job)
    before = client.count("holdfast_journal")
    signed = {"actor": f"actor of {move.event}", "reason": f"reason of {move.event}"}
    if move.job is None:
        assert client.changed(*hand.step(job, move.event, path.target, **signed)) == 1
    else:
        status = None if path.target == ExecutionStatus.ABORTED else path.target
        hand.take(JOB, job, move.job, status=status, **signed)
    assert client.count("holdfast_journal") == before + 1
    attempt = job * EXEC_IDS + 1
    edges = client.journal("EXECUTION", attempt)[-len(path.edges) :]
    first = DEPTH[ExecutionStatus(path.source)] if path.source else 0
    assert [(row["version"], row["source"], row["target"]) for row in edges] == [
        (first + number, edge.source, edge.target) for number, edge in enumerate(path.edges, start=1)
    ]
    of_job = [row for row in client.journal("JOB", job) if row["version"] > version]
    assert [(row["source"], row["target"]) for row in of_job] == [
        (edge.source, edge.target) for edge in (move.job.edges if move.job else ())
    ]
    [[move_id]] = client.run("SELECT move_id FROM holdfast_jobs WHERE job_id = ?", job)
    for row in (*edges, *of_job):
        assert (row["actor"], row["reason"], row["move_id"], row["at"]) == (*signed.values(), move_id, AT)
        assert (row["attempt"], row["grant_id"], row["maintenance_id"]) == (1, None, None)
    assert {row["event"] for row in edges} == {path.event}
    assert {row["event"] for row in of_job} == ({move.event} if move.job else set())
    rows = client.run("SELECT machine, version FROM holdfast_edges WHERE move_id = ? ORDER BY seq, step", move_id)
    assert rows == [(row["machine"], row["version"]) for row in (*edges, *of_job)]


@pytest.mark.parametrize("status", [ExecutionStatus.LEASED, ExecutionStatus.IN_PROGRESS])
def test_an_attempt_that_ends_without_success_is_kept_with_what_it_was(
    client: Client, hand: Hand, status: ExecutionStatus
) -> None:
    job = hand.attempt(status)
    client.run("UPDATE holdfast_jobs SET progress = 0.5, progress_note = 'half' WHERE job_id = ?", job)
    client.run(*hand.request(job))
    hand.take(JOB, job, JOB.path("cancel", JobState.RUNNING), updated_at=LAST, last_error_code="boom", actor="ann")
    columns = (
        "exec_id, attempt, status, version, lease_owner, lease_token, excused, error_code, progress, progress_note"
    )
    columns += ", event, actor, finished_at, lease_expires_at, cancel_requested_at"
    [[*row, finished, expires, cancel_at]] = client.run(
        f"SELECT {columns} FROM holdfast_executions WHERE job_id = ?", job
    )
    depth = DEPTH[status] + 1
    assert row == [job * EXEC_IDS + 1, 1, "ABORTED", depth, "raw", 1, False, "boom", 0.5, "half", "cancel", "ann"]
    assert [stored_time(at) for at in (finished, expires, cancel_at)] == [
        stored_time(at) for at in (LAST, LATER, LATER)
    ]
    assert client.run("SELECT attempt, move_id FROM holdfast_aborted WHERE job_id = ?", job) == client.run(
        "SELECT attempts, move_id FROM holdfast_jobs WHERE job_id = ?", job
    )


def test_the_attempt_of_an_execution_and_the_grant_of_a_grant_are_journalled(client: Client, hand: Hand) -> None:
    job = hand.born(JOB)
    for _ in range(2):
        hand.take(JOB, job, JOB.path("claim", JobState.PENDING))
        hand.take(JOB, job, JOB.path("expire", JobState.RUNNING))
    hand.take(JOB, job, JOB.path("claim", JobState.PENDING))
    assert [row["attempt"] for row in client.journal("EXECUTION", job * EXEC_IDS + 3)] == [3, 3]
    assert [row["attempt"] for row in client.journal("EXECUTION", job * EXEC_IDS + 2)] == [2, 2, 2]
    grant = hand.consumed_grant()
    assert [row["grant_id"] for row in client.journal("GRANT", grant)] == [grant] * len(shortest(GRANT, "consumed"))


def test_every_path_of_an_attempt_is_tested() -> None:
    assert {move.execution for move in JOINT} == set(EXECUTION.paths)


@pytest.mark.req("G-12", "X-04")
def test_a_move_that_is_rolled_back_leaves_no_journal_row(committing: Client) -> None:
    hand = Hand(committing)
    job = hand.born(JOB)
    committing.commit()
    written, edges = committing.count("holdfast_journal"), committing.count("holdfast_edges")
    committing.begin()
    hand.take(JOB, job, JOB.path("claim", "pending"))
    hand.take(JOB, job, JOB.path("quarantine", "running"))
    # One row a move: the first is two edges of the attempt and one of the job, the second one and two.
    assert committing.count("holdfast_journal") == written + 2
    assert committing.count("holdfast_edges") == edges + 6
    assert committing.count("holdfast_aborted") == 1
    committing.rollback()
    assert committing.count("holdfast_journal") == written
    assert committing.count("holdfast_aborted") == 0
    assert committing.run("SELECT state, version FROM holdfast_jobs WHERE job_id = ?", job) == [("pending", 1)]


def test_a_move_that_is_rolled_back_to_a_savepoint_leaves_no_journal_row(client: Client, hand: Hand) -> None:
    job = hand.born(JOB)
    with client.undone():
        hand.take(JOB, job, JOB.path("claim", "pending"))
    hand.take(JOB, job, JOB.path("quarantine", "pending"))
    assert [(row["version"], row["target"]) for row in client.journal("JOB", job)] == [
        (1, "pending"),
        (2, "quarantined"),
    ]


def test_every_row_names_its_epoch_and_on_postgres_its_transaction(committing: Client) -> None:
    hand = Hand(committing)
    hand.born(JOB)
    hand.born(JOB)
    if committing.dialect == "postgres":
        [[xid]] = committing.run("SELECT pg_current_xact_id()::text::bigint")
    else:
        xid = 0
    assert committing.run("SELECT DISTINCT epoch, xid FROM holdfast_journal") == [(1, xid)]


def test_the_sequence_grows_in_the_order_of_the_edges(client: Client, hand: Hand) -> None:
    """One statement over many rows writes each row's edges in order."""
    jobs = [hand.put(JOB, JobState.RUNNING) for _ in range(10)]
    client.run(
        "UPDATE holdfast_jobs SET state = 'pending', status = NULL, due_at = run_at, lease_expires_at = NULL,"
        " event = 'expire', version = version + 2, move_id = 'lost' WHERE state = 'running'"
    )
    for job in jobs:
        rows = client.run("SELECT seq, step, version FROM holdfast_edges WHERE machine = 'JOB' AND subject = ?", job)
        assert [version for _, _, version in sorted(rows)] == [1, 2, 3, 4]
        rows = client.run("SELECT seq, version FROM holdfast_journal WHERE machine = 'JOB' AND subject = ?", job)
        assert [version for _, version in sorted(rows)] == [1, 2, 4]


def test_counts_follow_every_move(client: Client, hand: Hand) -> None:
    """The deltas add up to how many jobs are in each state, by operation and queue."""
    for state in JobState:
        for _ in range(3):
            hand.put(JOB, state)
    deltas = client.run("SELECT source, target, n FROM holdfast_count_deltas")
    counted = dict.fromkeys(JobState, 0)
    for source, target, n in deltas:
        counted[JobState(target)] += n
        if source is not None:
            counted[JobState(source)] -= n
    assert counted == dict.fromkeys(JobState, 3)
