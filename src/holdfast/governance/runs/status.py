"""Where a run of a procedure stands: told from its records alone, so that anybody can ask, whatever code ran it.

Invariants: nothing here writes; the names of all steps, the open ones too, are those that the run was begun with, and
their digest is the run's plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.digest import Json
from holdfast.core.errors import RecordNotFoundError
from holdfast.core.machines import PROCEDURE, ProcedureState, StepState
from holdfast.core.records import Grant, JournalRow, NamedLease, PerformedStep, ProcedureRun
from holdfast.governance.runs.steps import plan_digest

if TYPE_CHECKING:
    from holdfast.store.transaction import Reading

BY_OPERATOR = "COMP_BY_OPERATOR"
"""The stop of a run that nothing failed in: somebody had it undone."""

PAGE = 1000


class StepStatus(msgspec.Struct, frozen=True):
    """One step of a run: performed, open, failed, undone, or stuck (it stands, and could not be undone)."""

    number: int
    name: str
    fate: str
    outcome: Json = None
    actor: str | None = None
    at: datetime | None = None


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A run with its steps, its lease, its grant and its history, at one moment."""

    run: ProcedureRun
    version: str | None  # of the procedure
    steps: tuple[StepStatus, ...]
    lease: NamedLease | None  # None if it is free
    grant: Grant | None
    history: tuple[JournalRow, ...]
    now: datetime

    @property
    def failure(self) -> str | None:
        """Return what stopped the run."""
        return stop_cause(self.run.failure)

    @property
    def trouble(self) -> str | None:
        """Return why it could not be undone, if that is so."""
        return undo_failure(self.run.failure)


def run_status(reading: Reading, root: str) -> RunStatus:
    """Return where the run under a root stands, or raise RecordNotFoundError."""
    run = reading.runs.get(root)
    if run is None:
        raise RecordNotFoundError(f"no run has the root {root!r}", context={"root": root})
    records = records_of(reading, run.run_id)
    version, names = _declared(run, records)
    latest = {record.number: record for record in records}
    steps = []
    for number, (name, fate) in enumerate(fates(names, run, records).items()):
        record = latest.get(number)
        if record is None or fate in ("open", "failed"):
            steps.append(StepStatus(number, name, fate))
        else:
            outcome = msgspec.json.decode(record.outcome)
            steps.append(StepStatus(number, name, fate, outcome, record.actor, record.updated_at))
    lease, now = reading.leases.all().get(run.lease), reading.now()
    return RunStatus(
        run=run,
        version=version,
        steps=tuple(steps),
        lease=lease if lease and lease.expires_at > now else None,
        grant=reading.grants.get(run.grant_id) if run.grant_id else None,
        history=tuple(reading.journal.of(run.run_id, PROCEDURE.name)),
        now=now,
    )


def records_of(reading: Reading, run_id: int) -> list[PerformedStep]:
    """Return everything a run has performed, also what was undone since, in the order of performance."""
    found: list[PerformedStep] = []
    while page := reading.runs.steps(run_id, after=found[-1].step_id if found else 0, limit=PAGE):
        found += page
        if len(page) < PAGE:
            break
    return found


def fates(names: Sequence[str], run: ProcedureRun, records: Sequence[PerformedStep]) -> dict[str, str]:
    """Return what became of each step of a run: performed, open, failed, undone, stuck."""
    stands = {record.number for record in records if record.state == StepState.PERFORMED}
    # Steps are performed one after another, so the last performance tells how far the run came this time.
    reached = records[-1].number if records else -1
    stopping = run.state in (ProcedureState.COMPENSATING, ProcedureState.STOPPED)
    found = dict.fromkeys(names, "open")
    for number, name in enumerate(names):
        if number in stands:
            found[name] = "performed"
        elif stopping and number <= reached:
            found[name] = "undone"
        elif stopping and number == reached + 1 and run.stop_state != BY_OPERATOR:
            found[name] = "failed"
    if run.state == ProcedureState.COMPENSATING and stands and undo_failure(run.failure):
        found[names[max(stands)]] = "stuck"
    return found


def told(stopped_by: str | None, not_undone: str | None = None) -> str:
    """Return what a run keeps of its failure: a line for what stopped it, and one for why it could not be undone."""
    return "\n".join(line for line in (stopped_by or "", not_undone) if line is not None)


def stop_cause(failure: str | None) -> str | None:
    """Return what stopped a run."""
    return (failure or "").partition("\n")[0] or None


def undo_failure(failure: str | None) -> str | None:
    """Return why a run could not be undone."""
    return (failure or "").partition("\n")[2] or None


def _declared(run: ProcedureRun, records: Sequence[PerformedStep]) -> tuple[str | None, list[str]]:
    """Return the version and the steps that a run was begun with; where nothing tells, the steps on record."""
    params = msgspec.json.decode(run.params)
    for record in records:
        outcome = msgspec.json.decode(record.outcome)
        if not isinstance(outcome, dict) or outcome.keys() != {"version", "steps"}:
            continue
        version, steps = outcome["version"], outcome["steps"]
        if isinstance(steps, list) and plan_digest(run.procedure, version, steps, params) == run.plan:
            return version, steps
    names = {record.number: record.name for record in records}
    return None, [names[number] for number in sorted(names)]
