"""What can be asked of a record: one frozen command for each verb.

Invariants: a command carries what the asker knows (a token, a reason, a time) and nothing that only the record knows.
"""

from datetime import datetime

import msgspec

# ---------------------------------------------------------------------------------------------------------------------
# Commands to a job that is not being worked on


class Submit(msgspec.Struct, frozen=True):
    """Create the job."""


class Claim(msgspec.Struct, frozen=True):
    """Lease the job to a worker; `begin` also starts it in the same write."""

    begin: bool = True


class Retry(msgspec.Struct, frozen=True):
    """Put a failed job back by hand, within its whole budget."""

    run_at: datetime | None = None


class Replay(msgspec.Struct, frozen=True):
    """Put a failed job back under a managed reason, within its whole budget."""

    replay_reason: str
    run_at: datetime | None = None


class Quarantine(msgspec.Struct, frozen=True):
    """Take the job out of automatic flows."""

    code: str
    message: str | None = None


class Cancel(msgspec.Struct, frozen=True):
    """Quarantine the job because nobody wants it any more."""


class Release(msgspec.Struct, frozen=True):
    """Put a quarantined job back: once, by a named operator, for a reason, under a grant."""

    operator: str
    reason: str
    grant_id: int | None
    run_at: datetime | None = None


# ---------------------------------------------------------------------------------------------------------------------
# Commands to an attempt: a job with its execution


class Start(msgspec.Struct, frozen=True):
    """Begin the work of a leased execution."""

    token: int


class Commit(msgspec.Struct, frozen=True):
    """Cross the commit boundary; the job stays running until the execution is finished."""

    token: int
    result: str = "null"  # as JSON: there is always one, so that a lost one can be told


class Finish(msgspec.Struct, frozen=True):
    """End a committed execution. Without a token it is recovery, and the lease must have expired."""

    token: int | None = None


class Complete(msgspec.Struct, frozen=True):
    """Commit and finish in one write."""

    token: int
    result: str = "null"  # as JSON: there is always one, so that a lost one can be told


class Fail(msgspec.Struct, frozen=True):
    """End the attempt without effects. `retry_at` asks for an automatic retry; `permanent` forbids any."""

    token: int
    code: str
    message: str
    retry_at: datetime | None = None
    permanent: bool = False
    quarantine_code: str | None = None


class GiveBack(msgspec.Struct, frozen=True):
    """End the attempt at no cost to the job: a graceful stop, a snooze, input not yet published."""

    token: int
    run_at: datetime
    code: str | None = None
    message: str | None = None


class Expire(msgspec.Struct, frozen=True):
    """End an attempt whose lease ran out; the job is pending again at `retry_at` if it has budget."""

    retry_at: datetime


class Beat(msgspec.Struct, frozen=True):
    """Extend the lease. No edge is taken: the move has no steps, but the guards are those of a worker."""

    token: int
