"""The status of a run of a procedure, read from its records alone, without the code of the procedure.

Invariants: nothing here writes; the names of all steps, the open ones too, are those that the run began with, and their
digest is the plan of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.digest import Json
from holdfast.core.governed import Grant, NamedLease, PerformedStep, ProcedureRun
from holdfast.core.journal import JournalRow
from holdfast.core.machines import PROCEDURE, ProcedureState, StepState
from holdfast.governance.runs.runner import required
from holdfast.governance.runs.steps import plan_digest

if TYPE_CHECKING:
    from holdfast.store.transaction import Reading

BY_OPERATOR = "COMP_BY_OPERATOR"
"""The stop of a run in which no step failed: an operator undid it."""

PAGE = 1000


class StepStatus(msgspec.Struct, frozen=True):
    """One step of a run: performed, open, failed, undone, or stuck (performed, and could not be undone)."""

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
        """Return why the run stopped."""
        return stop_cause(self.run.failure)

    @property
    def trouble(self) -> str | None:
        """Return why a step could not be undone, or None."""
        return undo_failure(self.run.failure)


def run_status(reading: Reading, root: str) -> RunStatus:
    """Return the status of the run of a root, or raise RecordNotFoundError."""
    run = required(reading.runs.get(root), root)
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
    """Return every performed step of a run, those that were undone since too, in the order of performance."""
    found: list[PerformedStep] = []
    while page := reading.runs.steps(run_id, after=found[-1].step_id if found else 0, limit=PAGE):
        found += page
        if len(page) < PAGE:
            break
    return found


def fates(names: Sequence[str], run: ProcedureRun, records: Sequence[PerformedStep]) -> dict[str, str]:
    """Return the fate of each step of a run: performed, open, failed, undone, stuck."""
    performed = {record.number for record in records if record.state == StepState.PERFORMED}
    # Steps are performed in order, so the last record shows how far the run came this time.
    reached = records[-1].number if records else -1
    stopping = run.state in (ProcedureState.COMPENSATING, ProcedureState.STOPPED)
    found = dict.fromkeys(names, "open")
    for number, name in enumerate(names):
        if number in performed:
            found[name] = "performed"
        elif stopping and number <= reached:
            found[name] = "undone"
        elif stopping and number == reached + 1 and run.stop_state != BY_OPERATOR:
            found[name] = "failed"
    if run.state == ProcedureState.COMPENSATING and performed and undo_failure(run.failure):
        found[names[max(performed)]] = "stuck"
    return found


def failure_text(stopped_by: str | None, not_undone: str | None = None) -> str:
    """Return the stored failure of a run: a line for its cause, and one for a step that could not be undone."""
    return "\n".join(line for line in (stopped_by or "", not_undone) if line is not None)


def stop_cause(failure: str | None) -> str | None:
    """Return why a run stopped, from its stored failure."""
    return (failure or "").partition("\n")[0] or None


def undo_failure(failure: str | None) -> str | None:
    """Return why a run could not be undone, from its stored failure."""
    return (failure or "").partition("\n")[2] or None


def _declared(run: ProcedureRun, records: Sequence[PerformedStep]) -> tuple[str | None, list[str]]:
    """Return the version and the steps that a run began with; without them, the recorded steps."""
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
