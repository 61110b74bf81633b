"""Verbs of the runs of procedures: the run, its steps, and its evidence.

Invariants: a run and a step move as `core.decide` says, matching id, state and version; a write of zero rows is a
refusal.
"""

from __future__ import annotations

from holdfast.core.decide import Move, Refused
from holdfast.core.digest import sha256
from holdfast.core.governed import Evidence, PerformedStep, ProcedureEvent, ProcedureRun, StepEvent
from holdfast.core.machines import PROCEDURE, STEP
from holdfast.store.rows import reader
from holdfast.store.verbs.base import Verbs
from holdfast.store.verbs.moving import MovingVerbs

_read_run = reader(ProcedureRun)
_read_step = reader(PerformedStep)
_read_evidence = reader(Evidence)


class RunReads(Verbs):
    """Reads runs, steps and evidence."""

    def get(self, root: str) -> ProcedureRun | None:
        return self._one(_read_run, "get_run", root=root)

    def page(
        self, *, procedure: str | None = None, state: str | None = None, before: int | None = None, limit: int = 100
    ) -> list[ProcedureRun]:
        """Return a page of runs, newest first."""
        return self._all(_read_run, "list_runs", procedure=procedure, state=state, before=before, n=limit)

    def unfinished(self, lease: str, root: str) -> ProcedureRun | None:
        """Return an unfinished run with another root that uses the same lease, or None."""
        return self._one(_read_run, "unfinished_run", lease=lease, root=root)

    def steps(self, run_id: int, *, after: int = 0, limit: int = 1000) -> list[PerformedStep]:
        """Return a page of the steps of a run, including undone ones, in the order of performance."""
        return self._all(_read_step, "steps_of", run_id=run_id, after=after, n=limit)

    def performed_steps(self, run_id: int) -> dict[int, PerformedStep]:
        """Return the performed steps of a run that were not undone, by number."""
        return {step.number: step for step in self._all(_read_step, "performed_steps", run_id=run_id)}

    def evidence(self, run_id: int) -> list[Evidence]:
        """Return the evidence of a run, including what was declared void."""
        return self._all(_read_evidence, "evidence_of", run_id=run_id)


class RunWrites(RunReads, MovingVerbs):
    """Begins and moves runs, records steps and evidence."""

    def begin(
        self,
        root: str,
        procedure: str,
        *,
        params: str,
        plan: str,
        lease: str,
        grant_id: int | None,
        actor: str,
        reason: str | None,
    ) -> int | None:
        """Record a run as planned and return its id; None if the root already has a run."""
        rows = self._run(
            "insert_run",
            root=root,
            procedure=procedure,
            params=params,
            plan=plan,
            lease=lease,
            grant_id=grant_id,
            **self._birth(PROCEDURE, "plan"),
            **self._signature(actor, reason),
        )
        return int(rows[0][0]) if rows else None

    def move(
        self,
        run: ProcedureRun,
        event: str,
        *,
        actor: str,
        reason: str | None = None,
        stop_state: str | None = None,
        failure: str | None = None,
        grant_id: int | None = None,
    ) -> Move | Refused:
        """Move a run by one of its events, matching id, state and version."""
        return self._move_one(
            "move_run",
            PROCEDURE,
            run,
            ProcedureEvent(event),
            f"run {run.idempotency_root}",
            run_id=run.run_id,
            stop_state=stop_state,
            failure=failure,
            grant_id=grant_id,
            **self._signature(actor, reason),
        )

    def reach_step(self, run: ProcedureRun, number: int, *, failure: str | None = None) -> bool:
        """Store the step that a run has reached, and its last failure; return False if its state has changed."""
        now = self._store.time_parameter()
        return bool(self._run("reach_step", run_id=run.run_id, step=number, state=run.state, failure=failure, now=now))

    def perform_step(
        self, run_id: int, number: int, name: str, outcome: str, *, actor: str, reason: str | None = None
    ) -> int:
        """Record a performed step with its outcome; return its id."""
        [[step_id]] = self._run(
            "insert_step",
            run_id=run_id,
            number=number,
            name=name,
            outcome=outcome,
            **self._birth(STEP, "perform"),
            **self._signature(actor, reason),
        )
        return int(step_id)

    def undo_step(self, step: PerformedStep, *, actor: str, reason: str | None = None) -> Move | Refused:
        """Record that a step was undone, matching id, state and version."""
        return self._move_one(
            "move_step",
            STEP,
            step,
            StepEvent("undo"),
            f"step {step.name}",
            step_id=step.step_id,
            **self._signature(actor, reason),
        )

    def add_evidence(
        self,
        kind: str,
        subject: str,
        content: str,
        *,
        actor: str,
        run_id: int | None = None,
        grant_id: int | None = None,
    ) -> int | None:
        """Store evidence, once for each kind of a run, and return its id; None if the run already has that kind."""
        rows = self._run(
            "add_evidence",
            run_id=run_id,
            kind=kind,
            subject=subject,
            content=content,
            digest=sha256(content),
            actor=actor,
            grant_id=grant_id,
            now=self._store.time_parameter(),
        )
        return int(rows[0][0]) if rows else None

    def void_evidence(self, run_id: int) -> int:
        """Declare the evidence of a run void; return how many pieces there were."""
        return len(self._run("void_evidence", run_id=run_id, now=self._store.time_parameter()))
