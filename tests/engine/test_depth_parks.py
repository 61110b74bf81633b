"""A depth limit that parks: new work beyond it is recorded, no worker sees it, and it is let go in order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import Execution, Ledger, RetryPolicy, Strategy
from holdfast.audit.check.runner import check
from holdfast.core.errors import InputError, QueueFullError
from holdfast.core.machines import JobState
from holdfast.explain.explain import explain
from holdfast.scheduling import Limits
from holdfast.store.requests import Lease
from holdfast.testing import VirtualClock, drain


def parked(ledger: Ledger) -> dict[str, int]:
    with ledger.store.reading() as reading:
        return {bucket: n for bucket, _, n in reading.limits.waiting()}


def unparked(ledger: Ledger) -> list[int]:
    with ledger.store.reading() as reading:
        sql = "SELECT job_id FROM holdfast_jobs WHERE due_at IS NOT NULL AND queue = 'default' AND parked IS NULL"
        return sorted(job_id for (job_id,) in reading.execute(sql))


def claim(ledger: Ledger, n: int) -> list[int]:
    with ledger.store.reading() as reading:
        reading.jobs.outlook(["default"])
    found = ledger.perform(lambda tx: tx.executions.claim(Lease(owner="w", seconds=30, n=n)))
    return [attempt.job_id for attempt in found]


@pytest.mark.req("G-24")
def test_new_work_beyond_the_depth_is_recorded_and_parked(ledger: Ledger, clock: VirtualClock) -> None:
    ledger.limit("default", 3, park=True, actor="ann", reason="the shop is slow")
    ids = [ledger.submit("noop", key=f"k{n}").job_id for n in range(7)]
    repeated = ledger.submit("noop", key="k6")
    assert (repeated.is_new, repeated.job_id) == (False, ids[6])
    assert parked(ledger) == {"depth:default": 4}
    assert unparked(ledger) == ids[:3]
    assert ledger.submit("noop", queue="other").is_new
    with ledger.store.reading() as reading:
        first = explain(reading, ids[6], now=clock()).findings[0]
    assert first.code == "limited"
    assert first.evidence["limit"] == "depth:default"
    assert (first.evidence["depth"], first.evidence["set_by"]) == (3, "ann")
    assert claim(ledger, 2) == ids[:2]
    assert unparked(ledger) == ids[2:5]  # as many as have started
    drain(ledger)
    assert parked(ledger) == {}
    assert {ledger.job(job_id).state for job_id in ids[2:]} == {JobState.SUCCEEDED}
    assert check(ledger.store).violations == ()


def test_jobs_are_let_go_by_priority_then_in_the_order_of_their_submits(ledger: Ledger) -> None:
    ledger.limit("default", 1, park=True)
    ids = [ledger.submit("noop", priority=priority).job_id for priority in (0, 0, 5, 0, 5)]
    assert [claim(ledger, 1)[0] for _ in ids] == [ids[0], ids[2], ids[4], ids[1], ids[3]]


def test_many_at_once_are_parked_in_part(ledger: Ledger) -> None:
    ledger.limit("default", 4, park=True)
    ledger.limit("strict", 1)
    many: list[Any] = [{"operation": "noop", "key": f"k{n}"} for n in range(10)]
    receipts = ledger.submit_many(many)
    assert unparked(ledger) == [receipt.job_id for receipt in receipts[:4]]
    both: list[Any] = [{"operation": "noop"}, *({"operation": "noop", "queue": "strict"} for _ in range(2))]
    with pytest.raises(QueueFullError):
        ledger.submit_many(both)  # all or none
    assert parked(ledger) == {"depth:default": 6}


def test_room_that_a_cancelled_job_leaves_goes_to_a_parked_one(ledger: Ledger, clock: VirtualClock) -> None:
    ledger.limit("default", 2, park=True)
    ids = [ledger.submit("noop", run_at=clock.after(3600)).job_id for _ in range(4)]
    ledger.cancel(ids[0])
    ledger.cancel(ids[3])
    assert claim(ledger, 5) == []  # a worker that looks for work repairs it
    assert unparked(ledger) == ids[1:3]
    assert ledger.submit("noop").job_id not in unparked(ledger)
    clock.advance(3600)
    drain(ledger)
    assert parked(ledger) == {}


def test_a_submit_does_not_overtake_what_is_parked(ledger: Ledger) -> None:
    ledger.limit("default", 1, park=True)
    ids = [ledger.submit("noop").job_id for _ in range(2)]
    ledger.cancel(ids[0])
    last = ledger.submit("noop").job_id
    assert unparked(ledger) == [ids[1]]
    assert [claim(ledger, 1), claim(ledger, 1)] == [[ids[1]], [last]]


def test_work_that_was_accepted_is_never_parked(ledger: Ledger) -> None:
    @ledger.operation("parent")
    def parent(run: Execution) -> None:
        run.after_commit(child.call())

    @ledger.operation("child", retry=RetryPolicy(strategy=Strategy.IMMEDIATE, max_attempts=3, base_s=0))
    def child(run: Execution) -> None:
        if run.attempt == 1:
            raise RuntimeError("once")

    first = ledger.submit(parent.call())
    ledger.limit("default", 0, park=True)
    held = ledger.submit(parent.call())
    ledger.run_until_idle()
    assert ledger.job(first.job_id).state == JobState.SUCCEEDED
    assert sum(count.n for count in ledger.counts() if (count.operation, count.state) == ("child", "succeeded")) == 1
    assert parked(ledger) == {"depth:default": 1}
    ledger.limit("default", None)
    ledger.run_until_idle()
    assert ledger.job(held.job_id).state == JobState.SUCCEEDED


def test_a_job_that_follows_another_waits_for_that_one_only(ledger: Ledger) -> None:
    ledger.limit("default", 1, park=True)
    first = ledger.submit("noop")
    follower = ledger.submit("noop", after=[first])
    assert parked(ledger) == {}
    assert claim(ledger, 5) == [first.job_id]
    assert claim(ledger, 5) == []
    with ledger.store.reading() as reading:
        assert reading.limits.cause_of(follower.job_id) == ("after", None)


def test_a_limit_on_what_runs_does_not_empty_the_parking(ledger: Ledger) -> None:
    ledger.limit("default", 3, park=True)
    Limits(ledger).set("queue:default", running=1, reason="one at a time")
    ids = [ledger.submit("noop").job_id for _ in range(6)]
    assert claim(ledger, 5) == ids[:1]
    for _ in range(3):
        assert claim(ledger, 5) == []
    assert parked(ledger) == {"queue:default": 3, "depth:default": 2}


@pytest.mark.parametrize("change", ["raise", "refuse", "off", "remove"])
def test_a_changed_limit_holds_for_what_is_parked(ledger: Ledger, change: str) -> None:
    ledger.limit("default", 1, park=True, actor="ann", reason="a")
    for _ in range(4):
        ledger.submit("noop")
    if change == "raise":
        ledger.limit("default", 3, park=True, actor="bob", reason="b")
    elif change == "refuse":
        ledger.limit("default", 3, actor="bob", reason="b")
    elif change == "off":
        ledger.limit("default", None, actor="bob", reason="b")
    else:
        assert Limits(ledger).remove("depth:default", actor="bob", reason="b")
    assert parked(ledger) == ({"depth:default": 1} if change == "raise" else {})
    if change == "refuse":
        with pytest.raises(QueueFullError):
            ledger.submit("noop")
    else:
        ledger.submit("noop")
    with ledger.store.reading() as reading:
        history = [(one.what, one.before, one.after, one.actor) for one in reading.queues.history("default")]
    removed = ("depth", '{"depth":1}', None, "bob")
    by_bob: list[tuple[str, str | None, str | None, str]] = [removed]
    if change == "raise":
        by_bob = [("depth", '{"depth":1}', '{"depth":3}', "bob")]
    elif change == "refuse":
        by_bob = [("depth", None, "3", "bob"), removed]
    assert history == [*by_bob, ("depth", None, '{"depth":1}', "ann")]
    assert check(ledger.store).violations == ()


def test_the_depth_is_exact_while_several_submit_and_claim(ledger_url: str) -> None:
    """Each ledger has a committer of its own, as processes have."""
    ledgers = [Ledger(ledger_url) for _ in range(4)]
    ledgers[0].limit("default", 5, park=True)
    seen: list[int] = []

    def fill(ledger: Ledger) -> None:
        for n in range(12):
            ledger.submit("noop")
            if n % 3 == 0:
                claim(ledger, 1)
            seen.append(len(unparked(ledger)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(fill, ledgers))
    assert max(seen) <= 5
    assert len(unparked(ledgers[0])) == 5
    assert sum(parked(ledgers[0]).values()) == 48 - 16 - 5
    for ledger in ledgers:
        ledger.close()


@pytest.mark.parametrize("park", [1, "yes", None])
def test_park_is_yes_or_no(ledger: Ledger, park: Any) -> None:
    with pytest.raises(InputError):
        ledger.limit("default", 1, park=park)
