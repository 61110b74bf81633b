"""Verbs of retention: which jobs and sealed blocks may leave, and their leaving.

Invariants: nothing leaves but under an open maintenance door; a record whose first rows have left says so in
`history_from`, which only grows. What is to be kept, and for how long, is for the caller to know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from holdfast.core.errors import PlanStaleError
from holdfast.core.machines import EXECUTION, GRANT, JOB, PROCEDURE, STEP, SWITCH, VALUE, ProcedureState
from holdfast.core.records import Execution, time_text
from holdfast.core.seals import Archive, Seal
from holdfast.store.statements import encoded
from holdfast.store.verbs.base import Verbs, WritingVerbs
from holdfast.store.verbs.seals import Key

_EXECUTION_FIELDS = (*Execution.__struct_fields__, "event", "actor", "reason", "move_id", "history_from")
# A stopped run may be resumed; but nothing else ends it, and one that is never resumed must not hold history for ever.
_ENDED_RUNS = PROCEDURE.final | {ProcedureState.STOPPED}
# The parameter of `begin_histories` that takes a machine's records.
_HISTORIES = {
    JOB.name: "jobs",
    EXECUTION.name: "executions",
    GRANT.name: "grants",
    PROCEDURE.name: "procedures",
    STEP.name: "steps",
    VALUE.name: "registry",
    SWITCH.name: "switches",
}


class Holder(NamedTuple):
    """A record that may still move, and so holds the history that tells of it."""

    machine: str
    subject: int
    state: str


class BlockAge(NamedTuple):
    """When the newest row of a block was written, and how many of its rows tell of more than maintenance."""

    newest: str
    telling: int


class RetentionReads(Verbs):
    """Reads what may leave."""

    def slimmable(
        self,
        *,
        before: datetime,
        states: Iterable[str] = JOB.final,
        queue: str | None = None,
        after: int = 0,
        limit: int = 1000,
    ) -> list[int]:
        """Return ids above `after` of jobs that ended before a time and still have their payload, lowest first."""
        rows = self._run(
            "slimmable_jobs",
            after=after,
            states=encoded(sorted(states)),
            before=self._store.stored(before),
            queue=queue,
            n=limit,
        )
        return [job_id for (job_id,) in rows]

    def block_age(self, start: Key, seal: Seal) -> BlockAge:
        """Return how old a block is: the rows after a key, up to the seal's."""
        [row] = self._run("block_age", **_between(start, seal))
        return BlockAge(row[0] or "", row[1])

    def block_holder(self, start: Key, seal: Seal, soon: Mapping[str, datetime]) -> Holder | None:
        """Return the first record of a block that is not at rest for good.

        A job that came to rest in one of the states of `soon` before that time counts as slimmed.
        """
        rows = self._run(
            "block_holder",
            soon=encoded([[state, time_text(before)] for state, before in sorted(soon.items())]),
            grants=encoded(sorted(GRANT.final)),
            procedures=encoded(sorted(_ENDED_RUNS)),
            **_between(start, seal),
        )
        return Holder(*rows[0]) if rows else None

    def executions_ended(self, last_moves: Mapping[int, int]) -> list[dict[str, object]]:
        """Return the executions, given as id and version, whose last move is that one: every column, times as text."""
        rows = self._run("executions_told", rows=encoded(sorted(last_moves.items())))
        return [self._image(row) for row in rows]

    def _image(self, row: Sequence[Any]) -> dict[str, object]:
        values = dict(zip(_EXECUTION_FIELDS, row, strict=True))
        for name in ("lease_expires_at", "cancel_asked_at", "started_at", "finished_at", "created_at", "updated_at"):
            if values[name] is not None:
                values[name] = time_text(self._store.moment(values[name]))
        values["excused"] = bool(values["excused"])
        return values


class RetentionWrites(RetentionReads, WritingVerbs):
    """Lets jobs and blocks leave, under an open maintenance door."""

    def lock(self) -> None:
        """Let nobody else retain or migrate until this transaction ends."""
        self._store.lock_schema(self._session.connection)

    def slim(self, job_ids: Sequence[int], *, before: datetime, states: Iterable[str] = JOB.final) -> list[int]:
        """Drop payload, result and checkpoints of those jobs that ended before a time; return their ids.

        Needs an open maintenance door. Digest, key and history stay: the key is taken for life.
        """
        slimmed = sorted(
            job_id
            for (job_id,) in self._run(
                "slim_jobs",
                rows=encoded(sorted(job_ids)),
                states=encoded(sorted(states)),
                before=self._store.stored(before),
            )
        )
        self.forget_checkpoints(slimmed)
        return slimmed

    def forget_checkpoints(self, job_ids: Sequence[int]) -> None:
        """Drop what attempts at these jobs have kept."""
        self._run("forget_checkpoints", rows=encoded(sorted(job_ids)))

    def extend_journal(self) -> str | None:
        """Add the journal's next partition if it is time to, and return its name."""
        self._store.lock_schema(self._session.connection)
        return self._store.upkeep.extend_journal(self._session.connection)

    def drop_partition(self, name: str) -> bool:
        """Drop a partition of the journal that has only archived rows; return whether it was still there."""
        return self._store.upkeep.drop_partition(self._session.connection, name)

    def add_archive(self, archive: Archive) -> None:
        """Record an archive, whose rows may leave from then on."""
        named = msgspec.structs.asdict(archive)
        self._run("add_archive", at=named.pop("created_at"), hashed=named.pop("sha256"), **named)

    def forget_executions(self, exec_ids: Sequence[int]) -> None:
        """Delete executions that are archived."""
        gone = self._run("forget_executions", rows=encoded(sorted(exec_ids)))
        _require_all(len(gone), len(exec_ids), "executions")

    def begin_histories(self, archived: Mapping[tuple[str, int], int]) -> None:
        """Note where the history of each record, given as machine and id, now begins: after an archived version."""
        found: dict[str, list[tuple[int, int]]] = {name: [] for name in _HISTORIES.values()}
        for (machine, subject), version in sorted(archived.items()):
            if machine in _HISTORIES:
                found[_HISTORIES[machine]].append((subject, version + 1))
        self._run("begin_histories", **{name: encoded(rows) for name, rows in found.items()})

    def forget_archived_rows(self, seqs: Sequence[int]) -> None:
        """Remove archived journal rows; where the journal has partitions, they stay until theirs is dropped."""
        gone = self._run("forget_archived_rows", rows=encoded(seqs))
        _require_all(len(gone), len(seqs), "journal rows")


def _between(start: Key, seal: Seal) -> dict[str, object]:
    after_epoch, after_xid, after_seq = start
    return {
        "after_epoch": after_epoch,
        "after_xid": after_xid,
        "after_seq": after_seq,
        "epoch": seal.epoch,
        "last_xid": seal.last_xid,
        "last_seq": seal.last_seq,
        "low_seq": seal.low_seq,
        "high_seq": seal.high_seq,
    }


def _require_all(found: int, expected: int, what: str) -> None:
    if found != expected:
        raise PlanStaleError(
            f"{expected} {what} were archived, but the ledger has only {found} of them now",
            next_step="Run `holdfast gc` again. If the error repeats, run `holdfast check`.",
            context={"archived": expected, "found": found},
        )
