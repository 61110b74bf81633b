"""Helpers for tests of code that uses Holdfast: a virtual clock, jobs run in this thread, planned crashes.

    from holdfast.testing import crash_at, drain

    def test_a_crash_costs_a_repeat_and_no_second_effect(holdfast_ledger, holdfast_clock):
        holdfast_ledger.submit(charge.call(order=7))
        with crash_at("before_commit"):
            drain(holdfast_ledger)
        holdfast_clock.advance(31)     # past the lease of the crashed worker
        assert drain(holdfast_ledger) == 1

The fixtures come with the package: `holdfast_ledger`, `holdfast_clock` and `holdfast_url`. To test with the ledger of
your own module, name it in the configuration of pytest: `holdfast_ledger = myapp.tasks:ledger`.

Invariants: on a virtual clock nothing waits and no other thread runs, so a test runs the same way every time; a planned
crash happens only in ledgers with a world from here, and a crash point that is not reached fails the test.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random

from holdfast.core.errors import InputError
from holdfast.core.machines import JobState
from holdfast.engine.crash_points import POINTS
from holdfast.engine.ledger import Ledger
from holdfast.engine.operations import LEASE_S, Call
from holdfast.engine.worker.execution import Execution
from holdfast.engine.world import Crash, World
from holdfast.scheduling import Firer, save_declared
from holdfast.store import Lease

__all__ = ["FAULTS", "POINTS", "Crash", "VirtualClock", "begin", "crash_at", "drain", "virtual_world"]

FAULTS = {
    "CrashBeforeWrite": "after_claim",  # the entry is logged, and nothing of its work is written
    "CrashAfterWrite": "before_commit",  # its work is written and not yet completed: recovery replays it
    "CrashDuringWalAppend": "during_submit",
    "CrashDuringWalComplete": "after_commit",  # it is completed, and its client never gets the answer
}
"""The crashes that the model of the write-ahead log names, with the crash point of each."""

# Any moment would do; this one has microseconds, so that a test notices code that drops them.
START = datetime(2026, 3, 14, 9, 26, 53, 589793, tzinfo=UTC)


class VirtualClock:
    """A clock that moves only by its methods. Calling it returns the time."""

    def __init__(self, start: datetime = START) -> None:
        if start.tzinfo is None:
            raise InputError(f"The start {start} has no time zone", next_step="Use datetime(…, tzinfo=UTC).")
        self._now = start
        self._passed_s = 0.0

    def __call__(self) -> datetime:
        return self._now

    def __repr__(self) -> str:
        return f"VirtualClock({self._now.isoformat()})"

    def advance(self, seconds: float) -> datetime:
        """Move forward by some seconds and return the new time; raise InputError if they are negative."""
        return self.advance_to(self.after(seconds))

    def advance_to(self, moment: datetime) -> datetime:
        """Move forward to a moment and return it; raise InputError if it is in the past."""
        if moment < self._now:
            raise InputError(f"The clock is at {self._now.isoformat()}, after {moment.isoformat()}")
        self._passed_s += (moment - self._now).total_seconds()
        self._now = moment
        return moment

    def jump_to(self, moment: datetime) -> datetime:
        """Set the clock to any moment, also an earlier one, and return it; `monotonic` does not change.

        It does what an operator or NTP does to the clock of a machine.
        """
        self._now = moment
        return moment

    def after(self, seconds: float) -> datetime:
        """Return the moment some seconds from now, without moving the clock."""
        return self._now + timedelta(seconds=seconds)

    def monotonic(self) -> float:
        """Return the seconds that the clock has advanced since its start; jumps do not count."""
        return self._passed_s


class _Plan:
    """The crash points that tests have planned."""

    def __init__(self) -> None:
        self._points: list[str] = []

    def planned(self, point: str) -> bool:
        return point in self._points

    def reach(self, point: str) -> None:
        if point in self._points:
            raise Crash(point)

    @contextmanager
    def adding(self, point: str) -> Iterator[None]:
        self._points.append(point)
        try:
            yield
        finally:
            self._points.remove(point)


_PLAN = _Plan()


def virtual_world(clock: VirtualClock | None = None, *, seed: int = 0) -> World:
    """Return a world for `Ledger(url, world=…)` with the same times, names and random numbers in every run.

    To simulate two processes, use two worlds with the same clock and different seeds.
    """
    clock = clock or VirtualClock()
    numbers = count(1)
    return World(
        clock=clock,
        new_name=lambda: f"virtual-{seed}-{next(numbers)}",
        randomness=Random(seed),  # noqa: S311 - every run must be the same
        monotonic=clock.monotonic,
        reach=_PLAN.reach,
        planned=_PLAN.planned,
    )


def drain(ledger: Ledger, *, until: datetime | None = None) -> int:
    """Run every due job in this thread, and return the number of attempts.

    Jobs with an expired lease are recovered first, and due ticks of schedules are fired. With `until` the clock moves
    forward, from one due job, tick or expiring lease to the next, and stops at that time. Raises InputError if the
    ledger is not on a virtual clock.
    """
    clock = _clock_of(ledger)
    firer = _firer(ledger)
    attempts = ledger.run_until_idle()
    while until is not None:
        moment = min((at for at in (_next_moment(ledger), firer.turn()) if at is not None), default=None)
        if moment is None or moment > until:
            clock.advance_to(max(until, clock()))
            break
        clock.advance_to(max(moment, clock()))
        firer.turn()
        attempts += ledger.run_until_idle()
    return attempts


@contextmanager
def crash_at(point: str) -> Iterator[None]:
    """Crash at a point of the block: what is uncommitted is lost, as if the process was killed, and the block ends.

    The points are the keys of `POINTS`; each value says what has and has not happened there. The keys of `FAULTS` are
    other names of some of them. Raises AssertionError if the block ends before the point is reached.
    """
    point = FAULTS.get(point, point)
    if point not in POINTS:
        raise InputError(
            f"Unknown crash point {point!r}",
            next_step=f"Choose one of {', '.join((*POINTS, *FAULTS))}.",
            context={"point": point},
        )
    try:
        with _PLAN.adding(point):
            yield
    except Crash as crash:
        if crash.point != point:
            raise
    else:
        raise AssertionError(f"the crash point {point} was not reached")


def begin(ledger: Ledger, call: Call, *, lease_s: float = LEASE_S) -> Execution:
    """Submit a call, claim it as a worker does, and return the Execution: with it call `operation.fn` directly."""
    receipt = ledger.submit(call)
    lease = Lease(owner=f"test-{ledger.world.new_name()}", seconds=lease_s)
    claimed = ledger.perform(lambda transaction: transaction.executions.claim_these([receipt.job_id], lease))
    if not claimed:
        raise InputError(f"Job {receipt.job_id} is not due, or has ended", context={"job_id": receipt.job_id})
    return Execution(ledger, claimed[0])


def _firer(ledger: Ledger) -> Firer:
    """Fire the ticks that are due, and return the object that fires later ones."""
    if ledger.scheduled:
        save_declared(ledger, actor="test")
    firer = Firer(ledger)
    firer.turn()
    return firer


def _clock_of(ledger: Ledger) -> VirtualClock:
    clock = ledger.world.clock
    if not isinstance(clock, VirtualClock):
        raise InputError(
            "The ledger is not on a virtual clock",
            context={"clock": type(clock).__name__},
            next_step="Use the fixture holdfast_ledger, or Ledger(url, world=virtual_world()).",
        )
    return clock


def _next_moment(ledger: Ledger) -> datetime | None:
    """Return the next moment at which a job becomes due or a lease expires."""
    with ledger.store.reading() as reading:
        due = reading.jobs.outlook(ledger.queues())[0]
        running = reading.lists.jobs(state=JobState.RUNNING, limit=1_000_000)
        leases = [reading.lists.executions(job.job_id)[-1].lease_expires_at for job in running]
    return min([*leases, *([] if due is None else [due])], default=None)
