"""Verbs of flow: unique work, deadlines, jobs that wait for other jobs, and batches.

Invariants: of the jobs that are submitted under one scope, at most one is active, or was submitted within the window,
whatever number of transactions submit at once: each locks the row of the scope before it looks at the scope's job; a
job whose deadline has passed is never claimed; a job that waits for others is parked in the transaction that submits
it, and is unparked once; the jobs that it waits for never wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from holdfast.core.commands import Cancel
from holdfast.core.decide import Move, Refused
from holdfast.core.errors import FlowInvalidError, RecordNotFoundError
from holdfast.core.machines import JOB, JobState
from holdfast.core.records import Job, time_text
from holdfast.core.rulings import Lapse
from holdfast.store.requests import Admission, Submission
from holdfast.store.rows import reader
from holdfast.store.statements import encoded
from holdfast.store.verbs.base import Verbs, WritingVerbs

WAIT, CANCEL, RUN = POLICIES = ("wait", "cancel", "run")
FOR_GOOD = ("cancelled", "deadline_passed")  # codes of jobs whose end cancels what follows, if it says so
AFTER: Final = "after"
BATCH: Final = "batch"

Ruled = list[tuple[Job, Move | Refused]]
# A wait that can change: its id, the job that waits, the job that it awaited, the parent that cancels the waiting job,
# and the job that it awaits now.
SettledWait = tuple[int, int | None, int, int | None, int | None]
Place = tuple[int, int]  # a wait and one of its parents


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a submission besides its call: its scope if it is unique, its deadline, and what it waits for."""

    scope: str | None = None
    window_s: float | None = None  # the scope is taken for so long; None: until its job has ended
    deadline_at: datetime | None = None
    deadline_s: float | None = None  # from the submit on
    after: tuple[int, ...] = ()
    policy: str = WAIT  # what happens if a job of `after` does not succeed


class Wait(msgspec.Struct, frozen=True):
    """A job that waits for others, or a batch."""

    wait_id: int
    kind: str
    name: str | None
    job_id: int | None  # the job that waits; None for a batch that no job follows
    policy: str
    parents: int
    awaited: int | None  # one of the jobs that it waits for; None: it waits no longer
    created_at: datetime


class NewWait(msgspec.Struct, frozen=True):
    """A wait to record: see `Wait`."""

    kind: str
    parents: Sequence[int]
    policy: str = WAIT
    job_id: int | None = None
    name: str | None = None


_read_wait = reader(Wait)


class FlowReads(Verbs):
    """Reads deadlines, waits and batches."""

    def deadline_of(self, job_id: int) -> datetime | None:
        """Return until when a job may start; None if it has no deadline."""
        return next((self._store.moment(at) for (at,) in self._run("deadline_of", job_id=job_id) if at), None)

    def any_overdue(self) -> bool:
        """Return whether the deadline of a pending job has passed."""
        [[found]] = self._run("any_overdue", now=self._store.time_parameter())
        return bool(found)

    def wait_of(self, job_id: int) -> Wait | None:
        """Return what a job waits for, or waited for; None if it was submitted without."""
        return self._one(_read_wait, "wait_of", job_id=job_id)

    def holding(self, wait_id: int, n: int = 1) -> list[tuple[int, JobState, str | None]]:
        """Return up to n of the jobs of a wait that have not succeeded: id, state and quarantine code."""
        return [(job, JobState(state), code) for job, state, code in self._run("holding_parents", wait_id=wait_id, n=n)]

    def batch(self, batch_id: int) -> Wait:
        """Return a batch, or raise RecordNotFoundError."""
        found = self._one(_read_wait, "get_batch", wait_id=batch_id)
        if found is None:
            raise RecordNotFoundError(
                f"There is no batch {batch_id}.",
                next_step="To list the batches, run `holdfast batches list`.",
                context={"batch_id": batch_id},
            )
        return found

    def batches(self, n: int = 100) -> list[Wait]:
        return self._all(_read_wait, "list_batches", n=n)

    def states_of(self, wait_id: int) -> dict[JobState, int]:
        """Return how many of the jobs of a wait or batch are in each state."""
        found = {JobState(state): n for state, n in self._run("parents_by_state", wait_id=wait_id)}
        return {state: found.get(state, 0) for state in JobState}

    def settled(self, after: int, n: int) -> tuple[list[SettledWait], int]:
        """Look at up to n open waits past an id; return those to change, and the id at which the next look begins."""
        found = [(w, j, a, c, following) for w, j, a, c, following in self._run("settled_waits", after=after, n=n)]
        last = self._run("last_wait_of", after=after, n=n)
        return found, last[0][0] if last else 0

    def doomed(self, after: Place, n: int) -> tuple[list[SettledWait], Place]:
        """Look at up to n parents past a place for those whose end cancels what waits; return as `settled` does."""
        rows = self._run("doomed_waits", wait_id=after[0], parent_id=after[1], n=n)
        following = [(wait, parent) for wait, job, _, parent in rows if not job]
        return [(w, j, a, p, None) for w, j, a, p in rows if j], following[0] if following else (0, 0)


