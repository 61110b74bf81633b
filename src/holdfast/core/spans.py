"""Durations, times and numbers as people read them: `3 h`, `3 h ago`, `2026-11-16 09:30:00`, `1,204 jobs`.

Invariants: a duration is rounded down, in its largest unit; a time is in UTC; a number has separators.
"""

from datetime import datetime


def span(seconds: float) -> str:
    """Return a duration as a short text, such as 3 h."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s" if seconds >= 1 else f"{int(seconds * 1000)} ms"


def age(moment: datetime, now: datetime) -> str:
    """Return a time relative to now, such as 3 h ago or in 2 d."""
    seconds = (now - moment).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def instant(moment: datetime, *, parts: str = "seconds") -> str:
    """Return a time in UTC as people read it, without its zone."""
    return moment.replace(tzinfo=None).isoformat(" ", timespec=parts)


def counted(n: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun, such as 1 job or 1,204 jobs."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"
