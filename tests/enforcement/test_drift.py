"""A ledger whose enforcement was tampered with is refused when it is opened, by name, and `migrate` mends it.

Invariants: every tampering here is committed by a raw client, as an operator with a shell would; after `migrate` the
schema is what it was before.
"""

from __future__ import annotations

import pytest

from holdfast.core.errors import EnforcementDriftError
from holdfast.core.machines import JOB, MACHINES, JobState
from holdfast.store import connect, create_store, open_store
from holdfast.store.enforcement import Refusal
from holdfast.store.migrations import migrate
from holdfast.store.statements import generated
from tests.enforcement.raw import Client, Hand
from tests.enforcement.schema import everything_in, schema_of

pytestmark = pytest.mark.attack("sql")


def tamper(url: str, *statements: str) -> None:
    client = Client(url)
    for statement in statements:
        client.run(statement)
    client.commit()
    client.close()


def drift_of(url: str) -> list[str]:
    """Open a ledger; return the reported differences, or nothing if it opens."""
    try:
        open_store(url).close()
    except EnforcementDriftError as error:
        refused = error
    else:
        return []
    differs = refused.context["differs"]
    assert isinstance(differs, list)
    assert all(name in refused.message for name in differs)
    return differs


def mend(url: str) -> None:
    with connect(url) as store:
        assert migrate(store) == ()


def mended(url: str, before: dict[str, object]) -> bool:
    """Migrate, and require that the ledger opens and has the same schema as before."""
    mend(url)
    return drift_of(url) == [] and schema(url) == before


def schema(url: str) -> dict[str, object]:
    client = Client(url)
    try:
        return dict(schema_of(client))
    finally:
        client.close()


