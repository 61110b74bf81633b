"""Attacks that once succeeded: names redefined by a role, evidence rewritten, the identity of the ledger changed.

Invariants: the attacker is a client with plain DML, and on PostgreSQL a role with a schema of its own that owns none of
the ledger's tables; what the database cannot know is said to be found by `check`, and is tried in the tests of that.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from holdfast.core.commands import Complete
from holdfast.core.decide import Refused
from holdfast.core.environments import ENVIRONMENTS
from holdfast.core.machine import Machine
from holdfast.core.machines import GRANT, JOB, PROCEDURE, SWITCH, VALUE, GrantState, JobState, ProcedureState
from holdfast.store import Lease, Submission, create_store
from holdfast.store.enforcement import Refusal
from holdfast.store.reinstall import begin_epoch
from holdfast.store.tables import KEPT_SETTINGS
from holdfast.store.verbs.erasures import SECRET
from tests.enforcement.raw import AT, DOOR, GUARDED_BY_NAME, LATER, MACHINES_WITH_TABLES, SHUT, Client, Hand
from tests.enforcement.test_acts import DONE, RETRIED, jobs
from tests.enforcement.test_refusals import JOURNAL_ROW, untouched

pytestmark = pytest.mark.attack("sql")

# -- names that a role redefines --------------------------------------------------------------------------------------

# Each is a function of the role's own schema that a trigger would call, if it looked names up in the session.
FALSE_NAMES = {
    "= of bigint": (
        "CREATE FUNCTION lie(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
        "CREATE OPERATOR = (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = lie)",
        "CREATE FUNCTION lie_not(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT false'",
        "CREATE OPERATOR <> (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = lie_not)",
        "CREATE OPERATOR < (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = lie_not)",
    ),
    "= of text": (
        "CREATE FUNCTION lie(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
        "CREATE OPERATOR = (LEFTARG = text, RIGHTARG = text, FUNCTION = lie)",
        "CREATE FUNCTION lie_not(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT false'",
        "CREATE OPERATOR <> (LEFTARG = text, RIGHTARG = text, FUNCTION = lie_not)",
    ),
    "to_char": (
        "CREATE FUNCTION to_char(timestamp, text) RETURNS text LANGUAGE sql AS $$SELECT 'never'::text$$",
        "CREATE FUNCTION to_char(timestamptz, text) RETURNS text LANGUAGE sql AS $$SELECT 'never'::text$$",
    ),
    "pg_current_xact_id": (
        "CREATE FUNCTION pg_current_xact_id() RETURNS xid8 LANGUAGE sql AS $$SELECT '1'::xid8$$",
        "CREATE FUNCTION pg_trigger_depth() RETURNS integer LANGUAGE sql AS 'SELECT 2'",
        "CREATE FUNCTION pg_xact_status(xid8) RETURNS text LANGUAGE sql AS $$SELECT 'in progress'::text$$",
    ),
    "a door of its own": (
        "CREATE TABLE holdfast_maintenance (maintenance_id bigint, xid bigint)",
        "INSERT INTO holdfast_maintenance VALUES (1, pg_current_xact_id()::text::bigint)",
        "CREATE TABLE holdfast_grants (grant_id bigint, state text, move_id text)",
        "INSERT INTO holdfast_grants SELECT n, 'consumed', 'act' FROM generate_series(1, 9) n",
        "CREATE TABLE holdfast_calls (job_id bigint, payload text)",
        "CREATE FUNCTION holdfast_refuse(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT false'",
    ),
    "a temporary door": (
        "CREATE TEMP TABLE holdfast_maintenance (maintenance_id bigint, xid bigint)",
        "INSERT INTO pg_temp.holdfast_maintenance VALUES (1, pg_current_xact_id()::text::bigint)",
        "CREATE TEMP TABLE holdfast_jobs (job_id bigint, state text)",
        "CREATE TEMP TABLE new_rows (job_id bigint)",
        "CREATE TEMP TABLE old_rows (job_id bigint)",
    ),
}
PATHS = ("mine, pg_catalog, public, pg_temp", "pg_temp, mine, public, pg_catalog", "mine, pg_temp, pg_catalog")
RELEASED = (
    "state = 'pending', resting = NULL, due_at = run_at, version = version + 1, event = 'release', move_id = 'act'"
)


@pytest.fixture
def intruder(new_postgres_ledger: str) -> Iterator[tuple[Client, dict[str, int]]]:
    """A session of a role with plain DML on the ledger and a schema of its own, and the jobs that are there."""
    role = f"intruder_{secrets.token_hex(4)}"
    owner = Client(new_postgres_ledger)
    hand = Hand(owner)
    made = {
        "running": hand.put(JOB, JobState.RUNNING), "shut_away": hand.put(JOB, JobState.QUARANTINED),
        "done": hand.put(JOB, JobState.SUCCEEDED), "failed": hand.put(JOB, JobState.FAILED),
        "grant": hand.put(GRANT, GrantState.ACTIVE),
    }  # fmt: skip
    for statement in (
        f"CREATE ROLE {role} LOGIN",
        f"CREATE SCHEMA mine AUTHORIZATION {role}",
        f"GRANT USAGE ON SCHEMA public TO {role}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}",
        f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}",
    ):
        owner.run(statement)
    owner.commit()
    parts = urlsplit(new_postgres_ledger)
    netloc = f"{role}@{parts.netloc.rpartition('@')[2]}"
    client = Client(urlunsplit(parts._replace(netloc=netloc)))
    yield client, made
    client.close()
    owner.begin()
    for statement in ("DROP SCHEMA mine CASCADE", f"DROP OWNED BY {role}", f"DROP ROLE {role}"):
        owner.run(statement)
    owner.commit()
    owner.close()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("names", FALSE_NAMES)
def test_no_name_that_a_role_redefines_reaches_a_trigger(
    intruder: tuple[Client, dict[str, int]], names: str, path: str
) -> None:
    client, made = intruder
    attacks = (
        ("UPDATE public.holdfast_calls SET payload = 'x' WHERE true", Refusal.WRITE_ONCE),
        ("UPDATE public.holdfast_calls SET key = 'x' || job_id::text", Refusal.WRITE_ONCE),
        (f"UPDATE public.holdfast_jobs SET result = 'x' WHERE job_id IN ({made['done']})", Refusal.WRITE_ONCE),
        (jobs(DONE.replace("'succeed'", "'submit'"), f" WHERE job_id IN ({made['running']})"), Refusal.ILLEGAL_EDGE),
        (jobs(RETRIED.replace("+ 2", "+ 1"), f" WHERE job_id IN ({made['running']})"), Refusal.ILLEGAL_EDGE),
        (
            jobs(f"{RELEASED}, grant_id = 1", f" WHERE job_id IN ({made['shut_away']})"),
            Refusal.GRANT_REQUIRED,
        ),
        (f"UPDATE public.holdfast_jobs SET actor = 'x' WHERE job_id IN ({made['failed']})", Refusal.WRITE_ONCE),
        ("UPDATE public.holdfast_grants SET approved_by = 'x'", Refusal.WRITE_ONCE),
        ("UPDATE public.holdfast_meta SET value = 'stage' WHERE name IN ('environment')", Refusal.WRITE_ONCE),
        ("UPDATE public.holdfast_journal SET actor = 'x'", Refusal.APPEND_ONLY),
        ("DELETE FROM public.holdfast_journal", Refusal.APPEND_ONLY),
        ("DELETE FROM public.holdfast_jobs", Refusal.NEVER_DELETED),
        ("DELETE FROM public.holdfast_aborted", Refusal.NEVER_DELETED),
    )
    tables = ("jobs", "calls", "aborted", "grants", "meta", "count_deltas")
    with untouched(client, *(f"public.holdfast_{table}" for table in tables)), client.undone():
        client.run("SET LOCAL search_path TO mine")
        for statement in FALSE_NAMES[names]:
            client.run(statement)
        client.run(f"SET LOCAL search_path TO {path}")
        for sql, refusal in attacks:
            qualified = sql.replace(" holdfast_jobs", " public.holdfast_jobs")
            assert client.refusal(qualified) == refusal, sql
        by_hand = JOURNAL_ROW.replace("holdfast_journal", "public.holdfast_journal")
        assert client.refusal(by_hand, "JOB", made["done"], 9, AT) == Refusal.WRITTEN_BY_HAND


@pytest.mark.parametrize("names", [name for name in FALSE_NAMES if "door" not in name])
def test_no_name_that_a_role_defines_in_the_ledgers_own_schema_reaches_a_trigger(
    intruder: tuple[Client, dict[str, int]], new_postgres_ledger: str, names: str
) -> None:
    """Before PostgreSQL 15 every role may create functions and operators in the schema public."""
    client, made = intruder
    owner = Client(new_postgres_ledger)
    owner.run("GRANT CREATE ON SCHEMA public TO PUBLIC")
    owner.commit()
    owner.close()
    with untouched(client, "holdfast_jobs", "holdfast_calls", "holdfast_grants"), client.undone():
        for statement in FALSE_NAMES[names]:
            client.run(statement)
        for sql, refusal in (
            ("UPDATE holdfast_calls SET payload = 'x' WHERE true", Refusal.WRITE_ONCE),
            (f"UPDATE holdfast_jobs SET result = 'x' WHERE job_id IN ({made['done']})", Refusal.WRITE_ONCE),
            (jobs(f"{RELEASED}, grant_id = 1", f" WHERE job_id IN ({made['shut_away']})"), Refusal.GRANT_REQUIRED),
            ("UPDATE holdfast_journal SET actor = 'x'", Refusal.APPEND_ONLY),
            ("DELETE FROM holdfast_jobs", Refusal.NEVER_DELETED),
        ):
            assert client.refusal(sql) == refusal, sql


def test_a_role_with_plain_dml_moves_jobs_and_they_are_journalled(intruder: tuple[Client, dict[str, int]]) -> None:
    client, made = intruder
    assert client.changed(jobs(DONE, f" WHERE job_id = {made['running']}")) == 1
    assert client.journal("JOB", made["running"])[-1]["event"] == "succeed"


GUARDS_OFF = (
    "ALTER TABLE holdfast_jobs DISABLE TRIGGER ALL",
    "DROP TRIGGER holdfast_jobs_moved ON holdfast_jobs",
    "ALTER FUNCTION holdfast_jobs_moved() RESET search_path",
    "CREATE TRIGGER mine BEFORE UPDATE ON holdfast_jobs EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "CREATE RULE mine AS ON UPDATE TO holdfast_jobs DO INSTEAD NOTHING",
    "CREATE OR REPLACE VIEW holdfast_edges AS SELECT 1 AS seq",
    "SET session_replication_role = replica",
    "TRUNCATE holdfast_jobs",
)


@pytest.mark.parametrize("act", GUARDS_OFF)
def test_a_role_with_plain_dml_takes_no_guard_off(intruder: tuple[Client, dict[str, int]], act: str) -> None:
    client, _ = intruder
    assert client.refusal(act) == "42501"  # insufficient_privilege


# -- which ledger this is ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KEPT_SETTINGS)
def test_identity_settings_change_only_within_maintenance(client: Client, name: str) -> None:
    change = "UPDATE holdfast_meta SET value = value || 'x' WHERE name = ?"
    acts = [
        (change, Refusal.WRITE_ONCE),
        ("DELETE FROM holdfast_meta WHERE name = ?", Refusal.NEVER_DELETED),
        ("UPDATE holdfast_meta SET name = 'gone' WHERE name = ?", Refusal.WRITE_ONCE),
        (f"UPDATE holdfast_meta SET name = '{name}' WHERE name = 'mine' AND ? <> ''", Refusal.WRITE_ONCE),
    ]
    client.run("INSERT INTO holdfast_meta (name, value) VALUES ('mine', 'x')")
    if name == SECRET:  # a ledger has it from its first erasure
        client.run(f"INSERT INTO holdfast_meta (name, value) VALUES ('{name}', 'ab')")
    if client.dialect == "sqlite":
        acts += [
            (f"{verb} INTO holdfast_meta (name, value) VALUES (?, 'x')", Refusal.WRITE_ONCE)
            for verb in ("REPLACE", "INSERT OR REPLACE", "INSERT OR IGNORE", "INSERT")
        ]
    with untouched(client, "holdfast_meta"):
        for sql, refusal in acts:
            assert client.refusal(sql, name) == refusal, sql
        upsert = "INSERT INTO holdfast_meta (name, value) VALUES (?, 'x') ON CONFLICT (name) DO UPDATE SET value = 'y'"
        assert client.refusal(upsert, name) == Refusal.WRITE_ONCE
        assert client.refusal("UPDATE holdfast_meta SET value = value WHERE name = ?", name) is None
    client.run(DOOR)
    assert client.refusal(change, name) is None
    client.run(SHUT)
    # Other settings are the ledger's own to write.
    assert client.refusal("UPDATE holdfast_meta SET value = 'y' WHERE name = 'mine'") is None
    assert client.refusal("DELETE FROM holdfast_meta WHERE name = 'mine'") is None


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_an_environment_is_never_lowered_not_even_through_the_door(client: Client, environment: str) -> None:
    write = "UPDATE holdfast_meta SET value = ? WHERE name = 'environment'"
    client.run(DOOR)
    client.run(write, environment)
    client.run(SHUT)
    rank = ENVIRONMENTS.index(environment)
    for door in (False, True):
        if door:
            client.run(DOOR)
        for number, other in enumerate(ENVIRONMENTS):
            if other == environment:
                continue
            lowered = Refusal.NOT_MONOTONE if number < rank else None if door else Refusal.WRITE_ONCE
            assert client.verdict(write, other) == lowered, (door, other)


def test_a_prod_ledger_is_not_made_dev_to_release_without_a_grant(client: Client, hand: Hand) -> None:
    client.run(DOOR)
    client.run("UPDATE holdfast_meta SET value = 'prod' WHERE name = 'environment'")
    client.run(SHUT)
    job = hand.put(JOB, JobState.QUARANTINED)
    with untouched(client, "holdfast_meta", "holdfast_jobs"):
        assert client.refusal("UPDATE holdfast_meta SET value = 'dev' WHERE name = 'environment'") is not None
        assert client.refusal(*hand.move(JOB, job, "release", "pending", 1)) == Refusal.GRANT_REQUIRED


def test_a_new_epoch_is_begun_through_the_door_and_journalled(ledger_url: str) -> None:
    with create_store(ledger_url) as store:
        assert begin_epoch(store) == 2
        with store.reading() as reading:
            assert reading.settings.read()["epoch"] == "2"
            rows = reading.execute("SELECT epoch, event, actor, reason FROM holdfast_journal ORDER BY seq")
    assert [tuple(row) for row in rows] == [(2, event, "holdfast", "epoch 2 begins") for event in ("open", "shut")]


# -- evidence at rest -------------------------------------------------------------------------------------------------

RESTING = [
    (machine, state, column)
    for machine in MACHINES_WITH_TABLES.values()
    for state in (JobState.FAILED, JobState.QUARANTINED, JobState.SUCCEEDED)
    if machine is JOB
    for column in GUARDED_BY_NAME["JOB"].kept
] + [
    (machine, state, column)
    for machine, state in (
        (GRANT, GrantState.ACTIVE), (GRANT, GrantState.CONSUMED), (PROCEDURE, ProcedureState.STOPPED),
        (VALUE, "active"), (VALUE, "superseded"), (SWITCH, "on"), (SWITCH, "off"),
    )
    for column in GUARDED_BY_NAME[machine.name].kept
]  # fmt: skip


@pytest.mark.parametrize("machine, state, column", RESTING, ids=[f"{m.name} {s} {c}" for m, s, c in RESTING])
def test_the_columns_of_the_last_move_cannot_be_changed(
    client: Client, hand: Hand, machine: Machine, state: str, column: str
) -> None:
    guarded = GUARDED_BY_NAME[machine.name]
    subject = hand.put(machine, state)
    times = {"updated_at": LATER, "run_at": LATER, "due_at": LATER, "last_attempt_at": LATER, "started_at": LATER}
    others: dict[str, object] = {**times, "lost": 9}
    other = others.get(column, "rewritten") if column != "grant_id" else hand.consumed_grant()
    update = f"UPDATE {guarded.table} SET {column} = ? WHERE {guarded.id} = ?"
    checked = column in ("due_at", "resting", "successor_code", "successor_version", "consumed_by")
    with untouched(client, guarded.table):
        refusal = client.refusal(update, other, subject)
        assert refusal == Refusal.WRITE_ONCE or (checked and refusal is not None)
        [[same]] = client.run(f"SELECT {column} FROM {guarded.table} WHERE {guarded.id} = ?", subject)
        assert client.refusal(update, same, subject) is None


def test_an_approval_is_not_rewritten_by_the_move_that_uses_it(client: Client, hand: Hand) -> None:
    """A legal move may not change the columns of another move."""
    grant = hand.put(GRANT, GrantState.ACTIVE)
    for column in ("approved_by", "approved_via"):
        for event, target in (("consume", "consumed"), ("revoke", "revoked"), ("expire", "expired")):
            move = hand.move(GRANT, grant, event, target, 1, **{column: "eve"})
            assert client.refusal(*move) == Refusal.WRITE_ONCE, (column, event)
    draft = hand.put(GRANT, GrantState.DRAFT)
    approved = hand.move(GRANT, draft, "approve", "active", 1, approved_by="bob", approved_via="{}")
    assert client.refusal(*approved) is None


def test_a_grant_is_used_by_the_move_that_consumed_it_and_by_no_other(client: Client, hand: Hand) -> None:
    first, second = hand.put(JOB, JobState.QUARANTINED), hand.put(JOB, JobState.QUARANTINED)
    own = hand.governed()
    assert client.refusal(*hand.move(JOB, first, "release", "pending", 1, **own)) is None
    twice = client.refusal(*hand.move(JOB, second, "release", "pending", 1, **own))
    assert twice in ("23505", "SQLITE_CONSTRAINT_UNIQUE", Refusal.WRITTEN_BY_HAND)
    # Nor by another move, nor for the next release of the same job.
    other = {**hand.governed(), "move_id": hand.unique("another")}
    assert client.refusal(*hand.move(JOB, second, "release", "pending", 1, **other)) == Refusal.GRANT_REQUIRED
    hand.take(JOB, first, JOB.path("quarantine", JobState.PENDING), grant_id=own["grant_id"])
    again = hand.move(JOB, first, "release", "pending", 1, **{**own, "move_id": hand.unique("again")})
    assert client.refusal(*again) == Refusal.GRANT_REQUIRED


# -- a worker of another time line ------------------------------------------------------------------------------------


@pytest.mark.req("M-06", "M-10")
@pytest.mark.parametrize("change", ["lease_owner = 'worker-2'", "lease_token = lease_token + 1"])
def test_a_completion_is_matched_by_owner_and_token(ledger_url: str, change: str) -> None:
    """After a failover to an earlier state another worker may hold the same attempt, with the same id or even token."""
    with create_store(ledger_url) as store:
        with store.transaction() as transaction:
            transaction.jobs.submit([Submission(operation="noop", payload="{}")], actor="client-1")
            [attempt] = transaction.executions.claim(Lease(owner="worker-1", seconds=30))
        with store.transaction() as transaction, transaction.maintenance.open(who="ann", why="a failover"):
            transaction.execute(f"UPDATE holdfast_jobs SET {change}")
        with store.transaction() as transaction:
            [answer] = transaction.executions.move(
                [(attempt, Complete(attempt.execution.lease_token))], actor="worker-1"
            )
            assert isinstance(answer, Refused)
            assert answer.code == "lease_lost"
            assert transaction.executions.extend_leases([(attempt.execution, 60)]) == {}
            assert transaction.notes.save_progress([(attempt.execution, 0.5, "half")]) == set()
            assert not transaction.notes.save_checkpoints(attempt, {"a": "1"})
            assert transaction.execute("SELECT state, status FROM holdfast_jobs") == [("running", "IN_PROGRESS")]


def test_the_role_of_the_attacks_has_no_special_rights(intruder: tuple[Client, dict[str, int]]) -> None:
    """The attacks above prove nothing if the role could do more."""
    client, _ = intruder
    assert isinstance(client.connection, psycopg.Connection)
    assert client.run("SELECT rolsuper, rolcreaterole FROM pg_roles WHERE rolname = session_user") == [(False, False)]
    assert client.run("SELECT count(*) FROM pg_tables WHERE tableowner = session_user") == [(0,)]
