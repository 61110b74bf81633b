"""What both databases refuse from any client, each with its own code, and what they then leave untouched.

Invariants: every statement here goes through a plain driver; a refused statement leaves the record and the journal as
they were.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from holdfast.core.machine import Machine
from holdfast.core.machines import (
    EXECUTION,
    GRANT,
    JOB,
    MACHINES,
    PROCEDURE,
    REQUEST,
    SETTING,
    STEP,
    SWITCH,
    VALUE,
    ExecutionStatus,
    GrantState,
    JobState,
    ProcedureState,
)
from holdfast.store.enforcement import Refusal
from holdfast.store.tables import Guarded, table_named
from tests.enforcement.raw import (
    AT,
    DOOR,
    EXEC_IDS,
    GUARDED_BY_NAME,
    LATER,
    MACHINES_WITH_TABLES,
    SHUT,
    Client,
    Hand,
    Sql,
    shortest,
)

pytestmark = pytest.mark.attack("sql")

every_machine = pytest.mark.parametrize("machine", MACHINES_WITH_TABLES.values(), ids=MACHINES_WITH_TABLES)

UNIQUE_VIOLATION = "23505"
FOREIGN_KEY_VIOLATION = "23503"
NOT_NULL_VIOLATION = {"sqlite": "SQLITE_CONSTRAINT_NOTNULL", "postgres": "23502"}
JOURNAL_ROW = (
    "INSERT INTO holdfast_journal (epoch, xid, machine, subject, version, source, target, event, actor, move_id, at)"
    " VALUES (1, 0, ?, ?, ?, NULL, 'pending', 'submit', 'forger', 'forged', ?)"
)


def row_of(client: Client, guarded: Guarded, subject: int) -> list[tuple[Any, ...]]:
    return client.run(f"SELECT * FROM {guarded.table} WHERE {guarded.id} = ?", subject)


@contextmanager
def untouched(client: Client, *tables: str) -> Iterator[None]:
    """Assert that the block leaves every row of these tables, and of the journal, as it was."""

    def everything() -> dict[str, list[tuple[Any, ...]]]:
        return {
            table: sorted(client.run(f"SELECT * FROM {table}"), key=repr) for table in (*tables, "holdfast_journal")
        }

    before = everything()
    yield
    assert everything() == before


# -- births -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("K-10")
@pytest.mark.parametrize("state", [state for state in JobState if state != JobState.PENDING])
def test_a_job_is_inserted_only_as_pending(client: Client, hand: Hand, state: JobState) -> None:
    with untouched(client, "holdfast_jobs"):
        assert client.refusal(*hand.birth(JOB, "submit", state, 1)) == Refusal.ILLEGAL_BIRTH


@pytest.mark.req("K-10", "K-20", "X-06")
@pytest.mark.parametrize("version, attempts, excused", [(1, 1, 0), (1, 1, 1), (2, 0, 0)])
def test_a_job_is_inserted_without_attempts_at_version_one(
    client: Client, hand: Hand, version: int, attempts: int, excused: int
) -> None:
    birth = hand.birth(JOB, "submit", "pending", version, attempts=attempts, excused=excused)
    assert client.refusal(*birth) == Refusal.ILLEGAL_BIRTH


@pytest.mark.req("K-01", "K-10", "G-19")
@every_machine
def test_insert_or_replace_cannot_replace_a_record_by_its_id(sqlite_client: Client, machine: Machine) -> None:
    hand, guarded = Hand(sqlite_client), GUARDED_BY_NAME[machine.name]
    birth = next(machine.births())
    subject = hand.put(machine, birth.target)
    grant = hand.governed() if birth.governed else {}
    insert, *params = hand.birth(machine, birth.event, birth.target, 1, **{guarded.id: subject, **grant})
    with untouched(sqlite_client, guarded.table):
        for verb in ("INSERT", "INSERT OR REPLACE", "REPLACE", "INSERT OR IGNORE", "INSERT OR FAIL"):
            statement = insert.replace("INSERT", verb, 1)
            assert sqlite_client.refusal(statement, *params) == Refusal.ILLEGAL_BIRTH, verb
        upsert = insert.replace(" RETURNING", f" ON CONFLICT DO UPDATE SET {guarded.state} = 'x' RETURNING")
        assert sqlite_client.refusal(upsert, *params) == Refusal.ILLEGAL_BIRTH


@pytest.mark.req("K-01", "K-10")
@pytest.mark.parametrize(
    "machine, columns",
    [
        (PROCEDURE, {"idempotency_root": "r"}),
        (VALUE, {"operation_code": "o", "protocol_version": "1.0.0"}),
        (VALUE, {"vocab_id": "v"}),
        # Those that no two records share only while they are in some states.
        (GRANT, {"action": "a", "target": "t", "scope": "{}"}),
        (STEP, {"number": 1}),
        (VALUE, {"operation_code": "o", "act_type": "a"}),
        (SWITCH, {"name": "s"}),
        (SETTING, {"kind": "k", "name": "s"}),
    ],
    ids=["PROCEDURE", "VALUE", "VALUE by id", "GRANT", "STEP", "VALUE by act", "SWITCH", "SETTING"],
)
def test_insert_or_replace_cannot_replace_a_record_by_its_key(
    sqlite_client: Client, machine: Machine, columns: dict[str, object]
) -> None:
    hand = Hand(sqlite_client)
    birth = next(machine.births())
    if machine is STEP:
        columns = {**columns, "run_id": hand.born(PROCEDURE)}
    if "act_type" in columns:
        columns = {**columns, "protocol_version": "1.0.0"}
    hand.born(machine, birth, **columns)
    more = hand.governed() if birth.governed else {}
    if "act_type" in columns:
        more["protocol_version"] = "2.0.0"
    insert, *params = hand.birth(machine, birth.event, birth.target, 1, **{**columns, **more})
    with untouched(sqlite_client, GUARDED_BY_NAME[machine.name].table):
        for verb in ("INSERT", "INSERT OR REPLACE", "REPLACE"):
            statement = insert.replace("INSERT", verb, 1)
            assert sqlite_client.refusal(statement, *params) == Refusal.ILLEGAL_BIRTH, verb


@pytest.mark.req("K-01", "K-10")
def test_insert_or_replace_cannot_replace_a_call(sqlite_client: Client) -> None:
    """A call has the key for life: neither its id nor its key makes room for another."""
    hand = Hand(sqlite_client)
    job = hand.born(JOB, client="c", key="k")
    with untouched(sqlite_client, "holdfast_calls", "holdfast_jobs"):
        for verb in ("INSERT", "INSERT OR REPLACE", "REPLACE", "INSERT OR IGNORE", "INSERT OR FAIL"):
            for columns in ({"client": "c", "key": "k"}, {"job_id": job}, {"job_id": job, "client": "c", "key": "k"}):
                assert sqlite_client.refusal(*hand.call(verb, **columns)) == Refusal.ILLEGAL_BIRTH, (verb, columns)


ALONE = [guarded for guarded in GUARDED_BY_NAME.values() if guarded.alone]


@pytest.mark.parametrize("guarded", ALONE, ids=[guarded.machine.name for guarded in ALONE])
def test_a_duplicate_record_is_inserted_only_after_the_first_has_moved_on(
    client: Client, hand: Hand, guarded: Guarded
) -> None:
    """Of two equal grants one would be left over; a step is performed, a code in force and a switch on only once."""
    machine, refused = guarded.machine, Refusal.ILLEGAL_BIRTH if client.dialect == "sqlite" else UNIQUE_VIOLATION
    assert guarded.alone is not None
    columns, states = guarded.alone
    birth = next(machine.births())
    select = f"SELECT {', '.join(columns)} FROM {guarded.table} WHERE {guarded.id} = ?"
    for end in machine.states:
        if end in states:
            continue
        first = hand.born(machine)
        [same] = client.run(select, first)
        for path in (None, *shortest(machine, end)[1:]):
            if path:
                hand.take(machine, first, path)
            alike: dict[str, object] = dict(zip(columns, same, strict=True))
            if machine is VALUE:
                alike["protocol_version"] = hand.unique("version")
            signature = hand.governed() if birth.governed else {}
            again = hand.birth(machine, birth.event, birth.target, 1, **{**signature, **alike})
            stands = (path or birth).target in states
            assert client.refusal(*again) == (refused if stands else None), (end, path)


@pytest.mark.req("K-01", "K-10")
def test_a_second_row_with_an_id_or_key_is_a_unique_violation_on_postgres(postgres_client: Client) -> None:
    hand = Hand(postgres_client)
    job = hand.born(JOB, client="c", key="k")
    with untouched(postgres_client, "holdfast_jobs", "holdfast_calls"):
        for columns in ({"job_id": job}, {"client": "c", "key": "k"}):
            assert postgres_client.refusal(*hand.call(**columns)) == UNIQUE_VIOLATION
        assert postgres_client.refusal(*hand.birth(JOB, "submit", "pending", 1, job_id=job)) == UNIQUE_VIOLATION


def test_a_job_needs_a_call(client: Client, hand: Hand) -> None:
    hand.born(JOB)
    with untouched(client, "holdfast_jobs"):
        assert client.refusal(*hand.birth(JOB, "submit", "pending", 1, job_id=999_999)) == Refusal.ILLEGAL_BIRTH


# -- deleting ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("K-01")
@every_machine
def test_a_record_is_never_deleted(client: Client, hand: Hand, machine: Machine) -> None:
    guarded = GUARDED_BY_NAME[machine.name]
    subjects = [hand.put(machine, state) for state in machine.states]
    with untouched(client, guarded.table):
        for subject in subjects:
            delete = f"DELETE FROM {guarded.table} WHERE {guarded.id} = ?"
            assert client.refusal(delete, subject) == Refusal.NEVER_DELETED
        assert client.refusal(f"DELETE FROM {guarded.table}") == Refusal.NEVER_DELETED


def test_a_call_and_an_ended_attempt_are_never_deleted(client: Client, hand: Hand) -> None:
    hand.put(JOB, JobState.FAILED)
    assert client.count("holdfast_aborted") == 1
    for table in ("holdfast_calls", "holdfast_aborted"):
        with untouched(client, table):
            assert client.refusal(f"DELETE FROM {table}") == Refusal.NEVER_DELETED


TABLES = [*(g.table for g in GUARDED_BY_NAME.values()), "holdfast_calls", "holdfast_aborted", "holdfast_maintenance"]


@pytest.mark.parametrize("table", TABLES)
def test_no_table_of_records_is_truncated(postgres_client: Client, table: str) -> None:
    assert postgres_client.refusal(f"TRUNCATE {table} CASCADE") == Refusal.NEVER_DELETED


# -- columns that never change, or only grow --------------------------------------------------------------------------

ONCE = [(guarded, column) for guarded in GUARDED_BY_NAME.values() for column in guarded.write_once]


@pytest.mark.req("K-01", "K-05", "M-01")
@pytest.mark.parametrize("guarded, column", ONCE, ids=[f"{g.table}.{column}" for g, column in ONCE])
def test_a_write_once_column_never_changes(client: Client, hand: Hand, guarded: Guarded, column: str) -> None:
    subject = hand.born(guarded.machine)
    other = {
        "created_at": LATER, "expires_at": AT, "history_from": 2, "number": 7, "priority": 7,
        "run_id": hand.born(PROCEDURE),
    }.get(column, "something else")  # fmt: skip
    update = f"UPDATE {guarded.table} SET {column} = ? WHERE {guarded.id} = ?"
    with untouched(client, guarded.table):
        assert client.refusal(update, other, subject) == Refusal.WRITE_ONCE
        [[same]] = client.run(f"SELECT {column} FROM {guarded.table} WHERE {guarded.id} = ?", subject)
        assert client.refusal(update, same, subject) is None


@pytest.mark.req("K-01", "K-05", "M-01")
@pytest.mark.parametrize("column", table_named("calls").names)
def test_a_call_never_changes(client: Client, hand: Hand, column: str) -> None:
    job, other = hand.born(JOB), hand.born(JOB)
    changed = {
        "created_at": LATER, "job_id": 7777, "max_attempts": 7, "replay_attempts": 7, "replaces": other,
    }.get(column, "something else")  # fmt: skip
    update = f"UPDATE holdfast_calls SET {column} = ? WHERE job_id = ?"
    with untouched(client, "holdfast_calls"):
        assert client.refusal(update, changed, job) == Refusal.WRITE_ONCE
        [[same]] = client.run(f"SELECT {column} FROM holdfast_calls WHERE job_id = ?", job)
        assert client.refusal(update, same, job) is None


def test_a_key_is_neither_taken_away_nor_given_later(client: Client, hand: Hand) -> None:
    keyed, keyless = hand.born(JOB), hand.born(JOB, key=None)
    for key, job in ((None, keyed), ("late", keyless)):
        assert client.refusal("UPDATE holdfast_calls SET key = ? WHERE job_id = ?", key, job) == Refusal.WRITE_ONCE


@every_machine
def test_an_id_never_changes(client: Client, hand: Hand, machine: Machine) -> None:
    guarded = GUARDED_BY_NAME[machine.name]
    subject = hand.born(machine)
    names = [guarded.id, *(("rowid", "_rowid_", "oid") if client.dialect == "sqlite" else ())]
    with untouched(client, guarded.table):
        for name in names:
            update = f"UPDATE {guarded.table} SET {name} = 12345 WHERE {guarded.id} = ?"
            assert client.refusal(update, subject) == Refusal.WRITE_ONCE, name


def test_update_or_replace_cannot_push_out_another_job(sqlite_client: Client) -> None:
    hand = Hand(sqlite_client)
    hand.born(JOB, client="c", key="first")
    second = hand.born(JOB, client="c", key="second")
    with untouched(sqlite_client, "holdfast_jobs", "holdfast_calls"):
        for sql in (
            "UPDATE OR REPLACE holdfast_calls SET key = 'first' WHERE job_id = ?",
            "UPDATE OR REPLACE holdfast_calls SET job_id = 1 WHERE job_id = ?",
            "UPDATE OR REPLACE holdfast_calls SET rowid = 1 WHERE job_id = ?",
            "UPDATE OR REPLACE holdfast_jobs SET rowid = 1 WHERE job_id = ?",
            "UPDATE OR REPLACE holdfast_jobs SET job_id = 1 WHERE job_id = ?",
        ):
            assert sqlite_client.refusal(sql, second) == Refusal.WRITE_ONCE


@pytest.mark.req("K-05", "K-20", "X-06", "M-01")
@pytest.mark.parametrize(
    "machine, column, claimed",
    [
        (JOB, "attempts", {}),
        (JOB, "lease_token", {}),
        (JOB, "version", {}),
        (GRANT, "version", {}),
        (PROCEDURE, "version", {}),
        (PROCEDURE, "step", {"step": 1}),
        (STEP, "version", {}),
        (VALUE, "version", {}),
        (SWITCH, "version", {}),
        (SETTING, "version", {}),
    ],
)
def test_a_number_that_only_grows_is_never_made_smaller(
    client: Client, hand: Hand, machine: Machine, column: str, claimed: dict[str, object]
) -> None:
    guarded = GUARDED_BY_NAME[machine.name]
    subject = hand.born(machine)
    first = next(path for path in machine.moves() if path.source == next(machine.births()).target)
    hand.take(machine, subject, first, **claimed)
    with untouched(client, guarded.table):
        shrink = f"UPDATE {guarded.table} SET {column} = {column} - 1 WHERE {guarded.id} = ?"
        assert client.refusal(shrink, subject) == Refusal.NOT_MONOTONE


@pytest.mark.req("K-20", "X-06")
def test_the_number_of_excused_attempts_is_never_made_smaller(client: Client, hand: Hand) -> None:
    job = hand.put(JOB, JobState.RUNNING)
    hand.take(JOB, job, JOB.path("give_back", JobState.RUNNING), excused=1)
    with untouched(client, "holdfast_jobs"):
        assert client.refusal("UPDATE holdfast_jobs SET excused = 0 WHERE job_id = ?", job) == Refusal.NOT_MONOTONE


@every_machine
def test_a_version_does_not_grow_without_a_move(client: Client, hand: Hand, machine: Machine) -> None:
    guarded = GUARDED_BY_NAME[machine.name]
    subject = hand.born(machine)
    update = f"UPDATE {guarded.table} SET version = version + 1, move_id = 'new' WHERE {guarded.id} = ?"
    assert client.refusal(update, subject) == Refusal.ILLEGAL_EDGE


# -- signatures -------------------------------------------------------------------------------------------------------


@pytest.mark.req("G-12")
@every_machine
def test_a_move_needs_a_move_id_of_its_own(client: Client, hand: Hand, machine: Machine) -> None:
    guarded = GUARDED_BY_NAME[machine.name]
    for path in machine.moves():
        subject = hand.put(machine, str(path.source))
        [[old]] = client.run(f"SELECT move_id FROM {guarded.table} WHERE {guarded.id} = ?", subject)
        columns: dict[str, object] = {"move_id": old}
        if path.governed:
            columns["grant_id"] = hand.consumed_grant(old)
        move = hand.move(machine, subject, path.event, path.target, len(path.edges), **columns)
        assert client.refusal(*move) == Refusal.UNSIGNED, path


@every_machine
def test_a_move_needs_an_event_of_its_own(client: Client, hand: Hand, machine: Machine) -> None:
    """The event of the last move in a row never fits the next move."""
    guarded = GUARDED_BY_NAME[machine.name]
    for path in machine.moves():
        subject = hand.put(machine, str(path.source))
        move_id = hand.unique("move")
        columns: dict[str, object] = {"move_id": move_id}
        if path.governed:
            columns["grant_id"] = hand.consumed_grant(move_id)
        [[last]] = client.run(f"SELECT event FROM {guarded.table} WHERE {guarded.id} = ?", subject)
        move = hand.move(machine, subject, last, path.target, len(path.edges), **columns)
        assert client.refusal(*move) == Refusal.ILLEGAL_EDGE, path


@pytest.mark.parametrize("column", ["event", "actor", "move_id"])
def test_an_unsigned_move_is_refused(client: Client, hand: Hand, column: str) -> None:
    job = hand.born(JOB)
    claim, *params = hand.move(JOB, job, "claim", "running", 1, actor="ann", move_id="new")
    params[params.index({"event": "claim", "actor": "ann", "move_id": "new"}[column])] = None
    with untouched(client, "holdfast_jobs"):
        assert client.refusal(claim, *params) == NOT_NULL_VIOLATION[client.dialect]


@pytest.mark.req("K-05")
def test_a_move_is_not_dated_before_the_last_one(client: Client, hand: Hand) -> None:
    job = hand.born(JOB)
    hand.take(JOB, job, JOB.path("claim", "pending"), updated_at=LATER)
    move = hand.move(JOB, job, "fail", "failed", 1, updated_at=AT)
    assert client.refusal(*move) == Refusal.UNSIGNED


# -- grants -----------------------------------------------------------------------------------------------------------


def rename(client: Client, grant: int, move_id: str) -> None:
    """Give the last move of a grant another name, which is refused; and then under the door."""
    sql = "UPDATE holdfast_grants SET move_id = ? WHERE grant_id = ?"
    assert client.refusal(sql, move_id, grant) == Refusal.WRITE_ONCE
    client.run(DOOR)
    assert client.refusal(sql, move_id, grant) is None
    client.run(SHUT)


@pytest.mark.req("K-17", "X-01")
@pytest.mark.parametrize("state", ["no grant", "no such grant", *GrantState, "consumed by another move"])
def test_a_release_needs_a_grant_consumed_by_that_very_move(client: Client, hand: Hand, state: str) -> None:
    job = hand.put(JOB, JobState.QUARANTINED)
    move_id = hand.unique("release")
    grant: int | None
    if state == "no grant":
        grant = None
    elif state == "no such grant":
        grant = 999_999
    elif state == GrantState.CONSUMED:
        grant = hand.consumed_grant(move_id)
    elif state == "consumed by another move":
        grant = hand.consumed_grant()
    else:
        grant = hand.put(GRANT, state)
        rename(client, grant, move_id)
    refusal = client.refusal(*hand.move(JOB, job, "release", "pending", 1, move_id=move_id, grant_id=grant))
    assert refusal == (None if state == GrantState.CONSUMED else Refusal.GRANT_REQUIRED)


@pytest.mark.req("K-17", "X-01")
def test_a_grant_releases_one_job_once(client: Client, hand: Hand) -> None:
    first, second = (hand.put(JOB, JobState.QUARANTINED) for _ in range(2))
    grant = hand.consumed_grant("the-release")
    release = {"move_id": "the-release", "grant_id": grant}
    assert client.refusal(*hand.move(JOB, first, "release", "pending", 1, **release)) is None
    assert client.refusal(*hand.move(JOB, second, "release", "pending", 1, **release)) is not None
    hand.take(JOB, first, JOB.path("quarantine", "pending"))
    assert client.refusal(*hand.move(JOB, first, "release", "pending", 1, **release)) is not None


@pytest.mark.req("K-17", "X-01")
def test_a_grant_does_not_release_a_whole_set(client: Client, hand: Hand) -> None:
    for _ in range(2):
        hand.put(JOB, JobState.QUARANTINED)
    grant = hand.consumed_grant("the-release")
    with untouched(client, "holdfast_jobs"):
        refusal = client.refusal(
            "UPDATE holdfast_jobs SET state = 'pending', event = 'release', version = version + 1, due_at = run_at,"
            " resting = NULL, move_id = 'the-release', grant_id = ? WHERE state = 'quarantined'",
            grant,
        )
    assert refusal == {"sqlite": "SQLITE_CONSTRAINT_UNIQUE", "postgres": UNIQUE_VIOLATION}[client.dialect]


GOVERNED = [(VALUE, "admit"), (VALUE, "supersede"), (VALUE, "retire"), (SWITCH, "lift")]


@pytest.mark.parametrize("state", ["no grant", "no such grant", *GrantState, "consumed by another move"])
@pytest.mark.parametrize("machine, event", GOVERNED, ids=[event for _, event in GOVERNED])
def test_a_value_and_a_switch_need_a_grant_consumed_by_that_very_move(
    client: Client, hand: Hand, machine: Machine, event: str, state: str
) -> None:
    move_id = hand.unique("governed")
    grant: int | None
    if state == GrantState.CONSUMED:
        grant = hand.consumed_grant(move_id)
    elif state == "consumed by another move":
        grant = hand.consumed_grant()
    elif state in ("no grant", "no such grant"):
        grant = None if state == "no grant" else 999_999
    else:
        grant = hand.put(GRANT, state)
        rename(client, grant, move_id)
    [path] = [path for path in machine.paths if path.event == event]
    signature: dict[str, object] = {"move_id": move_id, "grant_id": grant}
    if path.source is None:
        write = hand.birth(machine, event, path.target, 1, **signature)
    else:
        write = hand.move(machine, hand.born(machine), event, path.target, 1, **signature)
    guarded = GUARDED_BY_NAME[machine.name]
    if state == GrantState.CONSUMED:
        assert client.refusal(*write) is None
    else:
        # A move without a grant is refused for that where the database checks it first.
        unknown = state == "no such grant" and machine is VALUE and client.dialect == "postgres"
        with untouched(client, guarded.table):
            assert client.refusal(*write) == (FOREIGN_KEY_VIOLATION if unknown else Refusal.GRANT_REQUIRED)


def test_every_governed_edge_is_tested() -> None:
    governed = {(machine, path.event) for machine in MACHINES.values() for path in machine.paths if path.governed}
    assert governed == {(JOB, "release"), *GOVERNED}


def running_build(hand: Hand, state: str = ProcedureState.RUNNING) -> tuple[int, int]:
    """Write a run that has consumed a grant, and walk it to a state; return the run and the grant."""
    grant = hand.consumed_grant()
    first, *rest = shortest(PROCEDURE, state)
    run = hand.born(PROCEDURE, first, grant_id=grant)
    for path in rest:
        hand.take(PROCEDURE, run, path)
    return run, grant


@pytest.mark.parametrize("state", ProcedureState)
def test_a_build_admits_values_under_its_grant_as_long_as_it_runs(client: Client, hand: Hand, state: str) -> None:
    run, grant = running_build(hand, state)
    expected = None if state == ProcedureState.RUNNING else Refusal.GRANT_REQUIRED
    for _ in range(2):
        birth = hand.birth(VALUE, "admit", "active", 1, run_id=run, grant_id=grant)
        assert client.refusal(*birth) == expected
    assert client.count("holdfast_values") == (2 if expected is None else 0)


def test_a_build_admits_nothing_under_a_grant_that_is_not_its_own(client: Client, hand: Hand) -> None:
    (run, own), (_, anothers) = running_build(hand), running_build(hand)
    unused = hand.put(GRANT, GrantState.ACTIVE)
    without = hand.born(PROCEDURE, grant_id=unused)
    hand.take(PROCEDURE, without, PROCEDURE.path("run", ProcedureState.PLANNED))
    for names, grant in ((run, anothers), (run, None), (None, own), (without, own), (without, unused)):
        birth = hand.birth(VALUE, "admit", "active", 1, run_id=names, grant_id=grant)
        with untouched(client, "holdfast_values"):
            assert client.refusal(*birth) == Refusal.GRANT_REQUIRED, (names, grant)
    assert client.refusal(*hand.birth(VALUE, "admit", "active", 1, run_id=run, grant_id=own)) is None


@pytest.mark.parametrize("event", ["supersede", "retire"])
def test_the_grant_of_a_running_build_moves_no_value(client: Client, hand: Hand, event: str) -> None:
    (first, admitted_by), (later, grant) = running_build(hand), running_build(hand)
    value = hand.born(VALUE, run_id=first, grant_id=admitted_by)
    move = hand.move(VALUE, value, event, VALUE.path(event, "active").target, 1, grant_id=grant)
    assert client.refusal(*move) == Refusal.GRANT_REQUIRED
    assert later != first


def test_a_grant_lifts_one_switch_once(client: Client, hand: Hand) -> None:
    first, second = hand.born(SWITCH, name="replay"), hand.born(SWITCH)
    lift = {"move_id": "the-lift", "grant_id": hand.consumed_grant("the-lift")}
    assert client.refusal(*hand.move(SWITCH, first, "lift", "off", 1, **lift)) is None
    again, whole = hand.born(SWITCH, name="replay"), hand.consumed_grant("all")
    refused = Refusal.GRANT_REQUIRED if client.dialect == "sqlite" else UNIQUE_VIOLATION
    with untouched(client, "holdfast_switches"):
        for switch in (second, again):
            move, *params = hand.move(SWITCH, switch, "lift", "off", 1, **lift)
            for verb in ("UPDATE", "UPDATE OR REPLACE") if client.dialect == "sqlite" else ("UPDATE",):
                assert client.refusal(move.replace("UPDATE", verb, 1), *params) == refused, verb
        lift_all = "UPDATE holdfast_switches SET state = 'off', event = 'lift', version = version + 1, move_id = 'all'"
        assert client.refusal(f"{lift_all}, grant_id = ? WHERE state = 'on'", whole) == refused
    [born, lifted] = client.journal("SWITCH", first)
    assert (born["event"], born["target"], born["grant_id"]) == ("throw", "on", None)
    assert (lifted["event"], lifted["target"], lifted["grant_id"]) == ("lift", "off", lift["grant_id"])


@pytest.mark.parametrize("event", ["supersede", "retire"])
def test_a_grant_moves_one_value_once(client: Client, hand: Hand, event: str) -> None:
    first, second = hand.born(VALUE), hand.born(VALUE)
    target = VALUE.path(event, "active").target
    move = {"move_id": "the-move", "grant_id": hand.consumed_grant("the-move")}
    # The same grant admits what follows, and moves what went before.
    hand.born(VALUE, None, **move)
    assert client.refusal(*hand.move(VALUE, first, event, target, 1, **move)) is None
    again = hand.move(VALUE, second, event, target, 1, **move)
    with untouched(client, "holdfast_values"):
        assert client.refusal(*again) == Refusal.GRANT_REQUIRED


@pytest.mark.parametrize("event", ["supersede", "retire"])
def test_the_grant_that_admitted_a_value_does_not_retire_it(client: Client, hand: Hand, event: str) -> None:
    value = hand.born(VALUE)
    move = hand.move(VALUE, value, event, VALUE.path(event, "active").target, 1)
    assert client.refusal(*move) == Refusal.GRANT_REQUIRED


def test_a_used_grant_is_never_active_again(client: Client, hand: Hand) -> None:
    for state in (GrantState.CONSUMED, GrantState.REVOKED, GrantState.EXPIRED):
        grant = hand.put(GRANT, state)
        for event in GRANT.events:
            assert client.refusal(*hand.move(GRANT, grant, event, "active", 1)) == Refusal.ILLEGAL_EDGE


# -- the commit boundary ----------------------------------------------------------------------------------------------


@pytest.mark.req("M-07", "X-04")
@pytest.mark.parametrize("first", [ExecutionStatus.COMMITTED, ExecutionStatus.DONE])
@pytest.mark.parametrize("event", ["commit", "complete"])
def test_a_job_commits_once(client: Client, hand: Hand, first: ExecutionStatus, event: str) -> None:
    """The current attempt is a part of the job's row: no second one can commit beside it, before it or after it."""
    job = hand.attempt(first)
    again = {
        "commit": hand.step(job, "commit", "COMMITTED"),
        "complete": hand.move(JOB, job, "succeed", "succeeded", 1),
    }
    acts = [
        again[event],
        hand.move(JOB, job, "claim", "running", 1),
        hand.move(JOB, job, "fail", "failed", 1),
        hand.move(JOB, job, "expire", "pending", 2),
        hand.step(job, "start", "IN_PROGRESS"),
        hand.step(job, "lease", "LEASED"),
    ]
    finishes = first == ExecutionStatus.COMMITTED and event == "complete"  # the one act that is legal here
    with untouched(client, "holdfast_jobs"):
        for update, *params in acts[1:] if finishes else acts:
            verbs = ("UPDATE", "UPDATE OR REPLACE", "UPDATE OR IGNORE") if client.dialect == "sqlite" else ("UPDATE",)
            for verb in verbs:
                refusal = client.refusal(update.replace("UPDATE", verb, 1), *params)
                assert refusal in (Refusal.ILLEGAL_EDGE, Refusal.WRITE_ONCE), update
    if finishes:
        assert client.refusal(*acts[0]) is None
    committed = [row for row in client.journal("EXECUTION", job * EXEC_IDS + 1) if row["target"] == "COMMITTED"]
    assert len(committed) == 1


