"""The reaper: recovers attempts whose lease has expired. One runs in every worker.

Invariants: it finishes what was COMMITTED first, then expires the rest, and reopens only what did not commit; only an
expired lease is reclaimed, never a long run; it skips one lease period after the wall clock has jumped; a recovery that
fails is logged and tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.decide import Move, Refused
from holdfast.core.records import Attempt
from holdfast.engine.tasks import RecoverTask
from holdfast.engine.worker.helper import Helper

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger

logger = logging.getLogger("holdfast")

BATCH = 1000
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
    """End every attempt whose lease has expired, batch by batch; return what was done."""
    outcomes: list[tuple[Attempt, Move | Refused]] = []
    while limit is None or len(outcomes) < limit:
        n = BATCH if limit is None else min(BATCH, limit - len(outcomes))
        judged_at = ledger.store.now()
        batch = _recover_batch(ledger, actor, n, judged_at, delay_s)
        outcomes += batch
        if len(batch) < n:
            break
    return _report(outcomes)


def _recover_batch(
    ledger: Ledger, actor: str, n: int, judged_at: datetime, delay_s: float
) -> list[tuple[Attempt, Move | Refused]]:
    # Leases are judged at this time: waiting for the write lock must not make a live lease look expired.
    if not _any_expired(ledger, judged_at):
        return []
    # Through the committer, so that its events are published before those of the next claim.
    retry_at = judged_at + timedelta(seconds=delay_s) if delay_s else None
    task = RecoverTask(actor=actor, n=n, at=judged_at, retry_at=retry_at)
    ledger.perform_tasks([task])
    ended: list[tuple[Attempt, Move | Refused]] = task.result()
    return ended


def _any_expired(ledger: Ledger, at: datetime) -> bool:
    with ledger.store.reading() as reading:
        return reading.executions.any_expired(at)


def _report(outcomes: list[tuple[Attempt, Move | Refused]]) -> RecoveryReport:
    targets = [
        "refused" if isinstance(answer, Refused) or not answer.steps else answer.steps[-1].target
        for _, answer in outcomes
    ]
    return RecoveryReport(
        finished=targets.count("succeeded"),
        reopened=targets.count("pending"),
        failed=targets.count("failed"),
        quarantined=targets.count("quarantined"),
        refused=targets.count("refused"),
        job_ids=tuple(attempt.job.job_id for attempt, _ in outcomes),
    )


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
