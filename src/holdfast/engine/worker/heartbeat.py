"""Heartbeats: keeping the leases of what a worker runs, from a thread and a connection of their own.

Invariants: a lease is extended well before it ends; an execution whose lease is lost, or whose cancellation was asked
for, is told to stop; a heartbeat that fails is tried again and never raises into the worker.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.core.errors import HoldfastError
from holdfast.engine.operations import LEASE_S
from holdfast.engine.worker.attempt import HeldAttempt

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger

logger = logging.getLogger("holdfast")

BEATS_A_LEASE = 3


class Heartbeat:
    """A thread that beats for everything that `held` returns."""

    def __init__(self, ledger: Ledger, held: Callable[[], list[HeldAttempt]], seen: Callable[[], None]) -> None:
        self._ledger = ledger
        self._held = held
        self._seen = seen
        self._stopped = threading.Event()
        self.lost = 0
        self._thread = threading.Thread(target=self._run, name="holdfast-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop beating."""
        self._stopped.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stopped.wait(self._period_s()):
            try:
                self.beat()
                self._seen()
            except HoldfastError as error:
                logger.warning("a heartbeat failed and is tried again: %s", error)
            except Exception:
                logger.exception("a heartbeat failed and is tried again")

    def _period_s(self) -> float:
        # Of every operation, not only of what is held: the next claim may have the shortest lease of all.
        shortest = min((operation.lease_s for operation in self._ledger.operations), default=LEASE_S)
        return max(0.02, min(shortest, 30.0) / BEATS_A_LEASE)

    def beat(self) -> None:
        """Extend every lease that is held, and write down the progress that was noted."""
        held = self._held()
        leases = [(r.record.execution.exec_id, r.record.execution.lease_token, r.lease_s) for r in held]
        asked_at = self._ledger.store.now()
        progress = self._ledger.take_progress()
        if not leases and not progress:
            return
        # Not through the committer: a lease must not wait behind a queue of other writes.
        with self._ledger.store.transaction() as transaction:
            if progress:
                transaction.executions.save_progress(progress)
            kept = transaction.executions.extend_leases(leases) if leases else {}
        for running in held:
            asked = kept.get(running.record.execution.exec_id)
            if asked is None:
                self.lost += 1
                running.stop()  # ended meanwhile, or lost; either way there is no more to do
                continue
            running.extended(asked_at + timedelta(seconds=running.lease_s))
            if asked:
                running.cancel_asked = True
                running.stop()
