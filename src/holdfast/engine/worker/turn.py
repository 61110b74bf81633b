"""One turn of a worker: the ends of some attempts and the next claim, written in one transaction.

Invariants: an end is written again until the ledger answers; a refused end is dropped, because another worker holds the
job.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from holdfast.core.decide import COMPLETED
from holdfast.core.errors import StoreError
from holdfast.engine.tasks import ClaimTask, Task
from holdfast.engine.worker.attempt import HeldAttempt
from holdfast.store import Lease

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger
    from holdfast.store.watch import Watch


class Turn:
    """What is written, and then the ledger's answers."""

    def __init__(self, ended: Sequence[HeldAttempt], lease: Lease | None, watch: Watch | None = None) -> None:
        self.ended = ended
        self.room = lease.n if lease else 0  # how many attempts it claims
        self.claim = ClaimTask(lease, watch) if lease else None
        self.tasks: list[Task[Any]] = [task for running in ended if (task := running.task) is not None]
        if self.claim is not None:
            self.tasks.append(self.claim)
        self.again: list[HeldAttempt] = []  # to be written again
        self.outage: Exception | None = None  # why something could not be written

    def settled(self, ledger: Ledger) -> list[HeldAttempt]:
        """Handle the ledger's answers; return what was claimed."""
        for running in self.ended:
            task = running.task
            if task is None or task.outcome is not COMPLETED or task.error is not None:
                from holdfast.engine.worker.unsuccessful import must_write_again  # noqa: PLC0415 - rare

                if must_write_again(running, task):
                    self.again.append(running)
                if task is not None and isinstance(task.error, StoreError):
                    self.outage = task.error
        if self.claim is None:
            return []
        if self.claim.error is not None:
            self.outage = self.claim.error
            return []
        now, durable = monotonic(), self.claim.lease.durable
        claimed = [HeldAttempt(ledger, attempt, now, durable=durable) for attempt in self.claim.result()]
        if durable or all(running.is_first for running in claimed):
            return claimed
        from holdfast.engine.worker.undurable import counted  # noqa: PLC0415 - most attempts are first ones

        return counted(claimed, ledger)
