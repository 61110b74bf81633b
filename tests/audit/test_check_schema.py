"""`check` of constraints, foreign triggers and settings; and of history that was archived."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Ledger
from holdfast.audit.check import record_rules
from holdfast.audit.check.runner import check
from holdfast.audit.repair.repair import plan
from holdfast.core.errors import EnforcementDriftError, StoreDamagedError
from holdfast.engine.upkeep.retention import Retention, gc
from holdfast.governance import quarantine
from holdfast.store import Store, connect, create_store, open_store
from holdfast.store.migrations import migrate
from holdfast.store.postgres.constraints import CONSTRAINTS, NOT_NULL, present
from holdfast.store.reinstall import begin_epoch, behind
from holdfast.testing import VirtualClock
from tests.audit.corruptions import corrupt
from tests.audit.knife import unguarded
from tests.audit.rich import Rich
from tests.cli.commands import holdfast
from tests.enforcement.raw import DOOR, SHUT, Client

pytestmark = pytest.mark.attack("sql")


def found_in(store: Store[Any]) -> dict[tuple[str, str], str]:
    return {(one.invariant, one.subject): one.detail for one in check(store).violations}


def by_hand(url: str, *statements: str) -> None:
    client = Client(url)
    for statement in statements:
        client.run(statement)
    client.commit()
    client.close()


# ---------------------------------------------------------------------------------------------------------------------
# The schema


def test_the_constraints_that_are_listed_are_those_of_a_new_ledger(new_postgres_ledger: str) -> None:
    with psycopg.connect(new_postgres_ledger) as session:
        assert present(session, "public") == (CONSTRAINTS, NOT_NULL)


@pytest.mark.req("G-06", "G-16")
@pytest.mark.parametrize(
    "statement, subject",
    [
        ("holdfast_jobs DROP CONSTRAINT holdfast_jobs_attempts_check", "CONSTRAINT holdfast_jobs_attempts_check"),
        (
            "holdfast_checkpoints DROP CONSTRAINT holdfast_checkpoints_job_id_fkey",
            "CONSTRAINT holdfast_checkpoints_job_id_fkey",
        ),
        ("holdfast_jobs DROP CONSTRAINT holdfast_jobs_status_check", "CONSTRAINT holdfast_jobs_status_check"),
        ("holdfast_calls ALTER COLUMN digest DROP NOT NULL", "COLUMN holdfast_calls.digest"),
        ("holdfast_steps DISABLE TRIGGER ALL", "TABLE holdfast_steps"),
    ],
)
def test_a_constraint_that_was_dropped_is_found(new_postgres_ledger: str, statement: str, subject: str) -> None:
    with create_store(new_postgres_ledger) as store:
        assert found_in(store) == {}
        by_hand(new_postgres_ledger, f"ALTER TABLE {statement}")
        assert ("database", subject) in found_in(store)
        assert {name for name, _ in found_in(store)} <= {"database", "enforcement"}


REPLACED: dict[str, tuple[list[str], str]] = {
    "a CHECK under its name": (
        [
            "ALTER TABLE holdfast_jobs DROP CONSTRAINT holdfast_jobs_due_check",
            "ALTER TABLE holdfast_jobs ADD CONSTRAINT holdfast_jobs_due_check CHECK (true)",
        ],
        "CONSTRAINT holdfast_jobs_due_check",
    ),
    "a foreign key under its name": (
        [
            "ALTER TABLE holdfast_checkpoints DROP CONSTRAINT holdfast_checkpoints_job_id_fkey",
            "ALTER TABLE holdfast_checkpoints ADD FOREIGN KEY (job_id) REFERENCES holdfast_calls ON DELETE CASCADE",
        ],
        "CONSTRAINT holdfast_checkpoints_job_id_fkey",
    ),
    "a primary key under its name": (
        [
            "ALTER TABLE holdfast_jobs DROP CONSTRAINT holdfast_jobs_pkey",
            "ALTER TABLE holdfast_jobs ADD PRIMARY KEY (job_id, version)",
        ],
        "CONSTRAINT holdfast_jobs_pkey",
    ),
    "the transaction of the door": (
        ["ALTER TABLE holdfast_maintenance ALTER COLUMN xid SET DEFAULT 1"],
        "COLUMN holdfast_maintenance.xid",
    ),
    "an identity": (["ALTER TABLE holdfast_calls ALTER COLUMN job_id DROP IDENTITY"], "COLUMN holdfast_calls.job_id"),
    "a type": (["ALTER TABLE holdfast_workers ALTER COLUMN queues TYPE varchar"], "COLUMN holdfast_workers.queues"),
    "the rows of another table": (
        ["CREATE TABLE mine (LIKE holdfast_workers INCLUDING ALL)", "ALTER TABLE mine INHERIT holdfast_workers"],
        "TABLE holdfast_workers",
    ),
    "one operator of an index": (
        [
            "DROP INDEX holdfast_switches_on",
            "CREATE UNIQUE INDEX holdfast_switches_on ON holdfast_switches (name) WHERE state < 'on'",
        ],
        "INDEX holdfast_switches_on",
    ),
}


@pytest.mark.parametrize("what", REPLACED)
def test_an_object_replaced_under_the_same_name_is_found(new_postgres_ledger: str, what: str) -> None:
    statements, subject = REPLACED[what]
    with open_store(new_postgres_ledger) as store:
        assert found_in(store) == {}
        by_hand(new_postgres_ledger, *statements)
        assert ("database", subject) in found_in(store)
        assert {name for name, _ in found_in(store)} <= {"database", "enforcement"}


def test_no_column_is_computed_so_that_none_can_lose_its_expression(new_postgres_ledger: str) -> None:
    with psycopg.connect(new_postgres_ledger) as session:
        found = session.execute("SELECT count(*) FROM pg_attribute WHERE attgenerated <> '' AND attnum > 0").fetchone()
    assert found == (0,)


def test_a_ledger_in_a_schema_of_its_own_is_as_the_migrations_make_it(pg_url: str) -> None:
    by_hand(pg_url, 'CREATE SCHEMA "of its own"')
    with create_store(pg_url, schema="of its own") as store:
        assert found_in(store) == {}


@pytest.mark.req("G-06", "G-16")
@pytest.mark.parametrize(
    "kind, name, old, new",
    [
        ("table", "holdfast_jobs", "CHECK (attempts BETWEEN 0 AND 999999)", "CHECK (1)"),
        ("index", "holdfast_calls_key", "CREATE UNIQUE INDEX", "CREATE INDEX"),
    ],
)
def test_a_table_recreated_with_another_definition_is_found(
    sqlite_url: str, kind: str, name: str, old: str, new: str
) -> None:
    with create_store(sqlite_url) as store:
        client = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
        client.execute("PRAGMA writable_schema = ON")
        edited = client.execute(
            "UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE name = ?", (old, new, name)
        ).rowcount
        assert edited == 1
        client.commit()
        client.close()
    with connect(sqlite_url) as store:
        assert found_in(store)["database", f"{kind.upper()} {name}"] == "it is not as the migrations make it"


@pytest.mark.req("G-06", "G-16")
def test_a_ledger_with_a_foreign_trigger_opens_only_once_it_is_removed(
    rich_ledger: tuple[str, Rich], rich_clock: VirtualClock
) -> None:
    url, rich = rich_ledger
    corrupt(url, rich, "a_foreign_trigger")
    with pytest.raises(EnforcementDriftError) as raised:
        open_store(url, rich_clock)
    assert raised.value.context == {"differs": ["mine"]}
    with connect(url, rich_clock) as store:
        migrate(store)
    with open_store(url, rich_clock) as store:
        assert check(store).violations == ()


def test_a_trigger_on_a_users_own_table_is_ignored(ledger_url: str) -> None:
    with create_store(ledger_url) as store:
        by_hand(ledger_url, "CREATE TABLE mine (n integer)", "CREATE VIEW holdfast_view AS SELECT * FROM holdfast_jobs")
        if store.dialect == "sqlite":
            by_hand(ledger_url, "CREATE TRIGGER mine_too AFTER INSERT ON mine BEGIN SELECT 1; END")
        else:
            by_hand(ledger_url, "CREATE RULE mine_too AS ON INSERT TO mine DO ALSO NOTHING")
        assert found_in(store) == {}
    open_store(ledger_url).close()


@pytest.mark.req("G-06", "G-16")
def test_an_id_is_not_given_twice_after_the_last_job_is_gone(
    rich_ledger: tuple[str, Rich], rich_clock: VirtualClock
) -> None:
    """The rows of a job may be gone: then the journal has the highest id that was given."""
    url, rich = rich_ledger
    with unguarded(url, rich) as knife:
        [[greatest]] = knife.run("SELECT max(job_id) FROM holdfast_calls")
        for table in ("holdfast_calls", "holdfast_jobs"):
            knife.run(f"DELETE FROM {table} WHERE job_id = ?", greatest)
        knife.after = [knife.going_on_after("holdfast_calls", "job_id", greatest - 1)]
    with connect(url, rich_clock) as store:
        [found] = [one for one in check(store).violations if one.subject == "SEQUENCE holdfast_calls"]
        sequence = {"kind": "sequence", "name": "holdfast_calls", "greatest": greatest}
        assert (found.invariant, found.evidence) == ("enforcement", sequence)
        with store.reading() as reading:
            assert behind(reading) == [("holdfast_calls", greatest - 1, greatest)]


# ---------------------------------------------------------------------------------------------------------------------
# Settings


@pytest.mark.req("G-06")
@pytest.mark.parametrize("name", ["ledger_id", "epoch", "environment", "governed"])
@pytest.mark.parametrize("value", [None, "", "later"])
def test_a_missing_required_setting_is_found(
    rich_ledger: tuple[str, Rich], rich_clock: VirtualClock, name: str, value: str | None
) -> None:
    url, rich = rich_ledger
    edit = f"UPDATE holdfast_meta SET value = '{value}'" if value is not None else "DELETE FROM holdfast_meta"
    if name in ("environment", "governed"):  # triggers refuse these edits even under maintenance
        with unguarded(url, rich) as knife:
            knife.run(f"{edit} WHERE name = '{name}'")
    else:
        by_hand(url, DOOR, f"{edit} WHERE name = '{name}'", SHUT)
    with connect(url, rich_clock) as store:
        assert ("settings_readable", f"SETTING {name}") in found_in(store)
        with store.reading() as reading, pytest.raises(StoreDamagedError) as raised:
            reading.settings.read()[name]
        assert f"the row '{name}' of the table holdfast_meta" in raised.value.hint


@pytest.mark.req("G-06")
def test_commands_report_damage_if_settings_are_missing(rich_ledger: tuple[str, Rich], tmp_path: Path) -> None:
    url, _ = rich_ledger
    lost = "DELETE FROM holdfast_meta WHERE name = 'ledger_id'"
    by_hand(url, DOOR, lost, SHUT, "UPDATE holdfast_operations SET defaults = '{'")
    for command in (["submit", "echo"], ["snapshot", "create", str(tmp_path / "s.snap")]):
        assert (command, exit_and_code(url, *command)) == (command, (4, "store_damaged"))
    by_hand(url, DOOR, "UPDATE holdfast_meta SET value = 'later' WHERE name = 'epoch'", SHUT)
    for command in (["stats"], ["jobs"], ["migrate"], ["init"], ["submit", "echo"]):
        assert (command, exit_and_code(url, *command)) == (command, (4, "store_damaged"))


def exit_and_code(url: str, *command: str) -> tuple[int, str]:
    answer = holdfast(*command, "--db", url, "--json")
    return answer.code, answer.error_code


@pytest.mark.req("G-06")
def test_unreadable_defaults_are_reported_when_they_are_used(
    rich_ledger: tuple[str, Rich], rich_clock: VirtualClock
) -> None:
    url, _ = rich_ledger
    by_hand(url, "UPDATE holdfast_operations SET defaults = '{' WHERE operation = 'echo'")
    with Ledger(url) as ledger, pytest.raises(StoreDamagedError) as caught:
        ledger.submit("echo", {})
    assert caught.value.context == {"where": "the row 'echo' of the table holdfast_operations"}
    with connect(url, rich_clock) as store, store.reading() as reading, pytest.raises(StoreDamagedError):
        reading.operations.declared()


def test_the_check_and_quarantine_name_the_same_target_of_a_release() -> None:
    assert record_rules.JOB_TARGET == quarantine.JOB_TARGET


# ---------------------------------------------------------------------------------------------------------------------
# History that is archived, and history that is missing


@pytest.fixture
def archived(rich_ledger: tuple[str, Rich], rich_clock: VirtualClock, tmp_path: Path) -> tuple[str, Rich]:
    """The URL of a rich ledger of each kind in turn whose first blocks are archived."""
    url, rich = rich_ledger
    rich_clock.advance(3600)
    with open_store(url, rich_clock) as store:
        gc(store, Retention(finished_s=0.0, history_s=0.0, archive_dir=str(tmp_path)), who="keeper")
        assert list(tmp_path.iterdir())
        assert found_in(store) == {}
    return url, rich


@pytest.mark.req("G-06", "G-16")
def test_missing_history_that_no_archive_holds_is_found(archived: tuple[str, Rich], rich_clock: VirtualClock) -> None:
    url, rich = archived
    corrupt(url, rich, "a_history_that_is_gone_and_cut")
    with connect(url, rich_clock) as store:
        assert found_in(store).keys() == {("journal_continuous", f"JOB {rich.poisoned}")}
        planned = plan(store)
        assert ("move", f"JOB {rich.poisoned}", "quarantined") in [
            (act.kind, act.subject, act.after.get("state")) for act in planned.acts
        ]


@pytest.mark.req("G-06", "G-16")
def test_no_violation_after_a_new_epoch(archived: tuple[str, Rich], rich_clock: VirtualClock) -> None:
    with connect(archived[0], rich_clock) as store:
        begin_epoch(store)
        assert found_in(store) == {}
