"""The records of the queue of G, and how they are stored in the ledger.

Invariants: a job's id is the caller's own text, and is the idempotency key of the client `compat`; times are aware, in
UTC; invalid input raises a typed error before anything is written.
"""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import IntEnum
from shlex import quote
from typing import Any, TypedDict

import msgspec

from holdfast.compat.states import JobStatus
from holdfast.core.digest import is_storable, payload_text
from holdfast.core.errors import InputError, JobNotFoundError
from holdfast.core.records import MAX_ATTEMPTS, Attempt, Job, time_text
from holdfast.store import Submission
from holdfast.store.transaction import Reading

CLIENT = "compat"
QUEUE = "compat"
_PAGE = 1000


class JobPriority(IntEnum):
    """Jobs of a higher priority are claimed first. The number is the ledger's own priority."""

    LOW = 1
    NORMAL = 2
    HIGH = 3


class IngestionJob(msgspec.Struct, frozen=True):
    """A job to enqueue. `job_type` is the ledger's operation."""

    job_id: str
    job_type: str
    payload: Any
    priority: JobPriority = JobPriority.NORMAL
    scheduled_for: datetime | None = None
    max_attempts: int = MAX_ATTEMPTS


class JobRow(TypedDict):
    """A job as it was when it was read; times are ISO text with a zone, for `datetime.fromisoformat`."""

    job_id: str
    ledger_id: int  # for the command: `holdfast show 17`
    job_type: str
    payload: Any
    priority: JobPriority
    scheduled_for: str
    status: JobStatus
    attempts: int
    created_at: str
    updated_at: str
    last_error_code: str | None
    last_error_message: str | None


class LeaseToken(msgspec.Struct, frozen=True):
    """A claimed job: its fencing token, and when the lease ends."""

    job_id: str
    token: int
    attempt: int
    expires_at: datetime
    job: JobRow


def submission(job: IngestionJob) -> Submission:
    """Return the ledger's submission of a job, or raise an InputError."""
    _require_text("job_id", job.job_id)
    _require_text("job_type", job.job_type)
    if job.priority not in set(JobPriority):
        raise InputError(f"priority {job.priority!r} is not one of {', '.join(map(repr, JobPriority))}")
    require_aware("scheduled_for", job.scheduled_for)
    if job.max_attempts < 1:
        raise InputError(f"max_attempts is {job.max_attempts}, and must be at least 1")
    return Submission(
        operation=job.job_type,
        payload=payload_text(job.payload),
        client=CLIENT,
        key=job.job_id,
        queue=QUEUE,
        priority=int(job.priority),
        run_at=job.scheduled_for,
        max_attempts=job.max_attempts,
    )


def row(job: Job) -> JobRow:
    return JobRow(
        job_id=job.key or "",
        ledger_id=job.job_id,
        job_type=job.operation,
        payload=None if job.payload is None else json.loads(job.payload),
        priority=JobPriority(job.priority),
        scheduled_for=time_text(job.run_at),
        status=job.state,
        attempts=job.attempts,
        created_at=time_text(job.created_at),
        updated_at=time_text(job.updated_at),
        last_error_code=job.last_error_code,
        last_error_message=job.last_error_message,
    )


def lease_token(attempt: Attempt) -> LeaseToken:
    execution, shown = attempt.execution, row(attempt.job)
    return LeaseToken(shown["job_id"], execution.lease_token, execution.attempt, execution.lease_expires_at, shown)


def find(reading: Reading, job_id: str) -> Job:
    """Return the job that was enqueued under this id, or raise JobNotFoundError."""
    _require_text("job_id", job_id)
    found = reading.jobs.by_key([(CLIENT, job_id)])
    if not found:
        raise JobNotFoundError(f"Job {job_id} not found", context={"job_id": job_id})
    return found[CLIENT, job_id]


def shown_by(job_id: str) -> str:
    """Return the next step that shows a job: to the command its id is a key of the client of this queue."""
    command = f"holdfast show {quote(job_id)} --client {CLIENT}"
    return f"See the current state with `{command}`, and all transitions with `holdfast machines`."


def every(reading: Reading, status: JobStatus | None = None) -> Iterator[Job]:
    """Yield all jobs of the queue, or those with one status, newest first."""
    before = None
    while page := reading.lists.jobs(state=status, queue=QUEUE, client=CLIENT, before=before, limit=_PAGE):
        yield from page
        before = page[-1].job_id


def after(now: datetime, seconds: float) -> datetime:
    """Return `now` plus a number of seconds, or raise an InputError if that is negative or too large."""
    try:
        if seconds >= 0:
            return now + timedelta(seconds=seconds)
    except OverflowError:
        pass
    raise InputError(f"A delay of {seconds} s is negative or too long", next_step="Give 0 or more seconds.")


def require_aware(name: str, moment: datetime | None) -> None:
    """Raise an InputError for a time without a zone."""
    if moment is not None and moment.tzinfo is None:
        raise InputError(f"{name} has no time zone", next_step="Give an aware time, such as datetime.now(UTC).")


def _require_text(name: str, value: str) -> None:
    if not value or not is_storable(value):
        raise InputError(
            f"{name} must be a text of at least 1 character, without NUL and without lone surrogates",
            next_step=f"Give a {name} of ordinary characters.",
        )
