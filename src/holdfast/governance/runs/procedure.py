"""Procedures: several steps, each one transaction, that end done, or in a named stop with everything undone.

A `Procedure` is declared by its steps; `run` performs it under an idempotency root, `resume` continues it, and `undo`
undoes it. First come the checks, which only read; then one transaction takes the lease, consumes the grant and records
the run; then comes each step: guard, action, verify, record. After a failure the performed steps are
undone, last first.

Invariants: a performed step is never performed again; a run that cannot begin has written nothing; a dry run writes
nothing; after a failure only the compensation continues, which is recorded, and can itself fail and be resumed. A
request is checked in one order: the mode, the root, the actor, the reason, the parameters; then that the root has no
other run; then the checks, the lease and the grant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.digest import Json
from holdfast.core.errors import GovernanceError, InputError
from holdfast.core.guarded import guarded
from holdfast.engine.world import World
from holdfast.governance.runs.procedure_runner import ProcedureRunner
from holdfast.governance.runs.runner import required
from holdfast.governance.runs.steps import Mode, Procedure, ProcedureReport, request_of

if TYPE_CHECKING:
    from holdfast.store import Store

BAD_MODE = "REJECT_BAD_MODE"

BUILT_IN: dict[str, str] = {
    "registry.build": "holdfast.governance.registry.build:BUILD",
    "registry.dismantle": "holdfast.governance.registry.dismantle:DISMANTLE",
}
"""The built-in procedures: by name, where each is, as module:attribute."""


@guarded
def run(
    store: Store[Any],
    what: Procedure,
    params: Mapping[str, Json],
    *,
    root: str,
    actor: str,
    reason: str,
    mode: Mode = Mode.DRY_RUN,
    grant_id: int | None = None,
    world: World | None = None,
) -> ProcedureReport:
    """Run a procedure under a root, or continue the run that the root has; by default as a dry run.

    Raise GovernanceError, AuthorityError, RuntimeLeaseError, IdempotencyConflictError, PlanStaleError or InputError.
    """
    if mode not in tuple(Mode):
        raise GovernanceError(
            f"unknown mode {mode!r}",
            code=BAD_MODE,
            next_step=f"Use one of {', '.join(Mode)}.",
            context={"field": "mode"},
        )
    request = request_of(what, params, root=root, actor=actor, reason=reason, grant_id=grant_id)
    runner = ProcedureRunner(store, request, Mode(mode), world or World())
    return {
        Mode.PLAN_ONLY: runner.plan,
        Mode.VERIFY_ONLY: runner.verify,
        Mode.DRY_RUN: runner.dry_run,
        Mode.REAL_RUN: runner.real_run,
    }[Mode(mode)]()


@guarded
def resume(
    store: Store[Any],
    what: Procedure,
    *,
    root: str,
    actor: str,
    reason: str,
    grant_id: int | None = None,
    world: World | None = None,
) -> ProcedureReport:
    """Continue a run that was interrupted or stopped: finish its compensation, or perform its first open step."""
    params = _params_of(store, what, root)
    request = request_of(what, params, root=root, actor=actor, reason=reason, grant_id=grant_id)
    return ProcedureRunner(store, request, Mode.REAL_RUN, world or World()).real_run()


@guarded
def undo(
    store: Store[Any], what: Procedure, *, root: str, actor: str, reason: str, world: World | None = None
) -> ProcedureReport:
    """Undo a run that was interrupted, instead of continuing it."""
    params = _params_of(store, what, root)
    request = request_of(what, params, root=root, actor=actor, reason=reason, grant_id=None)
    return ProcedureRunner(store, request, Mode.REAL_RUN, world or World()).undo()


run_procedure, resume_procedure, undo_procedure = run, resume, undo  # their names in the package


def _params_of(store: Store[Any], what: Procedure, root: str) -> dict[str, Json]:
    with store.reading() as reading:
        known = required(reading.runs.get(root), root)
    if known.procedure != what.name:
        raise InputError(f"{root!r} is a run of {known.procedure!r}", context={"procedure": known.procedure})
    params: dict[str, Json] = msgspec.json.decode(known.params)
    return params
