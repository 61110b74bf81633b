"""Numbers, times and durations as the pages write them.

Invariants: times are UTC; a time of the last day is a clock time, an earlier one has its date; a number has separators.
"""

from datetime import datetime

from holdfast.core.spans import counted, span

DAY_S = 86400
HOUR_S = 3600
MINUTE_S = 60
FEW_S = 10


def number(n: int) -> str:
    """Return a number with separators, such as 1,204."""
    return f"{n:,}"


def clock(moment: datetime, now: datetime, *, parts: str = "seconds") -> str:
    """Return a time as 14:32:07 if it is within a day of now, else with its date, such as 2026-11-13 14:32."""
    if abs((now - moment).total_seconds()) < DAY_S:
        return moment.replace(tzinfo=None).time().isoformat(timespec=parts)
    return moment.replace(tzinfo=None).isoformat(" ", timespec="minutes")


def exact_span(seconds: float) -> str:
    """Return a duration with its two largest units, such as 12 min 28 s; a short one with a fraction, such as 3.1 s."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if 0 < seconds < FEW_S:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < MINUTE_S:
        return f"{whole} s"
    for size, unit, below, smaller in (
        (DAY_S, "d", HOUR_S, "h"),
        (HOUR_S, "h", MINUTE_S, "min"),
        (MINUTE_S, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size} {unit} {rest} {smaller}" if rest else f"{whole // size} {unit}"
    return span(seconds)


def pair_of_seconds(low: float, high: float) -> str:
    """Return two durations in one unit, such as 1.1 / 3.8 s."""
    if high < 1:
        return f"{low * 1000:.0f} / {high * 1000:.0f} ms"
    if high < MINUTE_S:
        return f"{low:.1f} / {high:.1f} s"
    return f"{exact_span(low)} / {exact_span(high)}"


def size_text(length: int) -> str:
    """Return a number of characters, such as 142 characters or 64 k characters."""
    return counted(length, "character") if length < 10_000 else f"{length // 1000:,} k characters"
