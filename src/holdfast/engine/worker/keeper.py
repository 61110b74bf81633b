"""The keeper: what a ledger needs done now and then, done once a period by whichever worker comes to it first.

One thread in every worker looks every second what is due; the ledger remembers when each duty was last taken, so that a
fleet folds, seals, collects and checks as often as one worker would.

Invariants: a duty is taken by one worker a period, and a worker that dies over it delays it by one period; a duty that
fails is logged and taken again after a short while, and keeps no other from being done; a keeper ends with its worker.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger

logger = logging.getLogger("holdfast")

STOP_S = 5.0


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


class Keeper:
    """A thread that does what is due, again and again; `also` are duties that the caller brings."""

    def __init__(
        self, ledger: Ledger, *, actor: str, periods: Periods | None = None, also: Sequence[Duty] = ()
    ) -> None:
        self._ledger = ledger
        self._actor = actor
        self._periods = periods or Periods()
        self._stopped = threading.Event()
        self._also = tuple(also)
        self._thread = threading.Thread(target=self._run, name="holdfast-keeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop keeping; what is under way ends with its present step."""
        self._stopped.set()
        self._thread.join(timeout=STOP_S)

    def _run(self) -> None:
        duties: tuple[Duty, ...] | None = None
        while not self._stopped.wait(self._periods.look_s):
            try:
                duties = duties or (*self._own(), *self._also)
                for duty in self._due(duties):
                    if self._stopped.is_set():
                        return
                    self._do(duty)
            except HoldfastError as error:
                logger.warning("the keeper cannot see what is due, and looks again: %s", error)
            except Exception:
                logger.exception("the keeper failed, and looks again")

    def _own(self) -> list[Duty]:
        """Return the duties that every ledger needs; what they import is imported when the first of them is due."""
        from holdfast.engine.upkeep.duties import duties  # noqa: PLC0415 - audit and retention, and all that they need

        return duties(self._ledger, self._periods, actor=self._actor, stopping=self._stopped.is_set)

    def _due(self, duties: Sequence[Duty]) -> list[Duty]:
        """Return what is due, as far as can be seen without writing: a fleet must not queue up to be told no."""
        with self._ledger.store.reading() as reading:
            taken = {name: at for name, at in reading.settings.read().items() if name.startswith("duty:")}
        now = self._ledger.store.now()
        return [duty for duty in duties if _is_due(taken.get(f"duty:{duty.name}"), duty, now)]

    def _do(self, duty: Duty) -> None:
        with self._ledger.store.transaction() as transaction:
            if not transaction.workers.take_duty(duty.name, duty.every_s):
                return
        try:
            duty.do()
        except HoldfastError as error:
            logger.warning("the duty %s failed and is tried again: %s", duty.name, error)
        except Exception:
            logger.exception("the duty %s failed and is tried again", duty.name)
        else:
            return
        self._try_again(duty)

    def _try_again(self, duty: Duty) -> None:
        try:
            with self._ledger.store.transaction() as transaction:
                transaction.workers.retry_duty(duty.name, duty.every_s, self._periods.retry_s)
        except HoldfastError as error:
            logger.warning("the duty %s is tried again only after %g s: %s", duty.name, duty.every_s, error)


def _is_due(taken_at: str | None, duty: Duty, now: datetime) -> bool:
    return taken_at is None or datetime.fromisoformat(taken_at) <= now - timedelta(seconds=duty.every_s)