# -- the journal ------------------------------------------------------------------------------------------------------


TAMPERING = (
    "UPDATE {table} SET actor = 'somebody else'",
    "UPDATE {table} SET seq = seq + 1000",
    "UPDATE {table} SET version = version",
    "DELETE FROM {table} WHERE version = 2",
    "DELETE FROM {table}",
)


def test_the_journal_is_append_only(client: Client, hand: Hand) -> None:
    hand.put(JOB, JobState.FAILED)
    with untouched(client):
        for sql in TAMPERING:
            assert client.refusal(sql.format(table="holdfast_journal")) == Refusal.APPEND_ONLY, sql


def test_the_rowids_of_the_journal_cannot_be_changed(sqlite_client: Client) -> None:
    Hand(sqlite_client).put(JOB, JobState.FAILED)
    with untouched(sqlite_client):
        for sql in (
            "UPDATE holdfast_journal SET rowid = rowid + 9",
            "UPDATE OR REPLACE holdfast_journal SET version = 1",
        ):
            assert sqlite_client.refusal(sql) == Refusal.APPEND_ONLY, sql


def test_a_partition_of_the_journal_is_append_only(postgres_client: Client) -> None:
    hand = Hand(postgres_client)
    job = hand.put(JOB, JobState.FAILED)
    with untouched(postgres_client):
        for sql in TAMPERING:
            assert postgres_client.refusal(sql.format(table="holdfast_journal_p0")) == Refusal.APPEND_ONLY, sql
        by_hand = JOURNAL_ROW.replace("holdfast_journal", "holdfast_journal_p0")
        assert postgres_client.refusal(by_hand, "JOB", job, 4, AT) == Refusal.WRITTEN_BY_HAND


