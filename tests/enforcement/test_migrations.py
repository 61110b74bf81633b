"""The schema is the sum of its migrations; a ledger that is not what this version knows is refused and left alone.

Invariants: what `plan` prints is all that `migrate` does to the schema; a refusal writes nothing, not even a setting of
the file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from holdfast.core.errors import HoldfastError, NotALedgerError, SchemaVersionError
from holdfast.core.machines import JOB, MACHINES, TABLE
from holdfast.store import connect, create_store, open_store
from holdfast.store import migrations as under_test
from holdfast.store.enforcement import Refusal
from holdfast.store.migrations import Migration, migrate, migrations, plan
from tests.enforcement.raw import Client, Hand
from tests.enforcement.schema import everything_in, schema_of
from tests.support.postgres import Server


def run_raw(url: str, *statements: str) -> None:
    client = Client(url)
    for statement in statements:
        client.run(statement)
    client.commit()
    client.close()


def printed(url: str) -> tuple[str, ...]:
    """Return the statements that `migrate` would run, without running them."""
    with connect(url, create=True) as store, store.reading() as reading:
        return plan(store, reading.connection).statements


@pytest.fixture
def another_url(empty_url: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A second empty database of the same kind."""
    if empty_url.startswith("sqlite"):
        yield empty_url + "-another"
    else:
        server: Server = request.getfixturevalue("pg_server")
        url = server.create_database()
        yield url
        server.drop_database(url)


def test_the_printed_statements_make_the_schema_that_migrate_makes(empty_url: str, another_url: str) -> None:
    statements = printed(empty_url)
    run_raw(empty_url, *statements)
    create_store(another_url).close()
    by_hand, by_migrate = Client(empty_url), Client(another_url)
    assert schema_of(by_hand) == schema_of(by_migrate)
    for table in ("holdfast_machines", "holdfast_transitions"):
        assert by_hand.run(f"SELECT * FROM {table}") == by_migrate.run(f"SELECT * FROM {table}")
    recorded = "SELECT number, name, digest FROM holdfast_migrations ORDER BY number"
    assert by_hand.run(recorded) == by_migrate.run(recorded)
    by_hand.close()
    by_migrate.close()


def test_a_ledger_made_from_the_printed_statements_can_be_opened(ledger_url: str) -> None:
    run_raw(ledger_url, *printed(ledger_url))
    open_store(ledger_url).close()


def test_planning_writes_nothing(ledger: str) -> None:
    before = everything_in(ledger)
    assert printed(ledger)
    assert everything_in(ledger) == before


def test_migrating_twice_changes_nothing(empty_url: str) -> None:
    with connect(empty_url, create=True) as store:
        assert migrate(store) == tuple(migration.name for migration in migrations(store.dialect))
        before = everything_in(empty_url)
        assert migrate(store) == ()
        assert migrate(store, environment="prod", governed=True) == ()
    assert everything_in(empty_url) == before


def test_both_dialects_have_the_same_migrations() -> None:
    sqlite, postgres = ([(m.number, m.name) for m in migrations(dialect)] for dialect in ("sqlite", "postgres"))
    assert sqlite == postgres
    assert [number for number, _ in sqlite] == list(range(1, len(sqlite) + 1))


@pytest.mark.req("G-02", "M-03")
def test_the_table_for_people_is_the_transition_table(ledger: str) -> None:
    client = Client(ledger)
    rows = client.run("SELECT machine, event, step, source, target, path, rule FROM holdfast_transitions")
    expected = [
        (machine.name, path.event, step, edge.source, edge.target, str(path), str(path.rule))
        for machine in MACHINES.values()
        for path in machine.paths
        for step, edge in enumerate(path.edges, start=1)
    ]
    assert sorted(rows, key=repr) == sorted(expected, key=repr)
    assert {(row[0], row[1], row[5]) for row in rows} == {(row.machine, row.event, row.path) for row in TABLE}
    client.close()


