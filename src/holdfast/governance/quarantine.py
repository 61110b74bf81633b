"""Quarantine: looking at what rests there, putting jobs there by hand, dropping what has rested long enough.

The way back is governed: see `releases.py`.

Invariants: everything that one question needs is read from one view; nothing here moves a job out of quarantine; what
is dropped is payload and result, never the record, its key or its history.
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
from holdfast.core.machines import GrantState, JobState
from holdfast.core.records import Job, JournalRow
from holdfast.engine.upkeep.retention import GcReport, Retention, gc
from holdfast.governance.acts import actor_and_reason, retry_races
from holdfast.governance.grants import environment_of
from holdfast.governance.reasons import Reason, reason_for, reason_of

if TYPE_CHECKING:
    from holdfast.store import Store
    from holdfast.store.transaction import Reading

JOB_TARGET = "job:"  # and the id: what a grant to release one job is for
_PAGE = 500
_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")


# ---------------------------------------------------------------------------------------------------------------------
# Finding


class QuarantineFilters(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs of the quarantine are meant. What was cancelled is not, unless it is asked for."""

    code: str | None = None
    reason: Reason | None = None
    operation: str | None = None
    queue: str | None = None
    older_than: timedelta | None = None
    cancelled: bool = False

    @property
    def but(self) -> str | None:
        """Return the code that is left out."""
        asked = self.cancelled or CANCELLED in (self.code, self.reason)
        return None if asked else CANCELLED


def find(
    reading: Reading, filters: QuarantineFilters, *, limit: int, before: int | None = None, releasable: bool = False
) -> list[Job]:
    """Return a page of the jobs that are meant, newest first; `releasable` leaves out those without a payload."""
    if limit < 1:
        raise InputError("a page has at least one job")
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
    """A release that was made: of what, when, by whom, why, and who let them."""

    job_id: int
    at: datetime
    by: str
    reason: str
    grant_id: int
    requested_by: str
    approved_by: str | None
    approved_how: str | None  # self, claimed, role, key, console; or by a grant for many
    under: int | None  # that grant
    state: JobState | None  # of the job now


class QuarantineDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to know of a job that is, or was, in quarantine."""

    job: Job
    reason: Reason | None  # None if it is not there now
    since: datetime | None
    by: str | None
    why: str | None
    left: int  # how often it runs by itself after a release, if it goes on failing
    then: JobState  # where it rests after that
    moves: tuple[JournalRow, ...]  # into quarantine and out of it
    releases: tuple[PastRelease, ...]
    next: tuple[str, ...]  # commands to type


def show(reading: Reading, job_id: int) -> QuarantineDetails:
    """Tell why a job is in quarantine, how it came and went, and what to type next."""
    job = reading.jobs.get(job_id)
    there = job.state is JobState.QUARANTINED
    rows = [row for row in reading.journal.of(job_id) if JobState.QUARANTINED in (row.source, row.target)]
    last = rows[-1] if there and rows else None
    # A claim asks for no budget: what was released runs once, however much it has spent.
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
    """Return what to type to get a job out of quarantine: nothing but to look at it, where there is no way or use."""
    if job.slimmed or job.quarantine_code == Reason.SUPERSEDED:
        return (f"holdfast show {job.job_id}",)
    release = f"holdfast quarantine release {job.job_id} --reason TEXT"
    if environment_of(reading) == DEV:
        return (release,)
    target = f"{JOB_TARGET}{job.job_id}"
    active = [grant for grant in reading.grants.open_for(Act.RELEASE, target) if grant.state == GrantState.ACTIVE]
    if active:
        return (f"{release} --grant {active[-1].grant_id}",)
    ask = f"holdfast grant request {Act.RELEASE} {target} --executor NAME --rollback-plan TEXT --reason TEXT"
    return ask, f"{release} --grant ID"


def history(
    reading: Reading, *, job_id: int | None = None, limit: int = 100, before: int | None = None
) -> list[PastRelease]:
    """Return the releases that were made, newest first; `before` continues below a grant."""
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
    """How many jobs rest in quarantine, by what they have in common."""

    total: int
    cancelled: int  # not among the others, unless they were asked for
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
    """Count what rests in quarantine."""
    now = reading.now()
    reasons, operations, queues, ages = (Counter[str]() for _ in range(4))
    slimmed = called_off = 0
    for fact in reading.quarantine.facts():
        called_off += fact.code == CANCELLED
        if fact.code == CANCELLED and not cancelled:
            continue
        slimmed += fact.slimmed
        reasons[reason_of(fact.code, fact.error_code, fact.error_message).value] += 1
        operations[fact.operation] += 1
        queues[fact.queue] += 1
        ages[next((name for name, limit in AGES if now - fact.since < limit), OLDEST)] += 1
    return QuarantineStatistics(
        total=reasons.total(),
        cancelled=called_off,
        slimmed=slimmed,
        by_reason=_most_first(reasons),
        by_operation=_most_first(operations),
        by_queue=_most_first(queues),
        by_age={name: ages[name] for name in (*(name for name, _ in AGES), OLDEST)},
    )


def _most_first(counted: Counter[str]) -> dict[str, int]:
    return dict(sorted(counted.items(), key=lambda pair: (-pair[1], pair[0])))


# ---------------------------------------------------------------------------------------------------------------------
# Putting there, and dropping


class QuarantineResult(msgspec.Struct, frozen=True):
    """A job as it stands in quarantine, and whether it was put there just now."""

    job: Job
    changed: bool


def add(store: Store[Any], job_id: int, code: str, *, operator: str, reason: str) -> QuarantineResult:
    """Take a waiting or failed job out of automatic flows, under a known reason or a code of one's own."""
    who, why = actor_and_reason(operator, reason)
    if not _CODE.fullmatch(code) or code == CANCELLED:
        raise InputError(
            f"{code!r} is not a code for quarantine",
            next_step="Use small letters, digits and _ (such as parse_error); to cancel a job, use `holdfast cancel`.",
            context={"field": "code", "reasons": sorted(set(Reason) - {CANCELLED})},
        )

    def once() -> QuarantineResult:
        with store.transaction() as transaction:
            job = transaction.jobs.get(job_id)
            [answer] = transaction.jobs.rule([(job, Quarantine(code, why))], actor=who, reason=why)
            if isinstance(answer, Refused):
                error = StateTransitionRaceError if answer.code == "race" else InvalidStateTransitionError
                raise error(answer.message, context={"job_id": job_id, "refusal": answer.code})
            return QuarantineResult(transaction.jobs.get(job_id), changed=bool(answer.steps))

    return retry_races(once)


def purge(store: Store[Any], older_than: timedelta, *, operator: str, reason: str, apply: bool) -> GcReport:
    """Drop payload and result of what has rested for so long, cancelled jobs too; without `apply`, only count them."""
    who, why = actor_and_reason(operator, reason)
    policy = Retention(quarantined_s=older_than.total_seconds())
    return gc(store, policy, who=who, why=why, dry_run=not apply)
