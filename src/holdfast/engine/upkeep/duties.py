"""Duties of a keeper: fold counts, extend and seal the journal, apply retention, forget workers, check.

The ledger keeps when each duty was last taken, so that a fleet does each as often as one worker would. A long duty is
done in steps. While there is work in the ledger, its steps wait for a budget, and the duty continues where it was.

Invariants: a duty is taken by one worker a period, and a worker that crashes during it delays it by one period; a duty
that fails, or that its worker leaves unfinished, is taken again after `retry_s`; no duty keeps another from being done;
a sealing ends within its period, even if that costs more than the budget, and the others still proceed; a period that
is None leaves its duty to other workers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.steps import Steps
from holdfast.engine.above import scheduling
from holdfast.engine.upkeep.budget import SHARE, Budget

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger
    from holdfast.store.transaction import Reading

logger = logging.getLogger("holdfast")

FORGOTTEN = timedelta(days=7)  # a worker that was not seen for so long is removed from the list
EVER = timedelta(days=365)  # no lease is longer
SEALING = 0.75  # of a period: rows wait for one period and this, and must not wait for two
# What a long duty gets even if sealings take more than the whole budget: a first step, and a part of the budget.
FIRST_S, LEAST = 60.0, 0.05


class Duty(NamedTuple):
    """Something to be done once a period, by one worker of all: at once, or in steps if `do` returns a generator."""

    name: str
    every_s: float
    do: Callable[[], object]
    within_s: float | None = None  # the steps end in this time, even if that costs more than the budget
    waits_first: bool = False  # in a new ledger it is due after a period, not at once


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
    share: float = SHARE  # of the time, for all these duties together while there is work
    in_child: bool = False  # do them in a child process, without that limit: it takes no CPU time of the worker


def keeping(
    ledger: Ledger, periods: Periods | None, also: Sequence[Duty], actor: str, stopped: threading.Event
) -> Callable[[], None]:
    """Return what does the duties until the keeper stops, in this thread or in a child process."""
    if ledger.scheduled:
        scheduling().save_declared(ledger, actor=actor)
    if periods is None or not periods.in_child:
        return Duties(ledger, periods, also, actor, stopped).keep
    from holdfast.engine.upkeep.child import ChildDuties  # noqa: PLC0415 - only on request

    return ChildDuties(ledger, periods, also, actor, stopped).keep


class _Begun:
    """A duty on its way."""

    def __init__(self, duty: Duty, steps: Steps[Any], now: float) -> None:
        self.duty, self.steps = duty, steps
        self.taken_at = now
        self.ends_at = None if duty.within_s is None else now + duty.within_s
        # By this time the next step begins, whatever the budget says.
        self.step_by = now if self.ends_at is not None else now + FIRST_S


class Duties:
    """The duties of one keeper: those that every ledger needs, and those that its worker brings."""

    def __init__(
        self,
        ledger: Ledger,
        periods: Periods | None,
        also: Sequence[Duty],
        actor: str,
        stopped: threading.Event,
        *,
        budget: Budget | None = None,
    ) -> None:
        self._ledger = ledger
        self._periods = periods or Periods()
        self._actor = actor
        self._stopped = stopped
        # Where a server does the work, the time that passes is the measure: it bounds the cost on both sides.
        meter = time.thread_time if ledger.store.one_writer else time.monotonic
        self._budget = budget or Budget(self._periods.share, meter=meter)
        self._own = self._every()
        self._all = [*self._own, *also]
        self._begun: list[_Begun] = []  # those that end in time first, then the one that has waited longest
        self._look_at = self._budget.clock()
        self._firer: Any = None  # of schedules, if the ledger has any
        self._tick_in_s: float | None = None
        self._last_seq: int | None = None

    def keep(self) -> None:
        """Do what is due until the keeper stops, then leave what is unfinished to other workers."""
        while not self._stopped.wait(self._try_turn()):
            pass
        for begun in self._begun:
            begun.steps.close()
            self._take_again(begun.duty, self._periods.retry_s)

    def _try_turn(self) -> float:
        try:
            return self.turn()
        except HoldfastError as error:
            logger.warning("the keeper failed and is tried again in %g s: %s", self._periods.look_s, error)
        except Exception:
            logger.exception("the keeper failed and is tried again in %g s", self._periods.look_s)
        return self._periods.look_s

    def turn(self) -> float:
        """Begin what is due, and make the steps that the budget allows; return how long to wait for the next turn."""
        clock = self._budget.clock
        if clock() >= self._look_at:
            self._look_at = clock() + self._periods.look_s
            self._look()
        if self._firer is not None:
            tick_at = self._firer.turn()
            self._tick_in_s = None if tick_at is None else (tick_at - self._ledger.store.now()).total_seconds()
        while not self._stopped.is_set() and clock() < self._look_at:
            begun = next((one for one in self._begun if self._wait_s(one) <= 0), None)
            if begun is None:
                break
            self._step(begun)
        waits = [self._look_at - clock(), *map(self._wait_s, self._begun)]
        return max(0.0, min(waits if self._tick_in_s is None else [*waits, self._tick_in_s]))

    # -- the duties ---------------------------------------------------------------------------------------------------

    def _every(self) -> list[Duty]:
        periods = self._periods
        every: tuple[tuple[str, float | None, Callable[[], object]], ...] = (
            ("fold", periods.fold_s, self._fold),
            ("extend", periods.extend_s, self._extend),
            ("seal", periods.seal_s, self._seal),
            ("gc", periods.gc_s, self._gc),
            ("forget", periods.forget_s, self._forget),
            ("check", periods.check_s, self._check),
        )
        return [
            Duty(name, every_s, do, SEALING * every_s if name == "seal" else None, waits_first=name == "check")
            for name, every_s, do in every
            if every_s is not None
        ]

    # What the long ones need is imported when they are due: it takes as long as some hundred jobs.

    def _fold(self) -> None:
        with self._ledger.store.transaction() as transaction:
            transaction.counts.fold()

    def _extend(self) -> None:
        with self._ledger.store.transaction() as transaction:
            transaction.retention.extend_journal()

    def _seal(self) -> Steps[Any]:
        from holdfast.audit.seals.sealer import seal_steps  # noqa: PLC0415 - see above

        return seal_steps(self._ledger.store)

    def _gc(self) -> Steps[Any]:
        from holdfast.engine.upkeep.retention import gc_steps  # noqa: PLC0415 - see above

        return gc_steps(self._ledger.store, who=self._actor)

    def _forget(self) -> None:
        with self._ledger.store.transaction() as transaction:
            transaction.workers.forget(self._ledger.store.now() - FORGOTTEN)

    def _check(self) -> Steps[Any]:
        from holdfast.engine.upkeep.checks import check_and_publish  # noqa: PLC0415 - see above

        return check_and_publish(self._ledger)

    # -- taking them --------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Begin what is due and no other worker takes, and keep what is on its way."""
        with self._budget.charged():
            due = self._due()
        for duty in due:
            if self._stopped.is_set():
                return
            if duty in self._own:
                with self._budget.charged():
                    self._begin(duty)
            else:
                self._begin(duty)
        now = self._budget.clock()
        for begun in self._begun:
            if begun.ends_at is None and now - begun.taken_at > begun.duty.every_s / 2:
                begun.taken_at = now
                self._take_again(begun.duty, begun.duty.every_s)

    def _due(self) -> list[Duty]:
        """Return what is due, as far as a read can tell: a fleet must not queue for the write lock to find nothing."""
        with self._ledger.store.reading() as reading:
            taken = {name: at for name, at in reading.settings.read().items() if name.startswith("duty:")}
            self._budget.busy = self._has_work(reading)
            if self._firer is None and reading.schedules.any():
                self._firer = scheduling().Firer(self._ledger)
        now = self._ledger.store.now()
        begun = {one.duty.name for one in self._begun}
        due = []
        for duty in self._all:
            taken_at = taken.get(f"duty:{duty.name}")
            if taken_at is None and duty.waits_first:
                self._take_again(duty, duty.every_s)
            elif duty.name not in begun and _is_due(taken_at, duty, now):
                due.append(duty)
        return due

    def _has_work(self, reading: Reading) -> bool:
        """Return whether anything has moved since the last look, in the whole ledger, or a worker holds a lease."""
        last_seq, self._last_seq = self._last_seq, reading.seals.sealing_bounds().seq
        return last_seq != self._last_seq or reading.executions.any_expired(self._ledger.store.now() + EVER)[0]

    def _begin(self, duty: Duty) -> None:
        with self._ledger.store.transaction() as transaction:
            if not transaction.workers.take_duty(duty.name, duty.every_s):
                return
        steps = self._guarded(duty, duty.do)
        if isinstance(steps, Generator):
            begun = _Begun(duty, steps, self._budget.clock())
            self._begun.insert(0 if begun.ends_at else len(self._begun), begun)

    # -- doing them ---------------------------------------------------------------------------------------------------

    def _wait_s(self, begun: _Begun) -> float:
        return min(self._budget.wait_s(), begun.step_by - self._budget.clock())

    def _step(self, begun: _Begun) -> None:
        with self._budget.charged() as step:
            left = self._guarded(begun.duty, lambda: next(begun.steps, _ENDED), failed=_ENDED)
        self._begun.remove(begun)
        if left is _ENDED:
            return
        if begun.ends_at is None:
            begun.step_by = step.began + step.cost / (LEAST * self._periods.share)
            self._begun.append(begun)
        else:
            # Evenly spread, the steps that are left end in time.
            begun.step_by = step.began + (begun.ends_at - step.began) / ((left or 0) + 1)
            self._begun.insert(0, begun)

    def _guarded(self, duty: Duty, do: Callable[[], Any], failed: object = None) -> Any:
        try:
            return do()
        except HoldfastError as error:
            logger.warning("duty %s failed; trying again in %g s: %s", duty.name, self._periods.retry_s, error)
        except Exception:
            logger.exception("duty %s failed; trying again in %g s", duty.name, self._periods.retry_s)
        self._take_again(duty, self._periods.retry_s)
        return failed

    def _take_again(self, duty: Duty, after_s: float) -> None:
        try:
            with self._ledger.store.transaction() as transaction:
                transaction.workers.retry_duty(duty.name, duty.every_s, after_s)
        except HoldfastError as error:
            logger.warning("duty %s is tried again only after %g s: %s", duty.name, duty.every_s, error)


_ENDED = object()


def _is_due(taken_at: str | None, duty: Duty, now: datetime) -> bool:
    return taken_at is None or datetime.fromisoformat(taken_at) <= now - timedelta(seconds=duty.every_s)
