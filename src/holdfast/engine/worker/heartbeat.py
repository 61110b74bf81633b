"""Heartbeats: extend the leases of what a worker runs, from a thread and a connection of their own.

Invariants: a lease is extended well before it ends; an execution whose lease is lost, or whose cancellation was
requested, is stopped; a heartbeat that fails is tried again and never raises into the worker.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING

from holdfast.engine.operations import LEASE_S
from holdfast.engine.worker.attempt import HeldAttempt
from holdfast.engine.worker.helper import Helper

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger

BEATS_A_LEASE = 3
LOOK_S = 0.5


class Heartbeat(Helper):
    """Beats for everything that `held` returns."""

    name = "heartbeat"

    def __init__(self, ledger: Ledger, held: Callable[[], list[HeldAttempt]], *also: Callable[[], None]) -> None:
        self._ledger = ledger
        self._held = held
        self._also = also
        self._beaten_at = monotonic()
        self.lost = 0
        super().__init__()

    def pause_s(self) -> float:
        return min(LOOK_S, self.period_s())

    def period_s(self) -> float:
        """Return the time between two heartbeats."""
        # Of every operation, not only of what is held: the next claim may have the shortest lease of all.
        shortest = min((operation.lease_s for operation in self._ledger.operations), default=LEASE_S)
        return max(0.02, min(shortest, 30.0) / BEATS_A_LEASE)

    def turn(self) -> None:
        now = monotonic()
        if now >= self._beaten_at + self.period_s():
            self._beaten_at = now
            self.beat()
        for do in self._also:
            do()

    def beat(self) -> None:
        """Extend every lease that is held, and write down the progress that was noted."""
        held: dict[int, HeldAttempt] = {}
        for running in self._held():
            other = held.setdefault(running.record.exec_id, running)
            if other is not running:  # a crash of the database took the first claim back, and this worker claimed again
                lost, held[running.record.exec_id] = sorted((other, running), key=lambda each: each.record.token)
                self._stop(lost)
        leases = [(running.record.execution, running.lease_s) for running in held.values()]
        now = self._ledger.store.now()
        progress = self._ledger.take_progress()
        if not leases and not progress:
            return
        # Not through the committer: a lease must not wait behind a queue of other writes.
        with self._ledger.store.transaction() as transaction:
            if progress:
                transaction.notes.save_progress(progress)
            kept = transaction.executions.extend_leases(leases) if leases else {}
        for exec_id, running in held.items():
            cancel_requested = kept.get(exec_id)
            if cancel_requested is None:
                self._stop(running)  # it has ended, or the lease is lost: there is no more to do
                continue
            running.extended(now + timedelta(seconds=running.lease_s))
            if cancel_requested:
                running.cancel_requested = True
                running.stop()

    def _stop(self, running: HeldAttempt) -> None:
        self.lost += 1
        running.lost_at = running.lost_at or monotonic()
        running.stop()
