"""Times, ages and durations as people write them: `2026-01-31T12:00:00Z`, `2026-01-31`, `2h ago`, `-2h`, `30d`.

Invariants: a past time without a zone is in UTC, and a date means its start; a due time must have a zone.
"""

import re
from datetime import UTC, datetime, timedelta

from holdfast.core.errors import InputError

UNITS = {
    "s": 1, "sec": 1, "second": 1, "seconds": 1, "m": 60, "min": 60, "minute": 60, "minutes": 60, "h": 3600,
    "hour": 3600, "hours": 3600, "d": 86400, "day": 86400, "days": 86400, "w": 604800, "week": 604800, "weeks": 604800,
}  # fmt: skip
AGE_S_MAX = 100 * 366 * 86400
_AGE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*([a-z]*)")
_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([a-z]+)\s*")
_SPAN = re.compile(rf"(?:-\s*(?P<back>(?:{_PART.pattern})+)|(?P<ago>(?:{_PART.pattern})+)\bago)")


def past_moment(text: str, flag: str, now: datetime) -> datetime:
    """Return the time that was given for a flag, or raise InputError; a future time is not refused here."""
    words = text.strip()
    try:
        span = _SPAN.fullmatch(words.lower())
        if span:
            return now - _span(span["back"] or span["ago"])
        moment = datetime.fromisoformat(words)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, KeyError, OverflowError):
        raise InputError(
            f"{flag} must be a time; it is {text!r}.",
            next_step="Write it as 2030-01-31T12:00:00Z (UTC if no zone is given), 2030-01-31, '2h ago' or -2h.",
            context={"at": text},
        ) from None


def duration(text: str, flag: str) -> timedelta:
    """Return the duration that was given for a flag, such as 30m, 2h or 1d, or raise InputError."""
    words = text.strip().lower()
    try:
        if re.fullmatch(rf"(?:{_PART.pattern})+", words):
            return _span(words)
    except (KeyError, OverflowError):
        pass
    raise InputError(
        f"{flag} must be a duration; it is {text!r}.",
        next_step="Write it as 30m, 2h or 1d.",
        context={"flag": flag, "value": text},
    )


def age(text: str, flag: str) -> timedelta:
    """Return the age that was given for a flag, such as 30d or 12h; a number without a unit counts seconds."""
    match = _AGE.fullmatch(text.strip().lower())
    unit = UNITS.get(match[2] or "s") if match else None
    if match is None or unit is None or float(match[1]) * unit > AGE_S_MAX:
        raise InputError(
            f"{flag} must be an age of at most 100 years; it is {text!r}.",
            next_step="Write it as 30d, 12h, 90min or 3600s.",
            context={"flag": flag, "value": text},
        )
    return timedelta(seconds=float(match[1]) * unit)


def due_moment(text: str | None, flag: str = "--run-at") -> datetime | None:
    """Return the due time that was given for a flag, or raise InputError if it has no zone."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InputError(
            f"{flag} needs a time with a zone; it is {text!r}.",
            next_step="Write it as 2030-01-31T12:00:00Z or 2030-01-31T13:00:00+01:00.",
            context={"run_at": text},
        ) from None


def _span(text: str) -> timedelta:
    return sum((timedelta(seconds=float(n) * UNITS[unit]) for n, unit in _PART.findall(text)), timedelta())
