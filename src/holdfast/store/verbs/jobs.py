"""Verbs of jobs: record work once, rule on it from outside, and read it.

Invariants: a verb writes all of its accepted moves or, by an exception, nothing; zero rows is a refusal, never an error
swallowed; a ruling matches id, state and version; an error's message is written only as `core.redaction` leaves it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast.core.commands import Release, Replay, Submit
from holdfast.core.decide import Move, Refused, Step, decide, step_of
from holdfast.core.errors import IdempotencyConflictError, InputError, JobNotFoundError, invariant
from holdfast.core.machines import JOB, JobState
from holdfast.core.records import Job
from holdfast.store.requests import Admission, Submission
from holdfast.store.statements import encoded
from holdfast.store.verbs.base import Shapes, Verbs, WritingVerbs, job_row, redacted_move

RESTING = frozenset({JobState.FAILED, JobState.QUARANTINED, JobState.RUNNING})  # those of a partial index
FEW_WAITING = 20_000  # so many can be sorted for a page; among more, a page is found soon


class JobReads(Verbs):
    """Reads jobs."""

    def get(self, job_id: int) -> Job:
        """Return one job, or raise JobNotFoundError."""
        found = self.get_many([job_id])
        if not found:
            raise JobNotFoundError(f"there is no job {job_id}", context={"job_id": job_id})
        return found[0]

    def get_many(self, job_ids: Iterable[int]) -> list[Job]:
        """Return the jobs that exist among these, by id."""
        asked = list(job_ids)
        return [self._job(row) for row in self._run("get_jobs", rows=encoded(asked))] if asked else []

    def by_key(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Job]:
        """Return the jobs that were submitted under these (client, key) pairs."""
        rows = self._run("jobs_by_key", rows=encoded(keys))
        return {(job.client, job.key): job for job in map(self._job, rows) if job.key is not None}

    def page(
        self,
        *,
        state: JobState | None = None,
        operation: str | None = None,
        queue: str | None = None,
        client: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Job]:
        """Return jobs, newest first; `before` continues below the last id of a page."""
        if limit < 1:
            raise InputError("a page has at least one job")
        asked = {"state": state, "operation": operation, "queue": queue, "client": client, "before": before, "n": limit}
        rows = self._run(self._listing(state), **asked)
        return [self._job(row) for row in rows]

    def _listing(self, state: JobState | None) -> str:
        """Return the statement that finds a page without looking at many jobs in other states."""
        if state in RESTING:
            return "list_resting_jobs"
        if (
            state is JobState.PENDING
            and sum(n for _, _, of, n in self._session.counts.raw() if of == state) <= FEW_WAITING
        ):
            return "list_waiting_jobs"
        return "list_jobs"

    def next_due(self, queues: Sequence[str]) -> datetime | None:
        """Return the earliest time at which a job of these queues may run: past if one is due, None if none waits."""
        [[moment]] = self._run("next_due", queues=encoded(list(queues)))
        return None if moment is None else self._store.moment(moment)

    def due_ahead(self, job: Job, now: datetime, limit: int) -> int:
        """Return how many due jobs of a job's queue are claimed before it, no further than a limit."""
        [[n]] = self._run(
            "due_ahead",
            queue=job.queue,
            priority=job.priority,
            run_at=self._store.stored(job.run_at),
            job_id=job.job_id,
            now=self._store.stored(now),
            n=limit,
        )
        return int(n)


