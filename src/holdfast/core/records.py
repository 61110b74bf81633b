"""The frozen records that the store reads and that `decide` decides about.

Invariants: a record is one row as it was read; it never reads a clock. Times are aware, in UTC. The fields have the
order of the columns that statements return. `gc=False` because many records are made and none is part of a cycle.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

import msgspec

from holdfast.core.errors import invariant
from holdfast.core.machines import ExecutionStatus, JobState

REPLAY_ATTEMPTS = 5
MAX_ATTEMPTS = 5
LOSSES_EXCUSED = 2  # lost leases that cost a job nothing; from then on it is a suspect, and runs alone


class Submitted(msgspec.Struct, frozen=True, gc=False):
    """What a client submitted: the columns of `holdfast_calls` that never change, so all but the payload."""

    job_id: int
    operation_version: str
    client: str
    key: str | None
    digest: str
    max_attempts: int
    replay_attempts: int
    replaces: int | None
    created_at: datetime


class Job(Submitted, frozen=True, gc=False):
    """One unit of work: a call that a client submitted, with or without an idempotency key."""

    operation: str
    queue: str
    payload: str | None
    state: JobState
    version: int
    attempts: int
    excused: int
    priority: int
    run_at: datetime
    result: str | None
    last_attempt_at: datetime | None
    last_error_code: str | None
    last_error_message: str | None
    quarantine_code: str | None
    replay_reason: str | None
    updated_at: datetime
    lost: int | None = None  # leases that were lost

    @property
    def spent(self) -> int:
        """Return the number of attempts that count: all attempts without the excused ones."""
        return self.attempts - self.excused

    @property
    def slimmed(self) -> bool:
        """Return whether retention has deleted the payload and the result."""
        return self.payload is None

    @property
    def may_retry(self) -> bool:
        """Return whether the job has automatic attempts left."""
        return self.spent < self.max_attempts

    @property
    def may_replay(self) -> bool:
        """Return whether the job has attempts left, replays included."""
        return self.spent < self.max_attempts + self.replay_attempts


class Execution(msgspec.Struct, frozen=True, gc=False):
    """One attempt at a job, under a lease."""

    exec_id: int
    job_id: int
    attempt: int
    status: ExecutionStatus
    version: int
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
    updated_at: datetime


_Call = tuple[int, str, str, str | None, int | None]


class Attempt:
    """A job with one of its executions: what a worker holds, and what the reaper recovers.

    A claim makes the two records only when they are first read: a job that succeeds at once needs neither. A payload
    that is too long to be claimed ahead is read when it is first used, and is in `job` from then on.
    """

    __slots__ = (
        "_make", "exec_id", "execution", "job", "job_id", "long", "operation", "owner", "payload", "suspect",
        "token", "version",
    )  # fmt: skip
    job: Job
    execution: Execution
    payload: str | None
    _make: Callable[[bool], tuple[Job, Execution]]

    def __init__(self, job: Job, execution: Execution) -> None:
        self.job, self.execution = job, execution
        self.job_id, self.operation, self.version = job.job_id, job.operation, job.operation_version
        self.long = False
        self.payload, self.suspect = job.payload, (job.lost or 0) >= LOSSES_EXCUSED
        self.exec_id, self.owner, self.token = execution.exec_id, execution.lease_owner, execution.lease_token

    @classmethod
    def claimed(
        cls, call: _Call, lease: tuple[int, str, int], make: Callable[[bool], tuple[Job, Execution]]
    ) -> Attempt:
        """Return an attempt whose records `make` returns, if its argument is true with a payload that is None here.

        `call` has the id, operation, version, payload and lost leases of the job, `lease` the execution's id, owner and
        token.
        """
        attempt = cls.__new__(cls)
        attempt.job_id, attempt.operation, attempt.version, payload, lost = call
        attempt.long = payload is None  # read when it is first used
        if not attempt.long:
            attempt.payload = payload
        attempt.suspect = lost is not None and lost >= LOSSES_EXCUSED
        attempt.exec_id, attempt.owner, attempt.token = lease
        attempt._make = make
        return attempt

    def __getattr__(self, name: str) -> Job | Execution | str | None:
        """Make the records, or read the payload: Python calls this for a slot that is empty."""
        if name == "payload":
            self.job, _ = self._make(True)
            self.payload = self.job.payload
            return self.payload
        if name not in ("job", "execution"):
            raise AttributeError(name)
        self.job, self.execution = self._make(False)
        return self.job if name == "job" else self.execution

    def forget_payload(self) -> None:
        """Let go of a payload that was read when it was first used."""
        if self.long:
            self.job, _ = self._make(False)
            with suppress(AttributeError):  # it was not used
                del self.payload

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Attempt) and (self.job, self.execution) == (other.job, other.execution)

    def __hash__(self) -> int:
        return hash((self.job_id, self.token))


def time_text(moment: datetime) -> str:
    """Return a time in the text format of the ledger: UTC with microseconds and `Z`."""
    invariant(moment.tzinfo is not None, "a time without a zone")
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def time_from(text: str) -> datetime:
    """Return the time that a text in the format of the ledger names."""
    return datetime.fromisoformat(text)
