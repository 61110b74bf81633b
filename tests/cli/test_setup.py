"""`holdfast init` and `migrate`."""

from __future__ import annotations

import resource
import sqlite3
import subprocess
from pathlib import Path

import psycopg
import pytest

from holdfast.cli.commands.init import Environment
from holdfast.core.environments import ENVIRONMENTS
from holdfast.store import migrations, open_store
from tests.cli.commands import PROGRAM, clean_environment, heed_permissions, holdfast, process


def path_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def dialect_of(url: str) -> str:
    return "sqlite" if url.startswith("sqlite") else "postgres"


def execute(url: str, statement: str) -> None:
    """Run raw SQL, as a shell would."""
    if dialect_of(url) == "sqlite":
        connection = sqlite3.connect(path_of(url))
        with connection:
            connection.executescript(statement)
        connection.close()
    else:
        with psycopg.connect(url, autocommit=True) as session:
            session.execute(statement.encode())


def drop_a_trigger(url: str) -> str:
    """Drop one of the ledger's triggers and return its name."""
    with open_store(url) as store, store.reading() as reading:
        if store.dialect == "sqlite":
            rows = reading.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' ORDER BY name LIMIT 1")
            name = statement = str(rows[0][0])
        else:
            rows = reading.execute(
                "SELECT tgname::text, tgrelid::regclass::text FROM pg_trigger"
                " WHERE tgname LIKE 'holdfast%' AND tgparentid = 0 AND NOT tgisinternal ORDER BY 1, 2 LIMIT 1"
            )
            name, statement = str(rows[0][0]), f"{rows[0][0]} ON {rows[0][1]}"
    execute(url, f"DROP TRIGGER {statement}")
    return name


# ---------------------------------------------------------------------------------------------------------------------
# init


def test_init_creates_a_ledger_and_reports_it(empty_url: str) -> None:
    first = holdfast("init", "--db", empty_url, "--json")
    assert first.code == 0
    expected = {"environment": "dev", "governed": False, "database": dialect_of(empty_url)}
    assert first.json == {"created": True, **expected}
    assert holdfast("init", "--db", empty_url, "--json").json == {"created": False, **expected}
    with open_store(empty_url) as store, store.reading() as reading:
        assert reading.settings.read()["environment"] == "dev"


def test_init_for_people(sqlite_url: str) -> None:
    made = holdfast("init", "--db", sqlite_url, "--env", "prod", "--governed")
    assert made.tells("governed", "prod", "sqlite")
    there = holdfast("init", "--db", sqlite_url)
    assert there.tells("governed", "prod", "sqlite")
    assert there.out != made.out


def test_a_ledger_has_one_environment(empty_url: str) -> None:
    assert holdfast("init", "--db", empty_url, "--env", "stage", "--json").json["environment"] == "stage"
    again = holdfast("init", "--db", empty_url, "--env", "prod", "--json")
    assert (again.code, again.error_code) == (3, "refused")
    assert again.json["context"]["environment"] == "stage"
    governed = holdfast("init", "--db", empty_url, "--governed")
    assert (governed.code, governed.error_code) == (3, "refused")
    assert holdfast("init", "--db", empty_url, "--env", "stage").code == 0
    with open_store(empty_url) as store, store.reading() as reading:
        meta = reading.settings.read()
        assert (meta["environment"], meta["governed"]) == ("stage", "no")


def test_init_does_not_change_a_tampered_ledger(ledger: str) -> None:
    name = drop_a_trigger(ledger)
    again = holdfast("init", "--db", ledger, "--json")
    assert (again.code, again.error_code) == (4, "enforcement_drift")
    assert name in again.json["context"]["differs"]
    assert holdfast("jobs", "--db", ledger).error_code == "enforcement_drift"


def test_init_leaves_only_the_ledger(sqlite_url: str) -> None:
    holdfast("init", "--db", sqlite_url)
    assert [file.name for file in path_of(sqlite_url).parent.iterdir()] == ["ledger.db"]


def test_init_that_fails_leaves_nothing(sqlite_url: str) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    failed = process("init", "--db", sqlite_url, "--json", before=small_files)
    assert (failed.code, failed.error_code) == (4, "store_unavailable")
    assert ".holdfast-" not in failed.out
    assert list(path_of(sqlite_url).parent.iterdir()) == []


def test_init_in_a_directory_that_cannot_be_written(sqlite_url: str) -> None:
    directory = path_of(sqlite_url).parent
    directory.chmod(0o555)
    failed = process("init", "--db", sqlite_url, "--json", before=heed_permissions)
    assert (failed.code, failed.error_code) == (4, "store_read_only")
    assert list(directory.iterdir()) == []


def test_init_keeps_a_file_that_is_no_database(sqlite_url: str) -> None:
    path = path_of(sqlite_url)
    path.write_text("something else\n" * 100)
    failed = holdfast("init", "--db", sqlite_url)
    assert (failed.code, failed.error_code) == (4, "not_a_ledger")
    assert path.read_text() == "something else\n" * 100
    assert [file.name for file in path.parent.iterdir()] == ["ledger.db"]


def test_init_beside_tables_of_ones_own(empty_url: str) -> None:
    execute(empty_url, "CREATE TABLE mine (n integer); INSERT INTO mine VALUES (7)")
    assert holdfast("init", "--db", empty_url, "--json").json["created"] is True
    assert holdfast("submit", "noop", "--db", empty_url).code == 0
    with open_store(empty_url) as store, store.reading() as reading:
        assert reading.execute("SELECT n FROM mine") == [(7,)]


