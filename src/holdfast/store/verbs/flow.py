"""Verbs of flow: submit unique work and work with a deadline, and end what is late.

Invariants: of the jobs that are submitted under one scope, at most one is active, or was submitted within the window,
whatever number of transactions submit at once: each locks the row of the scope before it looks at the scope's job; a
job whose deadline has passed is never claimed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from holdfast.core.decide import Move, Refused
from holdfast.core.errors import FlowInvalidError
from holdfast.core.machines import JOB
from holdfast.core.records import Job, time_text
from holdfast.core.rulings import Lapse
from holdfast.store.requests import Admission, Submission
from holdfast.store.statements import encoded
from holdfast.store.verbs.base import Verbs, WritingVerbs


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """What a submission says besides its call: within which scope it is unique, and until when it may start."""

    scope: str | None = None
    window_s: float | None = None  # the scope is taken for so long; None: until its job has ended
    deadline_at: datetime | None = None
    deadline_s: float | None = None  # from the submit on


class FlowReads(Verbs):
    """Reads deadlines."""

    def deadline_of(self, job_id: int) -> datetime | None:
        """Return until when a job may start; None if it has no deadline."""
        return next((self._store.moment(at) for (at,) in self._run("deadline_of", job_id=job_id) if at), None)


class FlowWrites(FlowReads, WritingVerbs):
    """Submits what is more than plain, and ends what is late."""

    def submit(self, submissions: Sequence[Submission], *, actor: str | None, reason: str | None) -> list[Admission]:
        """Record jobs as `JobWrites.submit` does; return the active job of a scope in place of another one."""
        flows = [submission.flow or Flow() for submission in submissions]
        deadlines = [self._deadline(flow) for flow in flows]
        found = self._taken(flows)
        first: dict[str, int] = {}  # of the submissions under one scope, the one that is recorded
        for index, flow in enumerate(flows):
            if flow.scope is not None and index not in found:
                first.setdefault(flow.scope, index)
        new = [
            index
            for index, flow in enumerate(flows)
            if index not in found and (flow.scope is None or first[flow.scope] == index)
        ]
        plain = [msgspec.structs.replace(submissions[index], flow=None) for index in new]
        found |= zip(new, self._session.jobs.submit(plain, actor=actor, reason=reason) if plain else (), strict=True)
        taken = [(scope, found[index].job_id) for scope, index in sorted(first.items())]
        if taken:
            self._run("give_scopes", rows=encoded(taken))
        late = [(found[i].job_id, time_text(at)) for i in new if (at := deadlines[i]) and found[i].is_new]
        if late:
            self._run("set_deadlines", rows=encoded(sorted(late)))
        return [found.get(index) or _same(found[first[flow.scope or ""]]) for index, flow in enumerate(flows)]

    def _taken(self, flows: Sequence[Flow]) -> dict[int, Admission]:
        """Lock the scopes of submissions; return the admissions of those whose scope is taken, by their place."""
        scopes = sorted({flow.scope for flow in flows if flow.scope is not None})
        holders = dict(self._run("take_scopes", rows=encoded(scopes))) if scopes else {}
        jobs = {job.job_id: job for job in self._session.jobs.get_many(j for j in holders.values() if j is not None)}
        now = self._store.now()
        return {
            index: Admission(job.job_id, is_new=False, existing=job)
            for index, flow in enumerate(flows)
            if flow.scope is not None
            and (job := jobs.get(holders[flow.scope])) is not None
            and _holds(job, flow.window_s, now)
        }

    def _deadline(self, flow: Flow) -> datetime | None:
        now = self._store.now()
        at = flow.deadline_at if flow.deadline_s is None else now + timedelta(seconds=flow.deadline_s)
        if at is not None and at <= now:
            raise FlowInvalidError(
                f"The deadline {at.isoformat()} has passed.",
                next_step="Give a later deadline, or do not submit the work.",
                context={"refusal": "deadline_past", "deadline_at": time_text(at)},
            )
        return at

    def lapse(self, *, actor: str, n: int = 1000) -> list[tuple[Job, Move | Refused]]:
        """End up to n pending jobs whose deadline has passed; return each with the answer."""
        now = self._store.time_parameter()
        late = {job_id: self._store.moment(at) for job_id, at in self._run("overdue_jobs", n=n, now=now)}
        rulings = [(job, Lapse(late[job.job_id])) for job in self._session.jobs.get_many(late)]
        answers = self._session.jobs.rule(rulings, actor=actor, reason="its deadline passed") if rulings else []
        return [(job, answer) for (job, _), answer in zip(rulings, answers, strict=True)]


def _holds(job: Job, window_s: float | None, now: datetime) -> bool:
    """Return whether a scope is taken by its job."""
    return job.state not in JOB.final if window_s is None else now - job.created_at < timedelta(seconds=window_s)


def _same(admission: Admission) -> Admission:
    return Admission(admission.job_id, is_new=False, existing=admission.existing)
