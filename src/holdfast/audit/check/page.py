"""What a rule finds: a fault of one subject, and the page of evidence that rules look at.

Invariants: a fault says which record, in words that hold no payload, and what it was judged by; `kind` in its evidence
is a stable word, so that a repair can tell what to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.digest import Json
from holdfast.core.machines import GRANT
from holdfast.store.evidence import Case, Entry, Evidence, History, Permit


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
        self._grants: dict[int, Permit | None] = {}
        self._maintenance: dict[int, tuple[int | None, int | None] | None] = {}

    def look_up(self, histories: Iterable[History]) -> None:
        """Learn of every grant and every maintenance that rows of these name, in one question each."""
        grants: set[Any] = set()  # a row may hold anything
        maintenance: set[Any] = set()
        for history in histories:
            for row in history.rows:
                if row.grant_id is not None and history.machine is not GRANT:
                    grants.add(row.grant_id)
                if row.maintenance_id is not None:
                    maintenance.add(row.maintenance_id)
        if new := {number for number in grants if isinstance(number, int)} - self._grants.keys():
            found = self.evidence.grants_named(new)
            self._grants.update((number, found.get(number)) for number in new)
        if new := {number for number in maintenance if isinstance(number, int)} - self._maintenance.keys():
            told = self.evidence.maintenance_named(new)
            self._maintenance.update((number, told.get(number)) for number in new)

    def grant(self, grant_id: int) -> Permit | None:
        """Return what became of a grant; None if there is none."""
        if grant_id not in self._grants:
            self._grants[grant_id] = self.evidence.grants_named([grant_id]).get(grant_id)
        return self._grants[grant_id]

    def maintenance(self, maintenance_id: int) -> tuple[int | None, int | None] | None:
        """Return where the journal tells of an act of maintenance, first and last; None if it does nowhere."""
        if maintenance_id not in self._maintenance:
            self._maintenance[maintenance_id] = self.evidence.maintenance_named([maintenance_id]).get(maintenance_id)
        return self._maintenance[maintenance_id]

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
