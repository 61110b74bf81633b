"""The ledger's tables, stated once: columns, kinds, what is write-once, what a machine guards, what travels.

Readers of rows, the portable form of a snapshot, PostgreSQL's list of columns that are never null, and the guards of
the triggers derive from here. Migrations stay hand-written: a test compares both schemas with this page.

Invariants: every column travels in a snapshot or is listed as staying, with the reason; a portable row is plain: text,
whole numbers, floats and None, with times as text in the one format and a flag as 0 or 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.core.environments import ENVIRONMENTS
from holdfast.core.machine import Machine
from holdfast.core.machines import (
    GRANT,
    JOB,
    PROCEDURE,
    SETTING,
    STEP,
    SWITCH,
    VALUE,
    GrantState,
    SettingState,
    StepState,
    SwitchState,
    ValueState,
)

Row = Sequence[Any]
PREFIX = "holdfast_"
DUTY = "duty:"  # settings that say when a fleet last did a duty: they are true of one place only
MAINTENANCE = "MAINTENANCE"
"""The name of the maintenance door in the journal. It is no machine, but its opening and shutting are journalled."""


class Kind(StrEnum):
    """The kind of value in a column."""

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
    write_once: bool


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """One table; `stays` says why its rows do not travel in a snapshot."""

    name: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    shared: bool = False  # a ledger without any work has rows in it too
    numbered: bool = False  # the database gives out its ids or numbers: a snapshot says how far they have come
    stays: str | None = None

    @property
    def full_name(self) -> str:
        return PREFIX + self.name

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def write_once(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns if column.write_once)

    def key_of(self, row: Row) -> tuple[Any, ...]:
        """Return what tells a row from the others of its table; the key's columns come first."""
        return tuple(row[: len(self.key)])


def _table(
    name: str, columns: str, *, key: int = 1, shared: bool = False, numbered: bool = False, stays: str | None = None
) -> Table:
    """Return a table from its columns, the key first: `name:kind`, `?` if it may be null, `!` if it is write-once."""
    made = []
    for word in columns.split():
        column, _, kind = word.rstrip("?!").partition(":")
        made.append(Column(column, Kind(kind or "text"), "?" in word, "!" in word))
    names = tuple(column.name for column in made[:key])
    return Table(name=name, key=names, columns=tuple(made), shared=shared, numbered=numbered, stays=stays)