@pytest.mark.parametrize("table", ["holdfast_journal", "holdfast_journal_p0"])
def test_the_journal_is_not_truncated(postgres_client: Client, table: str) -> None:
    Hand(postgres_client).born(JOB)
    with untouched(postgres_client):
        for more in ("", "RESTART IDENTITY", "CASCADE"):
            assert postgres_client.refusal(f"TRUNCATE {table} {more}") == Refusal.NEVER_DELETED


@pytest.mark.parametrize("version", [-1, 0, 1, 2, 3, 4])
@pytest.mark.parametrize("machine", [*MACHINES, "MAINTENANCE", "ENTRY"])
def test_a_journal_row_is_not_written_by_hand(client: Client, hand: Hand, machine: str, version: int) -> None:
    # A record with some history of its own, so that the row could be before, among or after what it has.
    if machine == EXECUTION.name:
        subject = hand.attempt(ExecutionStatus.COMMITTED) * EXEC_IDS + 1
    elif machine == REQUEST.name:
        subject = hand.requested()
    else:
        declared = MACHINES.get(machine)
        subject = hand.put(declared, declared.states[1]) if declared else 1
    stored = client.run("SELECT version FROM holdfast_journal WHERE machine = ? AND subject = ?", machine, subject)
    # On PostgreSQL the unique index speaks before a trigger that runs after the statement.
    again = client.dialect == "postgres" and (version,) in stored
    with untouched(client):
        refusal = client.refusal(JOURNAL_ROW, machine, subject, version, AT)
        assert refusal == (UNIQUE_VIOLATION if again else Refusal.WRITTEN_BY_HAND)
        assert client.refusal(JOURNAL_ROW, machine, 999_999, version, AT) == Refusal.WRITTEN_BY_HAND


