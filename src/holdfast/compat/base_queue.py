"""The queue of G without its moves: enqueue, list and count jobs. `IdempotentJobQueue` adds the moves.

Invariants: enqueueing never changes an existing job; reading takes no lock and claims nothing.
"""

import heapq
from datetime import datetime
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from holdfast.compat.jobs import CLIENT, QUEUE, IngestionJob, JobRow, every, find, require_aware, row, submission
from holdfast.compat.states import JobStatus
from holdfast.core.errors import InputError, NotALedgerError
from holdfast.core.records import Job
from holdfast.store import Clock, Declared, Store, create_store, open_store


class JobQueue:
    """The jobs of one ledger that were enqueued through this class. Each instance is a separate worker."""

    def __init__(self, path_or_url: str | Path, *, clock: Clock | None = None, schema: str = "public") -> None:
        self.worker = f"compat-{uuid4().hex}"
        self.store = _opened(str(path_or_url), clock, schema)
        self._declared: set[str] = set()

    def close(self) -> None:
        """Close the connections. Jobs that this instance claimed stay leased until their leases expire."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def enqueue(self, job: IngestionJob) -> bool:
        """Record a job and return True, or return False if it exists; an existing job is never reset."""
        submitted = submission(job)
        self._declare(submitted.operation)
        with self.store.transaction() as transaction:
            [admission] = transaction.jobs.submit([submitted], actor=self.worker)
        return admission.is_new

    def _declare(self, job_type: str) -> None:
        if job_type in self._declared:
            return
        with self.store.transaction() as transaction:
            if job_type not in transaction.operations.declared():
                transaction.operations.declare({job_type: Declared()})
        self._declared.add(job_type)

    def fetch_pending(self, limit: int = 10) -> list[JobRow]:
        """Return due jobs in the order in which they would be claimed, without claiming them."""
        _require_count(limit)
        now = self.store.now()
        with self.store.reading() as reading:
            due = (job for job in every(reading, JobStatus.PENDING) if job.run_at <= now)
            first = heapq.nsmallest(limit, due, key=lambda job: (-job.priority, job.run_at, job.job_id))
        return [row(job) for job in first]

    def get_job(self, job_id: str) -> JobRow:
        """Return one job, or raise JobNotFoundError."""
        return row(self._read(job_id))

    def snapshot(self, status: JobStatus | None = None, limit: int = 100) -> list[JobRow]:
        """Return jobs, newest first."""
        _require_count(limit)
        with self.store.reading() as reading:
            return [row(job) for job in reading.lists.jobs(state=status, queue=QUEUE, client=CLIENT, limit=limit)]

    def pending_count(self, since: datetime | None = None) -> int:
        """Return how many jobs are pending; with `since`, those that entered this status at that time or later."""
        return self._count(JobStatus.PENDING, since)

    def running_count(self, since: datetime | None = None) -> int:
        """Return how many jobs are running; with `since`, those that entered this status at that time or later."""
        return self._count(JobStatus.RUNNING, since)

    def completed_count(self, since: datetime | None = None) -> int:
        """Return how many jobs succeeded; with `since`, those that entered this status at that time or later."""
        return self._count(JobStatus.SUCCEEDED, since)

    def failed_count(self, since: datetime | None = None) -> int:
        """Return how many jobs are failed; with `since`, those that entered this status at that time or later."""
        return self._count(JobStatus.FAILED, since)

    def _count(self, status: JobStatus, since: datetime | None) -> int:
        require_aware("since", since)
        with self.store.reading() as reading:
            if since is None:
                return sum(
                    count.n for count in reading.counts.current() if (count.queue, count.state) == (QUEUE, status)
                )
            return sum(job.updated_at >= since for job in every(reading, status))

    def _read(self, job_id: str) -> Job:
        with self.store.reading() as reading:
            return find(reading, job_id)


def _opened(url: str, clock: Clock | None, schema: str) -> Store[Any]:
    """Open a ledger; create one only in an empty database, so that a damaged ledger is refused and not completed."""
    try:
        return open_store(url, clock, schema=schema)
    except NotALedgerError:
        return create_store(url, clock, schema=schema)


def _require_count(limit: int) -> None:
    if limit < 0:
        raise InputError(f"limit is {limit}, and must not be negative", next_step="Give a limit of 0 or more.")