# Those that travel come in the order in which a restore writes them: what is referred to first, and the journal after
# the seals that cover it.
ALL = (
    _table("meta", "name value", shared=True),
    _table("operations", "operation version defaults declared_at:time", shared=True),
    _table("queues", "queue paused_at:time? paused_by? reason? depth_max:whole?", shared=True),
    _table(
        "grants",
        "grant_id:whole state version:whole action! target! scope! requested_by! approved_by? consumed_by?"
        " expires_at:time! requested_via?! approved_via? created_at:time! updated_at:time event actor reason move_id"
        " history_from:whole!",
        numbered=True,
    ),
    _table("approvers", "name public_key added_by reason grant_id:whole? added_at:time revoked_at:time? revoked_by?"),
    _table(
        "procedures",
        "run_id:whole idempotency_root! procedure! state version:whole step:whole stop_state? params! plan! lease!"
        " grant_id:whole? failure? created_at:time! updated_at:time event actor reason? move_id history_from:whole!",
        numbered=True,
    ),
    _table(
        "steps",
        "step_id:whole run_id:whole! number:whole! name! state version:whole outcome! created_at:time! updated_at:time"
        " event actor reason? move_id history_from:whole!",
        numbered=True,
    ),
    _table(
        "collections",
        "collection schema schema_digest manifest_digest? status run_id:whole created_at:time updated_at:time",
    ),
    _table(
        "values",
        "value_id:whole vocab_id! collection! operation_code! protocol_version! act_type! semantics! authority_ref!"
        " digest! status state version:whole successor_code? successor_version? rollback_ref? run_id:whole?!"
        " created_at:time! updated_at:time event actor reason? move_id grant_id:whole? history_from:whole!",
        numbered=True,
    ),
    _table(
        "evidence",
        "evidence_id:whole! run_id:whole?! kind! subject! content! digest! actor! grant_id:whole?! voided_at:time?"
        " created_at:time!",
        numbered=True,
    ),
    _table(
        "switches",
        "switch_id:whole name! state version:whole thrown_by! created_at:time! updated_at:time event actor reason"
        " move_id grant_id:whole? history_from:whole!",
        numbered=True,
    ),
    _table(
        "settings",
        "setting_id:whole kind! name! value! state version:whole created_at:time! updated_at:time event actor reason"
        " move_id history_from:whole!",
        numbered=True,
    ),
    _table("ticks", "schedule tick_at:time outcome job_id:whole? at:time", key=2),
    _table(
        "calls",
        "job_id:whole operation_version! client! key?! payload?! digest! max_attempts:whole! replay_attempts:whole!"
        " replaces:whole?! created_at:time!",
        numbered=True,
    ),
    _table(
        "jobs",
        "job_id:whole operation! queue! priority:whole! state version:whole attempts:whole excused:whole run_at:time"
        " due_at:time? resting? status? lease_owner? lease_token:whole? lease_expires_at:time? last_attempt_at:time?"
        " started_at:time? progress:real? progress_note? cancel_requested_at:time? result? last_error_code?"
        " last_error_message? excuse_code? excuse_message? quarantine_code? replay_reason? updated_at:time event actor"
        " reason? move_id grant_id:whole? history_from:whole! cancel_by? cancel_reason? cancel_move_id? lost:whole?"
        " parked? limit_key? deadline_at:time?",
    ),
    _table("unique", "scope job_id:whole?"),
    _table(
        "waits",
        "wait_id:whole kind! name?! job_id:whole?! policy! parents:whole! awaited:whole? created_at:time!",
        numbered=True,
    ),
    _table("after", "wait_id:whole! parent_id:whole!", key=2),
    _table(
        "aborted",
        "job_id:whole! attempt:whole! version:whole! lease_owner! lease_token:whole! lease_expires_at:time!"
        " excused:flag! error_code?! error_message?! progress:real?! progress_note?! cancel_requested_at:time?!"
        " started_at:time?! finished_at:time! created_at:time! event! actor! reason?! move_id!",
        key=2,
    ),
    _table("slots", "bucket slot:whole job_id:whole", key=2),
    _table("checkpoints", "job_id:whole name value exec_id:whole created_at:time", key=2),
    _table("erased", "job_id:whole! client! key_hash?! erased_at:time! actor! reason! grant_id:whole! move_id!"),
    _table(
        "seals",
        "seal_id:whole format:whole epoch:whole last_xid:whole last_seq:whole low_seq:whole high_seq:whole rows:whole"
        " digest previous hash sealed_at horizon_xid:whole horizon_seq:whole",
    ),
    _table(
        "archives",
        "archive_id:whole first_seal:whole last_seal:whole file sha256 rows:whole executions:whole created_at",
    ),
    _table(
        "journal",
        "seq:whole epoch:whole xid:whole machine subject:whole version:whole source? target event actor reason?"
        " attempt:whole? move_id grant_id:whole? maintenance_id:whole? at:time status_from? status_to?",
        numbered=True,
    ),
    _table(
        "maintenance",
        "maintenance_id:whole who why grant_id:whole? opened_at:time",
        numbered=True,
        stays="empty outside of its own transaction",
    ),
    _table("machines", "machine digest", stays="generated from the transition table"),
    _table(
        "transitions",
        "machine event step:whole source? target path rule",
        key=3,
        stays="generated from the transition table",
    ),
    _table("migrations", "number:whole name digest applied_at", stays="what was applied where the rows arrive"),
    _table(
        "workers",
        "worker_id queues operations concurrency:whole started_at:time seen_at:time stopped_at:time?",
        stays="which workers run is true of one place only",
    ),
    _table(
        "leases",
        "name holder token:whole acquired_at:time expires_at:time",
        stays="which leases are held is true of one place only",
    ),
    _table(
        "tracebacks",
        "job_id:whole! attempt:whole! text!",
        key=2,
        stays="may quote what a handler worked on; it does not leave the database",
    ),
    _table(
        "traces",
        "job_id:whole traceparent tracestate?",
        stays="a trace is of no use where its spans are not",
    ),
    _table(
        "buckets",
        "bucket tokens:real at:time wake_at:time?",
        stays="how many tokens are left is true of one place only",
    ),
    _table("counts", "operation queue state n:whole", key=3, stays="counted anew from the jobs that arrive"),
    _table(
        "count_deltas",
        "delta_id:whole operation queue source? target n:whole event? code? at:time?",
        stays="counted anew from the jobs that arrive",
    ),
    _table(
        "minutes",
        "minute:time operation queue source target event code n:whole",
        key=7,
        stays="made of the deltas of one place",
    ),
)
# Columns that Holdfast never writes: derived by the database, or needed by one database alone.
OWN_COLUMNS = {
    "maintenance.xid": "PostgreSQL: the transaction that opened the door",
    "maintenance.shut_before_commit": "SQLite: a deferred foreign key that fails while the door is open",
}
TABLES = tuple(table for table in ALL if table.stays is None)
NUMBERED = tuple(table.name for table in ALL if table.numbered)
STAYS = {table.name: table.stays for table in ALL if table.stays}


