"""Limits as people write them: reads, checks and prints them.

Invariants: pure; a limit that cannot be enforced is refused by LimitInvalidError.
"""

import re

from holdfast.core.digest import is_storable
from holdfast.core.errors import LimitInvalidError
from holdfast.core.limits import BUCKET_CHARS_MAX, DEPTH, KEY, OPERATION, QUEUE, Limit

RUNNING_MAX, STARTS_MAX, PERIOD_S_MAX = 100_000, 1_000_000, 86_400.0
_PATH = re.compile(r"[A-Za-z_]\w{0,63}(\.[A-Za-z_]\w{0,63}){0,9}", re.ASCII)
_RATE = re.compile(r"\s*(\d{1,9})\s*/\s*(\d{0,6})\s*(s|sec|second|m|min|minute|h|hour|d|day)s?\s*")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def checked(subject: str, limit: Limit) -> Limit:
    """Return a limit that can be enforced, or raise LimitInvalidError."""
    kind, _, name = subject.partition(":")
    context = {"limit": subject}
    if kind + ":" == DEPTH and limit.depth is not None:
        return limit
    if kind not in (QUEUE, OPERATION, KEY) or not name or len(subject) > BUCKET_CHARS_MAX or not is_storable(subject):
        raise LimitInvalidError(
            f"{subject!r} is not what a limit can be set for.",
            next_step="Use queue:NAME, operation:NAME or key:OPERATION.",
            context=context,
        )
    if limit.running is None and limit.starts is None:
        raise LimitInvalidError(f"{subject}: the limit limits nothing.", context=context)
    for field, value, most in (("running", limit.running, RUNNING_MAX), ("starts", limit.starts, STARTS_MAX),
                               ("burst", limit.burst, STARTS_MAX)):  # fmt: skip
        if value is not None and not (type(value) is int and 1 <= value <= most):
            raise LimitInvalidError(
                f"{subject}: {field} is {value!r}; it must be a whole number from 1 to {most}.",
                context=context | {"argument": field},
            )
    if not 0 < limit.seconds <= PERIOD_S_MAX:
        raise LimitInvalidError(
            f"{subject}: the time of a rate must be at most a day.", context=context | {"argument": "seconds"}
        )
    if (kind == KEY) != (limit.path is not None) or not _PATH.fullmatch(limit.path or "x"):
        raise LimitInvalidError(
            f"{subject}: {limit.path!r} is not a path into the arguments.",
            next_step="Write the names of fields with dots between them, such as customer.id.",
            context=context | {"argument": "path"},
        )
    return limit


def limit_of(
    *, running: int | None = None, rate: str | None = None, burst: int | None = None, path: str | None = None
) -> Limit:
    """Return a limit of these parts; raise LimitInvalidError for a rate that cannot be read."""
    if rate is None:
        if burst is not None:
            raise LimitInvalidError("A burst needs a rate.", context={"argument": "burst"})
        return Limit(running=running, path=path)
    starts, seconds = parsed_rate(rate)
    return Limit(running=running, starts=starts, seconds=seconds, burst=burst, path=path)


def parsed_rate(text: str) -> tuple[int, float]:
    """Return how many starts in how many seconds a text such as `100/minute` or `5/10s` allows."""
    found = _RATE.fullmatch(text)
    if found is None:
        raise LimitInvalidError(
            f"{text!r} is not a rate.", next_step="Write it as 100/minute, 5/10s or 1000/h.", context={"rate": text}
        )
    return int(found[1]), float(int(found[2] or 1) * _SECONDS[found[3][0]])


def rate_text(limit: Limit) -> str | None:
    """Return a rate as people write it."""
    if limit.starts is None:
        return None
    for unit, seconds in sorted(_SECONDS.items(), key=lambda each: -each[1]):
        if limit.seconds % seconds == 0:
            n = int(limit.seconds // seconds)
            return f"{limit.starts}/{'' if n == 1 else n}{unit}"
    return f"{limit.starts}/{limit.seconds:g}s"


def limit_text(limit: Limit | None) -> str:
    """Return what a limit allows, such as 4 at once, 100/minute for each customer.id."""
    if limit is None:
        return ""
    parts = [f"{limit.running} at once" if limit.running else "", rate_text(limit) or ""]
    parts.append("" if limit.depth is None else f"{limit.depth} waiting, more parked")
    return ", ".join(filter(None, parts)) + (f" for each {limit.path}" if limit.path else "")