@pytest.mark.parametrize("version", [0.5, 1.5, "1.5", "two", b"\x01"])
def test_a_journal_row_between_two_versions_is_not_written_by_hand(sqlite_client: Client, version: object) -> None:
    """SQLite's columns accept any type by default."""
    job = Hand(sqlite_client).put(JOB, JobState.FAILED)
    with untouched(sqlite_client):
        assert sqlite_client.refusal(JOURNAL_ROW, "JOB", job, version, AT) is not None


def forging_row(subject: int) -> str:
    row = JOURNAL_ROW
    for value in ("'JOB'", str(subject), "2", f"'{AT}'"):
        row = row.replace("?", value, 1)
    return row


def test_a_journal_row_is_not_written_through_a_trigger_of_ones_own_on_sqlite(sqlite_client: Client) -> None:
    """A client can put a trigger on a table of its own; what that trigger writes is refused too."""
    job = Hand(sqlite_client).born(JOB)
    sqlite_client.run("CREATE TEMP TABLE mine (n integer)")
    sqlite_client.run(f"CREATE TEMP TRIGGER forge AFTER INSERT ON mine BEGIN {forging_row(job)}; END")
    with untouched(sqlite_client):
        assert sqlite_client.refusal("INSERT INTO mine VALUES (1)") == Refusal.WRITTEN_BY_HAND


