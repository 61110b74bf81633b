"""The limits of replay in each environment, and the guards that enforce them.

A guard checks a selection against the ledger. It passes or refuses, with a `guard_type`, a message and a next step.

Invariants: guards only read; all of them are evaluated, so that a dry run shows every one that would refuse; the
policy, with everything that was overridden in it, is stored with the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.environments import DEV, PROD, STAGE
from holdfast.core.errors import ReplayGuardError
from holdfast.core.selection import Limits, Selection, Window
from holdfast.core.spans import counted
from holdfast.governance.approval import environment_of
from holdfast.governance.replay.pace import strain

if TYPE_CHECKING:
    from holdfast.governance.replay.candidates import Candidates
    from holdfast.store.transaction import Reading

PROCEDURE = "replay"
SWITCH = "replay"
RUNS_SEEN = 1000


class GuardType(StrEnum):
    """Which guard refuses a replay."""

    SCOPE_TOO_BROAD = "scope_too_broad"
    SELECTION_TOO_LARGE = "selection_too_large"
    ATTEMPTS_EXCEEDED = "attempts_exceeded"
    KILL_SWITCH_ACTIVE = "kill_switch_active"
    ENV_MISMATCH = "env_mismatch"
    SLO_RISK = "slo_risk"


class GuardVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one guard says of a replay: passed or refused, and the next step."""

    guard_type: GuardType
    passed: bool
    message: str
    next_step: str | None = None

    def error(self) -> ReplayGuardError:
        """Return the error to raise if this guard refuses."""
        return ReplayGuardError(
            self.message,
            code=self.guard_type,
            next_step=self.next_step,
            context={"guard_type": str(self.guard_type)},
        )


class ReplayPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of replay. The policy of a run is stored with it."""

    environment: str
    max_selection_records: int
    batch_size: int
    max_batch_size: int
    max_batches: int
    max_records_per_second: float
    max_batches_per_minute: float
    backfill_records_per_second: float  # a backfill has its own, lower rate
    grant_above: int  # a run of more jobs needs a grant; 0: every run does
    allow_global_replay: bool = False  # permits a selection without queues, operations and jobs
    bounded_window: bool = False  # requires a time window with both ends
    allow_ignoring_switches: bool = False  # permits `respect_kill_switch: false`
    allow_downgrade: bool = False  # permits a lower version of the operation than the job was submitted with
    allow_same_version: bool = False  # permits to replace a succeeded job by the same version of its operation
    never_queues: tuple[str, ...] = ()
    never_errors: tuple[str, ...] = ()
    max_runs: int = 4  # in flight at a time
    max_runs_per_queue: int = 1
    queue_age_s: float = 90.0
    latency_p90_s: float = 300.0
    slow_down_s: float = 5.0  # how long a run waits if the queue age or the latency is above its threshold
    slow_downs_max: int = 24  # how many times in a row a run waits before it stops
    same_error_share: float = 0.5  # a larger share of replayed jobs with the same error again stops the run
    same_error_min: int = 20  # fewer jobs with the same error again do not stop the run
    lease_s: float = 60.0
    await_outcome_s: float = 0.0  # how long a run waits for the jobs of a batch to end before the next one


_POLICIES = {
    DEV: ReplayPolicy(
        environment=DEV,
        max_selection_records=100_000,
        batch_size=500,
        max_batch_size=5_000,
        max_batches=1_000,
        max_records_per_second=1_000,
        max_batches_per_minute=600,
        backfill_records_per_second=100,
        grant_above=10_000,
        allow_global_replay=True,
        allow_ignoring_switches=True,
    ),
    STAGE: ReplayPolicy(
        environment=STAGE,
        max_selection_records=50_000,
        batch_size=500,
        max_batch_size=2_000,
        max_batches=500,
        max_records_per_second=200,
        max_batches_per_minute=60,
        backfill_records_per_second=20,
        grant_above=1_000,
        allow_ignoring_switches=True,
    ),
    PROD: ReplayPolicy(
        environment=PROD,
        max_selection_records=10_000,
        batch_size=500,
        max_batch_size=2_000,
        max_batches=100,
        max_records_per_second=50,
        max_batches_per_minute=12,
        backfill_records_per_second=5,
        grant_above=0,
        bounded_window=True,
        max_runs=2,
    ),
}


def policy_of(environment: str) -> ReplayPolicy:
    """Return the limits of an environment."""
    return _POLICIES[environment]


# ---------------------------------------------------------------------------------------------------------------------
# Judging


class ReplayScope(msgspec.Struct, frozen=True):
    """The queues and operations that a replay touches."""

    queues: tuple[str, ...]
    operations: tuple[str, ...]
    respects_switches: bool


def scope_of(selection: Selection, candidates: Candidates) -> ReplayScope:
    """Return the queues and operations of the candidates and of the selection, which may have no candidate yet."""
    filters = selection.filters
    return ReplayScope(
        tuple(sorted({*candidates.by_queue, *filters.queues} - set(filters.queues_exclude))),
        tuple(sorted({*candidates.by_operation, *filters.operations})),
        selection.options.respect_kill_switch,
    )


def judged(reading: Reading, selection: Selection, candidates: Candidates, policy: ReplayPolicy) -> list[GuardVerdict]:
    """Return the verdict of every guard on a run that begins now."""
    scope = scope_of(selection, candidates)
    return [
        _environment(selection.env, policy, environment_of(reading)),
        _scope(selection, policy),
        _switches(reading, scope, policy),
        _size(selection.limits, candidates, policy),
        _attempts(candidates),
        capacity(reading, scope, policy),
    ]


def judged_again(reading: Reading, scope: ReplayScope, policy: ReplayPolicy, *, own: str) -> list[GuardVerdict]:
    """Return the verdict of the guards that a run must pass to be continued."""
    return [
        _environment(policy.environment, policy, environment_of(reading)),
        _switches(reading, scope, policy),
        capacity(reading, scope, policy, own=own),
    ]


def require(guards: Iterable[GuardVerdict]) -> None:
    """Raise ReplayGuardError for the first guard that refuses."""
    for guard in guards:
        if not guard.passed:
            raise guard.error()


def is_global(selection: Selection) -> bool:
    """Return whether a selection names no queue, no operation and no job."""
    filters = selection.filters
    return not (filters.queues or filters.operations or filters.jobs)


def batch_size(limits: Limits, policy: ReplayPolicy) -> int:
    return limits.batch_size or policy.batch_size


def batches(total: int, size: int) -> int:
    """Return how many batches of a size so many jobs need."""
    return -(-total // size)


def switched_off(reading: Reading, scope: ReplayScope) -> str | None:
    """Return which switch or paused queue stops a replay now, as a message, or None."""
    if not scope.respects_switches:
        return None
    on = reading.switches.on()
    names = (SWITCH, *(f"{SWITCH}:{name}" for name in scope.queues), *(f"operation:{n}" for n in scope.operations))
    for name in names:
        if name in on:
            return f"switch {name} is on, set by {on[name].thrown_by}: {on[name].reason}"
    paused = sorted(set(reading.queues.paused()) & set(scope.queues))
    return f"queue {paused[0]} is paused" if paused else None


def capacity(reading: Reading, scope: ReplayScope, policy: ReplayPolicy, *, own: str | None = None) -> GuardVerdict:
    """Return whether there is capacity for a replay: the state of the queues, and the other replays in flight."""
    suffers = strain(reading, scope.queues, policy)
    if suffers is not None:
        return _failed(GuardType.SLO_RISK, f"{suffers}", "Wait for the workers, or start more of them, and try again.")
    in_flight = {root: queues for root, queues in _in_flight(reading).items() if root != own}
    if len(in_flight) >= policy.max_runs:
        message = f"{len(in_flight)} replays are in flight; the limit is {policy.max_runs}"
        return _failed(
            GuardType.SLO_RISK, message, f"Wait for one of them: `holdfast replay inspect {min(in_flight)}`."
        )
    for queue in scope.queues:
        beside = [root for root, queues in in_flight.items() if queue in queues]
        if len(beside) >= policy.max_runs_per_queue:
            message = f"{beside[0]} is already replaying queue {queue}"
            return _failed(GuardType.SLO_RISK, message, f"Wait for it: `holdfast replay inspect {beside[0]}`.")
    return _passed(GuardType.SLO_RISK, "the queues keep up, and fewer replays than the limit are in flight")


def _in_flight(reading: Reading) -> Mapping[str, frozenset[str]]:
    """Return the replays that are running now and hold their lease, with their queues."""
    now = reading.now()
    held = {name for name, lease in reading.leases.all().items() if lease.expires_at > now}
    return {
        run.idempotency_root: frozenset(msgspec.json.decode(run.params)["queues"])
        for run in reading.runs.page(procedure=PROCEDURE, state="running", limit=RUNS_SEEN)
        if run.lease in held
    }


def _environment(selected: str, policy: ReplayPolicy, here: str) -> GuardVerdict:
    if selected == here == policy.environment:
        return _passed(GuardType.ENV_MISMATCH, f"the selection and the ledger are for {here}")
    what, other = ("selection is", selected) if selected != here else ("limits are", policy.environment)
    message = f"the {what} for {other}, but this ledger is for {here}"
    return _failed(GuardType.ENV_MISMATCH, message, f"Use the {other} ledger, or set metadata.env to {here}.")


def _scope(selection: Selection, policy: ReplayPolicy) -> GuardVerdict:
    filters = selection.filters
    guard_type = GuardType.SCOPE_TOO_BROAD
    if not filters.status:
        return _failed(guard_type, "the selection names no status", "Give --status failed.")
    if filters.jobs:
        return _passed(guard_type, f"the selection names {len(filters.jobs)} jobs")
    if is_global(selection) and not policy.allow_global_replay:
        message = f"in {policy.environment} a selection must name a queue or an operation"
        return _failed(guard_type, message, "Give --queue NAME or --operation NAME.")
    windows = (filters.created_at, filters.event_time, filters.time_range_overlap)
    if not any(_bounded(window, both=policy.bounded_window) for window in windows):
        needed = "a start and an end" if policy.bounded_window else "a start"
        message = f"the selection needs a time window with {needed}"
        return _failed(guard_type, message, "Give --created-after TIME --created-before TIME.")
    return _passed(guard_type, "the selection is limited by queue or operation, time and status")


def _bounded(window: Window | None, *, both: bool) -> bool:
    return window is not None and window.start is not None and (window.end is not None or not both)


def _switches(reading: Reading, scope: ReplayScope, policy: ReplayPolicy) -> GuardVerdict:
    guard_type = GuardType.KILL_SWITCH_ACTIVE
    if not scope.respects_switches and not policy.allow_ignoring_switches:
        message = f"in {policy.environment} a replay must respect kill switches"
        return _failed(guard_type, message, "Remove spec.options.respect_kill_switch.")
    off = switched_off(reading, scope)
    if off is None:
        return _passed(
            guard_type,
            "no kill switch is on"
            if scope.respects_switches
            else "kill switches are ignored: respect_kill_switch is false",
        )
    return _failed(guard_type, off, "See `holdfast switch list` and `holdfast stats`; to lift a switch needs a grant.")


def _size(limits: Limits, candidates: Candidates, policy: ReplayPolicy) -> GuardVerdict:
    guard_type, size = GuardType.SELECTION_TOO_LARGE, batch_size(limits, policy)
    narrower = "Narrow the selection, or give --limit N."
    if size > policy.max_batch_size:
        message = f"the batch size is {size}; the limit is {policy.max_batch_size}"
        return _failed(guard_type, message, f"Give --batch-size {policy.max_batch_size}, or less.")
    if candidates.total > policy.max_selection_records:
        return _failed(guard_type, f"more than {policy.max_selection_records} jobs match; that is the limit", narrower)
    needed = batches(candidates.total, size)
    if needed > policy.max_batches:
        message = f"{candidates.total} jobs need {needed} batches of {size}; the limit is {policy.max_batches}"
        return _failed(guard_type, message, narrower)
    return _passed(guard_type, f"{counted(candidates.total, 'job')} in {counted(needed, 'batch', 'batches')}")


def _attempts(candidates: Candidates) -> GuardVerdict:
    guard_type = GuardType.ATTEMPTS_EXCEEDED
    spent = candidates.skipped.get(guard_type, 0)
    if spent and not candidates.total:
        message = f"all {spent} matching jobs have used their attempts"
        return _failed(guard_type, message, "See one with `holdfast show ID`; to release it needs a grant.")
    return _passed(guard_type, f"{spent} jobs have used their attempts and are skipped")


def _passed(guard_type: GuardType, message: str) -> GuardVerdict:
    return GuardVerdict(guard_type=guard_type, passed=True, message=message)


def _failed(guard_type: GuardType, message: str, next_step: str) -> GuardVerdict:
    return GuardVerdict(guard_type=guard_type, passed=False, message=message, next_step=next_step)
