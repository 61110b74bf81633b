"""What a rule finds: a fault of one subject, and the page of evidence that rules look at.

Invariants: a fault says which record, in words that hold no payload, and what it was judged by; `kind` in its evidence
is a stable word, so that a repair can tell what to do.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.digest import Json
from holdfast.store.evidence import Case, Entry, Evidence, History


class Fault(msgspec.Struct, frozen=True):
    """One thing that is wrong with one subject."""

    subject: str  # "JOB 5", "EXECUTION 17", "COUNTS noop/default/pending", "TRIGGER holdfast_jobs_move", "LEDGER"
    detail: str
    machine: str | None = None
    id: int | None = None
    evidence: dict[str, Json] = {}


class Page:
    """The evidence that is looked at together, from one snapshot, and what several rules ask of it."""

    def __init__(self, evidence: Evidence, *, limit: int, batch: int) -> None:
        self.evidence = evidence
        self.limit = limit  # how many faults are wanted at most
        self.batch = batch
        self.now: datetime = evidence.now
        self.committed: frozenset[int] = frozenset()  # parents of the page's follow-ups that have committed
        self._last_maintenance: int | None = None

    def archived(self, row: Entry) -> bool:
        """Tell whether a row is in an archive: it may still stand in the journal until its partition is dropped."""
        until = self.evidence.archived_until
        return until is not None and row.key <= until

    @property
    def last_maintenance(self) -> int:
        """Where the journal last tells of a maintenance."""
        if self._last_maintenance is None:
            self._last_maintenance = self.evidence.last_maintenance()
        return self._last_maintenance


def of_record(history: History, kind: str, detail: str, **evidence: Json) -> Fault:
    """Return a fault of a record of any machine."""
    machine = history.machine.name
    return Fault(f"{machine} {history.subject}", detail, machine, history.subject, {"kind": kind, **evidence})


def of_job(case: Case, kind: str, detail: str, **evidence: Json) -> Fault:
    """Return a fault of a job."""
    return of_record(case.history, kind, detail, job_id=case.job.job_id, **evidence)


def of_execution(case: Case, history: History, kind: str, detail: str, **evidence: Json) -> Fault:
    """Return a fault of one execution of a job."""
    return of_record(history, kind, detail, job_id=case.job.job_id, **evidence)
