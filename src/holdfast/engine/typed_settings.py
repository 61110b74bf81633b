"""The keyword arguments of `submit` and of `@operation`, for type checkers; nothing imports this at run time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from holdfast.engine.failures import FailureKind
    from holdfast.engine.worker.retry import RetryPolicy


class CallSettings(TypedDict, total=False):
    """The settings of a submit; see `Call`, which has them as fields."""

    client: str | None
    key: str | None
    run_at: datetime | None
    priority: int | None
    queue: str | None
    version: str | None
    unique: str | Mapping[str, Any] | None
    deadline_at: datetime | None
    deadline_s: float | None
    after: Sequence[Any] | None
    if_unsuccessful: str | None


class Settings(TypedDict, total=False):
    """The settings of `@operation`; `Operation` has their defaults."""

    version: str
    queue: str
    priority: int
    max_attempts: int | None
    replay_attempts: int
    lease_s: float
    timeout_s: float | None
    retry: RetryPolicy | None
    classify: Callable[[BaseException], FailureKind]
    tracebacks: bool
    unique: str | Mapping[str, Any] | None
    deadline_s: float | None
    limit: int | str | Mapping[str, Any] | None
    limit_key: str | None
