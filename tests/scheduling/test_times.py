"""When a schedule ticks, against a search minute by minute, and on the days on which clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import ScheduleInvalidError
from holdfast.scheduling.times import tick_times

NEW_YORK = "America/New_York"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def ticks(when: str, tz: str, start: str, n: int) -> list[str]:
    times, moment, found = tick_times(when, tz), utc(start), []
    for _ in range(n):
        moment = times.next_after(moment)
        found.append(moment.strftime("%m-%d %H:%M"))
    return found


def test_a_time_that_the_clocks_skip_ticks_right_after_the_gap() -> None:
    # 2026-03-08 in New York: 02:00 EST becomes 03:00 EDT, at 07:00 UTC.
    assert ticks("30 2 * * *", NEW_YORK, "2026-03-07T00:00", 3) == ["03-07 07:30", "03-08 07:00", "03-09 06:30"]


def test_a_time_that_comes_twice_ticks_once() -> None:
    # 2026-11-01 in New York: 02:00 EDT becomes 01:00 EST, at 06:00 UTC.
    assert ticks("30 1 * * *", NEW_YORK, "2026-10-31T00:00", 3) == ["10-31 05:30", "11-01 05:30", "11-02 06:30"]


def test_every_hour_ticks_by_elapsed_time() -> None:
    assert ticks("0 * * * *", NEW_YORK, "2026-11-01T04:30", 3) == ["11-01 05:00", "11-01 06:00", "11-01 07:00"]
    assert ticks("0 * * * *", NEW_YORK, "2026-03-08T05:30", 3) == ["03-08 06:00", "03-08 07:00", "03-08 08:00"]


@pytest.mark.parametrize(
    "when, expected",
    [
        ("@hourly", "01-01 13:00"),
        ("@daily", "01-02 00:00"),
        ("@midnight", "01-02 00:00"),
        ("@weekly", "01-04 00:00"),
        ("@monthly", "02-01 00:00"),
        ("@yearly", "01-01 00:00"),
        ("every 90s", "01-01 12:01"),
        ("every 15m", "01-01 12:15"),
        ("every 2h", "01-01 14:00"),
        ("Every 1d", "01-02 00:00"),
        ("*/20  9-17 * * MON-FRI", "01-01 12:20"),
    ],
)
def test_names_and_intervals(when: str, expected: str) -> None:
    assert ticks(when, "UTC", "2026-01-01T12:00", 1) == [expected]


@pytest.mark.parametrize(
    "when, tz",
    [
        ("0 0 30 2 *", "UTC"),
        ("0 0 31 4,6 *", "UTC"),
        ("60 * * * *", "UTC"),
        ("* * * *", "UTC"),
        ("0 0 * * * *", "UTC"),
        ("", "UTC"),
        ("every 0s", "UTC"),
        ("every", "UTC"),
        ("@fortnightly", "UTC"),
        ("0 2 * * *", "Mars/Olympus"),
        ("0 2 * * *", ""),
        ("0 2 * * *", "../etc/passwd"),
        ("every 5m", "Mars/Olympus"),
    ],
)
def test_a_schedule_that_never_ticks_or_has_an_unknown_zone_is_refused(when: str, tz: str) -> None:
    with pytest.raises(ScheduleInvalidError) as caught:
        tick_times(when, tz)
    assert caught.value.code == "schedule_invalid"


FIELDS = st.tuples(
    st.sampled_from(["0", "30", "*/15", "5,50"]),
    st.sampled_from(["*", "0", "1", "2", "3", "*/6", "1-3"]),
    st.sampled_from(["*", "1", "*/10"]),
    st.sampled_from(["*", "3", "10-11"]),
    st.sampled_from(["*", "SUN", "1-5"]),
).map(" ".join)
ZONES = st.sampled_from(["UTC", NEW_YORK, "Australia/Lord_Howe", "Europe/Berlin", "Antarctica/Troll", "Asia/Kolkata"])
MOMENTS = st.integers(0, 2 * 366 * 86400).map(lambda s: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=s))


@given(FIELDS, ZONES, MOMENTS)
def test_the_last_tick_is_the_one_before_the_next(when: str, tz: str, moment: datetime) -> None:
    times = tick_times(when, tz)
    last = times.last_until(moment)
    assert last <= moment < times.next_after(moment)
    assert times.next_after(last) == times.next_after(moment)
    assert times.last_until(last) == last


@given(FIELDS, MOMENTS)
def test_ticks_in_utc_are_those_that_a_search_by_the_minute_finds(when: str, moment: datetime) -> None:
    minute, hour, day, month, weekday = when.split()
    found = tick_times(when, "UTC").next_after(moment)

    def matches(at: datetime) -> bool:
        fits_day = at.day in _values(day, 1, 31)
        fits_weekday = at.isoweekday() % 7 in _values(weekday, 0, 6)
        both = day.startswith("*") or weekday.startswith("*")
        fits = fits_day and fits_weekday if both else fits_day or fits_weekday
        return (
            fits
            and at.minute in _values(minute, 0, 59)
            and at.hour in _values(hour, 0, 23)
            and at.month in _values(month, 1, 12)
        )

    assert matches(found)
    assert (found.second, found.microsecond) == (0, 0)
    at = moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
    for _ in range(2000):  # more would take too long; the last tick is tested above
        if at >= found:
            break
        assert not matches(at)
        at += timedelta(minutes=1)


def _values(field: str, first: int, last: int) -> set[int]:
    if field == "SUN":
        return {0}
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        low, _, high = span.partition("-")
        ends = (first, last) if span == "*" else (int(low), int(high or low))
        found.update(range(ends[0], ends[1] + 1, int(step or 1)))
    return found
