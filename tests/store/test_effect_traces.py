"""An effect leaves nothing on the session that the ledger uses again, and nothing in the ledger's tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from holdfast.core.errors import EffectError
from holdfast.store import Store, open_store
from holdfast.store.effects import Effect, staged

SETTINGS = (
    "synchronous_commit",
    "search_path",
    "role",
    "session_authorization",
    "timezone",
    "lock_timeout",
    "work_mem",
)
LEFT = {
    "durability": "SELECT set_config('synchronous_commit', 'off', false)",
    "local_durability": "SELECT set_config('synchronous_commit', 'off', true)",
    "search_path": "SELECT set_config('search_path', 'pg_temp', false)",
    "role": "SELECT set_config('role', 'pg_read_all_data', false)",
    "authorization": "SELECT run('SET SESSION AUTHORIZATION other')",
    "timezone": "SELECT set_config('timezone', 'Asia/Tokyo', false)",
    "triggers": "SELECT set_config('session_replication_role', 'replica', false)",
    "memory": "SELECT set_config('work_mem', '64kB', false)",
    "listen": "SELECT run('LISTEN something')",
    "temporary_table": "SELECT run('CREATE TEMP TABLE things (n int)')",
    "cursor": "SELECT run('DECLARE kept CURSOR WITH HOLD FOR SELECT 1')",
    "advisory_lock": "SELECT pg_advisory_lock(4711)",
    "prepared_statement": "SELECT run('PREPARE insert_job AS SELECT 1')",
}
OF_SESSION = (
    "SELECT (SELECT count(*) FROM pg_listening_channels()), pg_my_temp_schema() <> 0 AND EXISTS"
    " (SELECT FROM pg_class WHERE relnamespace = pg_my_temp_schema()),"
    " (SELECT count(*) FROM pg_cursors WHERE is_holdable),"
    " (SELECT count(*) FROM pg_prepared_statements WHERE from_sql),"
    " (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),"
    " current_setting('session_replication_role')"
)


@pytest.fixture
def store(new_postgres_ledger: str) -> Iterator[Store[Any]]:
    with psycopg.connect(new_postgres_ledger, autocommit=True) as owner:
        owner.execute("CREATE TABLE things (name text)")
        owner.execute("CREATE FUNCTION run(t text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE t; END $$")
        owner.execute("DO $$ BEGIN CREATE ROLE other; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    with open_store(new_postgres_ledger) as store:
        yield store


def session(store: Store[Any]) -> list[Any]:
    """Return what a new transaction on the pooled connection finds."""
    with store.transaction() as transaction:
        [[pid]] = transaction.execute("SELECT pg_backend_pid()")
        settings = [transaction.execute(f"SELECT current_setting('{name}')")[0][0] for name in SETTINGS]
        return [pid, settings, *transaction.execute(OF_SESSION)]


@pytest.mark.attack("sql")
@pytest.mark.pg
@pytest.mark.parametrize("left", LEFT)
def test_the_session_is_as_it_was_before_the_effect(store: Store[Any], left: str) -> None:
    before = session(store)
    with store.transaction() as transaction:
        transaction.apply([[staged("INSERT INTO things VALUES ('kept')", None, None), staged(LEFT[left], None, None)]])
        # What the rest of the transaction and its COMMIT use.
        assert transaction.execute("SELECT current_setting('synchronous_commit')") == [("on",)]
        assert transaction.jobs.outlook(("default",))[0] is None
    assert session(store) == before
    with store.reading() as reading:
        assert reading.execute("SELECT name FROM things") == [("kept",)]


@pytest.mark.attack("sql")
@pytest.mark.pg
@pytest.mark.parametrize("savepoint", [False, True])
def test_an_effect_that_fails_leaves_no_lock_on_the_session(store: Store[Any], *, savepoint: bool) -> None:
    before = session(store)
    effects = [staged("SELECT pg_advisory_lock(4711)", None, None), staged("SELECT 1 / 0", None, None)]
    with pytest.raises(EffectError), store.transaction() as transaction:
        transaction.apply([effects])
    if savepoint:
        with store.transaction() as transaction, pytest.raises(EffectError), transaction.savepoint():
            transaction.apply([effects])
    assert session(store) == before


@pytest.mark.attack("sql")
@pytest.mark.pg
def test_an_effect_cannot_make_the_rest_of_its_transaction_read_only(store: Store[Any]) -> None:
    with pytest.raises(EffectError), store.transaction() as transaction:
        transaction.apply([[staged("SELECT set_config('transaction_read_only', 'on', true)", None, None)]])


@pytest.mark.attack("sql")
@pytest.mark.pg
@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1 AS x$a$; COMMIT; BEGIN; SELECT 1 AS y$a$",
        "SELECT 1; COMMIT; BEGIN",
        "SELECT 'a\\'; COMMIT; BEGIN; SELECT '",
    ],
)
def test_an_effect_is_one_statement(store: Store[Any], statement: str) -> None:
    with pytest.raises(EffectError):
        staged(statement, None, None)
    with pytest.raises(EffectError), store.transaction() as transaction:
        # Without the check of `staged`: the server refuses it too.
        transaction.apply([[Effect("INSERT INTO things VALUES ('torn')", {}), Effect(statement, {})]])
    with store.reading() as reading:
        assert reading.execute("SELECT * FROM things") == []


@pytest.mark.attack("sql")
@pytest.mark.parametrize(
    "statement",
    [
        'UPDATE U&"\\0068oldfast_meta" SET value = 1',
        "UPDATE u&\"!0068oldfast_meta\" UESCAPE '!' SET value = 1",
        'INSERT INTO "HOLDFAST_meta" VALUES (1)',
        "DELETE FROM [holdfast_jobs]",
        "DELETE FROM sqlite_sequence",
        'UPDATE "SQLITE_SEQUENCE" SET seq = 0',
    ],
)
def test_a_name_of_the_ledger_is_refused_in_every_spelling(statement: str) -> None:
    with pytest.raises(EffectError):
        staged(statement, None, None)
