"""The ledger's tables as rows that mean the same on both databases: what a snapshot carries, and how it is written.

Invariants: every column travels or is listed as staying, with the reason (a test compares this with both schemas); a
row is plain: text, whole numbers, floats and None, with times as text in the one format and a flag as 0 or 1; rows come
in the order of their key, text keys in the order of their code points, so that two ledgers can be read side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.store.reading import Reading
from holdfast.store.statements import encoded

if TYPE_CHECKING:
    from holdfast.store.transaction import Transaction

Row = Sequence[Any]
PREFIX = "holdfast_"
DUTY = "duty:"  # who last did what a fleet does once in a period: settings of one place

# The tables whose ids, or numbers, the database gives out; a snapshot says how far they have come.
NUMBERED = (
    "grants", "procedures", "steps", "values", "evidence", "switches", "jobs", "executions", "journal", "maintenance",
)  # fmt: skip

STAYS = {
    "machines": "generated from the transition table",
    "transitions": "generated from the transition table",
    "migrations": "what was applied where the rows arrive",
    "workers": "who works where is true of one place only",
    "leases": "who holds what is true of one place only",
    "maintenance": "empty outside of its own transaction",
    "counts": "counted anew from the jobs that arrive",
    "count_deltas": "counted anew from the jobs that arrive",
    "executions.lease_token": "generated from exec_id",
}


class Kind(StrEnum):
    """What a column holds."""

    TEXT = "text"
    WHOLE = "whole"
    REAL = "real"
    TIME = "time"
    FLAG = "flag"


class Column(msgspec.Struct, frozen=True):
    """One column of a table."""

    name: str
    kind: Kind
    nullable: bool


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """One table that travels."""

    name: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    shared: bool = False  # a ledger without any work has rows of it already

    @property
    def full_name(self) -> str:
        """Return its name in the database."""
        return PREFIX + self.name

    @property
    def names(self) -> list[str]:
        """Return the names of its columns."""
        return [column.name for column in self.columns]

    def key_of(self, row: Row) -> tuple[Any, ...]:
        """Return what tells a row from the others of its table; the key's columns come first."""
        return tuple(row[: len(self.key)])


def _table(name: str, columns: str, *, key: int = 1, shared: bool = False) -> Table:
    """Return a table from its columns, the key first, written `name`, `name:kind`, and with `?` if it may be null."""
    parts = [word.rstrip("?").partition(":") for word in columns.split()]
    made = tuple(
        Column(column, Kind(kind or "text"), word.endswith("?"))
        for (column, _, kind), word in zip(parts, columns.split(), strict=True)
    )
    return Table(name=name, key=tuple(c.name for c in made[:key]), columns=made, shared=shared)


# In the order in which they are written: what is referred to comes first, the journal after the seals that cover it.
TABLES = (
    _table("meta", "name value", shared=True),
    _table("operations", "operation version defaults declared_at:time", shared=True),
    _table("queues", "queue paused_at:time? paused_by? reason?", shared=True),
    _table(
        "grants",
        "grant_id:whole state version:whole action target scope requested_by approved_by? consumed_by? expires_at:time"
        " requested_via? approved_via? created_at:time updated_at:time event actor reason move_id history_from:whole",
    ),
    _table(
        "approvers",
        "name public_key added_by reason grant_id:whole? added_at:time revoked_at:time? revoked_by?",
    ),
    _table(
        "procedures",
        "run_id:whole idempotency_root procedure state version:whole step:whole stop_state? params plan lease"
        " grant_id:whole? failure? created_at:time updated_at:time event actor reason? move_id history_from:whole",
    ),
    _table(
        "steps",
        "step_id:whole run_id:whole number:whole name state version:whole outcome created_at:time updated_at:time"
        " event actor reason? move_id history_from:whole",
    ),
    _table(
        "collections",
        "collection schema schema_digest manifest_digest? standing run_id:whole created_at:time updated_at:time",
    ),
    _table(
        "values",
        "value_id:whole vocab_id collection operation_code protocol_version act_type semantics authority_ref digest"
        " standing state version:whole successor_code? successor_version? rollback_ref? run_id:whole? created_at:time"
        " updated_at:time event actor reason? move_id grant_id:whole? history_from:whole",
    ),
    _table(
        "evidence",
        "evidence_id:whole run_id:whole? kind subject content digest actor grant_id:whole? voided_at:time?"
        " created_at:time",
    ),
    _table(
        "switches",
        "switch_id:whole name state version:whole thrown_by created_at:time updated_at:time event actor reason move_id"
        " grant_id:whole? history_from:whole",
    ),
    _table(
        "jobs",
        "job_id:whole operation operation_version client key? queue state version:whole attempts:whole excused:whole"
        " max_attempts:whole replay_attempts:whole priority:whole run_at:time payload? digest result?"
        " last_attempt_at:time? last_error_code? last_error_message? quarantine_code? replay_reason? replaces:whole?"
        " created_at:time updated_at:time event actor reason? move_id grant_id:whole? history_from:whole",
    ),
    _table(
        "executions",
        "exec_id:whole job_id:whole attempt:whole status version:whole lease_owner lease_expires_at:time excused:flag"
        " error_code? error_message? progress:real? progress_note? cancel_asked_at:time? started_at:time?"
        " finished_at:time? created_at:time updated_at:time event actor reason? move_id history_from:whole",
    ),
    _table("checkpoints", "job_id:whole name value exec_id:whole created_at:time", key=2),
    _table(
        "seals",
        "seal_id:whole epoch:whole last_xid:whole last_seq:whole low_seq:whole high_seq:whole rows:whole digest"
        " previous hash sealed_at horizon_xid:whole horizon_seq:whole",
    ),
    _table(
        "archives",
        "archive_id:whole first_seal:whole last_seal:whole file sha256 rows:whole executions:whole created_at",
    ),
    _table(
        "journal",
        "seq:whole epoch:whole xid:whole machine subject:whole version:whole source? target event actor reason?"
        " attempt:whole? move_id grant_id:whole? maintenance_id:whole? at",
    ),
)


