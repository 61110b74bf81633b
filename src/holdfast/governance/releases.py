"""Releases: the governed way back out of quarantine, for one job or for many.

A grant lets one job go, once: one that fails again comes back, and needs another. Many jobs go under one grant for
exactly that set; each gets a grant of its own under it, because the database lets one grant move one job.

Invariants: a release and the use of its grant are one transaction; many are released together, all or none; a job whose
payload was dropped is never released; whoever loses a race, or finds nothing to do, has used nothing up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from holdfast.core.authority import Act, Reject, Rejected, Wanted
from holdfast.core.commands import Release
from holdfast.core.decide import Move, Refused, decide
from holdfast.core.environments import DEV
from holdfast.core.errors import (
    GovernanceError,
    HoldfastError,
    InputError,
    InvalidStateTransitionError,
    JobNotFoundError,
    PlanStaleError,
    StateTransitionRaceError,
)
from holdfast.core.records import Job
from holdfast.core.selection import candidates_hash
from holdfast.engine.tasks import RuleTask
from holdfast.governance.acts import actor_and_reason, retry_races
from holdfast.governance.grants import authorise, environment_of, issue, verdict_on
from holdfast.governance.quarantine import JOB_TARGET, QuarantineFilters, find
from holdfast.store.store import Store

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger
    from holdfast.store.transaction import Reading, Transaction

MANY_TARGET = "quarantine:"  # and the hash of the jobs' ids: what a grant to release many is for
GO, OWN = "GO", "OWN"
MANY_MAX = 1000
"""How many one grant can release: they go in one transaction, and on SQLite others wait for it, a second or so."""


class ReleaseResult(msgspec.Struct, frozen=True):
    """A job after its release; unchanged if it waited already, and then no grant was used."""

    job: Job
    move: Move
    grant_id: int | None

    @property
    def changed(self) -> bool:
        """Tell whether it was released just now."""
        return bool(self.move.steps)


class BulkRelease(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that were released together, or would be."""

    job_ids: tuple[int, ...]
    target: str  # of the grant that it takes
    authority: str  # GO, OWN where a grant of one's own is made out, or the code with which it would be refused
    grant_id: int | None = None  # that was used up; None if nothing was written


# ---------------------------------------------------------------------------------------------------------------------
# One


def release(
    where: Store[Any] | Ledger,
    job_id: int,
    *,
    operator: str,
    reason: str,
    grant_id: int | None = None,
    run_at: datetime | None = None,
) -> ReleaseResult:
    """Put a job back that is in quarantine, due now or at a given time, under a grant that is used up with it.

    Through a ledger, its subscribers see the transition.
    """
    who, why = actor_and_reason(operator, reason)
    _require_zone(run_at)

    def act(transaction: Transaction) -> ReleaseResult:
        job = transaction.jobs.get(job_id)
        due = run_at or transaction.now()
        if not _may_go(transaction, job, who):
            return ReleaseResult(job, Move(), grant_id=None)
        move_id = uuid4().hex
        wanted = _wanted(transaction, Act.RELEASE, f"{JOB_TARGET}{job_id}", who)
        used = authorise(transaction, wanted, grant_id=grant_id, reason=why, move_id=move_id)
        move = _let_go(transaction, job, Release(who, why, used, due), move_id)
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
    task.result()  # raises what went wrong
    return results[-1]  # the committer may have tried it more than once


# ---------------------------------------------------------------------------------------------------------------------
# Many


def release_many(
    store: Store[Any],
    which: QuarantineFilters | Sequence[int],
    *,
    operator: str,
    reason: str,
    expected: int | None = None,
    grant_id: int | None = None,
    run_at: datetime | None = None,
) -> BulkRelease:
    """Put back exactly these jobs, or all that match, under one grant; `expected` says how many that must be."""
    who, why = actor_and_reason(operator, reason)
    _require_zone(run_at)
    with store.transaction() as transaction:
        jobs = _meant(transaction, which, expected)
        due = run_at or transaction.now()
        _require_releasable(transaction, jobs, who)
        wanted = _wanted(transaction, Act.RELEASE_MANY, _target(jobs), who)
        parent = authorise(transaction, wanted, grant_id=grant_id, reason=why)
        for job in jobs:  # by id, as everybody who writes several jobs does
            move_id = uuid4().hex
            own = msgspec.structs.replace(wanted, act=Act.RELEASE, target=f"{JOB_TARGET}{job.job_id}")
            used = issue(transaction, own, reason=why, move_id=move_id, under=parent)
            _let_go(transaction, job, Release(who, why, used, due), move_id)
    return BulkRelease(job_ids=_ids(jobs), target=wanted.target, authority=GO, grant_id=parent)


