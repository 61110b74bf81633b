"""Acts on several jobs: what an act would do (a dry run), and the act, on exactly the jobs that were shown.

Invariants: a dry run writes nothing, and judges each job by the rule that the act applies; the act names each job with
the version that was shown, so that a job that has moved meanwhile is passed over, not overwritten; a release of several
is all or nothing, because one grant permits exactly that set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from holdfast.console.acts import Id, reason_given
from holdfast.console.context import Visit
from holdfast.console.governed_acts import release_many
from holdfast.console.selections import JobSelection
from holdfast.core import commands
from holdfast.core.decide import Move, Refused, decide
from holdfast.core.errors import InputError, PlanStaleError
from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.engine.rulings import RuleTask
from holdfast.governance.releases import GO, MANY_MAX, OWN, plan_release
from holdfast.store.transaction import Reading, Transaction

PART = 100  # jobs that are read, and ruled on, together
SHOWN = 5


class ManyAct(StrEnum):
    """An act on several jobs."""

    RETRY = "retry"
    CANCEL = "cancel"
    RELEASE = "release"


STATES = {ManyAct.RETRY: JobState.FAILED, ManyAct.RELEASE: JobState.QUARANTINED}


class ChosenJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job of a plan, with the version at which it was judged."""

    job_id: Id
    version: Id


class ManyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What an act on several jobs would do."""

    act: ManyAct
    jobs: tuple[ChosenJob, ...]
    examples: tuple[Job, ...]  # the first, the middle ones and the last, without payload and result
    by_state: dict[str, int]
    by_operation: dict[str, int]
    skipped: dict[str, int]  # why the act would be refused, and for how many jobs
    more: bool  # more jobs match than one act takes
    grant_target: str | None = None  # of the grant that is needed
    authority: str | None = None  # of a release: GO, OWN if dev makes the grant, or why it may not be done now

    @property
    def total(self) -> int:
        return len(self.jobs)

    @property
    def permitted(self) -> bool:
        """Return whether the act needs no grant, or has one."""
        return self.authority in (None, GO, OWN)


class RefusedJob(msgspec.Struct, frozen=True):
    """A job that an act did not change, and why."""

    job_id: int
    code: str
    message: str


class ManyDone(msgspec.Struct, frozen=True, kw_only=True):
    """What an act on several jobs did."""

    act: ManyAct
    done: int
    refused: tuple[RefusedJob, ...]
    grant_id: int | None = None


# ---------------------------------------------------------------------------------------------------------------------
# The dry run


def plan(here: Visit, act: ManyAct, selection: JobSelection) -> ManyPlan:
    """Return what an act would do to a selection; nothing is written. At most MANY_MAX jobs are taken."""
    here.caller.require_unlimited()
    state = STATES.get(act)
    if state is not None and selection.filters.state is None:
        selection = msgspec.structs.replace(selection, filters=msgspec.structs.replace(selection.filters, state=state))
    taken: list[Job] = []
    skipped: Counter[str] = Counter()
    with here.store.reading() as reading:
        ids, more = selection.ids(reading, MANY_MAX)
        now = here.store.now()
        for job in _jobs(reading, ids):
            why = _refusal(job, act, now)
            if why is None:
                taken.append(msgspec.structs.replace(job, payload=None, result=None))
            else:
                skipped[why] += 1
    authority = target = None
    if act is ManyAct.RELEASE and taken:
        planned = plan_release(here.store, [job.job_id for job in taken], operator=here.actor)
        authority, target = planned.authority, planned.target
    places = dict.fromkeys(round(n * (len(taken) - 1) / (SHOWN - 1)) for n in range(SHOWN)) if taken else {}
    return ManyPlan(
        act=act,
        jobs=tuple(ChosenJob(job.job_id, job.version) for job in taken),
        examples=tuple(taken[place] for place in places),
        by_state=dict(Counter(job.state.value for job in taken).most_common()),
        by_operation=dict(Counter(job.operation for job in taken).most_common()),
        skipped=dict(skipped.most_common()),
        more=more,
        grant_target=target,
        authority=authority,
    )


def _jobs(reading: Reading, ids: Sequence[int]) -> Iterator[Job]:
    """Yield jobs by id; only PART of them are in memory with their payloads."""
    for at in range(0, len(ids), PART):
        yield from reading.jobs.get_many(ids[at : at + PART])


def _refusal(job: Job, act: ManyAct, now: datetime) -> str | None:
    """Return the code by which an act on a job would be refused, or None."""
    if act is ManyAct.RELEASE:
        return "wrong_state" if job.state is not JobState.QUARANTINED else "payload_gone" if job.slimmed else None
    if act is ManyAct.CANCEL and job.state is JobState.RUNNING:
        return None
    answer = decide(job, _command(act, now), now)
    return answer.code if isinstance(answer, Refused) else None


def _command(act: ManyAct, now: datetime) -> commands.Retry | commands.Cancel:
    return commands.Retry(run_at=now) if act is ManyAct.RETRY else commands.Cancel()


# ---------------------------------------------------------------------------------------------------------------------
# The act


def perform(
    here: Visit,
    act: ManyAct,
    jobs: Sequence[ChosenJob],
    *,
    reason: str,
    grant_id: int | None = None,
) -> ManyDone:
    """Act on these jobs as they were shown. A job that has moved since is passed over; a release is then refused."""
    why = reason_given(reason)
    here.caller.require_unlimited()
    versions = {job.job_id: job.version for job in jobs}
    if not 0 < len(versions) <= MANY_MAX:
        raise InputError(f"An act takes 1 to {MANY_MAX} jobs.", next_step="Select some.", context={"field": "jobs"})
    if act is ManyAct.RELEASE:
        return _released(here, versions, why, grant_id)
    done, refused = 0, []
    ids = sorted(versions)
    for at in range(0, len(ids), PART):
        with here.store.reading() as reading:
            found = {job.job_id: job for job in reading.jobs.get_many(ids[at : at + PART])}
        tasks, now = [], here.store.now()
        for job_id in ids[at : at + PART]:
            job = found.get(job_id)
            if job is None or job.version != versions[job_id]:
                refused.append(_moved(job_id))
            elif job.state is JobState.RUNNING and act is ManyAct.CANCEL:
                here.ledger.cancel(job_id, actor=here.actor, reason=why)
                done += 1
            else:
                tasks.append(_ruling(job, _command(act, now), here.actor, why))
        here.ledger.perform_tasks(tasks)
        for task in tasks:
            answer = task.result()
            if isinstance(answer, Refused):
                refused.append(RefusedJob(task.job.job_id, answer.code, answer.message))
            else:
                done += 1
    return ManyDone(act=act, done=done, refused=tuple(refused))


def _ruling(job: Job, command: object, actor: str, reason: str) -> RuleTask:
    def rule(transaction: Transaction) -> Move | Refused:
        return transaction.rulings.rule([(job, command)], actor=actor, reason=reason)[0]

    return RuleTask(job, rule, actor=actor)


def _moved(job_id: int) -> RefusedJob:
    return RefusedJob(job_id, "race", f"Job {job_id} has moved since it was shown.")


def _released(here: Visit, versions: dict[int, int], reason: str, grant_id: int | None) -> ManyDone:
    ids = sorted(versions)
    with here.store.reading() as reading:
        moved = set(versions) - {job.job_id for job in _jobs(reading, ids) if job.version == versions[job.job_id]}
    if moved:
        raise PlanStaleError(
            f"{len(moved)} of {len(ids)} jobs have moved since they were shown. No job was released.",
            next_step="Look at the selection again.",
            context={"job_ids": sorted(moved)[:PART]},
        )
    made = release_many(here, ids, reason=reason, expected=len(ids), grant_id=grant_id)
    return ManyDone(act=ManyAct.RELEASE, done=len(made.job_ids), refused=(), grant_id=made.grant_id)
