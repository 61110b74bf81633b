"""The recovery of attempts whose lease has expired, batch by batch.

Invariants: what was COMMITTED is finished first, then the rest expires; leases are judged at the time before the write
lock was waited for.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from holdfast.core.decide import Move, Refused
from holdfast.core.records import Attempt
from holdfast.engine.above import catch_up
from holdfast.engine.tasks import CallTask
from holdfast.engine.worker.reaper import RecoveryReport, any_expired
from holdfast.store import Transaction

if TYPE_CHECKING:
    from holdfast.engine.events import Transition
    from holdfast.engine.ledger import Ledger

BATCH = 1000
POINTS = ("during_recovery", "after_recovery")


class RecoverTask(CallTask):
    """A recovery of the attempts whose lease was expired at a given time; `rare`: only those that `expire` leaves."""

    def __init__(self, *, actor: str, n: int, at: datetime, retry_at: datetime | None, rare: bool) -> None:
        super().__init__(
            lambda transaction: transaction.recovery.recover(actor=actor, n=n, at=at, retry_at=retry_at, rare=rare),
            POINTS,
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
    # Events are made of the attempts, so with a subscriber each of them is read; so are a few.
    in_bulk = limit is None and not ledger.listening
    while limit is None or len(outcomes) < limit:
        n = BATCH if limit is None else min(BATCH, limit - len(outcomes))
        # Leases are judged at this time: waiting for the write lock must not make a live lease look expired.
        judged_at = ledger.store.now()
        if not any_expired(ledger, judged_at)[0]:
            break
        # Through the committer, so that its events are published before those of the next claim.
        retry_at = judged_at + timedelta(seconds=delay_s) if delay_s else None
        task = RecoverTask(actor=actor, n=n, at=judged_at, retry_at=retry_at, rare=in_bulk)
        ledger.perform_tasks([task])
        outcomes += task.result()
        if len(task.result()) < n:
            break
    return _report(outcomes, _expired(ledger, actor, delay_s) if in_bulk else [])


def _expired(ledger: Ledger, actor: str, delay_s: float) -> list[int]:
    """Expire what needs no look at each attempt; return the ids of the jobs."""
    job_ids: list[int] = []
    while True:
        at = ledger.store.now()
        if not any_expired(ledger, at)[0]:
            return job_ids
        retry_at = at + timedelta(seconds=delay_s) if delay_s else None
        task = CallTask(partial(_expire, actor=actor, at=at, retry_at=retry_at), POINTS)
        ledger.perform_tasks([task])
        job_ids += task.result()
        if len(task.result()) < BATCH:
            return job_ids


def _expire(transaction: Transaction, *, actor: str, at: datetime, retry_at: datetime | None) -> list[int]:
    return transaction.recovery.expire(actor=actor, n=BATCH, at=at, retry_at=retry_at)


def _report(outcomes: list[tuple[Attempt, Move | Refused]], expired: list[int]) -> RecoveryReport:
    targets = [
        "refused" if isinstance(answer, Refused) or not answer.steps else answer.steps[-1].target
        for _, answer in outcomes
    ]
    return RecoveryReport(
        finished=targets.count("succeeded"),
        reopened=targets.count("pending") + len(expired),
        failed=targets.count("failed"),
        quarantined=targets.count("quarantined"),
        refused=targets.count("refused"),
        job_ids=(*(attempt.job.job_id for attempt, _ in outcomes), *expired),
    )
