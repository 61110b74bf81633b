"""The reaper: recovers attempts whose lease has expired. One runs in every worker.

Invariants: it finishes what was COMMITTED first, then expires the rest, and reopens only what did not commit; only an
expired lease is reclaimed, never a long run; it skips one lease period after the wall clock has jumped; a recovery that
fails is logged and tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.engine.worker.helper import Helper

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger

logger = logging.getLogger("holdfast")

JUMP_S = 1.0


class RecoveryReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a recovery found and did."""

    finished: int = 0  # committed before the crash, now done
    reopened: int = 0  # expired, pending again
    failed: int = 0  # expired, no automatic attempt left
    quarantined: int = 0  # expired, no attempt left at all
    refused: int = 0  # another process has ended it first
    job_ids: tuple[int, ...] = ()

    @property
    def recovered(self) -> int:
        """Return how many attempts were ended."""
        return self.finished + self.reopened + self.failed + self.quarantined


def recover(ledger: Ledger, *, actor: str, delay_s: float = 0.0, limit: int | None = None) -> RecoveryReport:
    """End every attempt whose lease has expired, batch by batch; return what was done.

    Also move the jobs that `scheduling.flow` moves.
    """
    if not any(any_expired(ledger, ledger.store.now())):
        return RecoveryReport()
    from holdfast.engine.worker.recovery import recover_all  # noqa: PLC0415 - most looks find nothing

    return recover_all(ledger, actor=actor, delay_s=delay_s, limit=limit)


def any_expired(ledger: Ledger, at: datetime) -> tuple[bool, bool]:
    """Return whether a lease was expired at a time, and whether `scheduling.flow` may have jobs to move."""
    with ledger.store.glance() as reading:
        return reading.executions.any_expired(at)


class Reaper(Helper):
    """Recovers attempts whose lease has expired, unless the clock has just jumped."""

    name = "recovery"

    def __init__(
        self, ledger: Ledger, *, actor: str, period_s: float, lease_s: float, on_recovered: Callable[[], None]
    ) -> None:
        self._ledger = ledger
        self._actor = actor
        self._period_s = period_s
        self._lease_s = lease_s
        self._on_recovered = on_recovered
        self._clocks: tuple[datetime, float] | None = None
        self._quiet_until = 0.0
        super().__init__()

    def pause_s(self) -> float:
        return self._period_s

    def turn(self) -> None:
        if not self._clock_jumped() and recover(self._ledger, actor=self._actor).recovered:
            self._on_recovered()

    def _clock_jumped(self) -> bool:
        """Return whether to reclaim nothing: wall and monotonic time differ, so leases may look older than they are."""
        now, monotonic = self._ledger.store.now(), self._ledger.world.monotonic()
        if self._clocks is not None:
            before, monotonic_before = self._clocks
            drift_s = abs((now - before).total_seconds() - (monotonic - monotonic_before))
            if drift_s > JUMP_S:
                logger.warning("the clock jumped by %.1f s; no lease is reclaimed for %.1f s", drift_s, self._lease_s)
                self._quiet_until = monotonic + self._lease_s
        self._clocks = now, monotonic
        return monotonic < self._quiet_until
