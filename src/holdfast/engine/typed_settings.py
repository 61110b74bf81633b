"""The keyword arguments of `submit` and of `@operation`, for type checkers; nothing imports this at run time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from holdfast.engine.failures import FailureKind
    from holdfast.engine.worker.retry import RetryPolicy


class CallSettings(TypedDict, total=False):
    """The keyword arguments of `submit` and `submit_async`; `Call` has them as fields."""

    #: Who submits; a key belongs to its client. Default: `local`.
    client: str | None
    #: Idempotency key: a second submit of the client with the key returns the job of the first one.
    key: str | None
    #: Not before this time. Default: now.
    run_at: datetime | None
    #: Jobs with a higher priority start first. Default: that of the operation.
    priority: int | None
    #: Default: that of the operation.
    queue: str | None
    #: Version of the operation. Default: the newest that is declared.
    version: str | None
    #: Which other jobs this one must not repeat; see the guide on unique work.
    unique: str | Mapping[str, Any] | None
    #: The latest time at which an attempt may begin; a job that is later is quarantined.
    deadline_at: datetime | None
    #: The same as a number of seconds from now.
    deadline_s: float | None
    #: Receipts or ids of jobs that must end first.
    after: Sequence[Any] | None
    #: What happens if a job in `after` does not succeed: `wait` (default), `cancel` or `run`.
    if_unsuccessful: str | None


class Settings(TypedDict, total=False):
    """The keyword arguments of `@operation`; `Operation` has their defaults."""

    #: SemVer version of the handler. Default: `1.0.0`.
    version: str
    #: Queue of its jobs. Default: `default`.
    queue: str
    #: Jobs with a higher priority start first. Default: 0.
    priority: int
    #: Attempts until a job fails; it may be given by `retry` too.
    max_attempts: int | None
    #: Attempts that replays add.
    replay_attempts: int
    #: How long a lease is valid between two heartbeats, in seconds.
    lease_s: float
    #: How long a handler may run, in seconds. Default: no limit.
    timeout_s: float | None
    #: When a failed attempt is tried again.
    retry: RetryPolicy | None
    #: Returns the kind of a failure, which decides whether a retry can help.
    classify: Callable[[BaseException], FailureKind]
    #: Whether tracebacks are stored.
    tracebacks: bool
    #: As in `CallSettings`.
    unique: str | Mapping[str, Any] | None
    #: As in `CallSettings`.
    deadline_s: float | None
    #: How many jobs run at once, or how many start in a time; see the guide on limits.
    limit: int | str | Mapping[str, Any] | None
    #: The argument by whose value the limit is counted.
    limit_key: str | None


class BatchSettings(TypedDict, total=False):
    """The keyword arguments of `Ledger.batch`."""

    #: Name of the batch, for people.
    name: str | None
    #: What happens to `then` if a job does not succeed: `wait` (default), `cancel` or `run`.
    if_unsuccessful: str


class ScheduleSettings(TypedDict, total=False):
    """The keyword arguments of `Ledger.schedule`."""

    #: Default: the name of the operation.
    name: str | None
    #: Arguments of each call; a handler with an argument `tick` gets the time of the tick.
    arguments: Mapping[str, Any] | None
    #: Time zone of a cron expression, such as `Europe/Berlin`. Default: `UTC`.
    tz: str
    #: What happens to ticks while no worker ran: `once` (default), `all` or `skip`.
    missed: str
    #: What happens at a tick while the job of the last one has not ended: `allow` (default), `skip` or `queue`.
    overlap: str
    #: Default: that of the operation.
    queue: str | None
    #: Default: that of the operation.
    priority: int | None