def rows_of(reading: Reading, table: Table) -> Iterator[Row]:
    """Yield a table's rows in the order of its key."""
    store = reading._store  # noqa: SLF001 - a verb of readings that only snapshots need
    columns = ", ".join(_plain(store, column) for column in table.columns)
    key = ", ".join(store.in_order(column.name, column.kind) for column in table.columns[: len(table.key)])
    here = f" WHERE substr(name, 1, {len(DUTY)}) <> '{DUTY}'" if table.name == "meta" else ""
    sql = f"SELECT {columns} FROM {table.full_name}{here} ORDER BY {key}"
    kinds = [column.kind for column in table.columns]
    return store.stream(reading._connection, sql, kinds)  # noqa: SLF001 - see above


def count_of(reading: Reading, table: Table) -> int:
    """Return how many rows a table has."""
    [[n]] = reading.execute(f"SELECT count(*) FROM {table.full_name}")
    return int(n)


def sequences(reading: Reading) -> dict[str, int]:
    """Return the greatest number that each table has given out as an id, by table."""
    found = {name.removeprefix(PREFIX): int(n) for name, n in reading._run("read_sequences")}  # noqa: SLF001 - see above
    return {name: found.get(name, 0) for name in NUMBERED}


def occupied(transaction: Transaction) -> list[str]:
    """Return the tables that hold work or history; none in an empty ledger."""
    return [name for (name,) in transaction._run("occupied_tables")]  # noqa: SLF001 - see above


def advance(transaction: Transaction, given_out: Mapping[str, int]) -> None:
    """Let ids and numbers begin beyond those that were given out."""
    for name in NUMBERED:
        value = given_out.get(name, 0)
        if value > 0:
            transaction._run("advance_sequence", table=PREFIX + name, value=value)  # noqa: SLF001 - see above


def bring(transaction: Transaction, table: Table, rows: Sequence[Row]) -> None:
    """Write rows with all their columns; needs an open maintenance door."""
    if table.shared:
        transaction._run("make_room", table=table.name, names=encoded([row[0] for row in rows]))  # noqa: SLF001 - see above
    store, connection = transaction._store, transaction._connection  # noqa: SLF001 - see above
    store.load(connection, table.full_name, table.names, rows)


def end_leases(transaction: Transaction) -> int:
    """Let every lease run out now; return how many there were."""
    return len(transaction._run("end_leases", now=transaction._store.time_parameter()))  # noqa: SLF001 - see above


def _plain(store: Any, column: Column) -> str:
    if column.kind is Kind.REAL:
        # What is no number, or endless, JSON cannot carry: it travels as nothing.
        return f'CASE WHEN "{column.name}" BETWEEN -1e308 AND 1e308 THEN "{column.name}" END'
    return str(store.plain(column.name, column.kind))
