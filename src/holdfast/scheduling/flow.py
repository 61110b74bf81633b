"""Moves the jobs that no worker moves: ends those whose deadline has passed, and lets go those that have waited.

Every worker does it when it looks for work and finds that there is something to move, and once a second besides. It
looks at what the ledger says now, not at what has ended meanwhile, so no crash loses anything: the next look finds it.

Invariants: it may be done by any number of workers at once, and again after a crash: each write matches what was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from holdfast.core.decide import Move
from holdfast.engine.tasks import CallTask

if TYPE_CHECKING:
    from holdfast.engine.events import Transition
    from holdfast.engine.ledger import Ledger
    from holdfast.store.transaction import Transaction
    from holdfast.store.verbs.flow import Place, Ruled, SettledWait

BATCH = 1000
WAITS_A_LOOK = 10_000

# Where the next look at waits begins, and that at parents whose end cancels what waits.
_from: WeakKeyDictionary[Ledger, tuple[int, Place]] = WeakKeyDictionary()


class FlowTask(CallTask):
    """A change of jobs that the transaction reads: `fn` returns how many it changed, and those that it ended."""

    def __init__(self, fn: Callable[[Transaction], tuple[int, Ruled]], actor: str) -> None:
        super().__init__(fn)
        self.actor = actor

    def events(self, at: datetime) -> Iterator[Transition]:
        from holdfast.engine.events import of_move  # noqa: PLC0415 - only in a process with a subscriber

        for job, answer in self.result()[1]:
            if isinstance(answer, Move):
                yield from of_move(job, answer, at, actor=self.actor)


def catch_up(ledger: Ledger, *, actor: str) -> bool:
    """End the jobs whose deadline has passed and let go those that have waited; return whether anything changed."""
    changed = False
    while _pass(ledger, actor):
        changed = True
    return changed


def _pass(ledger: Ledger, actor: str) -> bool:
    after, place = _from.get(ledger, (0, (0, 0)))
    with ledger.store.reading() as reading:
        late = reading.flow.any_overdue()
        found, after = reading.flow.settled(after, WAITS_A_LOOK)
        doomed, place = reading.flow.doomed(place, WAITS_A_LOOK)
    _from[ledger] = after, place
    found = [*doomed, *(each for each in found if each[0] not in {wait for wait, *_ in doomed})]
    moved = 0
    if late:
        moved += _perform(ledger, actor, partial(_lapsed, actor))
    for start in range(0, len(found), BATCH):
        some = found[start : start + BATCH]
        moved += _perform(ledger, actor, partial(_settled, some, actor))
    return moved > 0


def _lapsed(actor: str, transaction: Transaction) -> tuple[int, Ruled]:
    ruled = transaction.flow.lapse(actor=actor, n=BATCH)
    return sum(isinstance(answer, Move) for _, answer in ruled), ruled


def _settled(found: Sequence[SettledWait], actor: str, transaction: Transaction) -> tuple[int, Ruled]:
    return transaction.flow.settle(found, actor=actor)


def _perform(ledger: Ledger, actor: str, fn: Callable[[Transaction], tuple[int, Ruled]]) -> int:
    task = FlowTask(fn, actor)
    ledger.perform_tasks([task])
    return int(task.result()[0])
