"""Duties of a keeper: fold counts, extend and seal the journal, apply retention, forget workers, check.

The ledger keeps when each duty was last taken, so that a fleet does each as often as one worker would.

Invariants: a duty is taken by one worker a period, and a worker that crashes during it delays it by one period; a duty
that fails is logged and taken again after `retry_s`, and keeps no other from being done; a period that is None leaves
its duty to other workers; a duty that takes long looks between its steps whether the keeper is stopping.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from holdfast.audit.seals.sealer import seal
from holdfast.core.errors import HoldfastError
from holdfast.engine.upkeep.checks import check_and_publish
from holdfast.engine.upkeep.retention import extend_journal, gc

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger

logger = logging.getLogger("holdfast")

FORGOTTEN = timedelta(days=7)  # a worker that was not seen for so long is removed from the list


class Duty(NamedTuple):
    """Something to be done once a period, by one worker of all."""

    name: str
    every_s: float
    do: Callable[[], object]


class Periods(msgspec.Struct, frozen=True, kw_only=True):
    """How often a worker looks, and how often each duty is due; None leaves a duty to other workers."""

    look_s: float = 1.0
    fold_s: float | None = 5.0
    seal_s: float | None = 60.0
    extend_s: float | None = 60.0
    gc_s: float | None = 3600.0
    check_s: float | None = 3600.0
    forget_s: float | None = 3600.0
    retry_s: float = 30.0  # after which a duty that failed is tried again


class Duties:
    """The duties of one keeper: those that every ledger needs, and those that its worker brings."""

    def __init__(
        self,
        ledger: Ledger,
        periods: Periods | None,
        also: Sequence[Duty],
        actor: str,
        stopping: Callable[[], bool],
    ) -> None:
        self._ledger = ledger
        self._periods = periods or Periods()
        self._actor = actor
        self._stopping = stopping
        self._all = [*self._own(), *also]

    def do_due(self) -> None:
        """Do what is due and no other worker takes."""
        for duty in self._due():
            if self._stopping():
                return
            self._do(duty)

    def _own(self) -> list[Duty]:
        store, periods, stopping = self._ledger.store, self._periods, self._stopping
        every = (
            ("fold", periods.fold_s, self._fold),
            ("extend", periods.extend_s, lambda: extend_journal(store)),
            ("seal", periods.seal_s, lambda: seal(store)),
            ("gc", periods.gc_s, lambda: gc(store, who=self._actor, stopping=stopping)),
            ("forget", periods.forget_s, self._forget),
            ("check", periods.check_s, lambda: check_and_publish(self._ledger, stopping=stopping)),
        )
        return [Duty(name, every_s, do) for name, every_s, do in every if every_s is not None]

    def _fold(self) -> None:
        with self._ledger.store.transaction() as transaction:
            transaction.counts.fold()

    def _forget(self) -> None:
        with self._ledger.store.transaction() as transaction:
            transaction.workers.forget(self._ledger.store.now() - FORGOTTEN)

    def _due(self) -> list[Duty]:
        """Return what is due, as far as a read can tell: a fleet must not queue for the write lock to find nothing."""
        with self._ledger.store.reading() as reading:
            taken = {name: at for name, at in reading.settings.read().items() if name.startswith("duty:")}
        now = self._ledger.store.now()
        return [duty for duty in self._all if _is_due(taken.get(f"duty:{duty.name}"), duty, now)]

    def _do(self, duty: Duty) -> None:
        with self._ledger.store.transaction() as transaction:
            if not transaction.workers.take_duty(duty.name, duty.every_s):
                return
        try:
            duty.do()
        except HoldfastError as error:
            logger.warning("duty %s failed; trying again in %g s: %s", duty.name, self._periods.retry_s, error)
        except Exception:
            logger.exception("duty %s failed; trying again in %g s", duty.name, self._periods.retry_s)
        else:
            return
        self._try_again(duty)

    def _try_again(self, duty: Duty) -> None:
        try:
            with self._ledger.store.transaction() as transaction:
                transaction.workers.retry_duty(duty.name, duty.every_s, self._periods.retry_s)
        except HoldfastError as error:
            logger.warning("duty %s is tried again only after %g s: %s", duty.name, duty.every_s, error)


def _is_due(taken_at: str | None, duty: Duty, now: datetime) -> bool:
    return taken_at is None or datetime.fromisoformat(taken_at) <= now - timedelta(seconds=duty.every_s)
