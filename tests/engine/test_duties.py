"""Duties within their budget, on a clock and a meter of the test's own: exact values, and no real time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import pairwise

import pytest

from holdfast import Ledger
from holdfast.core.errors import StoreUnavailableError
from holdfast.engine.operations import Call
from holdfast.engine.upkeep.budget import SHARE, Budget
from holdfast.engine.upkeep.duties import Duties, Duty, Periods
from holdfast.testing import VirtualClock, begin

LONG_S = 3600.0
SHARE_64 = 1 / 64  # a power of two, as all times below are: sums of them are exact
NONE = Periods(
    fold_s=None, seal_s=None, extend_s=None, gc_s=None, check_s=None, forget_s=None, share=SHARE_64
)  # fmt: skip


class Time:
    """A clock and a meter that only the test moves."""

    def __init__(self, clock: VirtualClock | None = None) -> None:
        self.now = self.spent = 0.0
        self._clock = clock

    def pass_(self, seconds: float) -> None:
        self.now += seconds
        if self._clock is not None:
            self._clock.advance(seconds)

    def spend(self, seconds: float) -> None:
        self.spent += seconds
        self.pass_(seconds)

    def budget(self, share: float = SHARE_64) -> Budget:
        return Budget(share, clock=lambda: self.now, meter=lambda: self.spent)


@pytest.fixture
def time(clock: VirtualClock) -> Time:
    return Time(clock)


def duties(ledger: Ledger, time: Time, *also: Duty, periods: Periods = NONE, name: str = "keeper-1") -> Duties:
    return Duties(ledger, periods, also, name, threading.Event(), budget=time.budget())


def run(made: Duties, time: Time, seconds: float) -> None:
    """Let the keeper work for so long."""
    end = time.now + seconds
    while time.now < end:
        wait_s = made.turn()
        time.pass_(min(wait_s, max(0.0, end - time.now)))


def steps(
    time: Time, n: int, cost: float, done: list[float], *, left: bool = False
) -> Generator[int | None, None, None]:
    """Make `n` steps of the same cost, and note when each began."""
    for made in range(n):
        done.append(time.now)
        time.spend(cost)
        yield n - made - 1 if left else None


def at_work(ledger: Ledger) -> None:
    """Hold a lease, as a worker does while a handler runs."""
    begin(ledger, Call(operation="noop", payload={}), lease_s=LONG_S)


# ---------------------------------------------------------------------------------------------------------------------
# The budget


def test_a_step_makes_the_next_one_wait_for_its_share() -> None:
    time = Time()
    budget = time.budget()
    assert budget.wait_s() == 0
    with budget.charged() as step:
        time.spend(1 / 128)
    assert (step.began, step.cost) == (0, 1 / 128)
    assert budget.wait_s() == 64 / 128 - 1 / 128  # counted from the start of the step
    with budget.charged():
        time.spend(1 / 32)
    assert budget.wait_s() == 64 / 128 + 64 / 32 - time.now


def test_time_that_was_not_used_is_not_saved() -> None:
    time = Time()
    budget = time.budget()
    time.pass_(1000)
    with budget.charged():
        time.spend(1)
    assert budget.wait_s() == 64 - 1


def test_waiting_for_a_lock_costs_nothing() -> None:
    time = Time()
    budget = time.budget()
    with budget.charged():
        time.pass_(8)
    assert budget.wait_s() == 0


def test_a_step_that_fails_is_charged() -> None:
    time = Time()
    budget = time.budget()
    with suppress(ZeroDivisionError), budget.charged():
        time.spend(1)
        raise ZeroDivisionError
    assert budget.wait_s() == 63


def test_without_work_no_step_waits_for_its_share() -> None:
    time = Time()
    budget = time.budget()
    budget.busy = False
    with budget.charged():
        time.spend(1)
    assert budget.wait_s() == 0
    budget.busy = True
    assert budget.wait_s() == 0  # nor is it charged later


# ---------------------------------------------------------------------------------------------------------------------
# Long duties


def test_the_default_share_is_two_percent() -> None:
    assert SHARE == Periods().share == 0.02


def test_at_work_a_long_duty_takes_its_share_and_continues_where_it_was(ledger: Ledger, time: Time) -> None:
    done: list[float] = []
    made = duties(ledger, time, Duty("long", LONG_S, lambda: steps(time, 30, 1 / 64, done)))
    at_work(ledger)
    run(made, time, 10)
    assert done == [float(n) for n in range(10)]  # 10/64 s of 10 s
    assert time.spent == 10 / 64
    run(made, time, 20)
    assert done == [float(n) for n in range(30)]


@pytest.mark.parametrize("cost", [1 / 256, 1 / 32, 1 / 4])
def test_in_any_ten_seconds_duties_cost_their_share_and_one_step_at_most(
    ledger: Ledger, time: Time, cost: float
) -> None:
    done: list[float] = []
    also = [Duty(name, LONG_S, lambda: steps(time, 500, cost, done)) for name in ("first", "second")]
    at_work(ledger)
    run(duties(ledger, time, *also), time, 60)
    assert len(done) > 3
    for start in done:
        assert cost * len([at for at in done if start <= at < start + 10]) <= SHARE_64 * 10 + cost


def test_without_work_a_long_duty_is_done_at_once(ledger: Ledger, time: Time) -> None:
    done: list[float] = []
    made = duties(ledger, time, Duty("long", LONG_S, lambda: steps(time, 99, 1 / 64, done)))
    run(made, time, 1)
    assert done == [0]  # the first look has nothing to compare with, and expects work
    run(made, time, 2)
    assert done[1:] == [1 + n / 64 for n in range(98)]


def test_a_change_of_load_is_noticed_at_the_next_look(ledger: Ledger, time: Time) -> None:
    done: list[float] = []
    made = duties(ledger, time, Duty("long", LONG_S, lambda: steps(time, 10_000, 1 / 64, done)))
    run(made, time, 2)
    assert len(done) == 1 + 64
    ledger.submit("noop")
    run(made, time, 1)
    assert done[65:] == [2]
    run(made, time, 1)
    assert len(done) == 66 + 64  # nothing has moved since


def test_two_long_duties_take_turns(ledger: Ledger, time: Time) -> None:
    done: list[str] = []

    def long(name: str) -> Generator[None, None, None]:
        while True:
            done.append(name)
            time.spend(1 / 64)
            yield None

    made = duties(ledger, time, Duty("a", LONG_S, lambda: long("a")), Duty("b", LONG_S, lambda: long("b")))
    at_work(ledger)
    run(made, time, 6)
    assert done == ["a", "b"] * 3


def test_a_short_duty_is_done_while_a_long_one_waits(ledger: Ledger, time: Time) -> None:
    done: list[float] = []
    short: list[float] = []
    made = duties(
        ledger,
        time,
        Duty("long", LONG_S, lambda: steps(time, 10, 2.0, done)),
        Duty("short", 5.0, lambda: short.append(time.now)),
    )
    at_work(ledger)
    run(made, time, 20)
    assert done == [0]  # 2 s at 1/64: the next step comes after 128 s
    assert len(short) == 4


def test_a_duty_of_the_application_that_is_done_at_once_is_not_charged(ledger: Ledger, time: Time) -> None:
    done: list[float] = []
    made = duties(
        ledger,
        time,
        Duty("theirs", LONG_S, lambda: time.spend(0.5)),
        Duty("long", LONG_S, lambda: steps(time, 1, 1 / 64, done)),
    )
    at_work(ledger)
    run(made, time, 1)
    assert done == [0.5]


# ---------------------------------------------------------------------------------------------------------------------
# Duties that end in time


def test_seals_end_within_their_period_and_before_all_others(ledger: Ledger, time: Time) -> None:
    done: list[float] = []
    other: list[float] = []
    sealing = Duty("sealing", 64.0, lambda: steps(time, 256, 1 / 16, done, left=True), within_s=48.0)
    made = duties(ledger, time, Duty("long", LONG_S, lambda: steps(time, 9, 4.0, other)), sealing)
    at_work(ledger)
    run(made, time, 64)
    # 256 steps of 1/16 s cost 16 s of 48: far more than the budget, evenly spread, whatever the long one owes.
    assert len(done) == 256
    assert done[-1] < 48 + 1  # it began at the first look
    pauses = [later - earlier for earlier, later in pairwise(done)]
    assert max(pauses[2:]) <= 48 / 256
    assert len(other) <= 1


def test_a_long_duty_proceeds_slowly_while_sealings_take_more_than_the_budget(ledger: Ledger, time: Time) -> None:
    other: list[float] = []

    def endless() -> Generator[int | None, None, None]:
        while True:
            time.spend(1 / 16)
            yield 479

    also = [
        Duty("long", LONG_S, lambda: steps(time, 100, 1 / 64, other)),
        Duty("sealing", LONG_S, endless, within_s=480.0),
    ]
    at_work(ledger)
    run(duties(ledger, time, *also), time, 160)
    assert len(other) == 5  # the first after a minute, then 1/64 s in 20 s: a twentieth of the budget
    assert all(20 <= later - earlier < 20 + 1 / 4 for earlier, later in pairwise(other))


def test_without_work_a_duty_with_a_deadline_runs_first(ledger: Ledger, time: Time) -> None:
    done: list[float] = []
    other: list[float] = []
    also = [
        Duty("long", LONG_S, lambda: steps(time, 20, 1 / 64, other)),
        Duty("sealing", 64.0, lambda: steps(time, 20, 1 / 64, done, left=True), within_s=48.0),
    ]
    run(duties(ledger, time, *also), time, 3)
    assert (len(done), len(other)) == (20, 20)
    assert max(done) < sorted(other)[1]


def test_a_sealing_that_fits_into_the_budget_takes_no_more(ledger: Ledger, time: Time) -> None:
    done: list[float] = []
    sealing = Duty("sealing", 64.0, lambda: steps(time, 8, 1 / 64, done, left=True), within_s=48.0)
    at_work(ledger)
    run(duties(ledger, time, sealing), time, 32)
    assert done == [float(n) for n in range(8)]


def test_a_sealing_and_a_check_share_the_budget_and_the_sealing_goes_first(ledger: Ledger, time: Time) -> None:
    done: list[float] = []
    other: list[float] = []
    also = [
        Duty("long", LONG_S, lambda: steps(time, 100, 1 / 64, other)),
        Duty("sealing", 64.0, lambda: steps(time, 8, 1 / 64, done, left=True), within_s=48.0),
    ]
    at_work(ledger)
    run(duties(ledger, time, *also), time, 16)
    assert done == [float(n) for n in range(8)]
    assert other == [float(n) for n in range(8, 16)]
    assert time.spent == 16 / 64


def test_the_seal_lag_at_full_load_is_below_two_periods(ledger: Ledger, time: Time) -> None:
    """Each sealing covers what was written until it began, and costs a third of the time: the oldest row is sealed."""
    ends: list[tuple[float, float]] = []
    period_s = Periods().seal_s
    assert period_s

    def sealing() -> Generator[int | None, None, None]:
        began = time.now
        yield from steps(time, 160, 1 / 8, [], left=True)
        ends.append((began, time.now))

    [seal] = [duty for duty in duties(ledger, time, periods=Periods())._all if duty.name == "seal"]
    assert seal.every_s == period_s
    at_work(ledger)
    run(duties(ledger, time, seal._replace(name="like-seal", do=sealing)), time, 10 * period_s)
    assert len(ends) == 10
    for (before, _), (_, end) in pairwise(ends):
        assert end - before < 2 * period_s


# ---------------------------------------------------------------------------------------------------------------------
# Taking and leaving them


def taken(ledger: Ledger) -> dict[str, str]:
    with ledger.store.reading() as reading:
        return {name: at for name, at in reading.settings.read().items() if name.startswith("duty:")}


def test_a_new_ledger_is_first_checked_after_a_period(
    ledger: Ledger, time: Time, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    made = duties(ledger, time, periods=Periods(check_s=64.0))
    with ledger.store.transaction() as transaction:
        transaction.execute("INSERT INTO holdfast_counts VALUES ('ghost', 'attic', 'pending', 3)")
    with caplog.at_level(logging.WARNING, logger="holdfast"):
        made.turn()
        began = clock()
        run(made, time, 63)
        assert caplog.records == []
        assert taken(ledger)["duty:check"] == began.isoformat().replace("+00:00", "Z")
        run(made, time, 3)
    assert len(caplog.records) == 1
    assert "counts_true" in caplog.records[0].getMessage()


def test_a_ledger_whose_last_check_is_long_ago_is_checked_at_once(
    ledger: Ledger, time: Time, clock: VirtualClock
) -> None:
    with ledger.store.transaction() as transaction:
        transaction.settings.set("duty:check", "2020-01-01T00:00:00.000000Z")
    duties(ledger, time, periods=Periods()).turn()
    assert taken(ledger)["duty:check"] == clock().isoformat().replace("+00:00", "Z")


def test_a_duty_that_takes_longer_than_its_period_is_not_begun_again(ledger: Ledger, time: Time) -> None:
    begun: list[str] = []

    def long(name: str) -> Generator[None, None, None]:
        begun.append(name)
        while True:
            time.spend(1 / 64)
            yield None

    first, second = (
        duties(ledger, time, Duty("long", 16.0, partial(long, name)), name=name) for name in ("one", "two")
    )
    at_work(ledger)
    for _ in range(200):
        first.turn()
        second.turn()
        time.pass_(0.5)
    assert begun == ["one"]


def test_an_unfinished_duty_is_soon_taken_over_by_another_keeper(
    ledger: Ledger, time: Time, clock: VirtualClock
) -> None:
    closed: list[bool] = []

    def long() -> Generator[None, None, None]:
        try:
            while True:
                time.spend(1 / 64)
                yield None
        finally:
            closed.append(True)

    stopped = threading.Event()
    made = Duties(ledger, NONE, [Duty("long", LONG_S, long)], "one", stopped, budget=time.budget())
    at_work(ledger)
    made.turn()
    stopped.set()
    made.keep()
    assert closed == [True]
    due = clock() + timedelta(seconds=NONE.retry_s - LONG_S)
    assert taken(ledger)["duty:long"] == due.isoformat().replace("+00:00", "Z")


def test_a_step_that_fails_ends_its_duty_which_begins_again_soon(
    ledger: Ledger, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    begun: list[float] = []

    def fails() -> Generator[None, None, None]:
        begun.append(time.now)
        yield None
        if len(begun) == 1:
            raise StoreUnavailableError("gone for a moment")

    with caplog.at_level(logging.WARNING, logger="holdfast"):
        run(duties(ledger, time, Duty("fails", LONG_S, fails)), time, 100)
    assert len(begun) == 2
    assert NONE.retry_s <= begun[1] - begun[0] < NONE.retry_s + 2
    assert [record.getMessage()[: len("duty fails failed")] for record in caplog.records] == ["duty fails failed"]
