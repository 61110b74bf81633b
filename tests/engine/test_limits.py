"""A limit on the depth of a queue: new work beyond it is refused with a typed error; everything else goes on."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from holdfast import Execution, HoldfastError, Ledger
from holdfast.core.errors import InputError, QueueFullError
from holdfast.core.machines import JobState
from holdfast.store.requests import Submission
from holdfast.testing import VirtualClock, drain


def waiting(ledger: Ledger, queue: str = "default") -> int:
    return sum(count.n for count in ledger.counts() if (count.queue, count.state) == (queue, JobState.PENDING))


def test_new_work_beyond_the_limit_is_refused(ledger: Ledger) -> None:
    ledger.limit("default", 3)
    first = [ledger.submit("noop", key=f"k{n}") for n in range(3)]
    with pytest.raises(QueueFullError) as refused:
        ledger.submit("noop", key="k3")
    assert refused.value.code == "queue_full"
    assert refused.value.exit_code == 3
    assert refused.value.context == {"queue": "default", "depth": 3, "limit": 3, "submitted": 1}
    assert waiting(ledger) == 3
    repeated = ledger.submit("noop", key="k1")
    assert (repeated.is_new, repeated.job_id) == (False, first[1].job_id)  # not new work
    assert ledger.submit("noop", queue="other").is_new
    drain(ledger)
    assert ledger.submit("noop", key="k3").is_new
    ledger.limit("default", None)
    for _ in range(5):
        ledger.submit("noop")
    assert waiting(ledger) == 6


def test_submit_many_beyond_the_limit_writes_nothing(ledger: Ledger) -> None:
    ledger.limit("default", 4)
    known: list[Any] = [{"operation": "noop", "key": "a"}, {"operation": "noop", "key": "b"}]
    ledger.submit_many(known)
    more: list[Any] = [*known, {"operation": "noop", "key": "c"}, {"operation": "noop"}]
    with pytest.raises(QueueFullError) as refused:
        ledger.submit_many([*more, {"operation": "noop", "key": "d"}])
    assert refused.value.context == {"queue": "default", "depth": 2, "limit": 4, "submitted": 3}
    assert waiting(ledger) == 2
    assert [receipt.is_new for receipt in ledger.submit_many(more)] == [False, False, True, True]


def test_a_job_that_ends_can_always_submit_its_follow_ups(ledger: Ledger, clock: VirtualClock) -> None:
    @ledger.operation("parent")
    def parent(run: Execution) -> None:
        run.after_commit(child.call())
        run.after_commit(child.call().keyed("web", f"of {run.job.job_id}"))

    @ledger.operation("child", max_attempts=3)
    def child(run: Execution) -> None:
        if run.attempt == 1:
            raise RuntimeError("once")

    ids = [ledger.submit(parent.call()).job_id for _ in range(2)]
    ledger.limit("default", 0)
    drain(ledger, until=clock.after(7200))  # retries go beyond the limit too
    assert [ledger.job(job_id).state for job_id in ids] == ["succeeded"] * 2
    assert sum(count.n for count in ledger.counts() if count.operation == "child" and count.state == "succeeded") == 4


def test_gathered_submits_are_refused_one_by_one(ledger_url: str) -> None:
    """Submits that are gathered into one transaction are refused one by one."""
    with Ledger(ledger_url) as ledger:
        ledger.limit("default", 10)

        async def many() -> list[object]:
            submits = [ledger.submit_async("noop") for _ in range(25)]
            return list(await asyncio.gather(*submits, return_exceptions=True))

        answers = asyncio.run(many())
        assert sum(isinstance(answer, QueueFullError) for answer in answers) == 15
        assert waiting(ledger) == 10


def test_submits_of_the_same_moment_do_not_exceed_the_limit(ledger_url: str) -> None:
    def fill(ledger: Ledger) -> int:
        taken = 0
        for _ in range(15):
            try:
                ledger.submit("noop")
            except HoldfastError as error:
                assert error.code == "queue_full"  # noqa: PT017 - the others are counted
            else:
                taken += 1
        return taken

    with ExitStack() as stack:
        # Each has a committer of its own, as in four processes.
        ledgers = [stack.enter_context(Ledger(ledger_url)) for _ in range(4)]
        ledgers[0].limit("default", 20)
        with ThreadPoolExecutor(4) as pool:
            taken = sum(pool.map(fill, ledgers))
        assert taken == waiting(ledgers[0]) == 20


def test_a_submit_waits_for_one_that_has_not_committed(ledger_url: str) -> None:
    with Ledger(ledger_url) as first, Ledger(ledger_url) as second, ThreadPoolExecutor(1) as pool:
        first.limit("default", 1)
        with first.store.transaction() as transaction:
            transaction.jobs.submit([Submission(operation="noop", payload="{}")])
            later = pool.submit(lambda: second.submit("noop"))
            with pytest.raises(TimeoutError):
                later.result(0.3)
        with pytest.raises(QueueFullError):
            later.result(10)
        assert waiting(first) == 1


def test_a_submit_that_has_waited_gets_the_job_of_its_key(ledger_url: str) -> None:
    with Ledger(ledger_url) as first, Ledger(ledger_url) as second, ThreadPoolExecutor(1) as pool:
        first.limit("default", 1)
        with first.store.transaction() as transaction:
            [admission] = transaction.jobs.submit([Submission(operation="noop", payload="{}", key="k")])
            later = pool.submit(lambda: second.submit("noop", key="k"))
            with pytest.raises(TimeoutError):
                later.result(0.3)
        receipt = later.result(10)
        assert (receipt.job_id, receipt.is_new) == (admission.job_id, False)


@pytest.mark.parametrize("queue, depth", [("q", -1), ("q", 1 << 40), ("q", "ten"), (None, 1)])
def test_an_invalid_limit_is_refused(ledger: Ledger, queue: Any, depth: Any) -> None:
    with pytest.raises(InputError):
        ledger.limit(queue, depth)
