"""The histories of records: which edges of the journal count for a record, and in which order.

Invariants: pure; a value that the journal never holds does not raise; the edges of an attempt are in the rows of its
job, and in those of a start or a commit that the job did not move with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from holdfast.core.journal import JournalRow
from holdfast.core.machine import Machine
from holdfast.core.machines import EXECUTION
from holdfast.core.records import Execution, Job
from holdfast.store.verbs.seals import Key


class Entry(JournalRow, frozen=True, gc=False):
    """An edge in the journal with the rest of its row's key: (epoch, xid, seq) is its place among the seals."""

    epoch: int
    xid: int
    record: int  # the subject of the stored row: for an edge that an attempt took with its job, the job

    @property
    def key(self) -> Key:
        return self.epoch, self.xid, self.seq


class History(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One record of any machine, and what the journal says of it."""

    machine: Machine
    subject: int
    state: str
    version: int
    history_from: int
    created_at: datetime
    updated_at: datetime
    rows: tuple[Entry, ...]  # lowest version first
    unreadable: tuple[str, ...] = ()  # columns and journal rows with a value that Holdfast never writes

    @property
    def kept(self) -> tuple[Entry, ...]:
        """Return the rows that count: those from `history_from` on."""
        if not self.rows or self.rows[0].version >= self.history_from:
            return self.rows
        return tuple(row for row in self.rows if row.version >= self.history_from)

    @property
    def whole(self) -> bool:
        """Return whether no row was archived, or given up by a repair."""
        return self.history_from == 1


class Permit(msgspec.Struct, frozen=True, gc=False):
    """A grant that a journal row names: its act, its target and its last move."""

    action: str
    target: str
    event: str  # the last one
    move_id: str
    of_a_run: bool  # a run of a procedure has consumed it, and makes values under it


class Signature(NamedTuple):
    """The move that wrote a row last."""

    event: str
    actor: str
    reason: str | None
    move_id: str


class Tried(msgspec.Struct, frozen=True, gc=False):
    """One execution with its history, and the move that its row names."""

    execution: Execution
    history: History
    signature: Signature


class Case(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Everything that the ledger says about one job."""

    job: Job
    history: History
    tried: tuple[Tried, ...]  # lowest attempt first
    requests: tuple[Entry, ...]  # to cancel an attempt
    journalled: frozenset[int]  # the attempts that the kept rows of the journal name
    lease_token: int | None
    checkpoints: int

    @property
    def executions(self) -> list[Execution]:
        """Return the attempts that are stored, first attempt first."""
        return [tried.execution for tried in self.tried]


Read = tuple[Entry, tuple[str, ...]]
"""An edge, and those of its columns that have a value which Holdfast never writes."""


def number_or_0(value: object) -> int:
    return value if isinstance(value, int) else 0


def in_order(rows: Iterable[Entry]) -> list[Entry]:
    return sorted(rows, key=lambda row: (number_or_0(row.version), number_or_0(row.seq)))


def kept_steps(kept: Sequence[Entry], edges: Iterable[Read], *, whole: bool) -> dict[int, list[Read]]:
    """Return the edges of a job's attempts by execution, first to last, without those before its history begins."""
    found: dict[int, list[Read]] = defaultdict(list)
    seqs = {row.seq for row in kept}
    first = min(map(number_or_0, seqs), default=None)
    for row, columns in edges:
        if row.machine != EXECUTION.name:
            continue
        counts = row.seq in seqs if row.record != row.subject else first is not None and row.seq > first
        if whole or counts:
            found[number_or_0(row.subject)].append((row, columns))
    for rows in found.values():
        rows.sort(key=_place)
    return found


def since_repair(steps: list[Read], *, whole: bool) -> tuple[int, list[Read]]:
    """Return the first version that counts of an attempt, and its edges since the last one that a repair wrote."""
    repaired = max((_place(pair) for pair in steps if pair[0].maintenance_id is not None), default=None)
    if repaired is not None:
        return repaired[1], [pair for pair in steps if _place(pair) >= repaired]
    return 1 if whole else min((_place(pair)[1] for pair in steps), default=1), steps


def _place(pair: Read) -> tuple[int, int]:
    return number_or_0(pair[0].seq), number_or_0(pair[0].version)


def claimed_late(claim: Entry, created_at: datetime, job: History) -> datetime:
    """Return when an attempt began by the journal: times of a job only grow, even if the clock goes back."""
    before = [row.at for row in job.rows if row.seq < claim.seq]
    return claim.at if before and created_at < claim.at == before[-1] else created_at