def test_a_journal_row_is_not_written_through_a_trigger_of_ones_own_on_postgres(postgres_client: Client) -> None:
    job = Hand(postgres_client).born(JOB)
    postgres_client.run("CREATE TEMP TABLE mine (n integer)")
    postgres_client.run(
        "CREATE FUNCTION pg_temp.forge() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN {forging_row(job)}; RETURN NULL; END $$"
    )
    postgres_client.run("CREATE TRIGGER forge AFTER INSERT ON mine FOR EACH ROW EXECUTE FUNCTION pg_temp.forge()")
    with untouched(postgres_client):
        assert postgres_client.refusal("INSERT INTO mine VALUES (1)") == Refusal.WRITTEN_BY_HAND


def test_insert_or_replace_cannot_replace_a_journal_row(sqlite_client: Client) -> None:
    job = Hand(sqlite_client).put(JOB, JobState.RUNNING)
    [[seq]] = sqlite_client.run("SELECT seq FROM holdfast_journal WHERE subject = ? AND version = 2", job)
    replace = JOURNAL_ROW.replace("INSERT", "INSERT OR REPLACE", 1)
    by_seq = replace.replace("(epoch", "(seq, epoch").replace("VALUES (1", f"VALUES ({seq}, 1")
    with untouched(sqlite_client):
        for version in (1, 2):
            assert sqlite_client.refusal(replace, "JOB", job, version, AT) == Refusal.WRITTEN_BY_HAND
        for version in (2, 3):
            assert sqlite_client.refusal(by_seq, "JOB", job, version, AT) == Refusal.WRITTEN_BY_HAND


