"""Helpers for tests of code that uses Holdfast: a clock that stands still, work done in this thread, planned crashes.

    from holdfast.testing import crash_at, drain

    def test_a_crash_costs_a_repeat_and_no_second_effect(holdfast_ledger, holdfast_clock):
        holdfast_ledger.submit(charge.call(order=7))
        with crash_at("before_commit"):
            drain(holdfast_ledger)
        holdfast_clock.advance(31)     # past the lease of the worker that died
        assert drain(holdfast_ledger) == 1

The fixtures come with the package: `holdfast_ledger`, `holdfast_clock` and `holdfast_url`. To test with the ledger of
your own module, name it in the configuration of pytest: `holdfast_ledger = myapp.tasks:ledger`.

Invariants: on a virtual clock nothing waits and nothing runs in another thread, so the same test runs the same way
twice; a crash is planned only for ledgers of a world from here, and a plan that never came true fails the test.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random

from holdfast.core.errors import InputError
from holdfast.core.machines import JobState
from holdfast.engine.ledger import Ledger
from holdfast.engine.operations import LEASE_S, Call
from holdfast.engine.worker.execution import Execution
from holdfast.engine.world import POINTS, Crash, World
from holdfast.store import Lease

__all__ = ["POINTS", "Crash", "VirtualClock", "begin", "crash_at", "drain", "virtual_world"]

# Any moment would do; this one has microseconds, so that a test notices code that drops them.
START = datetime(2026, 3, 14, 9, 26, 53, 589793, tzinfo=UTC)


class VirtualClock:
    """A clock that moves only when it is told to. Calling it returns the time."""

    def __init__(self, start: datetime = START) -> None:
        if start.tzinfo is None:
            raise InputError("a clock starts at a time with a zone")
        self._now = start
        self._passed_s = 0.0

    def __call__(self) -> datetime:
        return self._now

    def __repr__(self) -> str:
        return f"VirtualClock({self._now.isoformat()})"

    def advance(self, seconds: float) -> datetime:
        """Move on by some seconds and return the new time."""
        return self.advance_to(self.after(seconds))

    def advance_to(self, moment: datetime) -> datetime:
        """Move on to a moment and return it. Time does not go back."""
        if moment < self._now:
            raise InputError(f"the clock is at {self._now.isoformat()} already")
        self._passed_s += (moment - self._now).total_seconds()
        self._now = moment
        return moment

    def jump_to(self, moment: datetime) -> datetime:
        """Set the time of day to any moment, also an earlier one, and return it; `monotonic` does not follow.

        So does the clock of a machine that is set by hand or by NTP.
        """
        self._now = moment
        return moment

    def after(self, seconds: float) -> datetime:
        """Return the moment some seconds from now, without moving."""
        return self._now + timedelta(seconds=seconds)

    def monotonic(self) -> float:
        """Return the seconds that have passed since the start, without the jumps."""
        return self._passed_s


class _Plan:
    """The crashes that tests have planned."""

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
    """Return a world for `Ledger(url, world=…)` in which time, names and chance are the same in every run.

    Two processes are two worlds with the same clock and a seed each.
    """
    clock = clock or VirtualClock()
    numbers = count(1)
    return World(
        clock=clock,
        new_name=lambda: f"virtual-{seed}-{next(numbers)}",
        randomness=Random(seed),  # noqa: S311 - the same in every run is what is wanted
        monotonic=clock.monotonic,
        reach=_PLAN.reach,
        planned=_PLAN.planned,
    )


def drain(ledger: Ledger, *, until: datetime | None = None) -> int:
    """Do everything that is due, in this thread, and return how many attempts were made.

    What expired leases left behind is recovered first. With `until` the clock moves on, from each job that becomes due
    and each lease that runs out to the next, and ends at that time.
    """
    clock = _clock_of(ledger)
    attempts = ledger.run_until_idle()
    while until is not None:
        moment = _next_moment(ledger)
        if moment is None or moment > until:
            clock.advance_to(max(until, clock()))
            break
        clock.advance_to(max(moment, clock()))
        attempts += ledger.run_until_idle()
    return attempts


@contextmanager
def crash_at(point: str) -> Iterator[None]:
    """Die at a point: what is in flight there is lost, as if the process had been killed, and the block ends.

    The points are the keys of `POINTS`, each with what has and has not happened there. It is an error if the block ends
    without having come there.
    """
    if point not in POINTS:
        raise InputError(f"{point!r} is no point to crash at", next_step=f"Choose one of {', '.join(POINTS)}.")
    try:
        with _PLAN.adding(point):
            yield
    except Crash as crash:
        if crash.point != point:
            raise
    else:
        raise AssertionError(f"the run never came to {point}")


def begin(ledger: Ledger, call: Call, *, lease_s: float = LEASE_S) -> Execution:
    """Submit a call and claim it, as a worker would: what a handler needs to be called plainly as `operation.fn`."""
    receipt = ledger.submit(call)
    lease = Lease(owner=f"test-{ledger.world.new_name()}", seconds=lease_s)
    claimed = ledger.perform(lambda transaction: transaction.executions.claim_these([receipt.job_id], lease))
    if not claimed:
        raise InputError(f"job {receipt.job_id} is not due, or is done already")
    return Execution(ledger, claimed[0])


def _clock_of(ledger: Ledger) -> VirtualClock:
    clock = ledger.world.clock
    if not isinstance(clock, VirtualClock):
        raise InputError(
            "the ledger is not on a virtual clock",
            next_step="Use the fixture holdfast_ledger, or Ledger(url, world=virtual_world()).",
        )
    return clock


def _next_moment(ledger: Ledger) -> datetime | None:
    """Return when something will happen next: a job becomes due, or a lease runs out."""
    with ledger.store.reading() as reading:
        due = reading.jobs.next_due(ledger.queues())
        running = reading.jobs.page(state=JobState.RUNNING, limit=1_000_000)
        leases = [reading.executions.of_job(job.job_id)[-1].lease_expires_at for job in running]
    return min([*leases, *([] if due is None else [due])], default=None)
