"""The recovery of attempts whose lease has expired, batch by batch.

Invariants: what was COMMITTED is finished first, then the rest expires; leases are judged at the time before the write
lock was waited for.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from holdfast.core.decide import Move, Refused
from holdfast.core.records import Attempt
from holdfast.engine.above import catch_up
from holdfast.engine.tasks import CallTask
from holdfast.engine.worker.reaper import RecoveryReport, any_expired

if TYPE_CHECKING:
    from holdfast.engine.events import Transition
    from holdfast.engine.ledger import Ledger

BATCH = 1000


class RecoverTask(CallTask):
    """A recovery of the attempts whose lease was expired at a given time."""

    def __init__(self, *, actor: str, n: int, at: datetime, retry_at: datetime | None) -> None:
        super().__init__(
            lambda transaction: transaction.executions.recover(actor=actor, n=n, at=at, retry_at=retry_at),
            ("during_recovery", "after_recovery"),
        )
        self.actor = actor

    def events(self, at: datetime) -> Iterator[Transition]:
        from holdfast.engine.events import of_move  # noqa: PLC0415 - only in a process with a subscriber

        for attempt, answer in self.result():
            if isinstance(answer, Move):
                yield from of_move(attempt.job, answer, at, attempt.execution, actor=self.actor)


def recover_all(ledger: Ledger, *, actor: str, delay_s: float, limit: int | None) -> RecoveryReport:
    """End every attempt whose lease has expired, batch by batch; return what was done."""
    outcomes: list[tuple[Attempt, Move | Refused]] = []
    if any_expired(ledger, ledger.store.now())[1]:
        catch_up(ledger, actor=actor)
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
    if not any_expired(ledger, judged_at)[0]:
        return []
    # Through the committer, so that its events are published before those of the next claim.
    retry_at = judged_at + timedelta(seconds=delay_s) if delay_s else None
    task = RecoverTask(actor=actor, n=n, at=judged_at, retry_at=retry_at)
    ledger.perform_tasks([task])
    ended: list[tuple[Attempt, Move | Refused]] = task.result()
    return ended


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