# -- sets of rows, and other ways to write ----------------------------------------------------------------------------


CLAIM = (
    "UPDATE holdfast_jobs SET state = 'running', status = 'IN_PROGRESS', event = 'claim', version = version + 1,"
    " attempts = attempts + 1, due_at = NULL, resting = NULL, lease_owner = 'raw', lease_token = 7,"
    f" lease_expires_at = '{LATER}', last_attempt_at = '{AT}', move_id = 'set-based'"
)


@pytest.mark.req("K-11")
def test_one_illegal_row_of_a_set_undoes_the_whole_set(client: Client, hand: Hand) -> None:
    for _ in range(20):
        hand.born(JOB)
    hand.put(JOB, JobState.FAILED)
    with untouched(client, "holdfast_jobs", "holdfast_count_deltas"):
        assert client.refusal(CLAIM) == Refusal.ILLEGAL_EDGE
    assert client.changed(f"{CLAIM} WHERE state = 'pending'") == 20


def test_one_illegal_row_of_an_insert_undoes_the_whole_insert(client: Client, hand: Hand) -> None:
    ids = [client.run(*hand.call())[0][0] for _ in range(3)]
    columns = "job_id, operation, queue, run_at, updated_at, actor, event, move_id, version, state, due_at, resting"
    row = f"({{}}, 'noop', 'q', '{AT}', '{AT}', 'a', 'submit', 'm', 1, "
    legal, illegal = f"{row} 'pending', '{AT}', NULL)", f"{row} 'failed', NULL, 'failed')"
    with untouched(client, "holdfast_jobs", "holdfast_count_deltas"):
        rows = ", ".join(text.format(job) for text, job in zip((legal, illegal, legal), ids, strict=True))
        assert client.refusal(f"INSERT INTO holdfast_jobs ({columns}) VALUES {rows}") == Refusal.ILLEGAL_BIRTH
    rows = ", ".join(legal.format(job) for job in ids)
    assert client.refusal(f"INSERT INTO holdfast_jobs ({columns}) VALUES {rows}") is None