SQLITE_TAMPERINGS = {
    "dropped": (["DROP TRIGGER holdfast_jobs_move"], ["holdfast_jobs_move"]),
    "altered": (
        [
            "DROP TRIGGER holdfast_jobs_delete",
            "CREATE TRIGGER holdfast_jobs_delete BEFORE DELETE ON holdfast_jobs BEGIN SELECT 1; END",
        ],
        ["holdfast_jobs_delete"],
    ),
    "by one letter": (
        [
            "PRAGMA writable_schema = ON",
            "UPDATE sqlite_master SET sql = replace(sql, 'cancel', 'cancels') WHERE name = 'holdfast_jobs_move'",
            "PRAGMA writable_schema = OFF",
        ],
        ["holdfast_jobs_move"],
    ),
    "two at once": (
        ["DROP TRIGGER holdfast_journal_update", "DROP TRIGGER holdfast_journal_delete"],
        ["holdfast_journal_delete", "holdfast_journal_update"],
    ),
    "view replaced": (
        ["DROP VIEW holdfast_edges", "CREATE VIEW holdfast_edges AS SELECT * FROM holdfast_journal WHERE seq < 0"],
        ["holdfast_edges"],
    ),
    "view dropped": (["DROP VIEW holdfast_executions"], ["holdfast_executions"]),
    "view that can be written": (
        ["CREATE TRIGGER mine INSTEAD OF UPDATE ON holdfast_executions BEGIN DELETE FROM holdfast_workers; END"],
        ["mine"],
    ),
    "index replaced under its name": (
        ["DROP INDEX holdfast_calls_key", "CREATE UNIQUE INDEX holdfast_calls_key ON holdfast_calls (job_id)"],
        ["holdfast_calls_key"],
    ),
    "index that enforces nothing": (
        ["DROP INDEX holdfast_calls_key", "CREATE INDEX holdfast_calls_key ON holdfast_calls (client, key)"],
        ["holdfast_calls_key"],
    ),
}
NO_CHECK = "CREATE OR REPLACE FUNCTION holdfast_delete() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN OLD; END$$"
POSTGRES_TAMPERINGS = {
    "dropped": (["DROP TRIGGER holdfast_jobs_moved ON holdfast_jobs"], ["holdfast_jobs_moved"]),
    "altered": (
        [
            "DROP TRIGGER holdfast_jobs_delete ON holdfast_jobs",
            "CREATE TRIGGER holdfast_jobs_delete BEFORE DELETE ON holdfast_jobs EXECUTE FUNCTION holdfast_delete()",
        ],
        ["holdfast_jobs_delete"],
    ),
    "disabled": (["ALTER TABLE holdfast_jobs DISABLE TRIGGER holdfast_jobs_born"], ["holdfast_jobs_born"]),
    "for replicas only": (
        ["ALTER TABLE holdfast_jobs ENABLE REPLICA TRIGGER holdfast_jobs_born"],
        ["holdfast_jobs_born"],
    ),
    "all disabled": (
        ["ALTER TABLE holdfast_grants DISABLE TRIGGER USER"],
        [f"holdfast_grants_{name}" for name in ("born", "delete", "deleted", "moved", "once", "truncate")],
    ),
    "on a partition": (
        ["DROP TRIGGER holdfast_journal_p0_truncate ON holdfast_journal_p0"],
        ["holdfast_journal_p0_truncate"],
    ),
    "function altered": ([NO_CHECK], ["holdfast_delete"]),
    "function of another search_path": (
        ["ALTER FUNCTION holdfast_jobs_moved() RESET search_path"],
        ["holdfast_jobs_moved"],
    ),
    "function that asks the session first": (
        ["ALTER FUNCTION holdfast_jobs_moved() SET search_path TO public, pg_catalog"],
        ["holdfast_jobs_moved"],
    ),
    "function with other settings": (["ALTER FUNCTION holdfast_delete() SET jit TO off"], ["holdfast_delete"]),
    "function of the same name": (
        [
            "CREATE FUNCTION holdfast_refuse(code text, what varchar) RETURNS boolean LANGUAGE sql AS 'SELECT false'",
        ],
        ["holdfast_refuse"],
    ),
    "function of the same name, of a trigger": (
        ["CREATE FUNCTION holdfast_delete(what text) RETURNS boolean LANGUAGE sql AS 'SELECT false'"],
        ["holdfast_delete"],
    ),
    "function that is not called with NULL": (
        ["ALTER FUNCTION holdfast_refuse(text, text) STRICT"],
        ["holdfast_refuse"],
    ),
    "function that reads an older state": (["ALTER FUNCTION holdfast_delete() STABLE"], ["holdfast_delete"]),
    "function of its owner": (["ALTER FUNCTION holdfast_delete() SECURITY DEFINER"], ["holdfast_delete"]),
    "view replaced": (
        ["CREATE OR REPLACE VIEW holdfast_executions AS SELECT * FROM ({executions}) e WHERE e.attempt < 0"],
        ["holdfast_executions"],
    ),
    "view with other columns": (
        ["DROP VIEW holdfast_edges", "CREATE VIEW holdfast_edges AS SELECT 1 AS seq"],
        ["holdfast_edges"],
    ),
    "view dropped": (["DROP VIEW holdfast_executions"], ["holdfast_executions"]),
    "view without its note": (["COMMENT ON VIEW holdfast_edges IS NULL"], ["holdfast_edges"]),
    "view that can be written": (
        ["CREATE RULE mine AS ON UPDATE TO holdfast_executions DO INSTEAD DELETE FROM holdfast_workers"],
        ["rule mine"],
    ),
    "not logged": (["ALTER TABLE holdfast_count_deltas SET UNLOGGED"], ["table holdfast_count_deltas"]),
    "rows hidden": (["ALTER TABLE holdfast_jobs ENABLE ROW LEVEL SECURITY"], ["table holdfast_jobs"]),
    "index replaced under its name": (
        ["DROP INDEX holdfast_calls_key", "CREATE UNIQUE INDEX holdfast_calls_key ON holdfast_calls (job_id)"],
        ["holdfast_calls_key"],
    ),
    "index over fewer rows": (
        [
            "DROP INDEX holdfast_calls_key",
            "CREATE UNIQUE INDEX holdfast_calls_key ON holdfast_calls (client, key) WHERE key = 'one'",
        ],
        ["holdfast_calls_key"],
    ),
    "index that enforces nothing": (
        ["DROP INDEX holdfast_calls_key", "CREATE INDEX holdfast_calls_key ON holdfast_calls (client, key)"],
        ["holdfast_calls_key"],
    ),
    "function dropped": (["DROP FUNCTION holdfast_jobs_moved CASCADE"], ["holdfast_jobs_moved"]),
}


@pytest.mark.parametrize("how", SQLITE_TAMPERINGS)
def test_a_tampered_trigger_is_named_and_repaired_on_sqlite(sqlite_url: str, how: str) -> None:
    statements, names = SQLITE_TAMPERINGS[how]
    create_store(sqlite_url).close()
    before = schema(sqlite_url)
    tamper(sqlite_url, *statements)
    assert drift_of(sqlite_url) == names
    assert mended(sqlite_url, before)


@pytest.mark.parametrize("how", POSTGRES_TAMPERINGS)
def test_a_tampered_trigger_or_function_is_named_and_repaired_on_postgres(new_postgres_ledger: str, how: str) -> None:
    statements, names = POSTGRES_TAMPERINGS[how]
    before = schema(new_postgres_ledger)
    executions = generated("postgres", "view")["holdfast_executions"].partition(" AS\n")[2].replace("{schema}", "")
    tamper(new_postgres_ledger, *(statement.replace("{executions}", executions) for statement in statements))
    assert drift_of(new_postgres_ledger) == names
    assert mended(new_postgres_ledger, before)


