"""Verbs of lists that people read page by page: jobs, stalled attempts, the attempts that each worker holds.

Invariants: nothing here writes; a page is found by an index, however many jobs are in other states.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.core.errors import InputError
from holdfast.core.machines import JobState
from holdfast.core.records import Attempt, Execution, Job
from holdfast.store.statements import encoded
from holdfast.store.verbs.base import Verbs

RESTING = frozenset({JobState.FAILED, JobState.QUARANTINED})  # the states of a partial index
FEW_WAITING = 20_000  # up to this number all pending jobs are sorted for a page; with more, a scan finds a page soon


class Pause(msgspec.Struct, frozen=True):
    """The pause of a queue: since when, by whom, and why."""

    at: datetime
    by: str | None
    reason: str | None


class WorkerRow(msgspec.Struct, frozen=True):
    """A worker as the ledger last saw it."""

    worker_id: str
    queues: list[str]
    operations: list[str]
    concurrency: int
    started_at: datetime
    seen_at: datetime
    stopped_at: datetime | None


class ListReads(Verbs):
    """Reads lists."""

    def jobs(
        self,
        *,
        state: JobState | None = None,
        operation: str | None = None,
        queue: str | None = None,
        client: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Job]:
        """Return a page of jobs, newest first. For the next page, `before` is the last id of this one."""
        if limit < 1:
            raise InputError(f"limit is {limit}; it must be at least 1")
        filters = {"state": state, "operation": operation, "queue": queue, "client": client, "before": before}
        return [self._job(row) for row in self._run(self._page_statement(state), **filters, n=limit)]

    def states(self, job_ids: Sequence[int]) -> dict[int, JobState]:
        """Return the states of jobs by their ids, without those that do not exist."""
        return {job_id: JobState(state) for job_id, state in self._run("job_states", rows=encoded(job_ids))}

    def _page_statement(self, state: JobState | None) -> str:
        """Return the name of the statement that reads a page without reading many jobs in other states."""
        if state in RESTING:
            return "list_resting_jobs"
        if state is JobState.RUNNING:
            return "list_running_jobs"
        if (
            state is JobState.PENDING
            and sum(n for _, _, of, n in self._session.counts.raw() if of == state) <= FEW_WAITING
        ):
            return "list_waiting_jobs"
        return "list_jobs"

    def due_ahead(self, job: Job, now: datetime, limit: int) -> int:
        """Return how many due jobs of the same queue are claimed before a job; counts up to `limit`."""
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

    def stalled(self, limit: int = 1000) -> list[Attempt]:
        """Return the attempts whose lease has expired, the earliest expiry first."""
        return [self._attempt(row) for row in self._run("stalled_attempts", now=self._time(None), n=limit)]

    def held_by_owner(self, now: datetime) -> dict[str, int]:
        """Return how many executions each owner holds under an unexpired lease."""
        return dict(self._run("held_by_owner", now=self._store.stored(now)))

    def lost_by_owner(self, now: datetime) -> dict[str, datetime]:
        """Return, for each owner with open executions under expired leases, the latest expiry."""
        moment = self._store.moment
        return {owner: moment(at) for owner, at in self._run("lost_by_owner", now=self._store.stored(now))}

    def leases(self, now: datetime) -> tuple[int, int]:
        """Return how many running jobs have a lease, and how many of these leases have expired."""
        [[held, expired]] = self._run("leases", now=self._store.stored(now))
        return int(held), int(expired)

    def ended_lately(self, since: datetime, *, rows: int = 100_000) -> dict[str, int]:
        """Return how many jobs of each queue have succeeded since a time, among the last rows of the journal."""
        found = self._run("ended_lately", since=self._store.stored(since), n=rows)
        return {queue: int(n) for queue, n in found}

    def oldest_due(self, queues: Sequence[str]) -> dict[str, datetime]:
        """Return, for each of these queues with pending jobs, the earliest time at which one may run."""
        rows = self._run("oldest_due", rows=encoded(list(queues)))
        return {queue: self._store.moment(at) for queue, at in rows}

    def workers(self) -> list[WorkerRow]:
        """Return all workers that are registered, stopped ones too, oldest first."""
        moment = self._store.moment
        return [
            WorkerRow(
                worker_id, msgspec.json.decode(queues), msgspec.json.decode(operations), concurrency, moment(started),
                moment(seen), None if stopped is None else moment(stopped),
            )
            for worker_id, queues, operations, concurrency, started, seen, stopped in self._run("workers")
        ]  # fmt: skip

    def pause_of(self, queue: str) -> Pause | None:
        """Return the pause of a queue, if it is paused."""
        rows = self._run("pause_of", queue=queue)
        return Pause(self._store.moment(rows[0][0]), *rows[0][1:]) if rows else None

    def executions(self, job_id: int) -> list[Execution]:
        """Return a job's executions, first attempt first."""
        return [self._execution(row) for row in self._run("executions_of", job_id=job_id)]

    def current_attempt(self, job_id: int) -> Attempt | None:
        """Return a running job with its attempt; None if the job is not running."""
        rows = self._run("current_attempt", job_id=job_id)
        return self._attempt(rows[0]) if rows else None

    def attempt(self, exec_id: int) -> Attempt | None:
        """Return an execution with its job, if it exists."""
        rows = self._run("get_attempt", exec_id=exec_id)
        return self._attempt(rows[0]) if rows else None