# -- what is refused --------------------------------------------------------------------------------------------------

NEWER = "INSERT INTO holdfast_migrations VALUES (9999, 'from the future', 'digest', 'then')"
CHANGED = "UPDATE holdfast_migrations SET digest = 'another' WHERE number = 1"
FOREIGN = "CREATE TABLE holdfast_other (n integer)"

opening: list[Callable[[str], Any]] = [open_store, create_store]


@pytest.mark.parametrize("open_it", opening)
@pytest.mark.parametrize(
    "damage, context",
    [(NEWER, {"ledger": 9999, "holdfast": len(migrations("sqlite"))}), (CHANGED, {"changed": [1]})],
    ids=["newer", "changed"],
)
def test_a_newer_or_changed_schema_is_refused_and_left_as_it_is(
    ledger: str, open_it: Callable[[str], Any], damage: str, context: dict[str, object]
) -> None:
    run_raw(ledger, damage)
    before = everything_in(ledger)
    with pytest.raises(SchemaVersionError) as caught:
        open_it(ledger)
    assert (caught.value.code, caught.value.exit_code) == ("schema_version", 4)
    assert caught.value.context == context
    assert caught.value.hint in (
        "Upgrade Holdfast on this machine.",
        "Use the version of Holdfast that created this ledger.",
    )
    assert everything_in(ledger) == before


@pytest.mark.parametrize("open_it", opening)
def test_foreign_tables_under_our_names_are_refused_and_left_as_they_are(
    empty_url: str, open_it: Callable[[str], Any]
) -> None:
    run_raw(empty_url, FOREIGN, "INSERT INTO holdfast_other VALUES (1)")
    before = everything_in(empty_url)
    with pytest.raises(NotALedgerError) as caught:
        open_it(empty_url)
    assert (caught.value.code, caught.value.exit_code) == ("not_a_ledger", 4)
    assert caught.value.context == {"tables": ["holdfast_other"]}
    assert everything_in(empty_url) == before


def test_an_empty_database_is_not_a_ledger(empty_url: str) -> None:
    if empty_url.startswith("sqlite"):
        path = Path(urlsplit(empty_url).path[1:])
        with pytest.raises(NotALedgerError) as missing:
            open_store(empty_url)
        assert missing.value.context == {"path": str(path)}
        assert not path.exists()
    run_raw(empty_url, "CREATE TABLE mine (n integer)")
    before = everything_in(empty_url)
    with pytest.raises(NotALedgerError) as caught:
        open_store(empty_url)
    assert caught.value.context == {"tables": []}
    assert caught.value.hint == "Create one with `holdfast init`."
    assert everything_in(empty_url) == before


@pytest.mark.parametrize(
    "open_it",
    [
        open_store,
        create_store,
    ],
)
def test_a_ledger_without_its_record_of_migrations_is_refused(ledger: str, open_it: Callable[[str], Any]) -> None:
    """What was applied is unknown, so nothing is applied on top of it."""
    run_raw(ledger, "DELETE FROM holdfast_migrations")
    before = everything_in(ledger)
    with pytest.raises(HoldfastError) as caught:
        open_it(ledger)
    assert caught.value.exit_code == 4
    assert everything_in(ledger) == before


@pytest.mark.parametrize("made", [["CREATE TABLE mine (n)"], [FOREIGN]], ids=["no ledger", "foreign"])
def test_a_refused_file_keeps_every_byte(sqlite_url: str, made: list[str]) -> None:
    """Not even the file's journal mode is changed before it is known to be a ledger."""
    run_raw(sqlite_url, *made)
    path = Path(urlsplit(sqlite_url).path[1:])
    before = path.read_bytes()
    with pytest.raises(NotALedgerError):
        open_store(sqlite_url)
    assert path.read_bytes() == before
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name]


