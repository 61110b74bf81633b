"""Which replay an attempt is part of, for telemetry and provenance.

Invariants: it is read from the ledger alone: the journal of a job names the run that replayed it, and the run its mode;
a first run is part of no replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.journal import JournalRow
from holdfast.core.records import Job
from holdfast.core.selection import ReplayReason
from holdfast.governance.replay.guards import PROCEDURE
from holdfast.governance.replay.record import terms_of
from holdfast.nodd.units import Operator

if TYPE_CHECKING:
    from holdfast.store import Store
    from holdfast.store.transaction import Reading

DRAIN, REDELIVERY = "dlq", "redelivery"
ANNOUNCED_AGAIN = "announced again"  # the reason of a replay by a second notice
NAME = "dlq-drain"  # of the selection of a drain
_BROUGHT = frozenset({"replay", "submit"})  # the events by which a replay moves a job or makes one


class ReplayOf(msgspec.Struct, frozen=True, kw_only=True):
    """The replay that an attempt is part of."""

    mode: str  # of the run; that of a drain of a queue is `dlq`, that of a second notice `redelivery`
    reason: str | None = None
    run_id: str | None = None
    original_run: str | None = None  # the ingest run before it


def replay_of(store: Store[Any], job: Job) -> ReplayOf | None:
    """Return the replay that a job is part of, or None for a first run, without a query."""
    if job.replay_reason is None and job.replaces is None:
        return None
    with store.reading() as reading:
        return _read(reading, job)


def _read(reading: Reading, job: Job) -> ReplayOf:
    original = _ingest_run(reading, job.replaces or job.job_id)
    brought = [row for row in reading.journal.of(job.job_id) if row.event in _BROUGHT]
    if brought and brought[-1].reason == ANNOUNCED_AGAIN:
        return ReplayOf(mode=REDELIVERY, reason=job.replay_reason, original_run=original)
    run_id = _run_named(brought)
    run = None if run_id is None else reading.runs.get(run_id)
    # The reason of a drain is free text, and may look like that of a run.
    if run is None or run.procedure != PROCEDURE:
        return ReplayOf(mode=DRAIN, reason=job.replay_reason, original_run=original)
    terms = terms_of(run)
    mode = DRAIN if terms.replay_reason == ReplayReason.DLQ_DRAIN and terms.selection.name == NAME else None
    return ReplayOf(
        mode=mode or str(terms.selection.mode), reason=terms.replay_reason, run_id=run_id, original_run=original
    )


def _ingest_run(reading: Reading, job_id: int) -> str | None:
    """Return the ingest run of a job, or None if it has not begun."""
    kept = reading.notes.checkpoints(job_id).get(str(Operator.PARSE))
    if kept is not None:
        return str(msgspec.json.decode(kept)["data"]["ingest_run_id"])
    result = reading.jobs.get(job_id).result
    return None if result is None else msgspec.json.decode(result).get("ingest_run_id")


def _run_named(rows: Sequence[JournalRow]) -> str | None:
    """Return the run that the journal of a job names last, as `replay RUN: reason`."""
    words = (rows[-1].reason or "").split() if rows else []
    named = len(words) > 1 and words[0] == PROCEDURE and words[1].endswith(":")
    return words[1].removesuffix(":") if named else None
