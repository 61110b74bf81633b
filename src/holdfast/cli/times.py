"""Moments of the past as people give them: `2026-01-31T12:00:00Z`, `2026-01-31`, `2h ago`, `-2h`.

Invariants: a moment without a zone is in UTC; a date is its beginning; a span counts back from the `now` that is given.
"""

import re
from datetime import UTC, datetime, timedelta

from holdfast.core.errors import InputError

UNITS = {
    "s": 1, "sec": 1, "second": 1, "seconds": 1, "m": 60, "min": 60, "minute": 60, "minutes": 60, "h": 3600,
    "hour": 3600, "hours": 3600, "d": 86400, "day": 86400, "days": 86400, "w": 604800, "week": 604800, "weeks": 604800,
}  # fmt: skip
_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([a-z]+)\s*")
_SPAN = re.compile(rf"(?:-\s*(?P<back>(?:{_PART.pattern})+)|(?P<ago>(?:{_PART.pattern})+)\bago)")


def past_moment(text: str, flag: str, now: datetime) -> datetime:
    """Return the moment that was given for a flag, or raise InputError; whether it has been is not judged here."""
    words = text.strip()
    try:
        span = _SPAN.fullmatch(words.lower())
        if span:
            return now - _span(span["back"] or span["ago"])
        moment = datetime.fromisoformat(words)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, KeyError, OverflowError):
        raise InputError(
            f"{flag} is not a time: {text}",
            next_step="Write it as 2030-01-31T12:00:00Z (UTC if no zone is given), 2030-01-31, '2h ago' or -2h.",
            context={"at": text},
        ) from None


def duration(text: str, flag: str) -> timedelta:
    """Return the time that was given for a flag, such as 30m, 2h or 1d, or raise InputError."""
    words = text.strip().lower()
    try:
        if re.fullmatch(rf"(?:{_PART.pattern})+", words):
            return _span(words)
    except (KeyError, OverflowError):
        pass
    raise InputError(
        f"{flag} is no length of time: {text}",
        next_step="Write it as 30m, 2h or 1d.",
        context={"flag": flag, "value": text},
    )


def _span(text: str) -> timedelta:
    return sum((timedelta(seconds=float(n) * UNITS[unit]) for n, unit in _PART.findall(text)), timedelta())