def test_a_ledger_lives_beside_tables_that_are_not_its_own(ledger_url: str) -> None:
    run_raw(ledger_url, "CREATE TABLE mine (n integer)", "INSERT INTO mine VALUES (7)")
    create_store(ledger_url).close()
    open_store(ledger_url).close()
    client = Client(ledger_url)
    assert client.run("SELECT n FROM mine") == [(7,)]
    client.close()


# -- the next migration -----------------------------------------------------------------------------------------------


LAST = len(migrations("sqlite"))


@pytest.fixture
def a_further_migration(monkeypatch: pytest.MonkeyPatch) -> Migration:
    """The Holdfast after this one: it has one migration more."""
    further = Migration(
        LAST + 1, "more", "-- A comment;\nCREATE TABLE holdfast_more (n integer);\n\nDROP TABLE holdfast_queues;\n"
    )
    monkeypatch.setattr(under_test, "migrations", lambda dialect: [*migrations(dialect), further])
    return further


def test_an_older_ledger_is_refused_then_migrated_by_what_is_missing(
    ledger: str, a_further_migration: Migration
) -> None:
    client = Client(ledger)
    job = Hand(client).born(JOB)
    client.commit()
    client.close()
    with pytest.raises(SchemaVersionError) as caught:
        open_store(ledger)
    assert caught.value.context == {"missing": [LAST + 1]}
    assert caught.value.hint == "Run `holdfast migrate`."
    with connect(ledger) as store:
        assert migrate(store) == ("more",)
    open_store(ledger).close()
    client = Client(ledger)
    assert client.run("SELECT number, name, digest FROM holdfast_migrations ORDER BY number")[LAST:] == [
        (LAST + 1, "more", a_further_migration.digest)
    ]
    assert client.run("SELECT job_id FROM holdfast_jobs") == [(job,)]
    assert client.run("SELECT count(*) FROM holdfast_more") == [(0,)]
    client.close()


def test_the_previous_version_refuses_a_migrated_ledger(ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    further = Migration(LAST + 1, "more", "CREATE TABLE holdfast_more (n integer);\n")
    with monkeypatch.context() as patched, connect(ledger) as store:
        patched.setattr(under_test, "migrations", lambda dialect: [*migrations(dialect), further])
        migrate(store)
    with pytest.raises(SchemaVersionError) as caught:
        open_store(ledger)
    assert (caught.value.code, caught.value.context) == ("schema_version", {"ledger": LAST + 1, "holdfast": LAST})


def test_a_failed_migration_leaves_no_change(ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Migration(LAST + 1, "broken", "CREATE TABLE holdfast_more (n integer);\n\nDROP TABLE holdfast_nothing;\n")
    before = everything_in(ledger)
    with monkeypatch.context() as patched, connect(ledger) as store:
        patched.setattr(under_test, "migrations", lambda dialect: [*migrations(dialect), broken])
        with pytest.raises((HoldfastError, sqlite3.Error, psycopg.Error)):
            migrate(store)
    assert everything_in(ledger) == before
    open_store(ledger).close()


# -- other schemas ----------------------------------------------------------------------------------------------------


def test_a_ledger_in_a_schema_of_any_name_enforces_the_same(pg_url: str) -> None:
    name = 'Work "ledger"'
    quoted = '"Work ""ledger"""'
    run_raw(pg_url, f"CREATE SCHEMA {quoted}")
    create_store(pg_url, schema=name).close()
    open_store(pg_url, schema=name).close()
    client = Client(pg_url)
    client.run(f"SET LOCAL search_path TO {quoted}")
    hand = Hand(client)
    job = hand.born(JOB)
    assert client.refusal(*hand.move(JOB, job, "succeed", "succeeded", 1)) == Refusal.ILLEGAL_EDGE
    assert client.refusal("DELETE FROM holdfast_journal") == Refusal.APPEND_ONLY
    hand.take(JOB, job, JOB.path("claim", "pending"))
    assert [row["event"] for row in client.journal("JOB", job)] == ["submit", "claim"]
    client.close()
    with pytest.raises(NotALedgerError):
        open_store(pg_url)
