"""What a procedure is, what a run of one is asked for, and what it answers.

Invariants: every step of a procedure has a name of its own, and a named stop for its failure; what a run would do is
one digest over the procedure's name, version, steps and parameters; what is asked for is checked whole before anything
else happens; nothing here touches a ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.authority import Act, Wanted, require_words
from holdfast.core.digest import Json, cser_digest, payload_text
from holdfast.core.errors import EffectError, HoldfastError, IdempotencyConflictError, InputError, PlanStaleError
from holdfast.engine.failures import error_message
from holdfast.store.effects import staged
from holdfast.store.transaction import Transaction

if TYPE_CHECKING:
    from holdfast.core.records import ProcedureRun

LEASE_S = 300.0
GO, DONE = "GO", "DONE"  # verdicts
NOT_NEEDED, NOT_ASKED = "NOT_NEEDED", "NOT_ASKED"  # words of the grant, beside GO and the REJECT_AUTH_* codes
_READS = ("SELECT", "WITH", "VALUES")


# ---------------------------------------------------------------------------------------------------------------------
# What a procedure is


class Mode(StrEnum):
    """How far a run may go."""

    PLAN_ONLY = "PLAN_ONLY"
    VERIFY_ONLY = "VERIFY_ONLY"
    DRY_RUN = "DRY_RUN"
    REAL_RUN = "REAL_RUN"


class StepFailed(Exception):
    """Raised by a step, a guard or a check that finds things not as they must be."""


class StepContext(msgspec.Struct, frozen=True):
    """Where a step finds itself: the transaction it may write in, and what it may know."""

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
        """Write into tables of the caller's own, in the step's transaction."""
        if not isinstance(self.transaction, Transaction):
            raise EffectError("a check only reads", next_step="Write in a step: it has a transaction of its own.")
        self.transaction.apply([staged(sql, params, rows)])

    def query(self, sql: str, params: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        """Read from any table, in the step's transaction."""
        words = sql.split(None, 1)
        if not words or words[0].upper() not in _READS:
            raise EffectError(
                "a query reads: it begins with SELECT, WITH or VALUES",
                next_step="Write with `at.effect(…)`.",
                context={"statement": sql[:80]},
            )
        names, rows = self.transaction.ask(sql, params or {})
        return [dict(zip(names, row, strict=True)) for row in rows]


class Step(msgspec.Struct, frozen=True):
    """One step: what it does, what must be true before and after, how it is undone, and where its failure stops.

    A step without `compensate` leaves nothing that would have to be undone.
    """

    name: str
    action: Callable[[StepContext], Json]
    stop: str
    guard: Callable[[StepContext], None] | None = None
    verify: Callable[[StepContext], None] | None = None
    compensate: Callable[[StepContext], None] | None = None


class Procedure(msgspec.Struct, frozen=True, kw_only=True):
    """A named sequence of steps. `checks` only read, and come before anything is written."""

    name: str
    version: str
    steps: tuple[Step, ...]
    checks: tuple[Step, ...] = ()
    reserve: str = "S1_RESERVED"  # the step that takes the lease and consumes the grant
    act: Act | None = None  # what its grant is for; None if it needs none
    lease_s: float = LEASE_S  # how long a run that was interrupted keeps its target to itself
    target: Callable[[Mapping[str, Json]], str] | None = None
    manifest: Callable[[Mapping[str, Json]], str] | None = None

    def __post_init__(self) -> None:
        names = self.names
        words = [self.name, self.version, *names, *(step.stop for step in (*self.checks, *self.steps))]
        if not self.steps or len(set(names)) != len(names) or not all(word.strip() for word in words):
            raise InputError(
                f"the procedure {self.name!r} needs a name, a version and steps, each with a name and a stop of its own"
            )
        if not self.lease_s > 0:
            raise InputError(f"the lease of {self.name!r} must last some time", context={"field": "lease_s"})

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all steps, in order."""
        return (*(step.name for step in self.checks), self.reserve, *(step.name for step in self.steps))

    @property
    def first(self) -> int:
        """Return the number of the step that reserves; those before it only read."""
        return len(self.checks)

    def numbered(self) -> dict[int, Step]:
        """Return the steps by number; the one that reserves is the engine's own, and is not among them."""
        return {
            **dict(enumerate(self.checks)),
            **dict(enumerate(self.steps, start=self.first + 1)),
        }

    def target_of(self, params: Mapping[str, Json]) -> str:
        """Return what a run with these parameters acts on: the name of its lease, and the target of its grant."""
        return self.target(params) if self.target else f"procedure:{self.name}"

    def plan_of(self, params: Mapping[str, Json]) -> str:
        """Return the digest of what a run with these parameters would do."""
        return plan_digest(self.name, self.version, self.names, params)

    def wanted(self, params: Mapping[str, Json], environment: str, executor: str) -> Wanted | None:
        """Return what a grant for a run with these parameters must permit; None if it needs no grant."""
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
    """Return the digest of a plan: which steps of which version of a procedure, with which parameters."""
    return cser_digest({"procedure": name, "version": version, "steps": list(steps), "params": dict(params)})


