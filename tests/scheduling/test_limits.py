"""Limits as a program declares them, on the virtual clock: concurrency, rates, holding a rate, bad input."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from holdfast import Ledger, RetryAfter
from holdfast.core.commands import Complete
from holdfast.core.errors import ArgumentsError, LimitInvalidError
from holdfast.core.limits import Limit
from holdfast.core.machines import JobState
from holdfast.core.records import Attempt
from holdfast.scheduling import Limits
from holdfast.store.requests import Lease
from holdfast.testing import VirtualClock, virtual_world


def starts(ledger: Ledger, clock: VirtualClock, n: int, step_s: float, until: int = 10_000) -> list[datetime]:
    """Claim and complete all jobs as they come, in steps of the clock; return when each started."""
    found: list[datetime] = []
    for _ in range(until):
        while work := ledger.perform(lambda tx: tx.executions.claim(Lease(owner="w", seconds=30, n=1000))):
            found += [clock()] * len(work)
            end(ledger, work)
        if len(found) >= n:
            return found
        clock.advance(step_s)
        with ledger.store.reading() as reading:
            reading.jobs.outlook(["default"])
    raise AssertionError(f"{len(found)} of {n} jobs have started")


def end(ledger: Ledger, work: list[Attempt]) -> None:
    ledger.perform(
        lambda tx: tx.executions.move([(attempt, Complete(attempt.token, "1")) for attempt in work], actor="w")
    )


def within(found: list[datetime], seconds: float) -> int:
    """Return the most starts within any time of this length."""
    most = 0
    low = 0
    for high, at in enumerate(found):
        while at - found[low] >= timedelta(seconds=seconds):
            low += 1
        most = max(most, high - low + 1)
    return most


@pytest.mark.req("G-20")
def test_a_rate_holds_in_every_window_and_loses_no_token(ledger: Ledger, clock: VirtualClock) -> None:
    @ledger.operation(limit={"rate": "10/s", "burst": 5})
    def mail(run: object, n: int) -> None: ...

    ledger.submit_many([mail.call(n) for n in range(200)])
    found = starts(ledger, clock, 200, 0.05)
    assert within(found, 1.0) <= 15
    assert within(found, 5.0) <= 55
    took_s = (found[-1] - found[0]).total_seconds()
    assert 19.4 <= took_s <= 20.5  # 195 tokens at 10 a second
    with ledger.store.reading() as reading:
        assert reading.limits.waiting() == []


def test_the_rate_of_a_key_holds_for_each_key(ledger: Ledger, clock: VirtualClock) -> None:
    @ledger.operation(limit={"rate": "1/s", "burst": 1}, limit_key="who")
    def mail(run: object, who: str) -> None: ...

    ledger.submit_many([mail.call(who) for who in "abcd" for _ in range(5)])
    found = starts(ledger, clock, 20, 0.25)
    assert within(found, 1.0) == 4
    assert 3.9 <= (found[-1] - found[0]).total_seconds() <= 4.5


@pytest.mark.parametrize("keys", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_thousands_of_jobs_of_many_keys(ledger: Ledger, clock: VirtualClock, keys: int) -> None:
    @ledger.operation(limit=1, limit_key="who")
    def mail(run: object, who: int) -> None: ...

    ledger.submit_many([mail.call(n % keys) for n in range(10 * keys)])
    turns = 0
    while work := ledger.perform(lambda tx: tx.executions.claim(Lease(owner="w", seconds=30, n=keys))):
        assert len({attempt.job.payload for attempt in work}) == len(work)
        with ledger.store.reading() as reading:
            assert len(reading.limits.held()) == len(work)
        end(ledger, work)
        turns += 1
        with ledger.store.reading() as reading:
            reading.jobs.outlook(["default"])
        assert turns < 40
    assert {(count.state, count.n) for count in ledger.counts() if count.operation == "mail"} == {
        (JobState.SUCCEEDED, 10 * keys)
    }
    with ledger.store.reading() as reading:
        assert (reading.limits.held(), reading.limits.waiting()) == ([], [])


@pytest.mark.parametrize("rate", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_thousands_of_jobs_at_a_rate(ledger: Ledger, clock: VirtualClock, rate: int) -> None:
    @ledger.operation(limit=f"{rate}/s")
    def mail(run: object, n: int) -> None: ...

    ledger.submit_many([mail.call(n) for n in range(10 * rate)])
    found = starts(ledger, clock, 10 * rate, 0.5)
    assert within(found, 1.0) <= 2 * rate
    assert 8.9 <= (found[-1] - found[0]).total_seconds() <= 10


def test_retry_after_with_hold_delays_all_jobs_of_the_rate(ledger: Ledger, clock: VirtualClock) -> None:
    fetched_at: list[datetime] = []

    @ledger.operation(limit="100/s", max_attempts=3)
    def fetch(run: object, n: int) -> None:
        fetched_at.append(clock())
        if len(fetched_at) == 1:
            raise RetryAfter(30, "429", hold=True)

    ledger.submit_many([fetch.call(n) for n in range(3)])
    ledger.run_until_idle()
    assert len(fetched_at) == 1
    clock.advance(29.9)
    ledger.run_until_idle()
    assert len(fetched_at) == 1
    for _ in range(20):
        clock.advance(0.1)
        ledger.run_until_idle()
    assert len(fetched_at) == 4
    assert {count.state for count in ledger.counts() if count.n and count.operation == "fetch"} == {JobState.SUCCEEDED}


def test_retry_after_without_hold_or_without_a_rate_holds_nothing(ledger: Ledger, clock: VirtualClock) -> None:
    ran: list[int] = []

    @ledger.operation(limit=1, max_attempts=3)
    def fetch(run: object, n: int) -> None:
        ran.append(n)
        if n == 0:
            raise RetryAfter(30, "429", hold=True)

    ledger.submit_many([fetch.call(n) for n in range(3)])
    ledger.run_until_idle()
    assert ran == [0, 1, 2]


def test_a_limit_key_inside_an_argument_takes_one_execution_a_job(ledger: Ledger) -> None:
    ran: list[int] = []

    @ledger.operation(limit=1, limit_key="customer.id")
    def order(run: object, customer: dict[str, int], n: int) -> None:
        ran.append(n)

    ledger.submit_many([order.call({"id": 7}, n) for n in range(20)])
    assert ledger.run_until_idle() == 20
    assert ran == list(range(20))


def test_a_program_declares_its_limit_and_an_operator_may_change_it(ledger_url: str, clock: VirtualClock) -> None:
    def program(limit: int | None) -> Ledger:
        ledger = Ledger(ledger_url, world=virtual_world(clock))

        @ledger.operation("order", limit=limit)
        def order(run: object, n: int) -> None: ...

        ledger.submit(order.call(1))
        return ledger

    with program(2) as ledger:
        assert Limits(ledger).all() == {"operation:order": Limit(running=2)}
        assert Limits(ledger).set("operation:order", running=5, actor="ann", reason="more")
    with program(2) as ledger:
        assert Limits(ledger).all() == {"operation:order": Limit(running=5)}
    with program(3) as ledger:
        assert Limits(ledger).all() == {"operation:order": Limit(running=3)}
    with program(None) as ledger:
        assert Limits(ledger).all() == {}
        with ledger.store.reading() as reading:
            history = reading.configuration.history("limit", "operation:order")
        assert [(each.actor, each.state) for each in reversed(history)] == [
            ("ann", "replaced"), ("program", "replaced"), ("program", "removed"),
        ]  # fmt: skip


@pytest.mark.parametrize(
    "settings",
    [
        {"limit": 0},
        {"limit": -1},
        {"limit": True},
        {"limit": "often"},
        {"limit": "0/s"},
        {"limit": {"running": 1, "weight": 2}},
        {"limit": {"burst": 3}},
        {"limit_key": "n"},
        {"limit": 1, "limit_key": "customer.id"},
        {"limit": 1, "limit_key": ""},
        {"limit": 1, "limit_key": "n."},
    ],
)
def test_a_limit_that_cannot_be_enforced_is_refused_where_it_is_declared(settings: dict[str, object]) -> None:
    ledger = Ledger("sqlite:///never-opened.db")
    with pytest.raises(LimitInvalidError) as caught:
        ledger.operation("order", **settings)(lambda run, n: None)  # type: ignore[arg-type]
    assert caught.value.code == "limit_invalid"


def test_a_call_without_the_key_of_its_limit_is_refused(ledger: Ledger, ledger_url: str) -> None:
    @ledger.operation(limit=1, limit_key="customer.id")
    def order(run: object, customer: dict[str, int | None]) -> None: ...

    ledger.submit(order.call({"id": 1}))
    without: list[dict[str, int | None]] = [{}, {"id": None}]
    for customer in without:
        with pytest.raises(ArgumentsError) as caught:
            ledger.submit(order.call(customer))
        assert caught.value.context == {"operation": "order", "limit_key": "customer.id"}
    with Ledger(ledger_url) as other, pytest.raises(ArgumentsError) as caught:  # by name, without the handler
        other.submit("order", {"customer": {}})
    assert caught.value.code == "arguments_invalid"
