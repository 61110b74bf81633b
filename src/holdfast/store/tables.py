"""The ledger's tables, stated once: columns, kinds, keys, and what travels in a snapshot.

Invariants: every column travels or is listed as staying, with the reason (a test compares this with both schemas); a
row is plain: text, whole numbers, floats and None, with times as text in the one format and a flag as 0 or 1; rows come
in the order of their key, text keys in the order of their code points, so that two ledgers can be read side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

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