def plan_release(
    store: Store[Any],
    which: int | QuarantineFilters | Sequence[int],
    *,
    operator: str,
    expected: int | None = None,
    grant_id: int | None = None,
) -> BulkRelease:
    """Tell which jobs a release would put back, what a grant for it is for, and whether there is one; write nothing."""
    with store.reading() as reading:
        jobs = _meant(reading, [which] if isinstance(which, int) else which, expected)
        _require_releasable(reading, jobs, operator)
        if isinstance(which, int):
            wanted = _wanted(reading, Act.RELEASE, f"{JOB_TARGET}{which}", operator)
        else:
            wanted = _wanted(reading, Act.RELEASE_MANY, _target(jobs), operator)
        verdict = verdict_on(reading, wanted, grant_id)
    authority = str(verdict.code) if isinstance(verdict, Rejected) else GO
    if authority == Reject.MISSING and wanted.environment == DEV:
        authority = OWN
    return BulkRelease(job_ids=_ids(jobs), target=wanted.target, authority=authority)


def _meant(reading: Reading, which: QuarantineFilters | Sequence[int], expected: int | None) -> list[Job]:
    """Return the jobs that are meant, by id; raise if there are none, too many, or not as many as expected."""
    if isinstance(which, QuarantineFilters):
        jobs = sorted(find(reading, which, limit=MANY_MAX + 1, releasable=True), key=lambda job: job.job_id)
    else:
        jobs = reading.jobs.get_many(sorted(set(which))[: MANY_MAX + 1])
        missing = set(which) - set(_ids(jobs))
        if missing and len(jobs) <= MANY_MAX:
            raise JobNotFoundError(f"there is no job {min(missing)}", context={"job_id": min(missing)})
    if len(jobs) > MANY_MAX:
        raise InputError(
            f"more than {MANY_MAX} jobs cannot be released by one grant",
            next_step="Narrow them down (--code, --operation, --queue, --older-than), and release one part at a time.",
            context={"limit": MANY_MAX},
        )
    if expected is not None and len(jobs) != expected:
        raise PlanStaleError(
            f"{len(jobs)} jobs match, and {expected} were expected: nothing was released",
            next_step="Look at them again with `holdfast quarantine list` and the same filters.",
            context={"found": len(jobs), "expected": expected},
        )
    if not jobs:
        raise InputError("no job in quarantine matches", next_step="See what is there: `holdfast quarantine list`.")
    return jobs


def _require_releasable(reading: Reading, jobs: Sequence[Job], operator: str) -> None:
    for job in jobs:
        if not _may_go(reading, job, operator):
            raise InvalidStateTransitionError(
                f"job {job.job_id} is {job.state}, not in quarantine: none was released",
                context={"job_id": job.job_id, "state": job.state},
            )


def _target(jobs: Sequence[Job]) -> str:
    return MANY_TARGET + candidates_hash(list(_ids(jobs)))


def _ids(jobs: Iterable[Job]) -> tuple[int, ...]:
    return tuple(job.job_id for job in jobs)


# ---------------------------------------------------------------------------------------------------------------------
# Both


def _wanted(reading: Reading, act: Act, target: str, operator: str) -> Wanted:
    return Wanted(act=act, target=target, environment=environment_of(reading), executor=operator)


def _may_go(reading: Reading, job: Job, operator: str) -> bool:
    """Tell whether a release would move a job, before any grant is looked at; raise if it may not happen at all."""
    any_grant = 0
    answer = decide(job, Release(operator, "asked beforehand", any_grant), reading.now())
    if isinstance(answer, Refused):
        raise _refusal(job, answer)
    return bool(answer.steps)


def _let_go(transaction: Transaction, job: Job, command: Release, move_id: str) -> Move:
    [answer] = transaction.jobs.rule(
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
            f"job {job.job_id} cannot be released: {refused.message}",
            code="slimmed",
            next_step="Submit the work anew, under a new key: the old one stays taken.",
            context=context,
        )
    return InvalidStateTransitionError(
        f"job {job.job_id} is {job.state}: only what is in quarantine can be released", context=context
    )


def _require_zone(run_at: datetime | None) -> None:
    if run_at is not None and run_at.tzinfo is None:
        raise InputError("run_at has no time zone", next_step="Give an aware time, such as datetime.now(UTC).")
