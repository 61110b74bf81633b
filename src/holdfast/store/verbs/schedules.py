"""Verbs of the ticks of schedules. The schedules themselves are settings of the kind `schedule`.

Invariants: a tick of a schedule is recorded once, in the transaction that submits its job.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.store.rows import reader
from holdfast.store.statements import encoded
from holdfast.store.verbs.base import Verbs, WritingVerbs


class Tick(msgspec.Struct, frozen=True):
    """A tick and its outcome: `fired` with its job, `missed`, or `overlapped` by a job that has not ended."""

    schedule: str
    tick_at: datetime
    outcome: str
    job_id: int | None
    at: datetime


class LastTick(msgspec.Struct, frozen=True):
    """The last tick of a schedule, and the state of the last job that it submitted."""

    schedule: str
    tick_at: datetime
    job_id: int | None
    state: str | None


_read_tick = reader(Tick)
_read_last = reader(LastTick)


class ScheduleReads(Verbs):
    """Reads ticks."""

    def any(self) -> bool:
        return bool(self._run("any_schedule"))

    def last_ticks(self, schedules: Sequence[str]) -> dict[str, LastTick]:
        """Return the last tick of each of these schedules that has one."""
        return {tick.schedule: tick for tick in self._all(_read_last, "last_ticks", rows=encoded(list(schedules)))}

    def ticks(self, schedule: str, *, limit: int = 100) -> list[Tick]:
        """Return the ticks of a schedule, newest first."""
        return self._all(_read_tick, "list_ticks", schedule=schedule, n=limit)


class ScheduleWrites(ScheduleReads, WritingVerbs):
    """Records ticks."""

    def record(self, tick: Tick) -> bool:
        """Record a tick; return False if it is recorded already."""
        rows = self._run(
            "record_tick",
            schedule=tick.schedule,
            tick_at=self._store.stored(tick.tick_at),
            outcome=tick.outcome,
            job_id=tick.job_id,
            now=self._store.time_parameter(),
        )
        return bool(rows)

    def forget(self, schedule: str, *, keep: int) -> None:
        """Delete all ticks of a schedule but the newest `keep`."""
        self._run("forget_ticks", schedule=schedule, n=keep)
