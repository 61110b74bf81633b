"""The reservation of a run of a procedure: the one transaction that takes the lease, the grant and the record.

Invariants: lease, grant and record are taken together, or none of them; if a run has left its target unfinished, no
other run begins on it; the outcome of a reservation lists the steps of the run.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.core.authority import Rejected
from holdfast.core.digest import Json, canonical
from holdfast.core.errors import GovernanceError
from holdfast.core.machines import ProcedureState
from holdfast.governance.approval import environment_of
from holdfast.governance.grants import verdict_on
from holdfast.governance.runs.runner import Runner, RunOvertaken
from holdfast.governance.runs.steps import GO, NOT_ASKED, NOT_NEEDED, ProcedureRequest

if TYPE_CHECKING:
    from holdfast.core.governed import ProcedureRun
    from holdfast.store.transaction import Reading, Transaction


class Reservation:
    """What one attempt at a run of a procedure reserves."""

    def __init__(self, runner: Runner, request: ProcedureRequest) -> None:
        self._runner, self._request = runner, request
        self.authority = NOT_NEEDED if request.what.act is None else NOT_ASKED

    def look(self, reading: Reading, run: ProcedureRun | None) -> None:
        """Find out whether a grant permits the run; nothing is consumed."""
        wanted = self._request.wanted(environment_of(reading))
        if wanted is None:
            return
        if run is not None and not self._runner.needs_grant(reading, run, governed=True):
            self.authority = GO
            return
        verdict = verdict_on(reading, wanted, self._request.grant_id)
        self.authority = str(verdict.code) if isinstance(verdict, Rejected) else GO

    def _needs_grant(self, reading: Reading, run: ProcedureRun) -> bool:
        return self._request.what.act is not None and self._runner.needs_grant(reading, run, governed=True)

    def is_due(self, reading: Reading, run: ProcedureRun | None) -> bool:
        """Return whether the run must begin, begin again, or be taken over, before anything else."""
        if run is None or run.state == ProcedureState.STOPPED:
            return True
        return run.state == ProcedureState.RUNNING and self._needs_grant(reading, run)

    def make(
        self, transaction: Transaction, seen: ProcedureRun | None, outcomes: Mapping[str, Json], *, dry: bool
    ) -> ProcedureRun:
        """Take the lease, consume the grant and record the run with the outcomes of its checks; return the run.

        Raise RunOvertaken if the run is not as it was seen.
        """
        runner = self._runner
        runner.acquire(transaction)
        if _place(transaction.runs.get(self._request.root)) != _place(seen):
            raise RunOvertaken
        self._refuse_unfinished(transaction)
        if seen is None:
            run = runner.begin(transaction, self._consumed(transaction, dry=dry))
        else:
            # Without a fresh grant the run continues under its own.
            fresh = self._consumed(transaction, dry=dry) if self._needs_grant(transaction, seen) else None
            run = self._taken_up(transaction, seen, fresh)
        self._record(transaction, run, outcomes)
        return run

    def _refuse_unfinished(self, transaction: Transaction) -> None:
        other = transaction.runs.unfinished(self._request.target, self._request.root)
        if other is not None:
            root = other.idempotency_root
            raise GovernanceError(
                f"run {root!r} left {self._request.target} unfinished: it is {other.state}",
                code="run_unfinished",
                next_step=f"Finish it: `holdfast procedure resume --reason TEXT {shlex.quote(root)}`, or undo it:"
                f" `holdfast procedure undo --reason TEXT {shlex.quote(root)}`.",
                context={"lease": self._request.target, "root": root},
            )

    def _consumed(self, transaction: Transaction, *, dry: bool) -> int | None:
        wanted = self._request.wanted(environment_of(transaction))
        if wanted is None:
            return None
        if dry:
            self.look(transaction, None)
        return self._runner.consume(transaction, wanted, dry=dry)

    def _taken_up(self, transaction: Transaction, run: ProcedureRun, grant_id: int | None) -> ProcedureRun:
        request = self._request
        if run.state == ProcedureState.RUNNING and grant_id is not None:
            reason = f"taken over by {request.actor}: {request.reason}"
            run = self._runner.move(transaction, run, "abort", reason=reason)
        if run.state == ProcedureState.STOPPED:
            run = self._runner.move(transaction, run, "resume", grant_id=grant_id)
        return run

    def _record(self, transaction: Transaction, run: ProcedureRun, outcomes: Mapping[str, Json]) -> None:
        """Record the checks and the reservation as performed; the outcome of the reservation lists the steps."""
        what = self._request.what
        performed = transaction.runs.performed_steps(run.run_id)
        kept = {**outcomes, what.reserve: {"version": what.version, "steps": list(what.names)}}
        for number, name in enumerate(what.names[: what.first + 1]):
            if number not in performed:
                self._runner.record(transaction, run, number, name, canonical(kept.get(name)))
        transaction.runs.reach_step(run, what.first)


def _place(run: ProcedureRun | None) -> tuple[str, int] | None:
    return (run.state, run.version) if run else None
