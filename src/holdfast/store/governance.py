"""The verbs of governance: named leases, grants, runs of procedures and their steps, switches, approvers, evidence.

Invariants: a grant, a run, a step and a switch move as `core.decide` says, matching id, state and version; zero rows is
a refusal; a lease is won only if it has run out or is the holder's own, and its token only grows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.core.commands import GrantEvent, ProcedureEvent, StepEvent, SwitchEvent
from holdfast.core.decide import Move, Refused
from holdfast.core.digest import sha256
from holdfast.core.machines import GRANT, PROCEDURE, STEP, SWITCH
from holdfast.core.records import (
    Approver,
    Evidence,
    Grant,
    NamedLease,
    PerformedStep,
    ProcedureRun,
    Switch,
)
from holdfast.store.moving import Moving
from holdfast.store.rows import reader

if TYPE_CHECKING:
    from holdfast.store.store import Store

_read_grant = reader(Grant)
_read_lease = reader(NamedLease)
_read_run = reader(ProcedureRun)
_read_step = reader(PerformedStep)
_read_switch = reader(Switch)
_read_approver = reader(Approver)
_read_evidence = reader(Evidence)


class GovernanceReading(ABC):
    """The part of a Reading that tells of governance."""

    _store: Store[Any]

    def grant(self, grant_id: int) -> Grant | None:
        """Return a grant, if it exists."""
        rows = self._run("get_grant", grant_id=grant_id)
        return self._grant(rows[0]) if rows else None

    def grants_for(self, action: str, target: str) -> list[Grant]:
        """Return the drafts and the active grants for one act and target."""
        return [self._grant(row) for row in self._run("grants_for", action=action, target=target)]

    def grants(
        self,
        *,
        state: str | None = None,
        action: str | None = None,
        target: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Grant]:
        """Return a page of grants, newest first; `state` is where one stands by now: what has run out is expired."""
        asked = {"state": state, "action": action, "target": target, "before": before}
        rows = self._run("list_grants", **asked, now=self._store.time_parameter(), n=limit)
        return [self._grant(row) for row in rows]

    def session_role(self) -> str | None:
        """Return the role that the database knows this session by; None where there are no roles."""
        [[role]] = self._run("session_role")
        return None if role is None else str(role)

    def leases(self) -> dict[str, NamedLease]:
        """Return every named lease, also those that have run out."""
        leases = (_read_lease(row, self._store.moment) for row in self._run("get_leases"))
        return {lease.name: lease for lease in leases}

    def run_of(self, root: str) -> ProcedureRun | None:
        """Return the run of a procedure under an idempotency root."""
        rows = self._run("get_run", root=root)
        return _read_run(rows[0], self._store.moment) if rows else None

    def runs(
        self, *, procedure: str | None = None, state: str | None = None, before: int | None = None, limit: int = 100
    ) -> list[ProcedureRun]:
        """Return a page of runs, newest first."""
        rows = self._run("list_runs", procedure=procedure, state=state, before=before, n=limit)
        return [_read_run(row, self._store.moment) for row in rows]

    def unfinished_run(self, lease: str, root: str) -> ProcedureRun | None:
        """Return a run under another root that was left in the middle of what this lease guards."""
        rows = self._run("unfinished_run", lease=lease, root=root)
        return _read_run(rows[0], self._store.moment) if rows else None

    def steps_of(self, run_id: int, *, after: int = 0, limit: int = 1000) -> list[PerformedStep]:
        """Return a page of what a run has performed, also what was undone since, in the order of performance."""
        rows = self._run("steps_of", run_id=run_id, after=after, n=limit)
        return [_read_step(row, self._store.moment) for row in rows]

    def performed_steps(self, run_id: int) -> dict[int, PerformedStep]:
        """Return the steps of a run that stand, by number."""
        steps = (_read_step(row, self._store.moment) for row in self._run("performed_steps", run_id=run_id))
        return {step.number: step for step in steps}

    def switches_on(self) -> dict[str, Switch]:
        """Return the switches that are on, by name."""
        switches = (_read_switch(row, self._store.moment) for row in self._run("switches_on"))
        return {switch.name: switch for switch in switches}

    def last_switch(self, name: str) -> Switch | None:
        """Return the last throwing of a switch, on or off; None if there never was one."""
        rows = self._run("last_switch", name=name)
        return _read_switch(rows[0], self._store.moment) if rows else None

    def switches(self, *, limit: int = 100) -> list[Switch]:
        """Return every switch that was thrown, newest first."""
        return [_read_switch(row, self._store.moment) for row in self._run("list_switches", n=limit)]

    def approvers(self) -> dict[str, Approver]:
        """Return everybody who was ever registered to approve, by name."""
        approvers = (_read_approver(row, self._store.moment) for row in self._run("list_approvers"))
        return {approver.name: approver for approver in approvers}

    def evidence_of(self, run_id: int) -> list[Evidence]:
        """Return what a run left behind, also what was declared void since."""
        return [_read_evidence(row, self._store.moment) for row in self._run("evidence_of", run_id=run_id)]

    def _grant(self, row: tuple[Any, ...]) -> Grant:
        return _read_grant(row, self._store.moment)

    @abstractmethod
    def _run(self, name: str, /, **params: object) -> list[tuple[Any, ...]]: ...


class GovernanceWriting(Moving):
    """The part of a transaction that governance needs."""

    # -- leases -------------------------------------------------------------------------------------------------------

    def acquire_lease(self, name: str, holder: str, seconds: float) -> int | None:
        """Take a lease if it has run out, or renew the holder's own; return its token, or None if another holds it."""
        rows = self._run("acquire_lease", name=name, holder=holder, **self._until(seconds))
        return int(rows[0][0]) if rows else None

    def hold_lease(self, name: str, holder: str, token: int, seconds: float) -> bool:
        """Extend a lease; return False if it is lost."""
        return bool(self._run("hold_lease", name=name, holder=holder, token=token, **self._until(seconds)))

    def release_lease(self, name: str, holder: str, token: int) -> bool:
        """Give a lease back; return False if it was lost before."""
        now = self._store.time_parameter()
        return bool(self._run("release_lease", name=name, holder=holder, token=token, now=now))

    def _until(self, seconds: float) -> dict[str, object]:
        return {"expires": self._store.lease_until(seconds), "now": self._store.time_parameter()}

    # -- grants -------------------------------------------------------------------------------------------------------

    def request_grant(
        self,
        *,
        action: str,
        target: str,
        scope: str,
        actor: str,
        reason: str,
        expires_at: datetime,
        via: str | None = None,
    ) -> int:
        """Draft a grant and return its id."""
        birth = GRANT.path("request", None)
        [[grant_id]] = self._run(
            "insert_grant",
            state=birth.target,
            version=len(birth.edges),
            event=birth.event,
            action=action,
            target=target,
            scope=scope,
            requested_via=via,
            expires_at=self._store.stored(expires_at),
            **self._signature(actor, reason),
        )
        return int(grant_id)

    def move_grant(
        self,
        grant: Grant,
        command: GrantEvent,
        *,
        reason: str | None = None,
        move_id: str | None = None,
        via: str | None = None,
    ) -> Move | Refused:
        """Approve, consume, revoke or expire a grant, matching id, state and version; `via` tells of the approver."""
        return self._moved(
            "move_grant",
            GRANT,
            grant,
            command,
            f"grant {grant.grant_id}",
            grant_id=grant.grant_id,
            approved_by=command.actor if command.event == "approve" else None,
            approved_via=via if command.event == "approve" else None,
            consumed_by=command.actor if command.event == "consume" else None,
            **self._signature(command.actor, reason, move_id),
        )

    # -- runs of procedures -------------------------------------------------------------------------------------------

    def begin_run(
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
        """Record a run as planned, and return its id; None if the root has one already."""
        birth = PROCEDURE.path("plan", None)
        rows = self._run(
            "insert_run",
            root=root,
            procedure=procedure,
            state=birth.target,
            version=len(birth.edges),
            event=birth.event,
            params=params,
            plan=plan,
            lease=lease,
            grant_id=grant_id,
            **self._signature(actor, reason),
        )
        return int(rows[0][0]) if rows else None

    def move_run(
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
        return self._moved(
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
        """Note how far a run has come, and what went wrong last; return False if it is no longer in its state."""
        now = self._store.time_parameter()
        return bool(self._run("reach_step", run_id=run.run_id, step=number, state=run.state, failure=failure, now=now))

    def perform_step(
        self, run_id: int, number: int, name: str, outcome: str, *, actor: str, reason: str | None = None
    ) -> int:
        """Record that a step was performed, and what came of it."""
        birth = STEP.path("perform", None)
        [[step_id]] = self._run(
            "insert_step",
            run_id=run_id,
            number=number,
            name=name,
            state=birth.target,
            version=len(birth.edges),
            event=birth.event,
            outcome=outcome,
            **self._signature(actor, reason),
        )
        return int(step_id)

    def undo_step(self, step: PerformedStep, *, actor: str, reason: str | None = None) -> Move | Refused:
        """Record that a step was undone, matching id, state and version."""
        return self._moved(
            "move_step",
            STEP,
            step,
            StepEvent("undo"),
            f"step {step.name}",
            step_id=step.step_id,
            **self._signature(actor, reason),
        )

    # -- switches, approvers, evidence --------------------------------------------------------------------------------

    def throw_switch(self, name: str, *, actor: str, reason: str) -> bool:
        """Throw a switch; return False if it was on already."""
        birth = SWITCH.path("throw", None)
        rows = self._run(
            "insert_switch",
            name=name,
            state=birth.target,
            version=len(birth.edges),
            event=birth.event,
            **self._signature(actor, reason),
        )
        return bool(rows)

    def lift_switch(
        self, switch: Switch, *, grant_id: int | None, actor: str, reason: str, move_id: str
    ) -> Move | Refused:
        """Lift a switch under a grant that the same move has consumed, matching id, state and version."""
        return self._moved(
            "move_switch",
            SWITCH,
            switch,
            SwitchEvent("lift", grant_id),
            f"the switch {switch.name}",
            switch_id=switch.switch_id,
            grant_id=grant_id,
            **self._signature(actor, reason, move_id),
        )

    def lock_approvers(self) -> None:
        """Let nobody else register or revoke an approver until this transaction ends."""
        self._run("lock_approvers")

    def add_approver(self, name: str, public_key: str, *, actor: str, reason: str, grant_id: int | None) -> bool:
        """Register somebody who may approve; return False if the name is taken."""
        now = self._store.time_parameter()
        rows = self._run(
            "add_approver", name=name, public_key=public_key, actor=actor, reason=reason, grant_id=grant_id, now=now
        )
        return bool(rows)

    def revoke_approver(self, name: str, *, actor: str) -> bool:
        """Let somebody approve no more; return False if there was nobody."""
        return bool(self._run("revoke_approver", name=name, actor=actor, now=self._store.time_parameter()))

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
        """Keep what an act leaves behind, once for each kind of a run; None if that is kept already."""
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
        """Declare the evidence of a run void; return how much there was."""
        return len(self._run("void_evidence", run_id=run_id, now=self._store.time_parameter()))
