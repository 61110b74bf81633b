"""Procedures and their steps, requests for a run, and the report of a run.

Invariants: every step of a procedure has its own name, and a named stop for its failure; the plan of a run is one
digest over the procedure's name, version, steps and parameters; a request is checked completely before anything else
happens; nothing here touches a ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.core.arguments import refuse_unfit
from holdfast.core.authority import Act, Wanted, require_words
from holdfast.core.digest import Json, cser_digest, payload_text
from holdfast.core.errors import EffectError, HoldfastError, InputError
from holdfast.core.guarded import GuardedMeta, guarded
from holdfast.engine.error_texts import error_message
from holdfast.governance.runs.request import RunRequest
from holdfast.store.effects import staged
from holdfast.store.transaction import Transaction

LEASE_S = 300.0
GO, DONE = "GO", "DONE"  # verdicts
NOT_NEEDED, NOT_ASKED = "NOT_NEEDED", "NOT_ASKED"  # of the grant, beside GO and the REJECT_AUTH_* codes
_READS = ("SELECT", "WITH", "VALUES")


# ---------------------------------------------------------------------------------------------------------------------
# Procedures


class Mode(StrEnum):
    """How far a run may go."""

    PLAN_ONLY = "PLAN_ONLY"
    VERIFY_ONLY = "VERIFY_ONLY"
    DRY_RUN = "DRY_RUN"
    REAL_RUN = "REAL_RUN"


class StepFailed(Exception):
    """Raise it in a step, a guard or a check to fail the step."""


class StepContext(msgspec.Struct, frozen=True):
    """What a step gets: its transaction, the parameters, and the outcomes of the steps before."""

    transaction: Any  # a Transaction; in checks and in VERIFY_ONLY a Reading
    root: str
    params: Mapping[str, Json]
    outcomes: Mapping[str, Json]  # of the steps before, by name
    actor: str
    reason: str
    run_id: int | None  # None before the run is recorded
    grant_id: int | None
    dry: bool

    def effect(self, sql: str, params: Mapping[str, Json] | None = None, *, rows: int | None = None) -> None:
        """Write to the caller's own tables, in the transaction of the step; raise EffectError in a check."""
        if not isinstance(self.transaction, Transaction):
            raise EffectError("a check must not write", next_step="Write in a step.")
        self.transaction.apply([[staged(sql, params, rows)]])

    def query(self, sql: str, params: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        """Read from any table, in the transaction of the step; raise EffectError unless the statement only reads."""
        words = sql.split(None, 1)
        if not words or words[0].upper() not in _READS:
            raise EffectError(
                "a query must begin with SELECT, WITH or VALUES",
                next_step="Write with `context.effect(…)`.",
                context={"statement": sql[:80]},
            )
        names, rows = self.transaction.query(sql, params or {})
        return [dict(zip(names, row, strict=True)) for row in rows]


class Step(msgspec.Struct, frozen=True, metaclass=GuardedMeta):
    """One step: its action, what must be true before and after, how it is undone, and the name of its stop.

    A step without `compensate` needs no undoing.
    """

    name: str
    action: Callable[[StepContext], Json]
    stop: str
    guard: Callable[[StepContext], None] | None = None
    verify: Callable[[StepContext], None] | None = None
    compensate: Callable[[StepContext], None] | None = None


class Procedure(msgspec.Struct, frozen=True, kw_only=True, metaclass=GuardedMeta):
    """A named sequence of steps. Its `checks` only read, and come first."""

    name: str
    version: str
    steps: tuple[Step, ...]
    checks: tuple[Step, ...] = ()
    reserve: str = "S1_RESERVED"  # the step that takes the lease and consumes the grant
    act: Act | None = None  # what its grant must permit; None: it needs no grant
    lease_s: float = LEASE_S  # how long an interrupted run keeps other actors from its target
    target: Callable[[Mapping[str, Json]], str] | None = None
    manifest: Callable[[Mapping[str, Json]], str] | None = None

    def __post_init__(self) -> None:
        names = self.names
        words = [self.name, self.version, *names, *(step.stop for step in (*self.checks, *self.steps))]
        if not self.steps or len(set(names)) != len(names) or not all(word.strip() for word in words):
            raise InputError(
                f"procedure {self.name!r} needs a name, a version and steps, and each step its own name and a stop"
            )
        if not self.lease_s > 0:
            raise InputError(f"lease_s of procedure {self.name!r} must be above 0", context={"field": "lease_s"})

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all steps, in order."""
        return (*(step.name for step in self.checks), self.reserve, *(step.name for step in self.steps))

    @property
    def first(self) -> int:
        """Return the number of the step that reserves; the checks before it only read."""
        return len(self.checks)

    def numbered(self) -> dict[int, Step]:
        """Return the steps by number, without the one that reserves, which belongs to the engine."""
        return {
            **dict(enumerate(self.checks)),
            **dict(enumerate(self.steps, start=self.first + 1)),
        }

    def target_of(self, params: Mapping[str, Json]) -> str:
        """Return the target of a run with these parameters: the name of its lease, and the target of its grant."""
        return self.target(params) if self.target else f"procedure:{self.name}"

    def plan_of(self, params: Mapping[str, Json]) -> str:
        """Return the plan of a run with these parameters, as a digest."""
        return plan_digest(self.name, self.version, self.names, params)

    def wanted(self, params: Mapping[str, Json], environment: str, executor: str) -> Wanted | None:
        """Return what a grant for a run with these parameters must permit, or None if it needs no grant."""
        if self.act is None:
            return None
        return Wanted(
            act=self.act,
            target=self.target_of(params),
            environment=environment,
            executor=executor,
            actions=self.names,
            plan=self.plan_of(params),
            manifest=self.manifest(params) if self.manifest else None,
        )


def plan_digest(name: str, version: str, steps: Iterable[str], params: Mapping[str, Json]) -> str:
    """Return the digest of a plan: the name, version and steps of a procedure, and the parameters."""
    return cser_digest({"procedure": name, "version": version, "steps": list(steps), "params": dict(params)})


def procedure(
    name: str, *, version: str = "1.0.0", governed: bool = False, **settings: Any
) -> Callable[[Callable[[], Iterable[Step]]], Procedure]:
    """Declare a procedure from a function that yields its steps; `governed` means that a run needs a grant."""
    act = Act.PROCEDURE if governed else None

    refuse_unfit("name", name, "str")
    refuse_unfit("version", version, "str")

    @guarded
    def declare(steps: Callable[[], Iterable[Step]]) -> Procedure:
        refuse_unfit("steps", steps, "Callable")
        made = steps()
        refuse_unfit("steps", made, "Iterable")
        found = tuple(made)
        for step in found:
            refuse_unfit("step", step, "Step")
        return Procedure(name=name, version=version, act=act, steps=found, **settings)

    return declare


# ---------------------------------------------------------------------------------------------------------------------
# Requests


class ProcedureRequest(RunRequest, frozen=True, kw_only=True):
    """A requested run of a procedure."""

    what: Procedure
    params: Mapping[str, Json]
    manifest: str | None

    def wanted(self, environment: str) -> Wanted | None:
        """Return what the grant of the run must permit, or None if the run needs no grant."""
        return self.what.wanted(self.params, environment, self.actor)


def request_of(
    what: Procedure, params: Mapping[str, Json], *, root: str, actor: str, reason: str, grant_id: int | None
) -> ProcedureRequest:
    """Return a checked request, or raise InputError."""
    given: dict[str, object] = {"root": root, "actor": actor, "reason": reason}
    for name, word in given.items():
        if not isinstance(word, str):
            raise InputError(f"{name} is required", context={"field": name})
        require_words(**{name: word})
    if not isinstance(params, Mapping):
        raise InputError("the parameters of a run must be an object", context={"field": "params"})
    text = payload_text(dict(params))
    plain = msgspec.json.decode(text)
    try:
        target, manifest = what.target_of(plain), what.manifest(plain) if what.manifest else None
        require_words(target=target)
    except HoldfastError:
        raise
    except Exception as error:
        message = f"the parameters do not fit {what.name}: {error_message(error)}"
        raise InputError(message, context={"field": "params"}) from error
    return ProcedureRequest(
        what=what,
        params=plain,
        manifest=manifest,
        root=root,
        procedure=what.name,
        params_text=text,
        plan=what.plan_of(plain),
        target=target,
        lease_s=what.lease_s,
        holder=f"{actor}/{root}",  # the same actor can continue the run at once if its process has crashed
        actor=actor,
        reason=reason,
        grant_id=grant_id,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Reports


class StepReport(msgspec.Struct, frozen=True):
    """The fate of one step: open, performed, skipped (performed before), failed, undone, stuck, passed."""

    name: str
    fate: str
    outcome: Json = None


class ProcedureReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did, or what it would do."""

    procedure: str
    root: str
    mode: Mode
    state: str  # of the run: a ProcedureState, or "none" without a recorded run
    verdict: str  # GO, DONE, or the stop state
    stop_state: str | None = None
    failure: str | None = None
    steps: tuple[StepReport, ...] = ()
    plan: str
    manifest: str | None = None
    authority: str = NOT_NEEDED  # GO, NOT_NEEDED, NOT_ASKED, or a REJECT_AUTH_* code
    persistent_state: str = "NONE"  # NONE, or RECORDED
    seal: str = "WITHHELD_DRY_RUN"  # WITHHELD_DRY_RUN, or JOURNALLED: the next seal of the journal covers it
    counts: dict[str, int] = msgspec.field(default_factory=dict)  # steps by fate
    target: str = ""
    grant_id: int | None = None

    @property
    def ok(self) -> bool:
        """Return whether the run is done, or would be."""
        return self.verdict in (GO, DONE)
