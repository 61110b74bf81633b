"""Quarantine: list and show quarantined jobs, put jobs there by hand, and drop the payloads of old ones.

To release a job needs a grant: see `releases.py`.

Invariants: each answer is read from one snapshot of the database; nothing here moves a job out of quarantine; a purge
drops payload and result, never the record, its key or its history.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.authority import Act
from holdfast.core.commands import Quarantine
from holdfast.core.decide import CANCELLED, Refused
from holdfast.core.environments import DEV
from holdfast.core.errors import InputError, InvalidStateTransitionError, StateTransitionRaceError
from holdfast.core.governed import Grant
from holdfast.core.journal import JournalRow
from holdfast.core.machines import GrantState, JobState
from holdfast.core.records import Job
from holdfast.engine.upkeep.retention import GcReport, Retention, gc
from holdfast.engine.worker.raised import HOPELESS
from holdfast.governance.acts import actor_and_reason, retried
from holdfast.governance.approval import environment_of
from holdfast.governance.reasons import Reason, reason_for, reason_of

if TYPE_CHECKING:
    from holdfast.store import Store
    from holdfast.store.transaction import Reading, Transaction

JOB_TARGET = "job:"  # and the id: the target of a grant to release one job
_PAGE = 500
_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")


# ---------------------------------------------------------------------------------------------------------------------
# Finding


class QuarantineFilters(msgspec.Struct, frozen=True, kw_only=True):
    """Which quarantined jobs to select. Cancelled jobs are left out unless they are selected explicitly."""

    code: str | None = None
    reason: Reason | None = None
    operation: str | None = None
    queue: str | None = None
    older_than: timedelta | None = None
    cancelled: bool = False

    @property
    def but(self) -> str | None:
        """Return the code to leave out: cancelled, unless it is selected."""
        selected = self.cancelled or CANCELLED in (self.code, self.reason)
        return None if selected else CANCELLED


def find(
    reading: Reading, filters: QuarantineFilters, *, limit: int, before: int | None = None, releasable: bool = False
) -> list[Job]:
    """Return a page of the selected jobs, newest first; `releasable` leaves out jobs whose payload was dropped."""
    if limit < 1:
        raise InputError("The limit must be at least 1.")
    found = []
    for job in _matching(
        reading, filters, before, size=limit if filters.reason is None else _PAGE, slimmed=not releasable
    ):
        found.append(job)
        if len(found) == limit:
            break
    return found


def _matching(
    reading: Reading, filters: QuarantineFilters, before: int | None, *, size: int, slimmed: bool
) -> Iterator[Job]:
    until = None if filters.older_than is None else reading.now() - filters.older_than
    while True:
        page = reading.quarantine.page(
            code=filters.code,
            but=filters.but,
            operation=filters.operation,
            queue=filters.queue,
            until=until,
            slimmed=slimmed,
            before=before,
            limit=size,
        )
        yield from (job for job in page if filters.reason in (None, reason_for(job)))
        if len(page) < size:
            return
        before = page[-1].job_id


# ---------------------------------------------------------------------------------------------------------------------
# One job


class PastRelease(msgspec.Struct, frozen=True, kw_only=True):
    """A past release: the job, the time, the operator, the reason, and the approver."""

    job_id: int
    at: datetime
    by: str
    reason: str
    grant_id: int
    requested_by: str
    approved_by: str | None
    approved_how: str | None  # self, claimed, role, key or console; grant: under a grant for several jobs
    under: int | None  # the grant for several jobs
    state: JobState | None  # the job's current state


class QuarantineDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is, or was, in quarantine: why, since when, its past releases, and what to do next."""

    job: Job
    reason: Reason | None  # None if it is not in quarantine now
    since: datetime | None
    by: str | None
    why: str | None
    left: int  # automatic attempts after a release, if it keeps failing
    then: JobState  # its state after those attempts
    moves: tuple[JournalRow, ...]  # into quarantine and out of it
    releases: tuple[PastRelease, ...]
    next: tuple[str, ...]  # commands to run