def table_named(name: str) -> Table:
    """Return a table by its name without the prefix."""
    return next(table for table in ALL if table.name == name)


CALL = table_named("calls").names
EVIDENCE = table_named("evidence").write_once
"""The columns of a piece of evidence that never change. The one that is left says when it was declared void, once."""


KEPT_SETTINGS = ("ledger_id", "epoch", "environment", "governed", "erasure_secret")
"""The settings that say which ledger this is, how it is governed, and by which secret it knows erased keys: they change
only through the maintenance door."""
STRICTER = {"environment": ENVIRONMENTS, "governed": ("no", "yes")}
"""The values of settings that never become less strict, not even through the door; the last is the strictest."""


# ---------------------------------------------------------------------------------------------------------------------
# The tables that machines guard


class Guarded(msgspec.Struct, frozen=True, kw_only=True):
    """A table whose rows are the records of a machine."""

    machine: Machine
    table: str
    id: str
    write_once: tuple[str, ...]
    state: str = "state"
    only_grow: tuple[str, ...] = ()
    born_with: tuple[tuple[str, str], ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    alone: tuple[tuple[str, ...], tuple[str, ...]] | None = None  # columns that no two records in these states share
    aside: tuple[str, str] | None = None  # a column, and its value for a record that does not count for `alone`
    attempt: str = "NULL"
    born_without: tuple[str, ...] = ()  # columns that are NULL in a new record
    put_back: bool = False  # under maintenance it may return to a state that its journal says a grant brought it to
    one_a_grant: bool = False  # a grant moves one record of the table, ever
    built_by_runs: bool = False  # may be born under a grant that a run of a procedure has consumed, while it runs
    at_rest: tuple[str, ...] = ()  # columns that may change while the state does not; `only_grow` may grow
    only_at: tuple[tuple[str, str], ...] = ()  # a column, and the only event at which it may change

    @property
    def kept(self) -> tuple[str, ...]:
        """Return the columns that say what the last move did: they change only when the state does."""
        free = (self.id, self.state, "version", *self.write_once, *self.only_grow, *self.at_rest)
        return tuple(name for name in table_named(self.table.removeprefix(PREFIX)).names if name not in free)


def _guarded(machine: Machine, name: str, **options: Any) -> Guarded:
    table = table_named(name)
    return Guarded(machine=machine, table=table.full_name, id=table.key[0], write_once=table.write_once, **options)


REQUESTED = ("cancel_requested_at", "cancel_by", "cancel_reason", "cancel_move_id")
"""The columns of a job that hold the request to cancel its current attempt."""
RUNNING = ("status", "lease_expires_at", "progress", "progress_note")
"""The columns of a job that change while its current attempt runs."""


GUARDED = (
    _guarded(
        JOB,
        "jobs",
        only_grow=("attempts", "excused", "lease_token"),
        born_with=(("attempts", "0"), ("excused", "0")),
        born_without=(
            "status",
            "lease_token",
            "lease_owner",
            "result",
            "last_error_code",
            "quarantine_code",
            "grant_id",
            "cancel_requested_at",
            "cancel_by",
            "lost",
        ),
        attempt="attempts",
        # Changed by a heartbeat, a progress note, a request to cancel, a submit with a deadline, and parking.
        # `store.joint` restricts notes, requests and deadlines further; by a CHECK only a pending job is parked.
        at_rest=(*RUNNING, *REQUESTED, "deadline_at", "parked", "limit_key"),
    ),
    _guarded(
        GRANT,
        "grants",
        alone=(("action", "target", "scope"), (GrantState.DRAFT, GrantState.ACTIVE)),
        only_at=(("approved_by", "approve"), ("approved_via", "approve"), ("consumed_by", "consume")),
    ),
    _guarded(
        PROCEDURE,
        "procedures",
        only_grow=("step",),
        unique=(("idempotency_root",),),
        at_rest=("failure", "updated_at"),
    ),
    _guarded(STEP, "steps", alone=(("run_id", "number"), (StepState.PERFORMED,))),
    _guarded(
        VALUE,
        "values",
        unique=(("operation_code", "protocol_version"), ("vocab_id",)),
        alone=(("operation_code", "act_type"), (ValueState.ACTIVE,)),
        put_back=True,
        one_a_grant=True,
        aside=("status", "withheld"),
        built_by_runs=True,
        at_rest=("status", "updated_at"),
    ),
    _guarded(SWITCH, "switches", alone=(("name",), (SwitchState.ON,)), put_back=True, one_a_grant=True),
    _guarded(SETTING, "settings", alone=(("kind", "name"), (SettingState.ACTIVE,))),
)
