"""How long a retry policy waits after a failure. Imported with the first failure.

Invariants: jitter comes from the given randomness; a delay is never longer than the policy's cap, plus its jitter.
"""

from random import Random

from holdfast.engine.failures import FailureKind
from holdfast.engine.worker.retry import RetryPolicy, Strategy


def delay_s(policy: RetryPolicy, spent: int, kind: FailureKind, randomness: Random) -> float | None:
    """Return how long to wait after the attempt numbered `spent`, or None when there is no point in another."""
    if policy.strategy is Strategy.NO_RETRY:
        return None
    if kind is FailureKind.PERMANENT and policy.permanent_failures_no_retry:
        return None
    if kind is not FailureKind.TRANSIENT and spent >= policy.max_attempts:
        return None
    if kind is FailureKind.RATE_LIMITED and policy.rate_limit_delay_s is not None:
        return _jittered(policy, policy.rate_limit_delay_s, randomness)
    return _jittered(policy, min(_grown(policy, spent), policy.cap_s), randomness)


def _grown(policy: RetryPolicy, spent: int) -> float:
    match policy.strategy:
        case Strategy.IMMEDIATE:
            return 0.0
        case Strategy.FIXED_DELAY:
            return policy.base_s
        case Strategy.LINEAR_BACKOFF:
            return policy.base_s * spent
        case _:
            return policy.base_s * policy.multiplier ** min(spent - 1, 64)


def _jittered(policy: RetryPolicy, seconds: float, randomness: Random) -> float:
    spread = seconds * policy.jitter
    # At least one second, so that a tight loop does not overload a failing service; a smaller base means less.
    return max(min(1.0, seconds), seconds + randomness.uniform(-spread, spread))
