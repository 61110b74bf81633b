"""When a schedule ticks: cron expressions in a time zone, and intervals.

On the days on which clocks change, a cron expression with a fixed time ticks once: a time that is skipped ticks right
after the gap, and a time that comes twice ticks at its first occurrence. One that ticks every hour or every minute
ticks by elapsed time. Intervals are counted from 1970-01-01T00:00Z, so that every process computes the same ticks.

Invariants: `next_after` and `last_until` agree; both are in UTC; an expression that never ticks is refused.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import takewhile
from typing import Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from holdfast.core.errors import ScheduleInvalidError

NAMED = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}  # fmt: skip
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_EVERY = re.compile(r"every ([0-9]{1,6})([smhd])")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_CLOCK_CHANGE = timedelta(hours=3)  # more than any zone changes its clocks by


class TickTimes(Protocol):
    """The times at which a schedule ticks."""

    def next_after(self, moment: datetime) -> datetime:
        """Return the first tick after a moment."""

    def last_until(self, moment: datetime) -> datetime:
        """Return the last tick at or before a moment."""


class Cron:
    """The ticks of a cron expression in a time zone."""

    def __init__(self, expression: str, zone: tzinfo) -> None:
        self._expression, self._zone = expression, zone

    def next_after(self, moment: datetime) -> datetime:
        """Return the first tick after a moment."""
        return next(self._after(moment))

    def last_until(self, moment: datetime) -> datetime:
        """Return the last tick at or before a moment."""
        # Near a change of clocks, going back may end at another moment than going forward. Only the latter counts.
        start = next(CronSim(self._expression, (moment + _SECOND).astimezone(self._zone), reverse=True)).astimezone(UTC)
        while True:
            start -= _CLOCK_CHANGE
            ticks = takewhile(lambda tick: tick <= moment, self._after(start))
            if last := deque(ticks, maxlen=1):
                return last[0]

    def _after(self, moment: datetime) -> Iterator[datetime]:
        return (tick.astimezone(UTC) for tick in CronSim(self._expression, moment.astimezone(self._zone)))


class Interval:
    """Ticks at equal distances."""

    def __init__(self, seconds: int) -> None:
        self._every = timedelta(seconds=seconds)

    def next_after(self, moment: datetime) -> datetime:
        """Return the first tick after a moment."""
        return self.last_until(moment) + self._every

    def last_until(self, moment: datetime) -> datetime:
        """Return the last tick at or before a moment."""
        return _EPOCH + (moment - _EPOCH) // self._every * self._every


@lru_cache(1000)
def tick_times(when: str, zone_name: str = "UTC") -> TickTimes:
    """Return the times of `0 2 * * *`, `@daily` or `every 15m`; raise InputError if they cannot be."""
    zone = _zone(zone_name)
    words = " ".join(when.split())
    every = _EVERY.fullmatch(words.lower())
    if every:
        seconds = int(every[1]) * _UNITS[every[2]]
        if seconds < 1:
            raise _refused(when, "an interval must be at least 1 s")
        return Interval(seconds)
    expression = NAMED.get(words.lower(), words)
    if len(expression.split()) != 5:
        raise _refused(when, "a cron expression has 5 fields")
    try:
        if next(CronSim(expression, _EPOCH), None) is None:
            raise _refused(when, "it never ticks")
    except CronSimError as error:
        raise _refused(when, str(error).lower()) from None
    return Cron(expression, zone)


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):  # KeyError: it is not in the database
        raise ScheduleInvalidError(
            f"Unknown time zone {name!r}.",
            next_step="Use a name of the IANA database, such as America/New_York; if all are unknown, install tzdata.",
            context={"tz": name},
        ) from None


def _refused(when: str, why: str) -> ScheduleInvalidError:
    return ScheduleInvalidError(f"{when!r} is not a schedule: {why}.", context={"when": when})