class FlowWrites(FlowReads, WritingVerbs):
    """Submits jobs with a scope, a deadline or a wait, ends jobs after their deadline, and unparks jobs."""

    def submit(self, submissions: Sequence[Submission], *, actor: str | None, reason: str | None) -> list[Admission]:
        """Record jobs as `JobWrites.submit` does; return the active job of a scope in place of another one.

        Raise FlowInvalidError for a deadline that has passed or is not after `run_at`, and for a wait for a job that
        does not exist or that waits itself for the job that is submitted.
        """
        flows = [submission.flow or Flow() for submission in submissions]
        deadlines = [self._deadline(one, flow) for one, flow in zip(submissions, flows, strict=True)]
        self._require_jobs({parent for flow in flows for parent in flow.after})
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
        answers = [found.get(index) or _same(found[first[flow.scope or ""]]) for index, flow in enumerate(flows)]
        waits: dict[int, NewWait] = {}
        for admission, flow in zip(answers, flows, strict=True):
            if flow.after and admission.is_new:
                waits[admission.job_id] = NewWait(AFTER, flow.after, flow.policy, admission.job_id)
            elif flow.after:
                self._require_no_cycle(admission.job_id, flow.after)
        if waits:
            self.wait(list(waits.values()))
        return answers

    # -- unique work --------------------------------------------------------------------------------------------------

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

    # -- deadlines ----------------------------------------------------------------------------------------------------

    def _deadline(self, submission: Submission, flow: Flow) -> datetime | None:
        now = self._store.now()
        at = flow.deadline_at if flow.deadline_s is None else now + timedelta(seconds=flow.deadline_s)
        if at is None or at > max(now, submission.run_at or now):
            return at
        if submission.key is not None and self._session.jobs.by_key([(submission.client, submission.key)]):
            return at  # a submit that is repeated under its key is answered with its job
        if submission.run_at is not None and at > now:
            raise FlowInvalidError(
                f"The deadline {at.isoformat()} is not after run_at, which is {submission.run_at.isoformat()}.",
                next_step="Give a deadline after run_at, or an earlier run_at.",
                context={"refusal": "deadline_before_run_at", "deadline_at": time_text(at)},
            )
        raise FlowInvalidError(
            f"The deadline {at.isoformat()} has passed.",
            next_step="Give a later deadline, or do not submit the work.",
            context={"refusal": "deadline_past", "deadline_at": time_text(at)},
        )

    def lapse(self, *, actor: str, n: int = 1000) -> Ruled:
        """End up to n pending jobs whose deadline has passed; return each with the answer."""
        now = self._store.time_parameter()
        late = {job_id: self._store.moment(at) for job_id, at in self._run("overdue_jobs", n=n, now=now)}
        rulings = [(job, Lapse(late[job.job_id])) for job in self._session.jobs.get_many(late)]
        answers = self._session.rulings.rule(rulings, actor=actor, reason="its deadline passed") if rulings else []
        return [(job, answer) for (job, _), answer in zip(rulings, answers, strict=True)]

    # -- jobs that wait -----------------------------------------------------------------------------------------------

    def wait(self, waits: Sequence[NewWait]) -> int:
        """Let jobs wait for others; return the id of the first wait, which is the id of a batch."""
        rows = [[w.kind, w.name, w.job_id, w.policy, len(set(w.parents)), min(w.parents)] for w in waits]
        made = self._run("insert_waits", rows=encoded(rows), now=self._store.time_parameter())
        ids = {job_id: wait_id for wait_id, job_id in made}
        edges = sorted((ids[w.job_id], parent) for w in waits for parent in set(w.parents))
        self._run("insert_after", rows=encoded(edges))
        jobs = [w.job_id for w in waits if w.job_id is not None]
        if jobs:
            self._session.parking.park(jobs, AFTER)
        first = min(ids.values())
        found = self.settled(first - 1, len(waits))[0]  # some may have ended before
        if any(w.policy == CANCEL for w in waits):
            found += self.doomed((first, 0), len(edges))[0]
        self.settle(found, actor="holdfast")
        return int(first)

    def settle(self, found: Sequence[SettledWait], *, actor: str) -> tuple[int, Ruled]:
        """Change waits as `settled` and `doomed` found them; return how many changed, and the jobs that were cancelled.

        A wait that another transaction has changed since is left alone, and so is one whose parent was released since.
        """
        parents = {each[3] for each in found if each[3] is not None}
        ended = {job.job_id for job in self._session.jobs.get_many(parents) if job.quarantine_code in FOR_GOOD}
        found = [each for each in found if each[3] is None or each[3] in ended]
        last = {each[0]: each for each in sorted(found, key=lambda each: each[3] or 0)}  # a wait that is doomed ends
        rows: list[list[object]] = [[wait, awaited, then] for wait, _, awaited, _, then in last.values()]
        won = self._write("move_waits", rows)
        free = [
            job for w, job, _, doomed, then in last.values() if w in won and job and doomed is None and then is None
        ]
        if free:
            self._session.parking.let_go(free, AFTER)
        doomed = {job: parent for wait, job, _, parent, _ in last.values() if wait in won and job and parent}
        return len(won), self._cancel(doomed, actor)

    def _cancel(self, doomed: Mapping[int, int], actor: str) -> Ruled:
        """Cancel jobs because a job that each waits for, given with it, has ended for good without success."""
        jobs: dict[int, list[Job]] = {}
        for job in self._session.jobs.get_many(doomed) if doomed else ():
            jobs.setdefault(doomed[job.job_id], []).append(job)
        ruled: Ruled = []
        for parent, some in jobs.items():
            reason = f"it follows job {parent}, which was cancelled or came too late"
            answers = self._session.rulings.rule([(job, Cancel()) for job in some], actor=actor, reason=reason)
            ruled += zip(some, answers, strict=True)
        return ruled

    def _require_jobs(self, wanted: set[int]) -> None:
        known = {job_id for job_id, _ in self._run("job_states", rows=encoded(sorted(wanted)))} if wanted else set()
        if wanted - known:
            missing = min(wanted - known)
            raise FlowInvalidError(
                f"There is no job {missing} to wait for.",
                next_step="Give receipts or ids of jobs of this ledger.",
                context={"refusal": "parent_unknown", "job_id": missing},
            )

    def _require_no_cycle(self, job_id: int, parents: Iterable[int]) -> None:
        if self._run("follows_any", job_id=job_id, rows=encoded(sorted(parents))):
            raise FlowInvalidError(
                f"Job {job_id} would wait for itself.",
                next_step=f"See what waits for it: `holdfast explain {job_id}`.",
                context={"refusal": "cycle", "job_id": job_id},
            )


def _holds(job: Job, window_s: float | None, now: datetime) -> bool:
    return job.state not in JOB.final if window_s is None else now - job.created_at < timedelta(seconds=window_s)


def _same(admission: Admission) -> Admission:
    return Admission(admission.job_id, is_new=False, existing=admission.existing)
