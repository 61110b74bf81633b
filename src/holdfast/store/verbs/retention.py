"""Verbs of retention: which jobs and sealed blocks can be removed from the ledger, and their removal.

Invariants: every removal needs an open maintenance door; `history_from` of a record is the first version whose journal
rows are kept, and only grows. The caller decides what is kept and for how long.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from holdfast.core.errors import PlanStaleError
from holdfast.core.machines import GRANT, JOB, PROCEDURE, ProcedureState
from holdfast.core.records import time_text
from holdfast.core.seals import Archive, Seal
from holdfast.store.statements import encoded
from holdfast.store.tables import GUARDED, PREFIX
from holdfast.store.verbs.base import Verbs, WritingVerbs
from holdfast.store.verbs.seals import Key
from holdfast.store.verbs.tracebacks import forget_tracebacks
from holdfast.store.verbs.traces import forget_traces

_ENDED_FIELDS = (
    "exec_id", "job_id", "attempt", "status", "version", "lease_owner", "lease_token", "lease_expires_at", "excused",
    "error_code", "error_message", "progress", "progress_note", "cancel_requested_at", "started_at", "finished_at",
    "created_at", "event", "actor", "reason", "move_id",
)  # fmt: skip
# A stopped run may be resumed, but counts as ended here: one that is never resumed would block retention forever.
_ENDED_RUNS = PROCEDURE.final | {ProcedureState.STOPPED}
# The parameter of `begin_histories` that takes a machine's records has the name of their table.
_HISTORIES = {guarded.machine.name: guarded.table.removeprefix(PREFIX) for guarded in GUARDED}


AttemptKey = tuple[int, int]  # job_id, attempt
SLIM_MARK = "slimmed"  # the setting with the mark below which jobs are slimmed
LEFT_MAX = 500  # jobs below the mark that are not slimmed
SETTLED = timedelta(days=1)  # a transaction that submitted jobs has ended by then, and its ids are visible
MARK_STEP = 100_000  # ids that the mark passes in one transaction


class SlimMark(msgspec.Struct, frozen=True):
    """Every job with an id below `below` is slimmed, except those that are listed in `left`."""

    below: int = 1
    left: tuple[int, ...] = ()


class Holder(NamedTuple):
    """A record that may still move, so that its history cannot be archived."""

    machine: str
    subject: int
    state: str


class BlockAge(NamedTuple):
    """How many rows of a block are younger than allowed, and how many rows are not about maintenance."""

    young: int
    telling: int


class RetentionReads(Verbs):
    """Reads what can be removed."""

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

    def slimmable_among(self, job_ids: Sequence[int], *, before: datetime, states: Iterable[str]) -> list[int]:
        """Return those of the given jobs that ended before a time and still have their payload, lowest first."""
        rows = self._run(
            "slimmable_among",
            rows=encoded(list(job_ids)),
            states=encoded(sorted(states)),
            before=self._store.stored(before),
        )
        return [job_id for (job_id,) in rows]

    def slim_mark(self) -> SlimMark:
        """Return the mark below which jobs are slimmed; if it cannot be read, the one of a new ledger."""
        try:
            return msgspec.json.decode(self._session.settings.read().get(SLIM_MARK, "{}"), type=SlimMark)
        except msgspec.DecodeError:
            return SlimMark()

    def block_age(self, start: Key, seal: Seal, *, before: datetime) -> BlockAge:
        """Return how many rows of the block of a seal, which begins after `start`, are not from before a time."""
        [row] = self._run("block_age", before=self._store.stored(before), **_between(start, seal))
        return BlockAge(*row)

    def block_holder(self, start: Key, seal: Seal, soon: Mapping[str, datetime]) -> Holder | None:
        """Return the first record of a block that may still move, or None.

        A job that entered one of the states of `soon` before the time given there counts as slimmed.
        """
        rows = self._run(
            "block_holder",
            soon=encoded([[state, time_text(before)] for state, before in sorted(soon.items())]),
            grants=encoded(sorted(GRANT.final)),
            procedures=encoded(sorted(_ENDED_RUNS)),
            **_between(start, seal),
        )
        return Holder(*rows[0]) if rows else None

    def ended_attempts(self, endings: Mapping[AttemptKey, str]) -> list[dict[str, object]]:
        """Return the attempts that ended without success with the given move: all columns, times as text."""
        rows = self._run("ended_attempts", rows=encoded([[*key, move_id] for key, move_id in sorted(endings.items())]))
        return [self._image(row) for row in rows]

    def _image(self, row: Sequence[Any]) -> dict[str, object]:
        values = dict(zip(_ENDED_FIELDS, row, strict=True))
        for name in ("lease_expires_at", "cancel_requested_at", "started_at", "finished_at", "created_at"):
            if values[name] is not None:
                values[name] = time_text(self._store.moment(values[name]))
        values["excused"] = bool(values["excused"])
        return values


class RetentionWrites(RetentionReads, WritingVerbs):
    """Removes payloads and archived blocks, under an open maintenance door."""

    def lock(self) -> None:
        """Let no other retention or migration run until this transaction ends."""
        self._store.lock_schema(self._session.connection)

    def slim(self, job_ids: Sequence[int], *, before: datetime, states: Iterable[str] = JOB.final) -> list[int]:
        """Delete payload, result, checkpoints and tracebacks of those jobs that ended before a time; return their ids.

        Their traces are deleted too. Needs an open maintenance door. Digest, key and history are kept: a key is never
        used again.
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
        forget_tracebacks(self._session, slimmed)
        forget_traces(self._session, slimmed)
        return slimmed

    def move_slim_mark(self, slimmed: Sequence[int]) -> None:
        """Move the mark over jobs that are slimmed, after slimming some, so that the next search begins there.

        It passes only jobs that were submitted long ago, and the ids between them: a transaction that is still open
        may have ids that are lower than those of young jobs.
        """
        mark = self.slim_mark()
        gone = set(slimmed)
        left = [job_id for job_id in mark.left if job_id not in gone]
        upto = min(max(slimmed), mark.below + MARK_STEP)
        rows = self._run(
            "not_slimmed",
            first=mark.below,
            upto=upto,
            settled=self._store.stored(self._store.now() - SETTLED),
            n=max(LEFT_MAX - len(left), 0) + 1,
        )
        stop = upto + 1
        for job_id, young in rows:
            if young or len(left) >= LEFT_MAX:
                stop = job_id
                break
            left.append(job_id)
        [[last]] = self._run("last_call_below", first=mark.below, stop=stop)
        moved = SlimMark(mark.below if last is None else last + 1, tuple(left))
        if moved != mark:
            self._session.settings.set(SLIM_MARK, msgspec.json.encode(moved).decode())

    def forget_checkpoints(self, job_ids: Sequence[int]) -> None:
        self._run("forget_checkpoints", rows=encoded(sorted(job_ids)))

    def extend_journal(self) -> str | None:
        """Add the next partition of the journal if the last one is half full; return its name, or None."""
        self._store.lock_schema(self._session.connection)
        return self._store.upkeep.extend_journal(self._session.connection)

    def drop_partition(self, name: str) -> bool:
        """Drop a partition of the journal that has only archived rows; return False if it does not exist."""
        return self._store.upkeep.drop_partition(self._session.connection, name)

    def add_archive(self, archive: Archive) -> None:
        """Record an archive; its rows can be removed from then on."""
        named = msgspec.structs.asdict(archive)
        self._run("add_archive", at=named.pop("created_at"), hashed=named.pop("sha256"), **named)

    def forget_attempts(self, keys: Sequence[AttemptKey]) -> None:
        """Delete archived attempts; raise PlanStaleError if one does not exist."""
        gone = self._run("forget_attempts", rows=encoded(sorted(keys)))
        _require_all(len(gone), len(keys), "attempts")

    def begin_histories(self, archived: Mapping[tuple[str, int], int]) -> None:
        """Set where the history of each record, given as machine and id, begins: after the archived version."""
        found: dict[str, list[tuple[int, int]]] = {name: [] for name in _HISTORIES.values()}
        for (machine, subject), version in sorted(archived.items()):
            if machine in _HISTORIES:
                found[_HISTORIES[machine]].append((subject, version + 1))
        self._run("begin_histories", **{name: encoded(rows) for name, rows in found.items()})

    def forget_archived_rows(self, seqs: Sequence[int]) -> None:
        """Delete archived journal rows; on PostgreSQL they stay until their partition is dropped."""
        gone = self._run("forget_archived_rows", rows=encoded(seqs))
        _require_all(len(gone), len(seqs), "journal rows")


def _between(start: Key, seal: Seal) -> dict[str, object]:
    after = dict(zip(("after_epoch", "after_xid", "after_seq"), start, strict=True))
    return after | {name: getattr(seal, name) for name in ("epoch", "last_xid", "last_seq", "low_seq", "high_seq")}


def _require_all(found: int, expected: int, what: str) -> None:
    if found != expected:
        raise PlanStaleError(
            f"{expected} {what} were archived, but the ledger has only {found} of them now",
            next_step="Run `holdfast gc` again. If the error repeats, run `holdfast check`.",
            context={"archived": expected, "found": found},
        )
