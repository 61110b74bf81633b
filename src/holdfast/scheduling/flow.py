"""Moves the jobs that no worker moves: ends those whose deadline has passed.

Every worker does it when it looks for work and finds that there is something to move, and once a second besides.

Invariants: it may be done by any number of workers at once, and again after a crash: each write matches the state and
version of the job that was read.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from holdfast.core.decide import Move, Refused
from holdfast.core.records import Job
from holdfast.engine.tasks import CallTask

if TYPE_CHECKING:
    from holdfast.engine.events import Transition
    from holdfast.engine.ledger import Ledger

BATCH = 1000

Ruled = list[tuple[Job, Move | Refused]]


class LapseTask(CallTask):
    """The end of up to `BATCH` jobs whose deadline has passed."""

    def __init__(self, actor: str) -> None:
        super().__init__(lambda transaction: transaction.flow.lapse(actor=actor, n=BATCH))
        self.actor = actor

    def events(self, at: datetime) -> Iterator[Transition]:
        from holdfast.engine.events import of_move  # noqa: PLC0415 - only in a process with a subscriber

        for job, answer in self.result():
            if isinstance(answer, Move):
                yield from of_move(job, answer, at, actor=self.actor)


def catch_up(ledger: Ledger, *, actor: str) -> bool:
    """End the jobs whose deadline has passed; return whether anything was changed."""
    moved = False
    while True:
        task = LapseTask(actor)
        ledger.perform_tasks([task])
        ruled: Ruled = task.result()
        moved = moved or any(isinstance(answer, Move) for _, answer in ruled)
        if len(ruled) < BATCH:
            return moved
