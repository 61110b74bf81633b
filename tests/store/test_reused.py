"""Ledgers and sessions on PostgreSQL that tests use one after the other are as new for each, or are not used again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from holdfast import Execution, Ledger
from holdfast.store import open_store
from holdfast.store.postgres.connection import LedgerConnection
from tests.support import reused
from tests.support.ledgers import new_ledger
from tests.support.postgres import Server
from tests.support.reused import ReusedLedger

# The state of a session that its next user must not find.
SESSION = """
SELECT current_setting('statement_timeout'), current_setting('search_path'), current_user::text,
       (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_cursors),
       (SELECT count(*) FROM pg_listening_channels()),
       (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
       (SELECT count(*) FROM pg_class WHERE relname = 'mine')"""


@pytest.fixture
def copy(pg_server: Server) -> Iterator[ReusedLedger]:
    url, _ = new_ledger().to_database(pg_server)
    copy = ReusedLedger(url)
    yield copy
    copy.close()
    pg_server.start()
    pg_server.drop_database(url)


def contents(url: str) -> dict[str, list[list[bytes]]]:
    """Return all that is in the tables and sequences of a ledger."""
    with psycopg.connect(url) as session:
        names = [name for (name,) in session.execute("SELECT relname FROM pg_class WHERE relkind IN ('r', 'S') AND"
                                                     " relnamespace = 'public'::regnamespace")]  # fmt: skip
        found: dict[str, list[list[bytes]]] = {}
        for name in names:
            with session.cursor() as cursor, cursor.copy(f"COPY (TABLE {name}) TO STDOUT") as rows:
                lines = [bytes(row).split(b"\t") for row in rows]
            if name.endswith("_seq"):
                lines = [[value, is_called] for value, _, is_called in lines]  # not what is reserved in the log
            found[name] = sorted(lines)
        return found


def use(url: str) -> None:
    with Ledger(url) as ledger:

        @ledger.operation("echo")
        def echo(run: Execution, text: str) -> str:
            return text

        for n in range(5):
            ledger.submit("echo", {"text": str(n)}, key=str(n))
        ledger.run_until_idle()
    with open_store(url) as store, store.transaction() as transaction:
        transaction.execute("CREATE TABLE effects (id serial PRIMARY KEY, key text)")
        transaction.execute("INSERT INTO effects (key) VALUES ('a')")
        transaction.execute("CREATE FUNCTION mine(n integer) RETURNS integer LANGUAGE sql AS 'SELECT n'")
    with psycopg.connect(url) as session:
        for enabled in ("D", "A"):
            session.execute("UPDATE pg_trigger SET tgenabled = %s WHERE NOT tgisinternal", [enabled])


def test_a_restored_ledger_has_the_content_of_a_new_one(copy: ReusedLedger) -> None:
    before = contents(copy.url)
    for _ in range(3):
        use(copy.url)
        used = contents(copy.url)
        assert len(used["holdfast_jobs"]) == 5
        assert used.keys() - before.keys() == {"effects", "effects_id_seq"}
        assert copy.restore()
        assert contents(copy.url) == before


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TRIGGER holdfast_jobs_delete ON holdfast_jobs",
        "UPDATE pg_trigger SET tgenabled = 'D' WHERE NOT tgisinternal",
        "ALTER TABLE holdfast_jobs ALTER COLUMN queue SET DEFAULT 'other'",
        "ALTER TABLE holdfast_jobs ADD COLUMN mine integer",
        "CREATE INDEX mine ON holdfast_journal (at)",
        "ALTER FUNCTION holdfast_jobs_born() COST 7",
        "CREATE VIEW mine AS SELECT 1 AS one",
        "CREATE SCHEMA mine",
        "CREATE TYPE mine AS ENUM ('one')",
        "CREATE TABLE mine AS SELECT * FROM holdfast_calls; DROP TABLE holdfast_minutes",
        "COMMENT ON TABLE holdfast_jobs IS 'mine'",
        "GRANT SELECT ON holdfast_jobs TO PUBLIC",
        "ANALYZE holdfast_machines",
        "VACUUM holdfast_machines",
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET statement_timeout = 7', current_database()); END $$",
    ],
)
def test_a_ledger_whose_catalogue_has_changed_is_not_used_again(copy: ReusedLedger, statement: str) -> None:
    assert copy.restore()
    with psycopg.connect(copy.url, autocommit=True) as session:
        session.execute(statement)
    assert not copy.restore()


def test_a_ledger_that_somebody_still_uses_is_not_used_again(copy: ReusedLedger) -> None:
    with psycopg.connect(copy.url):
        assert not copy.restore()
    assert copy.restore()


def test_a_ledger_with_large_tables_or_many_uses_is_not_used_again(
    copy: ReusedLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reused, "USES_MAX", 3)
    assert [copy.restore() for _ in range(3)] == [True, True, False]
    monkeypatch.setattr(reused, "USES_MAX", 9)
    assert copy.restore()
    with Ledger(copy.url) as ledger:

        @ledger.operation("echo")
        def echo(run: Execution, text: str) -> str:
            return text

        ledger.submit_many([{"operation": "echo", "payload": {"text": str(n)}} for n in range(1000)])
    assert not copy.restore()


def test_a_kept_session_is_as_a_new_one(new_postgres_ledger: str) -> None:
    seen: list[tuple[int, Any]] = []
    for _ in range(2):
        with LedgerConnection.connect(new_postgres_ledger) as connection:
            [row] = connection.execute(SESSION).fetchall()
            seen.append((connection.info.backend_pid, row))
            for statement in (
                "SET statement_timeout = 7", "SET search_path = nowhere", "PREPARE one AS SELECT 1",
                "DECLARE two CURSOR WITH HOLD FOR SELECT 1", "LISTEN three", "SELECT pg_advisory_lock(4)",
                "CREATE TEMP TABLE mine (one integer)",
            ):  # fmt: skip
                connection.execute(statement)
            connection.commit()
            connection.execute("SELECT pg_notify('three', '')")
    assert seen[0] == seen[1]


def test_a_kept_session_that_the_server_has_ended_is_not_used_again(new_postgres_ledger: str) -> None:
    pids: list[int] = []
    for _ in range(2):
        connection = LedgerConnection.connect(new_postgres_ledger, autocommit=True)
        pids.append(connection.info.backend_pid)
        connection.close()
        assert connection.closed
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
        with psycopg.connect(new_postgres_ledger) as other:
            other.execute("SELECT pg_terminate_backend(%s, 5000)", [pids[-1]])
    assert pids[0] != pids[1]
