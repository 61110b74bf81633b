"""What a replay may do in which environment, and the guards that say no.

A guard looks at what is asked for and at the ledger, and passes or fails with a `guard_type`, words, and a next step.

Invariants: guards only read; all of them are judged, so that a dry run shows every one that would refuse; what was
overridden is data of the policy, which goes on record with the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.environments import DEV, PROD, STAGE
from holdfast.core.errors import ReplayGuardError
from holdfast.core.selection import Limits, Selection, Window
from holdfast.governance.approval import environment_of
from holdfast.governance.replay.pace import strain

if TYPE_CHECKING:
    from holdfast.governance.replay.candidates import Candidates
    from holdfast.store.transaction import Reading

PROCEDURE = "replay"
SWITCH = "replay"
RUNS_SEEN = 1000


class GuardType(StrEnum):
    """Why a replay is refused."""

    SCOPE_TOO_BROAD = "scope_too_broad"
    SELECTION_TOO_LARGE = "selection_too_large"
    ATTEMPTS_EXCEEDED = "attempts_exceeded"
    KILL_SWITCH_ACTIVE = "kill_switch_active"
    ENV_MISMATCH = "env_mismatch"
    SLO_RISK = "slo_risk"


class GuardVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """One guard's verdict."""

    guard_type: GuardType
    passed: bool
    message: str
    next_step: str | None = None

    def error(self) -> ReplayGuardError:
        """Return what is raised where this guard refuses."""
        return ReplayGuardError(
            self.message,
            code=self.guard_type,
            next_step=self.next_step,
            context={"guard_type": str(self.guard_type)},
        )


class ReplayPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of replay. A caller that overrides one says so on record: the policy is kept with the run."""

    environment: str
    max_selection_records: int
    batch_size: int
    max_batch_size: int
    max_batches: int
    max_records_per_second: float
    max_batches_per_minute: float
    backfill_records_per_second: float  # a backfill has a capacity of its own
    grant_above: int  # more records than this need a grant; 0 means every run does
    allow_global_replay: bool = False  # may a selection name neither dataset nor operation?
    bounded_window: bool = False  # must its time window have both ends?
    allow_ignoring_switches: bool = False  # is `respect_kill_switch: false` accepted?
    allow_downgrade: bool = False  # may a job be replayed by a lower version of its operation?
    allow_same_version: bool = False  # may what succeeded be replaced by the same version of its operation?
    never_datasets: tuple[str, ...] = ()
    never_errors: tuple[str, ...] = ()
    max_runs: int = 4  # in flight at a time, and for one dataset
    max_runs_per_dataset: int = 1
    queue_age_s: float = 90.0
    latency_p90_s: float = 300.0
    slow_down_s: float = 5.0  # how long a run waits where queue age or latency have passed their threshold,
    slow_downs_max: int = 24  # and how many times in a row before it stops
    same_error_share: float = 0.5  # of what has ended again: more than this with the same error stops the run,
    same_error_min: int = 20  # if so many have
    lease_s: float = 60.0


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
    """Whose work a replay touches."""

    datasets: tuple[str, ...]
    operations: tuple[str, ...]
    respects_switches: bool


def scope_of(selection: Selection, candidates: Candidates) -> ReplayScope:
    """Return whose work the candidates are, and whose was asked for: a switch holds for what has no candidate yet."""
    filters = selection.filters
    return ReplayScope(
        tuple(sorted({*candidates.by_dataset, *filters.datasets} - set(filters.datasets_exclude))),
        tuple(sorted({*candidates.by_operation, *filters.operations})),
        selection.options.respect_kill_switch,
    )


def judged(reading: Reading, selection: Selection, candidates: Candidates, policy: ReplayPolicy) -> list[GuardVerdict]:
    """Return the verdict of every guard on a run that would begin now."""
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
    """Return the verdict of the guards that a run must pass when it is taken up again."""
    return [
        _environment(policy.environment, policy, environment_of(reading)),
        _switches(reading, scope, policy),
        capacity(reading, scope, policy, own=own),
    ]


def require(guards: Iterable[GuardVerdict]) -> None:
    """Raise ReplayGuardError for the first guard that failed."""
    for guard in guards:
        if not guard.passed:
            raise guard.error()


def names_nobody(selection: Selection) -> bool:
    """Tell whether a selection is about the work of everybody: it names no dataset, operation or record."""
    filters = selection.filters
    return not (filters.datasets or filters.operations or filters.wal_ids)


def batch_size(limits: Limits, policy: ReplayPolicy) -> int:
    """Return how many records a batch of a selection holds."""
    return limits.batch_size or policy.batch_size


def batches(total: int, size: int) -> int:
    """Return how many batches so many records need."""
    return -(-total // size)


def switched_off(reading: Reading, scope: ReplayScope) -> str | None:
    """Return the words for what stops a replay now: a switch that is on, or a queue that is paused."""
    if not scope.respects_switches:
        return None
    on = reading.switches.on()
    names = (SWITCH, *(f"{SWITCH}:{name}" for name in scope.datasets), *(f"operation:{n}" for n in scope.operations))
    for name in names:
        if name in on:
            return f"the switch {name} is on, thrown by {on[name].thrown_by}: {on[name].reason}"
    paused = sorted(set(reading.queues.paused()) & set(scope.datasets))
    return f"the queue {paused[0]} is paused" if paused else None


def capacity(reading: Reading, scope: ReplayScope, policy: ReplayPolicy, *, own: str | None = None) -> GuardVerdict:
    """Judge whether the queues can take a replay now: how they are doing, and how many others are in flight."""
    suffers = strain(reading, scope.datasets, policy)
    if suffers is not None:
        return _failed(GuardType.SLO_RISK, f"{suffers}", "Let the workers catch up, or add some, and try again.")
    in_flight = {root: datasets for root, datasets in _in_flight(reading).items() if root != own}
    if len(in_flight) >= policy.max_runs:
        told = f"{len(in_flight)} replays are in flight, and {policy.max_runs} are the limit"
        return _failed(GuardType.SLO_RISK, told, "Wait until one is done: `holdfast replay inspect` tells of them.")
    for dataset in scope.datasets:
        beside = [root for root, datasets in in_flight.items() if dataset in datasets]
        if len(beside) >= policy.max_runs_per_dataset:
            told = f"{beside[0]} replays the dataset {dataset} already"
            return _failed(GuardType.SLO_RISK, told, f"Wait until it is done: `holdfast replay inspect {beside[0]}`.")
    return _passed(GuardType.SLO_RISK, "the queues are well, and there is room for another replay")


def _in_flight(reading: Reading) -> Mapping[str, frozenset[str]]:
    """Return the replays that somebody runs at this moment, with their datasets: a killed one loses its lease."""
    now = reading.now()
    held = {name for name, lease in reading.leases.all().items() if lease.expires_at > now}
    return {
        run.idempotency_root: frozenset(msgspec.json.decode(run.params)["datasets"])
        for run in reading.runs.page(procedure=PROCEDURE, state="running", limit=RUNS_SEEN)
        if run.lease in held
    }


def _environment(asked: str, policy: ReplayPolicy, here: str) -> GuardVerdict:
    if asked == here == policy.environment:
        return _passed(GuardType.ENV_MISMATCH, f"this is the {here} ledger that was meant")
    what, other = ("selection is", asked) if asked != here else ("limits are", policy.environment)
    told = f"the {what} for {other}, and this is a {here} ledger"
    return _failed(GuardType.ENV_MISMATCH, told, "Name the ledger that is meant, or correct the selection's env.")


def _scope(selection: Selection, policy: ReplayPolicy) -> GuardVerdict:
    filters = selection.filters
    guard_type = GuardType.SCOPE_TOO_BROAD
    if not filters.status:
        return _failed(guard_type, "the selection names no status", "Name one: --status failed.")
    if filters.wal_ids:
        return _passed(guard_type, f"the selection names {len(filters.wal_ids)} records")
    if names_nobody(selection) and not policy.allow_global_replay:
        told = f"the selection names no dataset and no operation: in {policy.environment} it must"
        return _failed(guard_type, told, "Name the datasets: --dataset NAME.")
    windows = (filters.created_at, filters.event_time, filters.time_range_overlap)
    if not any(_bounded(window, both=policy.bounded_window) for window in windows):
        needed = "a start and an end" if policy.bounded_window else "a start"
        told = f"the selection names no window of time with {needed}"
        return _failed(guard_type, told, "Name one: --created-after TIME --created-before TIME.")
    return _passed(guard_type, "the selection names whose work, since when, and in which status")


def _bounded(window: Window | None, *, both: bool) -> bool:
    return window is not None and window.start is not None and (window.end is not None or not both)


def _switches(reading: Reading, scope: ReplayScope, policy: ReplayPolicy) -> GuardVerdict:
    guard_type = GuardType.KILL_SWITCH_ACTIVE
    if not scope.respects_switches and not policy.allow_ignoring_switches:
        told = f"in {policy.environment} a replay respects the kill switches"
        return _failed(guard_type, told, "Leave respect_kill_switch as it is, and have the switch lifted.")
    off = switched_off(reading, scope)
    if off is None:
        return _passed(
            guard_type, "no switch of these is on" if scope.respects_switches else "switches are ignored, as asked"
        )
    return _failed(guard_type, off, "See `holdfast switch list`; to lift a switch takes a grant.")


def _size(limits: Limits, candidates: Candidates, policy: ReplayPolicy) -> GuardVerdict:
    guard_type, size = GuardType.SELECTION_TOO_LARGE, batch_size(limits, policy)
    narrower = "Narrow the selection, or take part of it: --limit N."
    if size > policy.max_batch_size:
        told = f"a batch of {size} records was asked for, and {policy.max_batch_size} are the limit"
        return _failed(guard_type, told, f"Give --batch-size {policy.max_batch_size}, or less.")
    if candidates.total > policy.max_selection_records:
        return _failed(guard_type, f"there are more than {policy.max_selection_records} candidates", narrower)
    needed = batches(candidates.total, size)
    if needed > policy.max_batches:
        told = f"{candidates.total} records are {needed} batches of {size}, and {policy.max_batches} are the limit"
        return _failed(guard_type, told, narrower)
    return _passed(guard_type, f"{candidates.total} records in {needed} batches")


def _attempts(candidates: Candidates) -> GuardVerdict:
    guard_type = GuardType.ATTEMPTS_EXCEEDED
    spent = candidates.skipped.get(guard_type, 0)
    if spent and not candidates.total:
        told = f"all that is left, {spent} records, have spent their attempts"
        return _failed(guard_type, told, "Look at one with `holdfast show ID`; it can be released by a grant.")
    return _passed(guard_type, f"{spent} records have spent their attempts and are left out")


def _passed(guard_type: GuardType, message: str) -> GuardVerdict:
    return GuardVerdict(guard_type=guard_type, passed=True, message=message)


def _failed(guard_type: GuardType, message: str, next_step: str) -> GuardVerdict:
    return GuardVerdict(guard_type=guard_type, passed=False, message=message, next_step=next_step)