class JobWrites(JobReads, WritingVerbs):
    """Records jobs, and moves them from outside."""

    def submit(
        self, submissions: Sequence[Submission], *, actor: str | None = None, reason: str | None = None
    ) -> list[Admission]:
        """Record work, once for each (client, key); raise on a used key with other work, or an unknown operation.

        Without an actor, each job's client is on record as the one who submitted it.
        """
        self._session.operations.require_usable(submissions)
        digests = [submission.digest for submission in submissions]
        first: dict[tuple[str, str], int] = {}
        for index, submission in enumerate(submissions):
            if submission.key is not None:
                chosen = first.setdefault((submission.client, submission.key), index)
                _require_same(submission, digests[index], digests[chosen])
        keyless = [index for index, submission in enumerate(submissions) if submission.key is None]
        # One order for all writers, so that two batches with common keys cannot wait for each other.
        to_insert = [index for _, index in sorted(first.items())] + keyless
        born = _birth(JOB.name, decide(None, Submit(), self._store.now()))
        rows = self._run(
            "insert_jobs",
            rows=encoded([submissions[index].row(digests[index]) for index in to_insert]),
            state=born.target,
            version=born.edges,
            event=born.event,
            **self._signature(actor, reason),
        )
        if rows:
            self._session.queues_to_announce.update(submissions[index].queue for index in to_insert)
        return self._admissions(submissions, digests, first, keyless, rows)

    def _admissions(
        self,
        submissions: Sequence[Submission],
        digests: Sequence[str],
        first: Mapping[tuple[str, str], int],
        keyless: Sequence[int],
        rows: list[tuple[Any, ...]],
    ) -> list[Admission]:
        admitted: dict[int, Admission] = {}
        inserted = {(client, key): job_id for job_id, client, key, _ in rows if key is not None}
        # Rows without a key are all inserted, in order, and ids only grow: position tells which is which.
        anonymous = sorted((job_id, asked) for job_id, _, key, asked in rows if key is None)
        for index, (job_id, asked) in zip(keyless, anonymous, strict=True):
            invariant(asked == digests[index], "a submission came back as another one")
            admitted[index] = Admission(job_id, is_new=True)
        old = [pair for pair in first if pair not in inserted]
        existing = self.by_key(old) if old else {}
        for pair, index in first.items():
            if pair in inserted:
                admitted[index] = Admission(inserted[pair], is_new=True)
            else:
                job = existing[pair]
                _require_same(submissions[index], digests[index], job.digest)
                admitted[index] = Admission(job.job_id, is_new=False, existing=job)
        return [
            admitted.get(index) or _repeat(admitted[first[submission.client, submission.key or ""]])
            for index, submission in enumerate(submissions)
        ]

    def rule(
        self,
        rulings: Sequence[tuple[Job, object]],
        *,
        actor: str,
        reason: str | None = None,
        move_id: str | None = None,
        grant_id: int | None = None,
    ) -> list[Move | Refused]:
        """Move jobs from outside (retry, replay, quarantine, cancel, release), matching id, state and version."""
        now = self._store.now()
        answers = [redacted_move(decide(job, command, now)) for job, command in rulings]
        shapes: Shapes = {}
        rows = {
            index: job_row(answer, step_of(answer, JOB.name), _replay_reason(command), shapes)
            for index, ((_, command), answer) in enumerate(zip(rulings, answers, strict=True))
            if isinstance(answer, Move) and answer.steps
        }
        for _, command in rulings:
            if isinstance(command, Release):
                invariant(command.grant_id == grant_id, "a release and its grant are written together")
        signature = self._signature(actor, reason, move_id)
        won = self._write(
            "move_jobs", list(rows.values()), shapes=encoded(list(shapes)), grant_id=grant_id, **signature
        )
        lost = {index for index, row in rows.items() if row[0] not in won}
        self._session.queues_to_announce.update(job.queue for job, _ in rulings if job.job_id in won)
        return [_raced(rulings[i][0]) if i in lost else answer for i, answer in enumerate(answers)]


def _birth(machine: str, answer: Move | Refused) -> Step:
    invariant(isinstance(answer, Move), "a birth was refused")
    return step_of(answer, machine)


def _replay_reason(command: object) -> str | None:
    return command.replay_reason if isinstance(command, Replay) else None


def _require_same(submission: Submission, asked: str, before: str) -> None:
    if asked != before:
        raise IdempotencyConflictError(
            f"client {submission.client!r} has used the key {submission.key!r} for other work",
            context={"client": submission.client, "key": submission.key},
        )


def _repeat(admission: Admission) -> Admission:
    return Admission(admission.job_id, is_new=False, existing=admission.existing)


def _raced(job: Job) -> Refused:
    return Refused("race", f"job {job.job_id} changed between the decision and the write")