@pytest.mark.req("K-11", "K-20")
def test_a_legal_set_is_journalled_row_by_row(client: Client, hand: Hand) -> None:
    jobs = [hand.born(JOB) for _ in range(100)]
    assert client.changed(CLAIM) == 100
    for job in jobs:
        assert [(row["version"], row["source"], row["target"]) for row in client.journal("JOB", job)] == [
            (1, None, "pending"),
            (2, "pending", "running"),
        ]
        assert client.journal("JOB", job)[1]["attempt"] == 1


@pytest.mark.req("X-03")
@every_machine
def test_a_request_for_the_current_state_writes_nothing(client: Client, hand: Hand, machine: Machine) -> None:
    guarded = GUARDED_BY_NAME[machine.name]
    for state in machine.states:
        hand.put(machine, state)
    with untouched(client, guarded.table, "holdfast_count_deltas"):
        assert client.refusal(f"UPDATE {guarded.table} SET {guarded.state} = {guarded.state}") is None


def test_merge_obeys_the_same_rules(postgres_client: Client) -> None:
    if postgres_client.connection.info.server_version < 150000:
        pytest.skip("MERGE came with PostgreSQL 15")
    job = Hand(postgres_client).born(JOB)
    merge = f"MERGE INTO holdfast_jobs j USING (SELECT {job} AS job_id) s ON j.job_id = s.job_id WHEN MATCHED THEN "
    claim = CLAIM.removeprefix("UPDATE holdfast_jobs ").replace("set-based", "merged")
    done = "SET state = 'succeeded', status = 'DONE', due_at = NULL, lease_owner = 'raw', lease_token = 7,"
    done += f" last_attempt_at = '{AT}', event = 'succeed', version = version + 1, move_id = 'merged'"
    with untouched(postgres_client, "holdfast_jobs"):
        refusal = postgres_client.refusal
        assert refusal(f"{merge}UPDATE {done}") == Refusal.ILLEGAL_EDGE
        assert refusal(f"{merge}UPDATE SET state = 'succeeded', move_id = 'merged'") == Refusal.ILLEGAL_EDGE
        assert refusal(f"{merge}UPDATE SET operation = 'x'") == Refusal.WRITE_ONCE
        assert refusal(f"{merge}UPDATE SET actor = 'x'") == Refusal.WRITE_ONCE
        assert refusal(f"{merge}UPDATE SET attempts = attempts - 1") in (Refusal.NOT_MONOTONE, "23514")
        assert refusal(f"{merge}DELETE") == Refusal.NEVER_DELETED
        calls = merge.replace("holdfast_jobs", "holdfast_calls")
        assert refusal(f"{calls}UPDATE SET payload = 'x'") == Refusal.WRITE_ONCE
    assert postgres_client.refusal(f"{merge}UPDATE {claim}") is None
    assert [row["target"] for row in postgres_client.journal("JOB", job)] == ["pending", "running"]


def test_an_upsert_obeys_the_same_rules(postgres_client: Client) -> None:
    hand = Hand(postgres_client)
    job = hand.born(JOB, client="c", key="k")

    def upsert(sets: str, *, call: bool = False) -> str | None:
        birth = hand.call(client="c", key="k") if call else hand.birth(JOB, "submit", "pending", 1, job_id=job)
        insert, *params = birth
        conflict = f" ON CONFLICT {'(client, key) WHERE key IS NOT NULL' if call else '(job_id)'} DO "
        return postgres_client.refusal(insert.replace(" RETURNING", conflict + sets + " RETURNING"), *params)

    claim = CLAIM.removeprefix("UPDATE holdfast_jobs ").replace("= version", "= holdfast_jobs.version")
    claim = claim.replace("= attempts", "= holdfast_jobs.attempts")
    with untouched(postgres_client, "holdfast_jobs", "holdfast_calls"):
        assert upsert(f"UPDATE {claim}".replace("'claim'", "'submit'")) == Refusal.ILLEGAL_EDGE
        assert upsert(f"UPDATE {claim}".replace("'set-based'", "holdfast_jobs.move_id")) == Refusal.UNSIGNED
        assert upsert("UPDATE SET queue = 'x'") == Refusal.WRITE_ONCE
        assert upsert("UPDATE SET payload = 'x'", call=True) == Refusal.WRITE_ONCE
        assert upsert("NOTHING") is None
        assert upsert("NOTHING", call=True) is None
    assert upsert(f"UPDATE {claim}") is None
    assert [row["event"] for row in postgres_client.journal("JOB", job)] == ["submit", "claim"]


def test_copy_obeys_the_same_rules(postgres_client: Client) -> None:
    def copied(table: str, columns: str, line: str) -> str | None:
        try:
            with (
                postgres_client.savepoint(),
                postgres_client.connection.cursor().copy(f"COPY {table} ({columns}) FROM STDIN") as copy,
            ):
                copy.write(line + "\n")
        except psycopg.Error as error:
            return error.sqlstate
        return None

    [[job]] = postgres_client.run(*Hand(postgres_client).call())
    columns = "job_id, operation, queue, run_at, updated_at, actor, event, move_id, version, state, due_at, resting"
    line = f"{job}\tnoop\tq\t{AT}\t{AT}\tcopier\tsubmit\tm\t1"
    with untouched(postgres_client, "holdfast_jobs", "holdfast_aborted"):
        assert copied("holdfast_jobs", columns, f"{line}\tfailed\t\\N\tfailed") == Refusal.ILLEGAL_BIRTH
        journal_columns = "epoch, xid, machine, subject, version, target, event, actor, move_id, at"
        journal_line = f"1\t0\tJOB\t1\t9\tpending\tsubmit\tforger\tm\t{AT}"
        for table in ("holdfast_journal", "holdfast_journal_p0"):
            assert copied(table, journal_columns, journal_line) == Refusal.WRITTEN_BY_HAND
        ended = "job_id, attempt, version, excused, lease_owner, lease_token, lease_expires_at, created_at,"
        ended += " finished_at, event, actor, move_id"
        ended_line = f"{job}\t1\t3\tf\traw\t1\t{AT}\t{AT}\t{AT}\tfail\traw\tm"
        assert copied("holdfast_aborted", ended, ended_line) == Refusal.WRITTEN_BY_HAND
    assert copied("holdfast_jobs", columns, f"{line}\tpending\t{AT}\t\\N") is None
    assert [(row["target"], row["actor"]) for row in postgres_client.journal("JOB", job)] == [("pending", "copier")]


