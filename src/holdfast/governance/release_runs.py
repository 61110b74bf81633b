"""Release runs: put a requested selection of quarantined jobs back to pending, under one grant, in batches.

The request stores the ids and versions of the jobs, and the grant binds their hash. The run of the grant releases
exactly these jobs; one that has changed since the request is skipped and counted.

Invariants: a grant has one run, so that repeating the command continues it; a batch, its record and the moves of its
jobs are one transaction, so that a run that was killed continues after its last batch and releases no job twice; a
rate is a staggered `run_at`, counted from the beginning of the run; a run asks the kill switches before each batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from holdfast.core.authority import TTL, Act, Wanted
from holdfast.core.errors import PlanStaleError, RecordNotFoundError
from holdfast.core.governed import Grant, ProcedureRun, Release
from holdfast.core.machines import JobState, ProcedureState
from holdfast.core.records import Job
from holdfast.core.selection import candidates_hash
from holdfast.engine.world import World
from holdfast.governance.acts import actor_and_reason, stored_text
from holdfast.governance.approval import environment_of, existing_grant, wanted_here
from holdfast.governance.granted import CANDIDATES, release_candidates
from holdfast.governance.grants import issue, request_in
from holdfast.governance.quarantine import JOB_TARGET, QuarantineFilters
from holdfast.governance.releases import (
    MANY_TARGET,
    move_released,
    require_rate,
    require_switches_off,
    selected,
    staggered,
)
from holdfast.governance.replay.guards import ReplayScope, batches
from holdfast.governance.replay.record import BEGIN, batch_steps, candidates_text, read_back
from holdfast.governance.runs.batches import BatchRunner
from holdfast.governance.runs.request import RunRequest

if TYPE_CHECKING:
    from holdfast.store import Store
    from holdfast.store.transaction import Reading, Transaction

PROCEDURE = "release"
BATCH = 200  # jobs a transaction: on SQLite other writers wait about 0.2 s for it
LEASE_S = 60.0


class ReleaseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A requested release of a selection: the draft of its grant, and its jobs."""

    grant: Grant
    total: int
    job_ids: tuple[int, ...]


class ReleaseTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of a run, fixed when it begins."""

    target: str
    total: int
    rate: float | None
    begins_at: datetime  # the `run_at` of the first job
    batch_size: int
    queues: tuple[str, ...]
    operations: tuple[str, ...]

    @property
    def batches(self) -> int:
        """Return how many batches the run has."""
        return batches(self.total, self.batch_size)

    @property
    def scope(self) -> ReplayScope:
        """Return the queues and operations whose switches stop the run."""
        return ReplayScope(self.queues, self.operations, respects_switches=True)


class ReleaseReport(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a run, and what it did."""

    run_id: str
    state: str
    stop_reason: str | None
    failure: str | None
    total: int
    released: int
    skipped: dict[str, int]  # by reason
    batches: int
    batches_planned: int
    rate: float | None
    first_run_at: datetime
    last_run_at: datetime
    grant_id: int

    @property
    def done(self) -> bool:
        return self.state == ProcedureState.DONE


class _Outcome(msgspec.Struct, frozen=True, kw_only=True):
    released: int
    skipped: dict[str, int]


# ---------------------------------------------------------------------------------------------------------------------
# Requesting


def request_release(
    store: Store[Any],
    which: QuarantineFilters | Sequence[int],
    *,
    requester: str,
    executor: str,
    reason: str,
    rollback_plan: str,
    expected: int | None = None,
    ttl: timedelta = TTL,
) -> ReleaseRequest:
    """Request the grant to release these jobs, store which they are, and return both.

    Raise InputError if no job is selected or too many are, AuthorityError if the same grant was requested already.
    """
    requester, reason = actor_and_reason(requester, reason)
    with store.transaction() as transaction:
        jobs = selected(transaction, which, expected, by_run=True)
        ids = [job.job_id for job in jobs]
        target = MANY_TARGET + candidates_hash(ids)
        wanted = wanted_here(transaction, Act.RELEASE_MANY, target, executor)
        grant = request_in(
            transaction, wanted, requester=requester, rollback_plan=rollback_plan, reason=reason, ttl=ttl
        )
        content = candidates_text(ids, [job.version for job in jobs])
        transaction.runs.add_evidence(CANDIDATES, target, content, actor=requester, grant_id=grant.grant_id)
    return ReleaseRequest(grant=grant, total=len(ids), job_ids=tuple(ids))