EXTRA = {
    "sqlite": ["CREATE TRIGGER holdfast_extra AFTER INSERT ON holdfast_jobs BEGIN SELECT 1; END"],
    "postgres": [
        "CREATE FUNCTION holdfast_extra() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END$$",
        "CREATE TRIGGER holdfast_extra BEFORE INSERT ON holdfast_jobs FOR EACH ROW EXECUTE FUNCTION holdfast_extra()",
    ],
}


def test_a_trigger_under_our_name_that_is_not_ours_is_named(ledger: str) -> None:
    tamper(ledger, *EXTRA["postgres" if ledger.startswith("postgres") else "sqlite"])
    assert drift_of(ledger) == ["holdfast_extra"]


def test_a_trigger_under_our_name_that_is_not_ours_is_removed_by_migrate(ledger: str) -> None:
    before = schema(ledger)
    tamper(ledger, *EXTRA["postgres" if ledger.startswith("postgres") else "sqlite"])
    assert mended(ledger, before)


def test_a_guard_that_is_disabled_on_a_partition_alone_is_named(new_postgres_ledger: str) -> None:
    """A partition has its own copies of the journal's triggers, which can be turned off one by one."""
    before = schema(new_postgres_ledger)
    tamper(new_postgres_ledger, "ALTER TABLE holdfast_journal_p0 DISABLE TRIGGER holdfast_journal_update")
    assert drift_of(new_postgres_ledger) != []
    assert mended(new_postgres_ledger, before)


def test_a_dropped_index_that_enforces_is_named(new_postgres_ledger: str) -> None:
    """On PostgreSQL this index is all that keeps a key from being used twice."""
    tamper(new_postgres_ledger, "DROP INDEX holdfast_calls_key")
    assert drift_of(new_postgres_ledger) == ["holdfast_calls_key"]


@pytest.mark.parametrize("machine", MACHINES)
def test_a_machine_with_a_wrong_digest_is_named_and_repaired(ledger: str, machine: str) -> None:
    before = everything_in(ledger)
    tamper(ledger, f"UPDATE holdfast_machines SET digest = 'of another table' WHERE machine = '{machine}'")
    assert drift_of(ledger) == [f"machine {machine}"]
    mend(ledger)
    assert drift_of(ledger) == []
    assert everything_in(ledger) == before


def test_a_machine_that_the_ledger_does_not_know_is_named(ledger: str) -> None:
    tamper(ledger, "DELETE FROM holdfast_machines WHERE machine IN ('JOB', 'VALUE')")
    assert drift_of(ledger) == ["machine JOB", "machine VALUE"]


def test_every_dropped_trigger_is_named(ledger: str) -> None:
    client = Client(ledger)
    if client.dialect == "sqlite":
        rows = client.run("SELECT name, 'DROP TRIGGER ' || name, sql FROM sqlite_master WHERE type = 'trigger'")
    else:
        rows = client.run(
            "SELECT tgname::text, format('DROP TRIGGER %s ON %s', tgname, tgrelid::regclass),"
            " format('%s; ALTER TABLE %s ENABLE ALWAYS TRIGGER %s', pg_get_triggerdef(oid, true), tgrelid::regclass,"
            " tgname) FROM pg_trigger WHERE NOT tgisinternal AND tgparentid = 0"
        )
    client.close()
    assert len(rows) > 30
    for start in range(0, len(rows), 10):
        dropped = rows[start : start + 10]
        tamper(ledger, *(drop for _, drop, _ in dropped))
        assert sorted(drift_of(ledger)) == sorted(name for name, _, _ in dropped)
        tamper(ledger, *(create for *_, create in dropped))
    assert drift_of(ledger) == []


def test_a_refused_ledger_is_left_as_it_is(ledger: str) -> None:
    tamper(ledger, "UPDATE holdfast_machines SET digest = 'x' WHERE machine = 'JOB'")
    before = everything_in(ledger)
    assert drift_of(ledger) == ["machine JOB"]
    assert everything_in(ledger) == before


def test_the_repaired_triggers_refuse_and_journal_again(ledger: str) -> None:
    client = Client(ledger)
    hand = Hand(client)
    job = hand.born(JOB)
    client.commit()
    if client.dialect == "sqlite":
        tamper(ledger, "DROP TRIGGER holdfast_jobs_move", "DROP TRIGGER holdfast_jobs_moved")
    else:
        tamper(ledger, "DROP TRIGGER holdfast_jobs_moved ON holdfast_jobs")
    client.begin()
    with client.undone():
        assert client.refusal(*hand.move(JOB, job, "fail", JobState.FAILED, 1)) is None
    client.rollback()
    mend(ledger)
    client.begin()
    assert client.refusal(*hand.move(JOB, job, "fail", JobState.FAILED, 1)) == Refusal.ILLEGAL_EDGE
    hand.take(JOB, job, JOB.path("claim", "pending"))
    assert [row["event"] for row in client.journal("JOB", job)] == ["submit", "claim"]
    client.close()
