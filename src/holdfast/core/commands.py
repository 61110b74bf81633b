"""The commands on jobs and attempts: one frozen struct for each verb.

Invariants: a command contains what the caller knows (a token, a reason, a time), and nothing that is in the record.
"""

from datetime import datetime

import msgspec

# ---------------------------------------------------------------------------------------------------------------------
# Commands on a job that is not running


class Submit(msgspec.Struct, frozen=True):
    """Create the job."""


class Claim(msgspec.Struct, frozen=True):
    """Lease the job to a worker; with `begin` the execution also starts in the same write."""

    begin: bool = True


class Retry(msgspec.Struct, frozen=True):
    """Retry a failed job if it has attempts left, replays included."""

    run_at: datetime | None = None


class Replay(msgspec.Struct, frozen=True):
    """Retry a failed job for a managed reason if it has attempts left, replays included."""

    replay_reason: str
    run_at: datetime | None = None


class Quarantine(msgspec.Struct, frozen=True):
    """Quarantine a pending or failed job: it does not run again until it is released."""

    code: str
    message: str | None = None


class Cancel(msgspec.Struct, frozen=True):
    """Quarantine the job because its work is no longer wanted."""


# ---------------------------------------------------------------------------------------------------------------------
# Commands on an attempt: a job with its execution


class Start(msgspec.Struct, frozen=True):
    """Start a leased execution."""

    token: int


class Commit(msgspec.Struct, frozen=True):
    """Cross the commit boundary; the job stays running until the execution is finished."""

    token: int
    result: str = "null"  # JSON text; never NULL, so that a missing result can be detected


class Finish(msgspec.Struct, frozen=True):
    """End a committed execution. Recovery gives no token; then the lease must have expired."""

    token: int | None = None


class Complete(msgspec.Struct, frozen=True):
    """Commit and finish in one write."""

    token: int
    result: str = "null"  # JSON text; never NULL, so that a missing result can be detected


class Fail(msgspec.Struct, frozen=True):
    """End the attempt without effects. `retry_at` requests an automatic retry; `permanent` excludes any retry."""

    token: int
    code: str
    message: str
    retry_at: datetime | None = None
    permanent: bool = False
    quarantine_code: str | None = None


class GiveBack(msgspec.Struct, frozen=True):
    """End the attempt without counting it: for a graceful stop, a snooze, or input that is not published yet."""

    token: int
    run_at: datetime
    code: str | None = None
    message: str | None = None


class Expire(msgspec.Struct, frozen=True):
    """End an attempt whose lease has expired; the job is due again at `retry_at` if it has automatic attempts left."""

    retry_at: datetime


class Beat(msgspec.Struct, frozen=True):
    """Extend the lease. No state changes, so the move has no steps; the guards of a worker apply."""

    token: int