# ---------------------------------------------------------------------------------------------------------------------
# Running


def run_release(
    store: Store[Any],
    grant_id: int,
    *,
    operator: str,
    reason: str,
    rate: float | None = None,
    run_at: datetime | None = None,
    batch_size: int = BATCH,
    stop_after: int | None = None,
    world: World | None = None,
) -> ReleaseReport:
    """Release the jobs that a grant was requested for, or continue its run, and return the report.

    `rate` is how many jobs become due per second, from now or from `run_at` on. The grant is good for the operator who
    consumed it; another one needs another grant for the same jobs, or requests the jobs that are left.

    Raise AuthorityError if no grant permits it, ReplayGuardError if a kill switch is on, RecordNotFoundError if the
    grant has no stored selection.
    """
    operator, reason = actor_and_reason(operator, reason)
    require_rate(rate, run_at)
    world = world or World()
    root = f"{PROCEDURE}-{grant_id}"
    with store.reading() as reading:
        run, grant = reading.runs.get(root), existing_grant(reading, grant_id)
        job_ids, versions = _candidates_of(reading, grant)
        jobs = reading.jobs.get_many(job_ids)
    if run is None:
        terms = ReleaseTerms(
            target=grant.target,
            total=len(job_ids),
            rate=rate,
            begins_at=run_at or store.due_now(),
            batch_size=batch_size,
            queues=tuple(sorted({job.queue for job in jobs})),
            operations=tuple(sorted({job.operation for job in jobs})),
        )
    else:
        terms = read_back(run.params, ReleaseTerms, f"the terms of run {run.idempotency_root}")
        if rate not in (None, terms.rate):
            raise PlanStaleError(
                f"Run {root} began with another rate.", next_step="Repeat the command without --rate.", context={}
            )
    request = _Request(
        root=root,
        procedure=PROCEDURE,
        params_text=stored_text(terms),
        plan=grant.target,
        target=f"{PROCEDURE}:{grant_id}",
        lease_s=LEASE_S,
        holder=f"{operator}/{world.new_name()}",
        actor=operator,
        reason=reason,
        grant_id=grant_id if run is None else None,
        first_grant=grant_id,
    )
    runner = _ReleaseRunner(store, request, terms, world, stop_after)
    return runner.perform(dict(zip(job_ids, versions, strict=True)))


def _candidates_of(reading: Reading, grant: Grant) -> tuple[list[int], list[int]]:
    found = release_candidates(reading, grant)
    if found is None:
        raise RecordNotFoundError(
            f"Grant {grant.grant_id} has no stored selection of quarantined jobs.",
            next_step="Request one: `holdfast quarantine release --all-matching --request --help`.",
            context={"grant_id": grant.grant_id},
        )
    return found


class _Request(RunRequest, frozen=True, kw_only=True):
    first_grant: int

    @property
    def resume_command(self) -> str:
        """Return the command that continues the run."""
        return f"holdfast quarantine release --grant {self.first_grant} --reason TEXT"

    def wanted(self, environment: str) -> Wanted:
        """Return what the grant of the run must permit."""
        return Wanted(act=Act.RELEASE_MANY, target=self.plan, environment=environment, executor=self.actor)


