"""Releases: put quarantined jobs back to pending, one or several, under a grant.

A grant releases one job once: if the job fails again and returns to quarantine, it needs another grant. Several jobs
are released under one grant for exactly that set. Each of them gets its own grant under it, because the database allows
one grant to move one job.

Invariants: a release and the use of its grant are one transaction; several jobs are released together, all or none; a
job whose payload was dropped is never released; a release that loses a race, or finds nothing to do, uses no grant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from holdfast.core.authority import Act, Reject, Rejected
from holdfast.core.decide import Move, Refused, decide
from holdfast.core.environments import DEV
from holdfast.core.errors import (
    GovernanceError,
    HoldfastError,
    InputError,
    InvalidStateTransitionError,
    JobNotFoundError,
    PlanStaleError,
    ReplayGuardError,
    StateTransitionRaceError,
)
from holdfast.core.governed import Release
from holdfast.core.records import Job
from holdfast.core.selection import candidates_hash
from holdfast.engine.rulings import RuleTask
from holdfast.governance.acts import actor_and_reason, retry_races
from holdfast.governance.approval import wanted_here
from holdfast.governance.grants import authorise, issue, verdict_on
from holdfast.governance.quarantine import JOB_TARGET, QuarantineFilters, find
from holdfast.governance.replay.guards import GuardType, ReplayScope, switched_off
from holdfast.store.store import Store

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger
    from holdfast.store.transaction import Reading, Transaction

MANY_TARGET = "quarantine:"  # and the hash of the job ids: the target of a grant to release several jobs
GO, OWN = "GO", "OWN"
MANY_MAX = 1000
"""How many jobs are released together. They share one transaction; on SQLite others wait about 1 s for it."""
RUN_MAX = 100_000
"""How many jobs one grant can release in a run: see `release_runs.py`."""
RATE_MAX = 10_000.0


class ReleaseResult(msgspec.Struct, frozen=True):
    """A job after its release. If it was pending already, nothing changed and no grant was used."""

    job: Job
    move: Move
    grant_id: int | None

    @property
    def changed(self) -> bool:
        """Return whether this call released it."""
        return bool(self.move.steps)


class BulkRelease(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that were released together, or would be (a dry run)."""

    job_ids: tuple[int, ...]
    target: str  # of the grant that is needed
    authority: str  # GO; OWN if dev issues a grant; or the code of the refusal
    grant_id: int | None = None  # the consumed grant; None in a dry run


# ---------------------------------------------------------------------------------------------------------------------
# One job


def release(
    where: Store[Any] | Ledger,
    job_id: int,
    *,
    operator: str,
    reason: str,
    grant_id: int | None = None,
    run_at: datetime | None = None,
) -> ReleaseResult:
    """Release a quarantined job, due now or at `run_at`, consume its grant, and return the job.

    Through a ledger, the subscribers of the ledger receive the transition. Raise AuthorityError if no grant permits it,
    InvalidStateTransitionError if the job is not in quarantine, GovernanceError if its payload was dropped.
    """
    who, why = actor_and_reason(operator, reason)
    _require_zone(run_at)

    def act(transaction: Transaction) -> ReleaseResult:
        job = transaction.jobs.get(job_id)
        due = run_at or transaction.due_now()
        if not _would_move(transaction, job, who):
            return ReleaseResult(job, Move(), grant_id=None)
        move_id = uuid4().hex
        wanted = wanted_here(transaction, Act.RELEASE, f"{JOB_TARGET}{job_id}", who)
        used = authorise(transaction, wanted, grant_id=grant_id, reason=why, move_id=move_id)
        move = move_released(transaction, job, Release(who, why, used, due), move_id)
        return ReleaseResult(transaction.jobs.get(job_id), move, used)

    return retry_races(lambda: _performed(where, job_id, act, who))


