"""The frozen records that the store reads and `decide` judges.

Invariants: a record is what one row said at one moment; it never reads a clock. Times are aware, in UTC. Fields stand
in the order of the columns that statements return. `gc=False`: a record can be part of no cycle, and many come and go.
"""

from datetime import UTC, datetime

import msgspec

from holdfast.core.errors import invariant
from holdfast.core.machines import (
    ExecutionStatus,
    JobState,
)

REPLAY_ATTEMPTS = 5
MAX_ATTEMPTS = 5


class Job(msgspec.Struct, frozen=True, gc=False):
    """One unit of work: a call submitted by a client, perhaps under a key."""

    job_id: int
    operation: str
    operation_version: str
    client: str
    key: str | None
    queue: str
    state: JobState
    version: int
    attempts: int
    excused: int
    max_attempts: int
    replay_attempts: int
    priority: int
    run_at: datetime
    payload: str | None
    digest: str
    result: str | None
    last_attempt_at: datetime | None
    last_error_code: str | None
    last_error_message: str | None
    quarantine_code: str | None
    replay_reason: str | None
    replaces: int | None
    created_at: datetime
    updated_at: datetime

    @property
    def spent(self) -> int:
        """Return the attempts that count: claims less those that were excused."""
        return self.attempts - self.excused

    @property
    def slimmed(self) -> bool:
        """Tell whether retention has dropped the payload and the result."""
        return self.payload is None

    @property
    def may_retry(self) -> bool:
        """Tell whether automatic retry has budget left."""
        return self.spent < self.max_attempts

    @property
    def may_replay(self) -> bool:
        """Tell whether any attempt is left at all, replays included."""
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
    cancel_asked_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    created_at: datetime
    updated_at: datetime


class Attempt(msgspec.Struct, frozen=True, gc=False):
    """A job together with one execution of it: what a worker holds, and what the reaper finds."""

    job: Job
    execution: Execution


class Ruling(msgspec.Struct, frozen=True):
    """A journalled decision that no execution made: its event, where it led, and after how many attempts."""

    event: str
    target: JobState
    attempt: int


class JournalRow(msgspec.Struct, frozen=True):
    """One edge that one record took, as the database wrote it down."""

    seq: int
    machine: str
    subject: int
    version: int
    source: str | None
    target: str
    event: str
    actor: str
    reason: str | None
    attempt: int | None
    move_id: str
    grant_id: int | None
    maintenance_id: int | None
    at: datetime


def time_text(moment: datetime) -> str:
    """Return a moment in the one text format."""
    invariant(moment.tzinfo is not None, "a time without a zone")
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def time_from(text: str) -> datetime:
    """Return the moment that a text in the one format names."""
    return datetime.fromisoformat(text)
