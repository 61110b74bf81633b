"""The results of a check: findings of rules, violations of invariants, and the report of a whole check.

Invariants: a finding names one subject, in words that hold no payload, and the facts it was judged by; `kind` in its
evidence is a stable word, by which a repair decides what to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Self

import msgspec

from holdfast.core.digest import Json
from holdfast.store.verbs.histories import Case, History


class Severity(StrEnum):
    """How bad a violation is: an error breaks a promise of the ledger, a warning needs attention."""

    ERROR = "error"
    WARNING = "warning"


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong with one subject."""

    subject: str  # "JOB 5", "EXECUTION 17", "COUNTS noop/default/pending", "TRIGGER holdfast_jobs_move", "LEDGER"
    detail: str
    machine: str | None = None
    id: int | None = None
    evidence: dict[str, Json] = {}


class Violation(msgspec.Struct, frozen=True):
    """One invariant that one subject breaks."""

    invariant: str
    subject: str
    detail: str
    severity: Severity
    machine: str | None = None
    id: int | None = None
    evidence: dict[str, Json] = {}


class Invariant(msgspec.Struct, frozen=True, kw_only=True):
    """An invariant as people read it; a catalogue adds the rules that test it."""

    name: str
    meaning: str
    remedy: str  # what a repair does about it, or what people can do
    severity: Severity = Severity.ERROR

    def violation(self, finding: Finding) -> Violation:
        return Violation(
            self.name, finding.subject, finding.detail, self.severity, finding.machine, finding.id, finding.evidence
        )


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """The violations that a check found, and how many records it read."""

    ok: bool  # no violation of severity error, and nothing left unchecked
    violations: tuple[Violation, ...]
    checked: dict[str, int]  # the number of records that were checked, by kind
    more: bool = False  # the check stopped at its limit: there may be more violations

    @classmethod
    def of(cls, found: Sequence[Violation], checked: Mapping[str, int], *, more: bool) -> Self:
        """Return the report of a check; warnings alone leave a ledger sound."""
        ok = not more and all(violation.severity is not Severity.ERROR for violation in found)
        return cls(ok=ok, violations=tuple(found), checked=dict(checked), more=more)


def of_record(history: History, kind: str, detail: str, **evidence: Json) -> Finding:
    machine = history.machine.name
    return Finding(f"{machine} {history.subject}", detail, machine, history.subject, {"kind": kind, **evidence})


def of_job(case: Case, kind: str, detail: str, **evidence: Json) -> Finding:
    return of_record(case.history, kind, detail, job_id=case.job.job_id, **evidence)


def of_execution(case: Case, history: History, kind: str, detail: str, **evidence: Json) -> Finding:
    return of_record(history, kind, detail, job_id=case.job.job_id, **evidence)
