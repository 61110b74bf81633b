"""`holdfast repair`: plans the repair of a broken ledger, and applies a plan by its digest.

Invariants: nothing is changed without the digest of a plan, an operator, a reason and a grant for that plan; in a dev
ledger the grant is created automatically.
"""

from typing import Annotated, Any

import msgspec

from holdfast.audit.repair.record import RepairAct
from holdfast.audit.repair.repair import RepairReport, plan
from holdfast.audit.repair.repair import repair as carry_out
from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.declare import option
from holdfast.cli.options import ID_MAX
from holdfast.cli.text import Column
from holdfast.core.authority import Act
from holdfast.core.environments import DEV
from holdfast.core.errors import InputError
from holdfast.governance.approval import environment_of
from holdfast.governance.grants import permission

Apply = Annotated[str | None, option("--apply", metavar="DIGEST", help="Apply the plan with this digest.")]
Operator = Annotated[
    str | None,
    option("--operator", metavar="NAME", help="Name of the person who repairs; required with --apply."),
]
Reason = Annotated[
    str | None, option("--reason", metavar="TEXT", help="Reason; stored in the journal; required with --apply.")
]
Grant = Annotated[
    int | None, option("--grant", metavar="ID", min=1, max=ID_MAX, help="Id of the grant; not needed in dev.")
]
TARGET = "ledger"


@command(Location.unopened)
def repair(
    location: Location,
    *,
    apply: Apply = None,
    operator: Operator = None,
    reason: Reason = None,
    grant: Grant = None,
) -> Answer:
    """Plan the repair of a broken ledger, and apply the plan.

    Without --apply nothing is changed: the plan is made in one transaction that is rolled back.
    """
    if apply is not None and not (operator and reason):
        raise InputError(
            "--operator and --reason are required with --apply.", next_step="Add --operator NAME and --reason TEXT."
        )
    # Not verified, so that dropped triggers can be repaired.
    with location.connect() as store:
        if apply is None:
            done = plan(store)
            with store.reading() as reading:
                governed = environment_of(reading) != DEV
        else:
            done = _carried_out(store, apply, operator or "", reason or "", grant)
            governed = False
    pending = done.left or (done.acts and not done.applied)
    return Answer(_value(done), lambda: _print(done, governed=governed), 1 if pending else 0)


def _carried_out(store: Any, digest: str, operator: str, reason: str, grant: int | None) -> RepairReport:
    permit = permission(Act.REPAIR, TARGET, executor=operator, reason=reason, plan=digest, grant_id=grant)
    return carry_out(store, operator=operator, reason=reason, expected=digest, permit=permit)


def _value(done: RepairReport) -> dict[str, object]:
    return {
        "ok": done.ok and (done.applied or not done.acts),
        "applied": done.applied,
        "digest": done.digest,
        "violations": [msgspec.to_builtins(violation) for violation in done.violations],
        "repairs": [_shown(act) for act in done.acts],
        "left": [msgspec.to_builtins(violation) for violation in done.left],
        "given_up": [msgspec.to_builtins(one) for one in done.given_up],
    }


def _shown(act: RepairAct) -> dict[str, object]:
    """Return an act without payload and result; the journal keeps them."""
    before = {name: value for name, value in (act.before or {}).items() if name not in ("payload", "result", "value")}
    return {**msgspec.to_builtins(act), "before": before if act.before is not None else None}


def _print(done: RepairReport, *, governed: bool) -> None:
    if not done.acts and not done.left:
        output.line("Nothing to repair.")
        return
    if done.acts:
        output.table(
            [Column("SUBJECT"), Column("ACTION"), Column("NEW VALUES", folds=True), Column("WHY", folds=True)],
            [(act.subject, act.kind, _after(act), act.why) for act in done.acts],
            title="Repairs made" if done.applied else "Planned repairs",
        )
    if done.left:
        output.table(
            [Column("SUBJECT"), Column("INVARIANT"), Column("DETAIL", folds=True)],
            [(violation.subject, violation.invariant, violation.detail) for violation in done.left],
            title="Cannot be repaired",
        )
        if done.given_up:
            output.table(
                [Column("SUBJECT"), Column("WHY", folds=True), Column("TO RESTORE", folds=True)],
                [(one.subject, one.why, one.restore) for one in done.given_up],
                title="Not changed",
            )
        output.line(
            "Restore a snapshot into another database and compare: `holdfast snapshot restore`, `snapshot diff`."
        )
    if done.acts and not done.applied:
        output.line("Nothing has been changed. To apply the plan:")
        if governed:
            wanted = f"{Act.REPAIR} {TARGET} --plan {done.digest}"
            output.line(f"  holdfast grant request {wanted} --executor NAME --rollback-plan TEXT --reason TEXT")
        output.line(f"  holdfast repair --apply {done.digest} --operator NAME --reason TEXT{' --grant ID' * governed}")


def _after(act: RepairAct) -> str:
    shown = {name: value for name, value in act.after.items() if name not in ("reason", "updated_at", "created_at")}
    return ", ".join(f"{name}={'null' if value is None else value}" for name, value in shown.items())
