"""What follows a failure that the handler does not decide itself: the policy of its operation.

Invariants: the budget is the job's, kept in the ledger; a policy only says when, or that there is no point; jitter
comes from the injected randomness.
"""

from __future__ import annotations

from enum import StrEnum
from random import Random

import msgspec

from holdfast.core.guarded import GuardedMeta, guarded
from holdfast.core.records import MAX_ATTEMPTS
from holdfast.engine.failures import FailureKind


class Strategy(StrEnum):
    """How the delay grows from attempt to attempt."""

    EXPONENTIAL_BACKOFF = "exponential_backoff"
    LINEAR_BACKOFF = "linear_backoff"
    FIXED_DELAY = "fixed_delay"
    IMMEDIATE = "immediate"
    NO_RETRY = "no_retry"


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, metaclass=GuardedMeta):
    """When to try again. `transient_max_attempts` gives passing failures a larger budget than the others.

    After `no_progress_after` failures in a row with the same code, and messages that differ only in numbers, the job is
    quarantined with the code `no_progress_detected`, whatever is left of its budget; None never does that.
    """

    strategy: Strategy = Strategy.EXPONENTIAL_BACKOFF
    max_attempts: int = MAX_ATTEMPTS
    base_s: float = 60.0
    cap_s: float = 3600.0
    jitter: float = 0.2
    multiplier: float = 2.0
    transient_max_attempts: int | None = None
    rate_limit_delay_s: float | None = None
    permanent_failures_no_retry: bool = True
    no_progress_after: int | None = None

    @guarded
    def __post_init__(self) -> None:
        if any(value != default for value, default in zip(msgspec.structs.astuple(self), _DEFAULTS, strict=True)):
            from holdfast.engine.worker.retry_limits import refuse_unfit_policy  # noqa: PLC0415 - not the default

            refuse_unfit_policy(self)

    @property
    def budget(self) -> int:
        """Return the attempts that a job is given: the larger of the two budgets."""
        return max(self.max_attempts, self.transient_max_attempts or 0)

    def delay_s(self, spent: int, kind: FailureKind, randomness: Random) -> float | None:
        """Return how long to wait after the attempt numbered `spent`, or None when there is no point in another."""
        from holdfast.engine.worker.retry_delays import delay_s  # noqa: PLC0415 - only after a failure

        return delay_s(self, spent, kind, randomness)

    def is_final(self, kind: FailureKind) -> bool:
        """Tell whether this failure sends the job straight to quarantine."""
        return kind is FailureKind.PERMANENT and self.permanent_failures_no_retry


_DEFAULTS = RetryPolicy.__struct_defaults__
