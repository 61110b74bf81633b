"""The request for a run: its identity, its lease, who requests it, why, and under which grant.

Invariants: a request is checked completely before anything is written; nothing here touches a ledger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.core.errors import IdempotencyConflictError, PlanStaleError

if TYPE_CHECKING:
    from holdfast.core.authority import Wanted
    from holdfast.core.governed import ProcedureRun


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A requested run, of a procedure or of a replay."""

    root: str  # the idempotency root: the same root is the same run
    procedure: str
    params_text: str  # canonical JSON
    plan: str  # the digest of what the run does
    target: str  # the name of its lease
    lease_s: float
    holder: str  # of the lease
    actor: str
    reason: str
    grant_id: int | None  # that the actor named

    @property
    def resume_command(self) -> str:
        """Return the command that continues the run."""
        return f"holdfast procedure resume {self.root}"

    def wanted(self, environment: str) -> Wanted | None:  # noqa: ARG002 - of a run that needs none
        """Return what the grant of the run must permit, or None if the run needs no grant."""
        return None

    def require_same(self, run: ProcedureRun) -> None:
        """Raise unless the run that the root has is the requested one."""
        if (run.procedure, run.params) != (self.procedure, self.params_text):
            raise IdempotencyConflictError(
                f"root {self.root!r} was used for a run of {run.procedure!r} with other parameters or another name",
                next_step="Use a new root for a new run, or repeat the first request exactly.",
                context={"root": self.root, "procedure": run.procedure},
            )
        if (run.plan, run.lease) != (self.plan, self.target):
            raise PlanStaleError(
                f"run {self.root!r} began with other steps or another version of {run.procedure!r}",
                next_step="Finish it with that version, or begin a new run under another root.",
                context={"root": self.root},
            )
