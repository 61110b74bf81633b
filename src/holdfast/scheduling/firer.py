"""Fires the ticks of schedules: submits their jobs when they are due.

Every worker does it. The ledger records a tick in the transaction that submits its job, and records it once, so that
neither two workers nor two fleets fire it twice, and a crash leaves it fired or not fired.

Invariants: a schedule that cannot be fired does not keep the others from being fired, and is tried again; ticks before
a schedule was set, changed or resumed are never fired.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from holdfast.core.errors import HoldfastError, StoreError
from holdfast.core.machines import JobState
from holdfast.scheduling.schedules import KIND, Missed, Overlap, Scheduled, active
from holdfast.store.transaction import Transaction
from holdfast.store.verbs.schedules import LastTick, Tick

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger

logger = logging.getLogger("holdfast")

READ_S = 5.0  # how often schedules are read again
RETRY_S = 10.0  # after which a schedule that failed is tried again
LATE_S = 60.0  # a tick that is fired later than this counts as missed
TICKS_A_TURN = 100
TICKS_KEPT = 1000  # of each schedule
OPEN = (JobState.PENDING, JobState.RUNNING)


class Firer:
    """Fires what is due in one ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._found: list[Scheduled] = []
        self._last: dict[str, LastTick] = {}
        self._read_at: datetime | None = None
        self._again_at: dict[str, datetime] = {}  # schedules that failed

    def turn(self) -> datetime | None:
        """Fire what is due; return when the next tick is due, None if there is none."""
        now = self._ledger.store.now()
        if self._read_at is None or not timedelta(0) <= now - self._read_at < timedelta(seconds=READ_S):
            self._read(now)
        for found in self._found:
            if (due := self._due_at(found)) is not None and due <= now:
                self._try(found, now)
        return min((due for found in self._found if (due := self._due_at(found)) is not None), default=None)

    def _read(self, now: datetime) -> None:
        with self._ledger.store.reading() as reading:
            self._found = [found for found in active(reading) if not found.schedule.paused]
            self._last = reading.schedules.last_ticks([found.name for found in self._found])
        self._read_at = now

    def _due_at(self, found: Scheduled) -> datetime | None:
        """Return when a schedule has something to do next."""
        due = found.schedule.times.next_after(self._base(found))
        again = self._again_at.get(found.name)
        return due if again is None else max(due, again)

    def _base(self, found: Scheduled) -> datetime:
        """Return the moment after which the next tick is looked for."""
        last = self._last.get(found.name)
        return found.setting.created_at if last is None else max(last.tick_at, found.setting.created_at)

    def _try(self, found: Scheduled, now: datetime) -> None:
        self._again_at.pop(found.name, None)
        try:
            self._ledger.perform(lambda tx: self._fire(tx, found, now))
        except StoreError:
            raise
        except HoldfastError as error:
            logger.warning("schedule %s cannot fire; trying again in %g s: %s", found.name, RETRY_S, error)
            self._again_at[found.name] = now + timedelta(seconds=RETRY_S)
        self._read_at = None  # the ledger says what was fired, here or elsewhere

    def _fire(self, tx: Transaction, found: Scheduled, now: datetime) -> None:
        """Record what becomes of the ticks that are due, and submit their jobs."""
        setting = tx.configuration.get(KIND, found.name)
        if setting is None or setting.setting_id != found.setting.setting_id:
            return  # changed since it was read
        last = tx.schedules.last_ticks([found.name]).get(found.name)
        is_open = last is not None and last.state in OPEN
        base = found.setting.created_at if last is None else max(last.tick_at, found.setting.created_at)
        overlap = found.schedule.overlap
        for tick, is_missed in due_ticks(found, base, now):
            if is_open and overlap is Overlap.QUEUE:
                self._again_at[found.name] = now + timedelta(seconds=1)
                return
            outcome = "missed" if is_missed else "overlapped" if is_open and overlap is Overlap.SKIP else "fired"
            job_id = None
            if outcome == "fired":
                [admission] = self._ledger.submit_in(tx, [found.schedule.call(found.name, tick)])
                job_id, is_open = admission.job_id, True
            tx.schedules.record(Tick(found.name, tick, outcome, job_id, now))
        tx.schedules.forget(found.name, keep=TICKS_KEPT)


def due_ticks(found: Scheduled, base: datetime, now: datetime) -> Iterator[tuple[datetime, bool]]:
    """Yield the ticks to handle, oldest first, each with whether it counts as missed."""
    times = found.schedule.times
    if found.schedule.missed is Missed.ALL:
        tick = times.next_after(base)
        for _ in range(TICKS_A_TURN):
            if tick > now:
                return
            yield tick, False
            tick = times.next_after(tick)
        return
    tick = times.last_until(now)
    if tick > base:
        late = now - tick > timedelta(seconds=LATE_S)
        yield tick, late and found.schedule.missed is Missed.SKIP
