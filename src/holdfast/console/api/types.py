"""The types of the API: what requests contain and what answers look like. The OpenAPI document is made of them.

Invariants: a payload is shown without likely secrets, as the command shows it; times are UTC.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from holdfast.console.acts import Id
from holdfast.core.journal import JournalRow
from holdfast.core.machines import ExecutionStatus, JobState
from holdfast.core.records import Execution, Job
from holdfast.explain.values import payload_value, result_value, traceback_values
from holdfast.scheduling.schedules import Missed, Overlap

Text = Annotated[str, Meta(min_length=1, max_length=4000)]
T = TypeVar("T")


def answer_of(record: object, kind: type[T]) -> T:
    """Return a record, or several, as the API shows it: with the fields that `kind` has."""
    return msgspec.convert(record, kind, from_attributes=True)


# ---------------------------------------------------------------------------------------------------------------------
# Requests


class ReasonBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why an act is done; the journal stores it."""

    reason: Text


class JobActBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An act on a job; with `version` it is refused if the job has moved since."""

    reason: Text
    version: Id | None = None


class QuarantineBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to quarantine, and the code that says why."""

    reason: Text
    code: Annotated[str, Meta(pattern="^[a-z][a-z0-9_]{0,63}$")]
    version: Id | None = None


class GovernedBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An act that consumes a grant; without `grant_id`, one that fits."""

    reason: Text
    grant_id: Id | None = None
    version: Id | None = None


# ---------------------------------------------------------------------------------------------------------------------
# Answers


class SubmitAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A submitted job: whether it is new, and the state and result of one that exists."""

    job_id: int
    is_new: bool
    state: JobState
    result: Any = None


class JobAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A job."""

    job_id: int
    operation: str
    operation_version: str
    client: str
    key: str | None
    queue: str
    state: JobState
    version: int
    attempts: int
    max_attempts: int
    replay_attempts: int
    priority: int
    run_at: datetime
    last_error_code: str | None
    last_error_message: str | None
    quarantine_code: str | None
    replay_reason: str | None
    replaces: int | None
    result: Any
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, job: Job) -> JobAnswer:
        shown = {name: getattr(job, name) for name in cls.__struct_fields__ if name != "result"}
        return cls(**shown, result=result_value(job))


class JobsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A page of jobs, newest first. `next_cursor` continues it; null: there are no more."""

    jobs: list[JobAnswer]
    next_cursor: str | None


class ExecutionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a job."""

    exec_id: int
    attempt: int
    status: ExecutionStatus
    lease_owner: str
    lease_token: int
    lease_expires_at: datetime
    excused: bool
    error_code: str | None
    error_message: str | None
    progress: float | None
    progress_note: str | None
    cancel_requested_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    created_at: datetime


class JournalAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the journal."""

    seq: int
    machine: str
    subject: int
    version: int
    source: str | None
    target: str
    event: str
    actor: str
    reason: str | None
    grant_id: int | None
    at: datetime


class JobDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A job with its payload without likely secrets, its attempts, its journal, and where attempts failed."""

    job: JobAnswer
    payload: Any
    executions: list[ExecutionAnswer]
    journal: list[JournalAnswer]
    tracebacks: list[dict[str, Any]]

    @classmethod
    def of(cls, job: Job, executions: list[Execution], journal: list[JournalRow], traces: dict[int, str]) -> JobDetails:
        return cls(
            job=JobAnswer.of(job),
            payload=payload_value(job),
            executions=answer_of(executions, list[ExecutionAnswer]),
            journal=answer_of(journal, list[JournalAnswer]),
            tracebacks=traceback_values(traces),
        )


class MovedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A job after an act; `changed` is false if it was in that state already."""

    job_id: int
    state: JobState
    changed: bool
    grant_id: int | None = None


class QueueAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A queue: whether it is paused, its live workers, and its jobs by state."""

    queue: str
    paused: bool
    workers: int
    pending: int
    running: int
    failed: int
    quarantined: int


class ChangedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What an act named, and whether it changed anything; `job_id` is a job that it submitted."""

    name: str
    changed: bool
    job_id: int | None = None


class WorkerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that runs."""

    worker_id: str
    queues: list[str]
    operations: list[str]
    concurrency: int
    held: int
    started_at: datetime
    seen_at: datetime


class StatsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs are in each state, in all and by operation; and the paused queues."""

    states: dict[str, int]
    operations: dict[str, dict[str, int]]
    paused: list[str]


class ScheduleAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, its next tick and its last job."""

    name: str
    when: str
    tz: str
    operation: str
    queue: str | None
    missed: Missed
    overlap: Overlap
    paused: bool
    next_at: datetime | None
    last_at: datetime | None
    last_job_id: int | None
    last_job_state: str | None
    set_by: str
    reason: str | None


class SwitchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A switch that is on."""

    name: str
    thrown_by: str
    reason: str
    created_at: datetime


class RecoveryAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a recovery of stalled jobs did."""

    finished: int
    reopened: int
    failed: int
    quarantined: int
    job_ids: list[int]


class HealthAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The console runs; `ready` also means that its database answers."""

    status: str
