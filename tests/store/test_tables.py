"""The tables are stated once: both schemas, as the migrations make them, and the records agree with that statement."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Any, get_args, get_type_hints

import pytest

from holdfast.core import governed, journal, records, seals
from holdfast.store import create_store
from holdfast.store.sqlite import upkeep
from holdfast.store.statements import CURRENT_ATTEMPT, generated
from holdfast.store.tables import ALL, GUARDED, OWN_COLUMNS, Kind, Table, table_named
from tests.enforcement.raw import Client

# What each database calls a kind. SQLite keeps times as text in one format and flags as 0 or 1.
TYPES = {
    "sqlite": {
        Kind.TEXT: {"TEXT"}, Kind.WHOLE: {"INTEGER"}, Kind.REAL: {"REAL"}, Kind.TIME: {"TEXT"}, Kind.FLAG: {"INTEGER"},
    },
    "postgres": {
        Kind.TEXT: {"text"}, Kind.WHOLE: {"bigint", "integer"}, Kind.REAL: {"double precision"},
        Kind.TIME: {"timestamp with time zone"}, Kind.FLAG: {"boolean"},
    },
}  # fmt: skip
RECORDS = {
    "jobs": records.Job,
    "grants": governed.Grant,
    "approvers": governed.Approver,
    "procedures": governed.ProcedureRun,
    "steps": governed.PerformedStep,
    "collections": governed.Collection,
    "values": governed.RegistryValue,
    "evidence": governed.Evidence,
    "switches": governed.Switch,
    "seals": seals.Seal,
    "archives": seals.Archive,
    "leases": governed.NamedLease,
    "journal": journal.JournalRow,
}
PYTHON = {Kind.TEXT: str, Kind.WHOLE: int, Kind.REAL: float, Kind.TIME: datetime, Kind.FLAG: bool}


def columns(client: Client, table: Table) -> dict[str, tuple[str, bool]]:
    """Return the columns of a table as the database has them: the type, and whether it may be null."""
    if client.dialect == "sqlite":
        info = client.run(f"PRAGMA table_xinfo({table.full_name})")
        return {row[1]: (row[2], not (row[3] or row[5])) for row in info}
    info = client.run(
        "SELECT attname::text, format_type(atttypid, atttypmod), NOT attnotnull FROM pg_attribute"
        " WHERE attrelid = ?::regclass AND attnum > 0 AND NOT attisdropped",
        table.full_name,
    )
    return {name: (kind, nullable) for name, kind, nullable in info}


def test_the_migrations_make_the_tables_that_are_stated(ledger_url: str) -> None:
    create_store(ledger_url).close()
    client = Client(ledger_url)
    with_prefix = "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'holdfast_*'"
    if client.dialect == "postgres":
        with_prefix = (
            "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
            " AND relnamespace = current_schema()::regnamespace AND relname LIKE 'holdfast\\_%'"
        )
    assert {name for (name,) in client.run(with_prefix)} == {table.full_name for table in ALL}
    for table in ALL:
        found = columns(client, table)
        found = {name: type_of for name, type_of in found.items() if f"{table.name}.{name}" not in OWN_COLUMNS}
        assert found.keys() == set(table.names), table.name
        for column in table.columns:
            kind, nullable = found[column.name]
            assert nullable is column.nullable, (table.name, column.name)
            if not (table.name == "journal" and column.name == "at"):
                assert kind in TYPES[client.dialect][column.kind], (table.name, column.name, kind)
    client.close()


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_has_columns_of_its_table_and_of_their_kinds(name: str) -> None:
    # A job is shown with its call.
    tables = [table_named(name), *([table_named("calls")] if name == "jobs" else [])]
    kinds = {column.name: column for table in tables for column in table.columns}
    for field, hint in get_type_hints(RECORDS[name]).items():
        if f"{name}.{field}" in OWN_COLUMNS:
            continue
        assert field in kinds, field
        options: tuple[Any, ...] = get_args(hint) or (hint,)
        [kind] = [option for option in options if option is not type(None)]
        expected = PYTHON[kinds[field].kind]
        text_in_time = (kind is datetime and expected is str) or (kind is str and expected is datetime)
        assert issubclass(kind, expected) or (isinstance(kind, type) and issubclass(kind, Enum)) or text_in_time, field
        assert (type(None) in options) is kinds[field].nullable, field


def test_an_execution_has_columns_of_both_places_where_an_attempt_is_stored() -> None:
    """The current attempt is in the row of its job, and one that ended without success in a row of its own."""
    own = {
        "exec_id",
        "status",
        "updated_at",
    }  # of an ended attempt: its id and status follow, its end was its last move
    ended = {column.name: column for column in table_named("aborted").columns}
    for field, hint in get_type_hints(records.Execution).items():
        if field in own:
            continue
        options: tuple[Any, ...] = get_args(hint) or (hint,)
        [kind] = [option for option in options if option is not type(None)]
        assert issubclass(kind, PYTHON[ended[field].kind]), field
        assert ended[field].nullable <= (type(None) in options), field
    current = set(table_named("jobs").names) | set(CURRENT_ATTEMPT)
    assert set(records.Execution.__struct_fields__) <= current


def test_the_columns_of_the_views_are_those_of_the_records(ledger_url: str) -> None:
    client = Client(ledger_url)
    shown = {
        "holdfast_executions": {*records.Execution.__struct_fields__, "event", "actor", "reason", "move_id"},
        "holdfast_edges": {*journal.JournalRow.__struct_fields__, "record", "step", "epoch", "xid"},
    }
    for view, names in shown.items():
        cursor = client.connection.execute(f"SELECT * FROM {view}")
        assert {column[0] for column in cursor.description} == names
    client.close()


def test_every_guarded_table_is_one_of_the_tables() -> None:
    assert {guarded.table for guarded in GUARDED} <= {table.full_name for table in ALL}
    for guarded in GUARDED:
        assert {guarded.id, guarded.state, *guarded.write_once} <= set(
            table_named(guarded.table.removeprefix("holdfast_")).names
        )


def test_the_digest_of_the_tables_is_that_of_the_migrations() -> None:
    """`check` compares the tables one by one only where the digest differs: out of date, it makes each check slower."""
    assert [upkeep.digest_of_tables(upkeep.expected_tables())] == [*generated("sqlite", "digest of the tables")]