def test_a_search_path_or_a_table_of_the_same_name_changes_nothing(client: Client, hand: Hand) -> None:
    """A temporary table called like the maintenance door, or like the journal, is not the ledger's."""
    job = hand.born(JOB)
    client.run("CREATE TEMP TABLE holdfast_maintenance (maintenance_id integer, xid bigint)")
    client.run("CREATE TEMP TABLE holdfast_grants (grant_id integer, state text, move_id text)")
    schema = "main"
    if client.dialect == "postgres":
        schema = "public"
        client.run("INSERT INTO holdfast_maintenance VALUES (1, pg_current_xact_id()::text::bigint)")
        client.run("SET LOCAL search_path TO pg_temp")
    else:
        client.run("INSERT INTO holdfast_maintenance VALUES (1, 0)")
    illegal, *params = hand.move(JOB, job, "succeed", "succeeded", 1)
    assert client.refusal(illegal.replace("holdfast_jobs", f"{schema}.holdfast_jobs"), *params) == Refusal.ILLEGAL_EDGE
    legal, *params = hand.move(JOB, job, "claim", "running", 1)
    assert client.refusal(legal.replace("holdfast_jobs", f"{schema}.holdfast_jobs"), *params) is None
    written = client.run(f"SELECT target FROM {schema}.holdfast_journal WHERE subject = ? ORDER BY version", job)
    assert written == [("pending",), ("running",)]


def test_an_attached_ledger_is_guarded_too(shared_sqlite: str) -> None:
    outside = Client("sqlite:///:memory:")
    outside.rollback()
    outside.run(f"ATTACH '{urlsplit(shared_sqlite).path[1:]}' AS ledger")
    outside.begin()
    hand = Hand(outside)
    # Unqualified names are found in the attached file, where the triggers live.
    job = hand.born(JOB)
    assert outside.refusal(*hand.move(JOB, job, "claim", "running", 1, move_id=Sql("move_id"))) == Refusal.UNSIGNED
    assert outside.refusal("UPDATE ledger.holdfast_jobs SET actor = 'x'") == Refusal.WRITE_ONCE
    assert outside.refusal("DELETE FROM ledger.holdfast_jobs") == Refusal.NEVER_DELETED
    assert outside.refusal("DELETE FROM ledger.holdfast_journal") == Refusal.APPEND_ONLY
    assert [row["event"] for row in outside.journal("JOB", job)] == ["submit"]
    outside.close()


def test_a_session_with_the_replica_role_is_guarded_too(postgres_client: Client) -> None:
    """Only a superuser can do this; triggers that fire ALWAYS still fire."""
    hand = Hand(postgres_client)
    job, ended = hand.born(JOB), hand.put(JOB, JobState.FAILED)
    grant = hand.put(GRANT, GrantState.ACTIVE)
    postgres_client.run("SET LOCAL session_replication_role = replica")
    tables = ("holdfast_jobs", "holdfast_calls", "holdfast_aborted", "holdfast_grants", "holdfast_meta")
    with untouched(postgres_client, *tables):
        for sql, subject, refusal in (
            ("UPDATE holdfast_jobs SET actor = 'x' WHERE job_id = ?", job, Refusal.WRITE_ONCE),
            ("UPDATE holdfast_jobs SET operation = 'x' WHERE job_id = ?", job, Refusal.WRITE_ONCE),
            ("UPDATE holdfast_jobs SET version = 9 WHERE job_id = ?", job, Refusal.ILLEGAL_EDGE),
            ("DELETE FROM holdfast_jobs WHERE job_id = ?", job, Refusal.NEVER_DELETED),
            ("UPDATE holdfast_calls SET payload = 'x' WHERE job_id = ?", job, Refusal.WRITE_ONCE),
            ("DELETE FROM holdfast_calls WHERE job_id = ?", job, Refusal.NEVER_DELETED),
            ("UPDATE holdfast_journal SET actor = 'x' WHERE subject = ?", job, Refusal.APPEND_ONLY),
            ("DELETE FROM holdfast_journal WHERE subject = ?", job, Refusal.APPEND_ONLY),
            ("UPDATE holdfast_aborted SET actor = 'x' WHERE job_id = ?", ended, Refusal.APPEND_ONLY),
            ("DELETE FROM holdfast_aborted WHERE job_id = ?", ended, Refusal.NEVER_DELETED),
            ("UPDATE holdfast_grants SET approved_by = 'x' WHERE grant_id = ?", grant, Refusal.WRITE_ONCE),
            ("UPDATE holdfast_meta SET value = 'dev' WHERE name = 'environment' AND ? > 0", grant, None),
            (
                "UPDATE holdfast_meta SET value = 'stage' WHERE name = 'environment' AND ? > 0",
                grant,
                Refusal.WRITE_ONCE,
            ),
        ):
            assert postgres_client.refusal(sql, subject) == refusal, sql
        assert postgres_client.refusal(JOURNAL_ROW, "JOB", job, 9, AT) == Refusal.WRITTEN_BY_HAND
        assert postgres_client.refusal("TRUNCATE holdfast_aborted") == Refusal.NEVER_DELETED


def test_a_job_that_succeeded_never_moves_again(client: Client, hand: Hand) -> None:
    job = hand.put(JOB, JobState.SUCCEEDED)
    with untouched(client, "holdfast_jobs"):
        for state in JobState:
            if state != JobState.SUCCEEDED:
                for event in JOB.events:
                    assert client.refusal(*hand.move(JOB, job, event, state, 1)) == Refusal.ILLEGAL_EDGE


def test_a_procedure_step_only_moves_forward(client: Client, hand: Hand) -> None:
    run = hand.put(PROCEDURE, ProcedureState.RUNNING)
    sets = "UPDATE holdfast_procedures SET step = ? WHERE run_id = ?"
    assert client.refusal(sets, 3, run) is None
    assert client.refusal(sets, 2, run) == Refusal.NOT_MONOTONE


@every_machine
def test_an_id_that_would_block_later_inserts_is_refused(client: Client, hand: Hand, machine: Machine) -> None:
    """Before SQLite gives a row its id, a trigger sees -1 in its place."""
    guarded = GUARDED_BY_NAME[machine.name]
    birth = next(machine.births())
    for odd in (-1, 0):
        grant = hand.governed() if birth.governed else {}
        if machine is JOB:
            assert client.refusal(*hand.call(job_id=odd)) is not None
        client.refusal(*hand.birth(machine, birth.event, birth.target, 1, **{guarded.id: odd, **grant}))
    assert hand.born(machine, birth) > 0
