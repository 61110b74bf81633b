"""A ledger of schema version 1 is upgraded: no row is lost, its schema is that of a new ledger, and work continues."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Execution, Ledger, Operations
from holdfast.audit.check.runner import check
from holdfast.audit.seals.verify import verify
from holdfast.core.errors import SchemaVersionError
from holdfast.core.machines import JobState
from holdfast.core.records import time_text
from holdfast.core.vocabulary import RegistryStatus
from holdfast.store import Store, connect, open_store
from holdfast.store.migrations import migrate, migrations
from tests.enforcement.raw import Client
from tests.enforcement.schema import tables_of
from tests.support.old_ledgers import build

# An approver of version 1 was registered without a grant: the key is doubted since.
DOUBTED = {("grants_authentic", "APPROVER approver-1")}
GENERATED = {"holdfast_migrations", "holdfast_machines", "holdfast_transitions"}
RENAMED = {
    ("holdfast_jobs", "cancel_asked_at"): "cancel_requested_at",
    ("holdfast_aborted", "cancel_asked_at"): "cancel_requested_at",
    ("holdfast_collections", "standing"): "status",
    ("holdfast_values", "standing"): "status",
}


@pytest.fixture
def old_url(empty_url: str) -> str:
    """The URL of a ledger of schema version 1, on each database in turn."""
    build(empty_url, 1)
    return empty_url


def rows_of(url: str, columns: dict[str, list[str]] | None = None) -> dict[str, list[dict[str, object]]]:
    """Return every row of the tables that hold records, with the given columns or all of them."""
    client = Client(url)
    found = {}
    for table in tables_of(client):
        if table in GENERATED or (columns and table not in columns):
            continue
        cursor = client.connection.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        if columns:
            rows = [{name: row[name] for name in columns[table]} for row in rows]
        found[table] = sorted(rows, key=repr)
    client.close()
    return found


def broken(store: Store[Any]) -> set[tuple[str, str]]:
    return {(violation.invariant, violation.subject) for violation in check(store).violations}


def states(ledger: Ledger) -> dict[str | None, JobState]:
    with ledger.store.reading() as reading:
        return {job.key: job.state for job in reading.lists.jobs(limit=100)}


def test_an_old_ledger_is_refused_until_it_is_migrated(old_url: str) -> None:
    with pytest.raises(SchemaVersionError) as caught:
        open_store(old_url)
    assert caught.value.context == {"missing": [migration.number for migration in migrations("sqlite")[1:]]}


def test_an_upgrade_keeps_every_row_and_leaves_a_sound_ledger(old_url: str) -> None:
    before = rows_of(old_url)
    with connect(old_url) as store:
        assert migrate(store) == tuple(migration.name for migration in migrations(store.dialect)[1:])
    before = {
        table: sorted(({RENAMED.get((table, name), name): row[name] for name in row} for row in rows), key=repr)
        for table, rows in before.items()
    }
    columns = {table: list(rows[0]) if rows else [] for table, rows in before.items()}
    assert rows_of(old_url, columns) == before
    with open_store(old_url) as store:
        with store.transaction() as transaction:
            assert len(transaction.recovery.recover(actor="reaper")) == 3
        assert broken(store) == DOUBTED
        assert verify(store).ok


def test_a_pending_request_to_cancel_and_the_registry_survive_an_upgrade(old_url: str) -> None:
    client = Client(old_url)
    client.run("UPDATE holdfast_jobs SET cancel_asked_at = '2026-01-02T03:05:11.000000Z' WHERE job_id = 14")
    client.commit()
    client.close()
    with connect(old_url) as store:
        migrate(store)
    with open_store(old_url) as store:
        with store.reading() as reading:
            requested = {
                job_id: time_text(execution.cancel_requested_at)
                for job_id in (13, 14)
                for execution in reading.lists.executions(job_id)
                if execution.cancel_requested_at is not None
            }
            assert requested == {13: "2026-01-02T03:05:10.000000Z", 14: "2026-01-02T03:05:11.000000Z"}
            [collection] = reading.registry.collections()
            assert (collection.collection, collection.status) == ("operations", RegistryStatus.IN_FORCE)
            in_force = {(value.operation_code, value.state) for value in reading.registry.values_in_force()}
            assert in_force == {("echo.two", "active"), ("echo", "superseded")}
        with store.transaction() as transaction:
            transaction.recovery.recover(actor="reaper")
        with store.reading() as reading:
            codes = {job_id: reading.jobs.get(job_id).quarantine_code for job_id in (13, 14)}
        assert codes == {13: "cancelled", 14: "cancelled"}
        assert broken(store) == DOUBTED
        assert verify(store).ok


def test_work_continues_after_an_upgrade(old_url: str) -> None:
    with connect(old_url) as store:
        migrate(store)
    operations = Operations()

    @operations.operation("echo")
    def echo(_run: Execution, /, **_: object) -> str:
        return "again"

    with Ledger(old_url, operations) as ledger:
        before = states(ledger)
        assert before["waiting"] is JobState.PENDING
        same = ledger.submit("echo", {"of": "done"}, client="web", key="done")
        assert not same.is_new
        assert ledger.submit("echo", {"of": "new"}, client="web", key="new").is_new
        ledger.run_until_idle()
        after = states(ledger)
        for key in ("waiting", "replayed", "released", "retried", "replacing", "new", "committed"):
            assert after[key] is JobState.SUCCEEDED, key
        assert after["scheduled"] is JobState.SUCCEEDED
        for key in ("failed", "quarantined", "cancelled", "poisoned"):
            assert after[key] is before[key], key
        assert broken(ledger.store) == DOUBTED
