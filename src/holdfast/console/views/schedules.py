"""Schedules with their next ticks and what became of the last ones.

Invariants: nothing here fires a tick; the next ticks of a paused schedule are not shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice

import msgspec

from holdfast.scheduling.schedules import Schedule, Scheduled, active
from holdfast.store.transaction import Reading
from holdfast.store.verbs.schedules import LastTick, Tick

NEXT = 3
LAST = 10


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule with its next and last ticks."""

    name: str
    schedule: Schedule
    set_by: str
    reason: str
    next_at: tuple[datetime, ...]
    last: LastTick | None
    ticks: tuple[Tick, ...]


def schedule_rows(reading: Reading, now: datetime) -> list[ScheduleRow]:
    """Return all schedules: the one that ticks next first, paused ones last."""
    found = active(reading)
    last = reading.schedules.last_ticks([one.name for one in found])
    rows = [
        ScheduleRow(
            name=one.name,
            schedule=one.schedule,
            set_by=one.setting.actor,
            reason=one.setting.reason,
            next_at=tuple(islice(_ticks(one, now), NEXT)),
            last=last.get(one.name),
            ticks=tuple(reading.schedules.ticks(one.name, limit=LAST)),
        )
        for one in found
    ]
    return sorted(rows, key=lambda row: (not row.next_at, row.next_at, row.name))


def _ticks(one: Scheduled, now: datetime) -> Iterator[datetime]:
    if one.schedule.paused:
        return
    times, moment = one.schedule.times, now
    while True:
        moment = times.next_after(moment)
        yield moment
