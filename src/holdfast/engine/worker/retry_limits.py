"""The limits of a retry policy. Imported for a policy that is not the default.

Invariants: a policy within the limits never overflows, waits for ever or retries without an end.
"""

from holdfast.core.arguments import refuse_unfit
from holdfast.core.errors import InputError
from holdfast.engine.worker.retry import RetryPolicy, Strategy

ATTEMPTS_MAX = 1000
BASE_S_MAX, CAP_S_MAX = 86_400, 604_800
MULTIPLIER_MAX = 100


def refuse_unfit_policy(policy: RetryPolicy) -> None:
    """Raise InputError if a field of a retry policy is of a wrong kind, or outside its limits."""
    for name, kind in RetryPolicy.__annotations__.items():
        if name != "strategy":
            refuse_unfit(name, getattr(policy, name), kind)
    strategy: object = policy.strategy
    if not isinstance(strategy, str) or strategy not in tuple(Strategy):
        raise _invalid(f"strategy must be one of {', '.join(Strategy)}")
    transient, rate_s, same = policy.transient_max_attempts, policy.rate_limit_delay_s, policy.no_progress_after
    for fits, what in (
        (1 <= policy.max_attempts <= ATTEMPTS_MAX, f"max_attempts must be between 1 and {ATTEMPTS_MAX}"),
        (0 <= policy.base_s <= BASE_S_MAX, f"base_s must be between 0 and {BASE_S_MAX}"),
        (policy.base_s <= policy.cap_s <= CAP_S_MAX, f"cap_s must be between base_s and {CAP_S_MAX}"),
        (0 <= policy.jitter <= 1, "jitter must be between 0 and 1"),
        (1 <= policy.multiplier <= MULTIPLIER_MAX, f"multiplier must be between 1 and {MULTIPLIER_MAX}"),
        (rate_s is None or 0 <= rate_s <= CAP_S_MAX, f"rate_limit_delay_s must be between 0 and {CAP_S_MAX}"),
        (transient is None or policy.max_attempts <= transient <= ATTEMPTS_MAX,
         f"transient_max_attempts must be between max_attempts and {ATTEMPTS_MAX}"),
        (same is None or 2 <= same <= ATTEMPTS_MAX, f"no_progress_after must be between 2 and {ATTEMPTS_MAX}"),
    ):  # fmt: skip
        if not fits:
            raise _invalid(what)


def _invalid(what: str) -> InputError:
    return InputError(f"the retry policy is invalid: {what}", context={"argument": what.partition(" ")[0]})