def procedure(
    name: str, *, version: str = "1.0.0", governed: bool = False, **settings: Any
) -> Callable[[Callable[[], Iterable[Step]]], Procedure]:
    """Declare a procedure from a function that yields its steps; `governed` means that a run needs a grant."""
    act = Act.PROCEDURE if governed else None

    def declare(steps: Callable[[], Iterable[Step]]) -> Procedure:
        return Procedure(name=name, version=version, act=act, steps=tuple(steps()), **settings)

    return declare


# ---------------------------------------------------------------------------------------------------------------------
# What a run is asked for


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A run that somebody wants: what is to be done to what, by whom, why, and under which grant."""

    what: Procedure
    params: Mapping[str, Json]
    params_text: str
    plan: str
    target: str
    manifest: str | None
    root: str
    actor: str
    reason: str
    grant_id: int | None

    @property
    def holder(self) -> str:
        """Return who holds the lease: somebody with a root, so that a process that died can be followed at once."""
        return f"{self.actor}/{self.root}"

    def wanted(self, environment: str) -> Wanted | None:
        """Return what a grant must permit; None if the run needs none."""
        return self.what.wanted(self.params, environment, self.actor)

    def require_same(self, known: ProcedureRun) -> None:
        """Refuse to go on with a run that is not the one that is asked for."""
        if (known.procedure, known.params) != (self.what.name, self.params_text):
            raise IdempotencyConflictError(
                f"the root {self.root!r} was used for another run, of {known.procedure!r}",
                next_step="Use a new root for a new run, or give exactly what was given first.",
                context={"root": self.root, "procedure": known.procedure},
            )
        if (known.plan, known.lease) != (self.plan, self.target):
            raise PlanStaleError(
                f"the run {self.root!r} was begun with other steps, or another version, of {known.procedure!r}",
                next_step="Finish it with the version that began it, or begin anew under another root.",
                context={"root": self.root},
            )


def request_of(
    what: Procedure, params: Mapping[str, Json], *, root: str, actor: str, reason: str, grant_id: int | None
) -> RunRequest:
    """Return what is asked for, or raise a typed error that says what is wrong with it."""
    given: dict[str, object] = {"root": root, "actor": actor, "reason": reason}
    for name, word in given.items():
        if not isinstance(word, str):
            raise InputError(f"the {name} is missing", context={"field": name})
        require_words(**{name: word})
    if not isinstance(params, Mapping):
        raise InputError("the parameters of a run are an object", context={"field": "params"})
    text = payload_text(dict(params))
    plain = msgspec.json.decode(text)
    try:
        target, manifest = what.target_of(plain), what.manifest(plain) if what.manifest else None
        require_words(target=target)
    except HoldfastError:
        raise
    except Exception as error:
        told = f"the parameters do not fit {what.name}: {error_message(error)}"
        raise InputError(told, context={"field": "params"}) from error
    return RunRequest(
        what=what,
        params=plain,
        params_text=text,
        plan=what.plan_of(plain),
        target=target,
        manifest=manifest,
        root=root,
        actor=actor,
        reason=reason,
        grant_id=grant_id,
    )


# ---------------------------------------------------------------------------------------------------------------------
# What a run says


class StepReport(msgspec.Struct, frozen=True):
    """What became of one step: open, performed, skipped (it stood already), failed, undone, stuck, passed."""

    name: str
    fate: str
    outcome: Json = None


class ProcedureReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did, or would do."""

    procedure: str
    root: str
    mode: Mode
    state: str  # of the run: a ProcedureState, or "none" if there is none on record
    verdict: str  # GO, DONE, or the stop state
    stop_state: str | None = None
    failure: str | None = None
    steps: tuple[StepReport, ...] = ()
    plan: str
    manifest: str | None = None
    authority: str = NOT_NEEDED  # GO, NOT_NEEDED, NOT_ASKED, or a REJECT_AUTH_* code
    persistent_state: str = "NONE"  # NONE, or RECORDED
    seal: str = "WITHHELD_DRY_RUN"  # WITHHELD_DRY_RUN, or the next seal of the journal covers it: JOURNALLED
    counts: dict[str, int] = msgspec.field(default_factory=dict)  # how many steps met each fate
    target: str = ""
    grant_id: int | None = None

    @property
    def ok(self) -> bool:
        """Tell whether the run is done, or would be."""
        return self.verdict in (GO, DONE)