def test_many_inits_at_once_make_one_ledger(empty_url: str) -> None:
    children = [
        subprocess.Popen(
            [*PROGRAM, "init", "--db", empty_url, "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=clean_environment(),
        )
        for _ in range(4)
    ]
    outputs = [child.communicate(timeout=60) for child in children]
    assert [child.returncode for child in children] == [0] * 4, outputs
    assert sorted(b'"created": true' in out for out, _ in outputs) == [False, False, False, True]
    assert holdfast("submit", "noop", "--db", empty_url, "--json").json["job_id"] == 1


def test_a_schema_of_its_own(pg_url: str) -> None:
    missing = holdfast("init", "--db", pg_url, "--schema", "work", "--json")
    assert (missing.code, missing.error_code) == (4, "store_unavailable")
    execute(pg_url, "CREATE SCHEMA work")
    assert holdfast("init", "--db", pg_url, "--schema", "work").code == 0
    assert holdfast("submit", "noop", "--db", pg_url, "--schema", "work", "--json").json["job_id"] == 1
    assert len(holdfast("jobs", "--db", pg_url, "--schema", "work", "--json").json) == 1
    assert holdfast("jobs", "--db", pg_url, "--json").error_code == "not_a_ledger"


def test_the_environments_are_those_of_the_store() -> None:
    assert tuple(Environment) == ENVIRONMENTS


# ---------------------------------------------------------------------------------------------------------------------
# migrate


def test_migrate_changes_nothing_in_a_current_ledger(ledger: str) -> None:
    assert holdfast("migrate", "--db", ledger, "--json").json == {"applied": [], "rewritten": []}
    assert holdfast("migrate", "--db", ledger).tells("p to date")
    assert holdfast("migrate", "--print-sql", "--db", ledger, "--json").json == {"pending": [], "statements": []}
    assert holdfast("migrate", "--print-sql", "--db", ledger).out == "-- up to date\n"


def test_migrate_restores_dropped_triggers(ledger: str) -> None:
    name = drop_a_trigger(ledger)
    assert holdfast("migrate", "--db", ledger, "--json").json == {"applied": [], "rewritten": [name]}
    assert holdfast("submit", "noop", "--db", ledger).code == 0


def test_the_printed_sql_is_what_migrate_runs(ledger: str) -> None:
    name = drop_a_trigger(ledger)
    printed = holdfast("migrate", "--print-sql", "--db", ledger)
    assert printed.code == 0
    assert f"TRIGGER {name}" in printed.out
    assert holdfast("jobs", "--db", ledger).error_code == "enforcement_drift"
    execute(ledger, printed.out)
    assert holdfast("jobs", "--db", ledger, "--json").json == []


def test_migrate_applies_what_is_missing(ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = migrations.migrations
    number = len(shipped("sqlite")) + 1
    newer = migrations.Migration(number, "more", "CREATE TABLE holdfast_more (n integer);\n")
    monkeypatch.setattr(migrations, "migrations", lambda dialect: [*shipped(dialect), newer])
    older = holdfast("jobs", "--db", ledger, "--json")
    assert (older.code, older.error_code) == (4, "schema_version")
    planned = holdfast("migrate", "--print-sql", "--db", ledger, "--json").json
    assert planned["pending"] == [f"{number:04d}_more"]
    assert planned["statements"][0] == "CREATE TABLE holdfast_more (n integer)"
    assert holdfast("migrate", "--db", ledger, "--json").json == {"applied": [f"{number:04d}_more"], "rewritten": []}
    assert holdfast("migrate", "--db", ledger).tells("p to date")


def test_migrate_does_not_create_a_ledger(empty_url: str) -> None:
    execute(empty_url, "CREATE TABLE mine (n integer)")
    for command in (["migrate"], ["migrate", "--print-sql"]):
        refused = holdfast(*command, "--db", empty_url, "--json")
        assert (refused.code, refused.error_code) == (4, "not_a_ledger")
    assert holdfast("jobs", "--db", empty_url).error_code == "not_a_ledger"


@pytest.mark.parametrize(
    "command", [("init",), ("migrate",), ("migrate", "--print-sql"), ("jobs",), ("submit", "noop")]
)
def test_a_newer_ledger_is_left_as_it_is(ledger: str, command: tuple[str, ...]) -> None:
    execute(ledger, "INSERT INTO holdfast_migrations VALUES (9999, 'future', 'x', '2099-01-01')")
    refused = holdfast(*command, "--db", ledger, "--json")
    assert (refused.code, refused.error_code) == (4, "schema_version")
    assert refused.json["context"]["ledger"] == 9999


def test_migrate_begins_a_new_epoch(ledger: str) -> None:
    """Rows of a cluster whose transaction ids begin anew sort after all that was sealed before."""
    assert holdfast("migrate", "--db", ledger, "--new-epoch", "--json").json == {"epoch": 2}
    assert holdfast("submit", "noop", "--db", ledger).code == 0
    with open_store(ledger) as store, store.reading() as reading:
        assert reading.execute("SELECT epoch FROM holdfast_journal WHERE machine = 'JOB'") == [(2,)]
    assert holdfast("migrate", "--db", ledger, "--json").json == {"applied": [], "rewritten": []}
    assert holdfast("migrate", "--db", ledger, "--new-epoch", "--print-sql").error_code == "bad_input"