def _performed(
    where: Store[Any] | Ledger, job_id: int, act: Callable[[Transaction], ReleaseResult], actor: str
) -> ReleaseResult:
    if isinstance(where, Store):
        with where.transaction() as transaction:
            return act(transaction)
    results: list[ReleaseResult] = []

    def move(transaction: Transaction) -> Move:
        results.append(act(transaction))
        return results[-1].move

    task = RuleTask(where.job(job_id), move, actor=actor)
    where.perform_tasks([task])
    task.result()  # raises the error of a failed commit
    return results[-1]  # the committer may have run it more than once; the last run was committed


# ---------------------------------------------------------------------------------------------------------------------
# Several jobs


def release_many(
    store: Store[Any],
    which: QuarantineFilters | Sequence[int],
    *,
    operator: str,
    reason: str,
    expected: int | None = None,
    grant_id: int | None = None,
    run_at: datetime | None = None,
    rate: float | None = None,
) -> BulkRelease:
    """Release these jobs, or all that match the filters, under one grant; `expected` is how many there must be.

    `rate` is how many of them become due per second, from now or from `run_at` on.
    """
    who, why = actor_and_reason(operator, reason)
    require_rate(rate, run_at)
    with store.transaction() as transaction:
        jobs = selected(transaction, which, expected)
        begins = run_at or transaction.due_now()
        require_switches_off(transaction, [job.queue for job in jobs], [job.operation for job in jobs])
        _require_releasable(transaction, jobs, who)
        wanted = wanted_here(transaction, Act.RELEASE_MANY, _target(jobs), who)
        parent = authorise(transaction, wanted, grant_id=grant_id, reason=why)
        for place, job in enumerate(jobs):  # ordered by id, the lock order for several jobs
            move_id = uuid4().hex
            own = msgspec.structs.replace(wanted, act=Act.RELEASE, target=f"{JOB_TARGET}{job.job_id}")
            used = issue(transaction, own, reason=why, move_id=move_id, under=parent)
            move_released(transaction, job, Release(who, why, used, staggered(begins, place, rate)), move_id)
    return BulkRelease(job_ids=_ids(jobs), target=wanted.target, authority=GO, grant_id=parent)


def plan_release(
    store: Store[Any],
    which: int | QuarantineFilters | Sequence[int],
    *,
    operator: str,
    expected: int | None = None,
    grant_id: int | None = None,
) -> BulkRelease:
    """Return the jobs that a release would put back, the target of its grant, and whether one permits it. A dry run."""
    with store.reading() as reading:
        jobs = selected(reading, [which] if isinstance(which, int) else which, expected)
        _require_releasable(reading, jobs, operator)
        if isinstance(which, int):
            wanted = wanted_here(reading, Act.RELEASE, f"{JOB_TARGET}{which}", operator)
        else:
            wanted = wanted_here(reading, Act.RELEASE_MANY, _target(jobs), operator)
        verdict = verdict_on(reading, wanted, grant_id)
    authority = str(verdict.code) if isinstance(verdict, Rejected) else GO
    if authority == Reject.MISSING and wanted.environment == DEV:
        authority = OWN
    return BulkRelease(job_ids=_ids(jobs), target=wanted.target, authority=authority)


def selected(
    reading: Reading, which: QuarantineFilters | Sequence[int], expected: int | None, *, by_run: bool = False
) -> list[Job]:
    """Return the selected jobs by id; raise if there are none, too many, or not as many as expected.

    `by_run` is for a release by a run, which can be larger than one transaction.
    """
    most = RUN_MAX if by_run else MANY_MAX
    if isinstance(which, QuarantineFilters):
        jobs = sorted(find(reading, which, limit=most + 1, releasable=True), key=lambda job: job.job_id)
    else:
        jobs = reading.jobs.get_many(sorted(set(which))[: most + 1])
        missing = set(which) - set(_ids(jobs))
        if missing and len(jobs) <= most:
            raise JobNotFoundError(f"Job {min(missing)} does not exist.", context={"job_id": min(missing)})
    if len(jobs) > most:
        raise InputError(
            f"At most {most} jobs can be released {'under one grant' if by_run else 'together'}.",
            next_step="Select fewer (--code, --operation, --queue, --older-than), and release one part at a time."
            if by_run
            else "Add --request to the same command: a run under one grant releases them in batches.",
            context={"limit": most},
        )
    if expected is not None and len(jobs) != expected:
        raise PlanStaleError(
            f"{len(jobs)} jobs match, but {expected} were expected. No job was released.",
            next_step="List them again: `holdfast quarantine list` with the same filters.",
            context={"found": len(jobs), "expected": expected},
        )
    if not jobs:
        raise InputError("No quarantined job matches.", next_step="List them: `holdfast quarantine list`.")
    return jobs


