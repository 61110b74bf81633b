"""The duties of a keeper: fold counts, extend and seal the journal, apply retention, forget workers, check.

Invariants: a period that is None leaves its duty to other workers; a duty that takes long looks between its steps
whether the keeper is stopping.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.audit.seals.sealer import seal
from holdfast.engine.upkeep.checks import check_and_tell
from holdfast.engine.upkeep.retention import extend_journal, gc
from holdfast.engine.worker.keeper import Duty, Periods

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger

FORGOTTEN = timedelta(days=7)  # a worker that was not seen for so long is removed from the list


def duties(ledger: Ledger, periods: Periods, *, actor: str, stopping: Callable[[], bool]) -> list[Duty]:
    """Return the duties that have a period, in the order in which they are done."""
    store = ledger.store
    every = (
        ("fold", periods.fold_s, lambda: _fold(ledger)),
        ("extend", periods.extend_s, lambda: extend_journal(store)),
        ("seal", periods.seal_s, lambda: seal(store)),
        ("gc", periods.gc_s, lambda: gc(store, who=actor, stopping=stopping)),
        ("forget", periods.forget_s, lambda: _forget(ledger)),
        ("check", periods.check_s, lambda: check_and_tell(ledger, stopping=stopping)),
    )
    return [Duty(name, every_s, do) for name, every_s, do in every if every_s is not None]


def _fold(ledger: Ledger) -> None:
    with ledger.store.transaction() as transaction:
        transaction.counts.fold()


def _forget(ledger: Ledger) -> None:
    with ledger.store.transaction() as transaction:
        transaction.workers.forget(ledger.store.now() - FORGOTTEN)