class _ReleaseRunner(BatchRunner):
    """One attempt to advance one release run."""

    def __init__(
        self, store: Store[Any], request: _Request, terms: ReleaseTerms, world: World, stop_after: int | None
    ) -> None:
        super().__init__(store, request, world, batches=terms.batches, scope=terms.scope, stop_after=stop_after)
        self._request, self._terms = request, terms
        self._versions: dict[int, int] = {}

    def perform(self, versions: dict[int, int]) -> ReleaseReport:
        """Begin the run or take it up, and make its batches until it is done or stops."""
        self._versions = versions
        self.run_to_end(self._started())
        with self._store.reading() as reading:
            return report_of(reading, self._request.first_grant)

    def _started(self) -> ProcedureRun:
        """Take the lease and the grant, record the beginning or the continuation, and return the run."""
        runner = self._runner
        with self._store.transaction() as transaction:
            run = transaction.runs.get(self._request.root)
            if run is not None and run.state is ProcedureState.DONE:
                return run
            runner.acquire(transaction)
            require_switches_off(transaction, self._terms.queues, self._terms.operations)
            run = transaction.runs.get(self._request.root)
            wanted = self._request.wanted(environment_of(transaction))
            if run is None:
                run = runner.begin(transaction, runner.consume(transaction, wanted))
                runner.record(transaction, run, 0, BEGIN, stored_text({"total": self._terms.total}))
                return run
            if run.state is ProcedureState.DONE:
                runner.lease.release(transaction)
                return run
            self._request.require_same(run)
            return runner.resume(transaction, run, wanted, governed=True)

    def make(self, transaction: Transaction, number: int) -> _Outcome:
        """Release the jobs of a batch that have not moved."""
        size = self._terms.batch_size
        first = (number - 1) * size
        ids = sorted(self._versions)[first : first + size]
        released, skipped = 0, Counter[str]()
        jobs = {job.job_id: job for job in transaction.jobs.get_many(ids)}
        for place, job_id in enumerate(ids, first):
            skip = _skip(jobs.get(job_id), self._versions[job_id])
            if skip is None:
                self._release(transaction, jobs[job_id], staggered(self._terms.begins_at, place, self._terms.rate))
                released += 1
            else:
                skipped[skip] += 1
        return _Outcome(released=released, skipped=dict(sorted(skipped.items())))

    def _release(self, transaction: Transaction, job: Job, due: datetime) -> None:
        request, move_id = self._request, uuid4().hex
        own = wanted_here(transaction, Act.RELEASE, f"{JOB_TARGET}{job.job_id}", request.actor)
        used = issue(transaction, own, reason=request.reason, move_id=move_id, under=request.first_grant)
        reason = f"{PROCEDURE} {request.root}: {request.reason}"
        move_released(transaction, job, Release(request.actor, reason, used, due), move_id)


def _skip(job: Job | None, version: int) -> str | None:
    """Return why a job is not released; None if it is."""
    if job is None:
        return "missing"
    if job.version != version or job.state is not JobState.QUARANTINED:
        return "state_changed"
    return "slimmed" if job.slimmed else None


# ---------------------------------------------------------------------------------------------------------------------
# Reading back


def report_of(reading: Reading, grant_id: int) -> ReleaseReport:
    """Return the report of the run of a grant, or raise RecordNotFoundError."""
    root = f"{PROCEDURE}-{grant_id}"
    run = reading.runs.get(root)
    if run is None:
        raise RecordNotFoundError(
            f"Grant {grant_id} has no release run.",
            next_step=f"Begin it: `holdfast quarantine release --grant {grant_id} --reason TEXT`.",
            context={"grant_id": grant_id},
        )
    terms = read_back(run.params, ReleaseTerms, f"the terms of run {root}")
    outcomes = [
        read_back(step.outcome, _Outcome, f"the outcome of batch {step.number}") for step in batch_steps(reading, run)
    ]
    skipped = sum((Counter(outcome.skipped) for outcome in outcomes), Counter[str]())
    return ReleaseReport(
        run_id=root,
        state=str(run.state),
        stop_reason=run.stop_state,
        failure=run.failure,
        total=terms.total,
        released=sum(outcome.released for outcome in outcomes),
        skipped=dict(sorted(skipped.items())),
        batches=len(outcomes),
        batches_planned=terms.batches,
        rate=terms.rate,
        first_run_at=terms.begins_at,
        last_run_at=staggered(terms.begins_at, terms.total - 1, terms.rate),
        grant_id=grant_id,
    )