def _require_releasable(reading: Reading, jobs: Sequence[Job], operator: str) -> None:
    for job in jobs:
        if not _would_move(reading, job, operator):
            raise InvalidStateTransitionError(
                f"Job {job.job_id} is {job.state}, not quarantined. No job was released.",
                context={"job_id": job.job_id, "state": job.state},
            )


def _target(jobs: Sequence[Job]) -> str:
    return MANY_TARGET + candidates_hash(list(_ids(jobs)))


def _ids(jobs: Iterable[Job]) -> tuple[int, ...]:
    return tuple(job.job_id for job in jobs)


# ---------------------------------------------------------------------------------------------------------------------
# Both


def _would_move(reading: Reading, job: Job, operator: str) -> bool:
    """Return whether a release would move a job, regardless of grants; raise if the job cannot be released."""
    any_grant = 0
    answer = decide(job, Release(operator, "dry run", any_grant), reading.now())
    if isinstance(answer, Refused):
        raise _refusal(job, answer)
    return bool(answer.steps)


def move_released(transaction: Transaction, job: Job, command: Release, move_id: str) -> Move:
    """Release a job under a grant that the move has consumed, and return the move; raise if it cannot be released."""
    [answer] = transaction.rulings.rule(
        [(job, command)], actor=command.operator, reason=command.reason, move_id=move_id, grant_id=command.grant_id
    )
    if isinstance(answer, Refused):
        raise _refusal(job, answer)
    return answer


def _refusal(job: Job, refused: Refused) -> HoldfastError:
    context = {"job_id": job.job_id, "state": job.state, "refusal": refused.code}
    if refused.code == "race":
        return StateTransitionRaceError(refused.message, context=context)
    if refused.code == "slimmed":
        return GovernanceError(
            f"Job {job.job_id} cannot be released: its payload was dropped by retention.",
            code="slimmed",
            next_step="Submit the work again with a new idempotency key; the old key stays reserved.",
            context=context,
        )
    return InvalidStateTransitionError(
        f"Job {job.job_id} is {job.state}: only quarantined jobs can be released.", context=context
    )


def require_switches_off(reading: Reading, queues: Iterable[str], operations: Iterable[str]) -> None:
    """Raise ReplayGuardError if a kill switch of replays or operations is on, or a queue of these jobs is paused."""
    scope = ReplayScope(tuple(sorted(set(queues))), tuple(sorted(set(operations))), respects_switches=True)
    off = switched_off(reading, scope)
    if off is not None:
        raise ReplayGuardError(
            f"No job was released: {off}.",
            code=GuardType.KILL_SWITCH_ACTIVE,
            next_step="See `holdfast switch list` and `holdfast stats`; to lift a switch needs a grant.",
            context={"guard_type": str(GuardType.KILL_SWITCH_ACTIVE)},
        )


def staggered(begins_at: datetime, place: int, rate: float | None) -> datetime:
    """Return when a job becomes due, by its place among the jobs that are released at a rate."""
    return begins_at if rate is None else begins_at + timedelta(seconds=place / rate)


def require_rate(rate: float | None, run_at: datetime | None) -> None:
    """Raise InputError unless jobs can become due at this rate, from this time on."""
    _require_zone(run_at)
    if rate is not None and not 0 < rate <= RATE_MAX:
        raise InputError(
            f"The rate is {rate:g} jobs per second; it must be more than 0 and at most {RATE_MAX:g}.",
            context={"field": "rate"},
        )


def _require_zone(run_at: datetime | None) -> None:
    if run_at is not None and run_at.tzinfo is None:
        raise InputError("run_at needs a time zone.", next_step="Pass an aware time, such as datetime.now(UTC).")