def show(reading: Reading, job_id: int) -> QuarantineDetails:
    """Return why a job is in quarantine, its moves into and out of it, and the next commands."""
    job = reading.jobs.get(job_id)
    there = job.state is JobState.QUARANTINED
    rows = [row for row in reading.journal.of(job_id) if JobState.QUARANTINED in (row.source, row.target)]
    last = rows[-1] if there and rows else None
    # A claim does not check the budget: a released job runs at least once more, even if all attempts are used.
    left = max(1, job.max_attempts - job.spent)
    gone = job.spent + left >= job.max_attempts + job.replay_attempts
    return QuarantineDetails(
        job=job,
        reason=reason_for(job) if there else None,
        since=job.updated_at if there else None,
        by=last.actor if last else None,
        why=last.reason if last else None,
        left=left,
        then=JobState.QUARANTINED if gone else JobState.FAILED,
        moves=tuple(rows),
        releases=tuple(history(reading, job_id=job_id)),
        next=release_commands(reading, job) if there else (f"holdfast explain {job_id}",),
    )


def release_commands(reading: Reading, job: Job) -> tuple[str, ...]:
    """Return the commands that release a job; `holdfast show` if it cannot or need not be released."""
    if job.slimmed or job.quarantine_code == Reason.SUPERSEDED or job.quarantine_code in HOPELESS:
        return (f"holdfast show {job.job_id}",)
    release = f"holdfast quarantine release {job.job_id} --reason TEXT"
    if environment_of(reading) == DEV:
        return (release,)
    target = f"{JOB_TARGET}{job.job_id}"
    active = [grant for grant in reading.grants.open_for(Act.RELEASE, target) if grant.state == GrantState.ACTIVE]
    if active:
        return (f"{release} --grant {active[-1].grant_id}",)
    request = f"holdfast grant request {Act.RELEASE} {target} --executor NAME --rollback-plan TEXT --reason TEXT"
    return request, f"{release} --grant ID"


def history(
    reading: Reading, *, job_id: int | None = None, limit: int = 100, before: int | None = None
) -> list[PastRelease]:
    """Return past releases, newest first; `before` is the grant id to continue below."""
    grants = reading.grants.page(
        state=GrantState.CONSUMED,
        action=Act.RELEASE,
        target=None if job_id is None else f"{JOB_TARGET}{job_id}",
        before=before,
        limit=limit,
    )
    ids = {grant.grant_id: _released(grant) for grant in grants}
    states = {job.job_id: job.state for job in reading.jobs.get_many(sorted({id_ for id_ in ids.values() if id_}))}
    return [_past(grant, job_id, states.get(job_id)) for grant in grants if (job_id := ids[grant.grant_id])]


def _released(grant: Grant) -> int | None:
    number = grant.target.removeprefix(JOB_TARGET)
    return int(number) if number.isdecimal() and number.isascii() else None


def _past(grant: Grant, job_id: int, state: JobState | None) -> PastRelease:
    via = msgspec.json.decode(grant.approved_via or "{}")
    return PastRelease(
        job_id=job_id,
        at=grant.updated_at,
        by=grant.consumed_by or "",
        reason=grant.reason,
        grant_id=grant.grant_id,
        requested_by=grant.requested_by,
        approved_by=grant.approved_by,
        approved_how=via.get("method"),
        under=via.get("grant_id"),
        state=state,
    )


# ---------------------------------------------------------------------------------------------------------------------
# All of them


class QuarantineStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of quarantined jobs by reason, operation, queue and age."""

    total: int
    cancelled: int  # left out of the other counts, unless they are selected
    slimmed: int
    by_reason: dict[str, int]
    by_operation: dict[str, int]
    by_queue: dict[str, int]
    by_age: dict[str, int]


AGES = (
    ("less than an hour", timedelta(hours=1)),
    ("less than a day", timedelta(days=1)),
    ("less than 7 days", timedelta(days=7)),
    ("less than 30 days", timedelta(days=30)),
)
OLDEST = "30 days or more"


def statistics(reading: Reading, *, cancelled: bool = False) -> QuarantineStatistics:
    """Return counts of the quarantined jobs; cancelled ones are left out unless `cancelled` is set."""
    now = reading.now()
    reasons, operations, queues, ages = (Counter[str]() for _ in range(4))
    slimmed = cancelled_jobs = 0
    for fact in reading.quarantine.facts():
        cancelled_jobs += fact.code == CANCELLED
        if fact.code == CANCELLED and not cancelled:
            continue
        slimmed += fact.slimmed
        reasons[reason_of(fact.code, fact.error_code, fact.error_message).value] += 1
        operations[fact.operation] += 1
        queues[fact.queue] += 1
        ages[next((name for name, limit in AGES if now - fact.since < limit), OLDEST)] += 1
    return QuarantineStatistics(
        total=reasons.total(),
        cancelled=cancelled_jobs,
        slimmed=slimmed,
        by_reason=_most_first(reasons),
        by_operation=_most_first(operations),
        by_queue=_most_first(queues),
        by_age={name: ages[name] for name in (*(name for name, _ in AGES), OLDEST)},
    )


def _most_first(counted: Counter[str]) -> dict[str, int]:
    return dict(sorted(counted.items(), key=lambda pair: (-pair[1], pair[0])))


# ---------------------------------------------------------------------------------------------------------------------
# Adding and purging


class QuarantineResult(msgspec.Struct, frozen=True):
    """A quarantined job, and whether this call put it there."""

    job: Job
    changed: bool


def add(
    store: Store[Any], job_id: int, code: str, *, operator: str, reason: str, version: int | None = None
) -> QuarantineResult:
    """Quarantine a pending or failed job under a known reason or a code of your own, and return it.

    Raise InvalidStateTransitionError if the job is neither, StateTransitionRaceError if it has another version than
    the given one.
    """
    who, why = actor_and_reason(operator, reason)
    if not _CODE.fullmatch(code) or code == CANCELLED:
        raise InputError(
            f"{code!r} is not a valid quarantine code.",
            next_step="Use lower-case letters, digits and _, such as parse_error. To cancel: `holdfast cancel --help`.",
            context={"field": "code", "reasons": sorted(set(Reason) - {CANCELLED})},
        )

    def act(transaction: Transaction) -> QuarantineResult:
        job = transaction.jobs.get(job_id)
        require_version(job, version)
        [answer] = transaction.rulings.rule([(job, Quarantine(code, why))], actor=who, reason=why)
        if isinstance(answer, Refused):
            error = StateTransitionRaceError if answer.code == "race" else InvalidStateTransitionError
            context = {"job_id": job_id, "refusal": answer.code}
            raise error(answer.message, next_step=answer.next_step, context=context)
        return QuarantineResult(transaction.jobs.get(job_id), changed=bool(answer.steps))

    return retried(store, act)


def require_version(job: Job, version: int | None) -> None:
    """Raise StateTransitionRaceError if a job has moved since a person saw it, at the given version."""
    if version is not None and job.version != version:
        raise StateTransitionRaceError(
            f"Job {job.job_id} has changed meanwhile: it is {job.state}, version {job.version}, not {version}.",
            next_step=f"Look at it again: `holdfast show {job.job_id}`.",
            context={"job_id": job.job_id, "state": job.state, "version": job.version, "expected": version},
        )


def purge(store: Store[Any], older_than: timedelta, *, operator: str, reason: str, apply: bool) -> GcReport:
    """Drop payload and result of jobs that are in quarantine for longer than this, cancelled ones too.

    Without `apply`, only count them.
    """
    who, why = actor_and_reason(operator, reason)
    policy = Retention(quarantined_s=older_than.total_seconds())
    return gc(store, policy, who=who, why=why, dry_run=not apply)
