"""Waiting for jobs and submitting from an event loop: every wait ends, and one thread serves all of them."""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from holdfast import Execution, IdempotencyConflictError, Ledger
from holdfast.core.errors import (
    ArgumentsError,
    JobNotFoundError,
    JobUnsuccessfulError,
    StoreUnavailableError,
    WaitTimeoutError,
)
from holdfast.core.machines import JobState
from holdfast.engine import waiting
from tests.engine.interrupting import interrupted
from tests.engine.working import PATIENCE_S, eventually, working

MANY = 1_000


@pytest.fixture
def live(ledger_url: str) -> Iterator[Ledger]:
    """A ledger on a real clock, with an operation that adds and one that fails at once."""
    with Ledger(ledger_url) as ledger:

        @ledger.operation("add")
        def add(run: Execution, a: int, b: int) -> int:
            return a + b

        @ledger.operation("fail", max_attempts=1)
        def fail(run: Execution) -> None:
            raise RuntimeError("no")

        yield ledger


# ---------------------------------------------------------------------------------------------------------------------
# A wait ends


def test_a_wait_ends_when_a_job_rests_in_failed(live: Ledger) -> None:
    receipt = live.submit("fail")
    with working(live):
        ended = receipt.wait(PATIENCE_S)
    assert (ended.state, ended.error_code) == (JobState.FAILED, "runtime_error")
    with pytest.raises(JobUnsuccessfulError) as refused:
        _ = ended.result
    assert refused.value.context == {
        "job_id": receipt.job_id, "state": "failed", "last_error_code": "runtime_error",
    }  # fmt: skip
    assert f"holdfast explain {receipt.job_id}" in refused.value.hint


def test_a_wait_can_continue_past_failed(live: Ledger) -> None:
    receipt = live.submit("fail")
    live.run_until_idle()
    with pytest.raises(WaitTimeoutError) as late:
        receipt.wait(0.05, until_failed=False)
    assert late.value.context == {"job_id": receipt.job_id, "state": "failed"}
    live.quarantine(receipt.job_id, "hopeless")
    ended = receipt.wait(0, until_failed=False)
    assert ended.state is JobState.QUARANTINED
    with pytest.raises(JobUnsuccessfulError) as refused:
        _ = ended.result
    assert refused.value.context["state"] == "quarantined"


def test_a_wait_for_a_missing_job_is_an_error(live: Ledger) -> None:
    receipt = live.submit("add", {"a": 1, "b": 2})
    receipt.job_id = 999
    with pytest.raises(JobNotFoundError):
        receipt.wait(1)
    with pytest.raises(JobNotFoundError):
        asyncio.run(receipt.wait_async(1))


@pytest.mark.parametrize("timeout", [0, 0.05])
def test_a_wait_that_times_out_names_the_state_of_the_job(live: Ledger, timeout: float) -> None:
    receipt = live.submit("add", {"a": 1, "b": 2})
    with pytest.raises(WaitTimeoutError) as late:
        receipt.wait(timeout)
    assert late.value.context == {"job_id": receipt.job_id, "state": "pending"}
    with pytest.raises(WaitTimeoutError) as late:
        asyncio.run(receipt.wait_async(timeout))
    assert late.value.context == {"job_id": receipt.job_id, "state": "pending"}
    live.run_until_idle()
    assert asyncio.run(receipt.wait_async(0)).result == 3


def test_threads_that_wait_share_one_that_looks(live: Ledger) -> None:
    receipts = [live.submit("add", {"a": n, "b": 1}) for n in range(20)]
    results: dict[int, int] = {}

    def follow(n: int) -> None:
        results[n] = receipts[n].wait(PATIENCE_S).result

    threads = [threading.Thread(target=follow, args=(n,)) for n in range(20)]
    before = threading.active_count()
    for thread in threads:
        thread.start()
    eventually(lambda: waiting_count(live) == 20, "20 waits")
    assert threading.active_count() <= before + 20 + 1
    live.run_until_idle()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert results == {n: n + 1 for n in range(20)}


def test_an_interrupted_wait_leaves_nothing_behind(live: Ledger) -> None:
    receipt = live.submit("add", {"a": 1, "b": 2})

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            receipt.wait(PATIENCE_S)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert waiting_count(live) == 0


def test_a_wait_that_is_interrupted_at_any_point_holds_up_no_other(live: Ledger) -> None:
    receipt = live.submit("add", {"a": 1, "b": 2})
    with pytest.raises(WaitTimeoutError):
        receipt.wait(0.001)  # now the thread that looks is there
    opened = live._open()

    def wait() -> None:
        with suppress(WaitTimeoutError):
            waiting.wait(opened, receipt, 0.001, until_failed=True)

    with ThreadPoolExecutor(1) as others:
        points = 0
        while interrupted(wait, after=points):
            others.submit(wait).result(PATIENCE_S)
            points += 1
    assert points > 20
    assert waiting_count(live) == 0


def test_a_ledger_that_is_closed_ends_its_waits(ledger_url: str) -> None:
    ledger = Ledger(ledger_url)
    receipt = ledger.submit("noop")

    async def scenario() -> None:
        wait = asyncio.ensure_future(receipt.wait_async(PATIENCE_S))
        await counted(ledger, 1)
        ledger.close()
        with pytest.raises(StoreUnavailableError):
            await wait

    asyncio.run(scenario())
    with ledger:  # it opens again when it is used again
        ledger.run_until_idle()
        assert receipt.wait(PATIENCE_S).state is JobState.SUCCEEDED


# ---------------------------------------------------------------------------------------------------------------------
# An event loop


def test_a_thousand_waits_take_no_thread_each_and_a_submit_beside_them_is_quick(live: Ledger) -> None:
    calls = [{"operation": "add", "payload": {"a": n, "b": 1}} for n in range(MANY)]
    receipts = live.submit_many(calls)

    async def scenario() -> tuple[int, float, list[int]]:
        before = threading.active_count()
        waits = [asyncio.ensure_future(receipt.wait_async(60)) for receipt in receipts]
        await counted(live, MANY)
        began = time.monotonic()
        late = await live.submit_async("add", {"a": 40, "b": 2})
        took_s = time.monotonic() - began
        grown = threading.active_count() - before
        with working(live, concurrency=4):
            results = [receipt.result for receipt in await asyncio.gather(*waits)]
            assert (await late.wait_async(60)).result == 42
        return grown, took_s, results

    grown, took_s, results = asyncio.run(scenario())
    assert results == [n + 1 for n in range(MANY)]
    assert grown <= 2, "one thread waits and one submits"
    assert took_s < 10
    assert waiting_count(live) == 0


def test_waits_that_are_cancelled_leave_nothing_behind(live: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LINGER_S", 0.2)
    before = threading.active_count()
    receipt = live.submit("add", {"a": 1, "b": 2}, key="k")

    async def scenario() -> None:
        waits = [asyncio.ensure_future(receipt.wait_async()) for _ in range(100)]
        await counted(live, len(waits))
        for wait in waits[:50]:
            wait.cancel()
        await asyncio.wait(waits[:50])
        await counted(live, 50)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(receipt.wait_async(), 0.05)
        # asyncio.run cancels the rest

    asyncio.run(scenario())
    eventually(lambda: waiting_count(live) == 0, "the end of the cancelled waits")
    eventually(lambda: threading.active_count() <= before, "the end of the thread that waited")
    gc.collect()
    assert [each for each in gc.get_objects() if type(each) is waiting.Wait] == []
    live.run_until_idle()
    assert receipt.wait(PATIENCE_S).result == 3  # and it begins again


def test_submits_of_one_loop_are_gathered_and_each_has_its_own_answer(live: Ledger) -> None:
    async def scenario() -> list[object]:
        await live.submit_async("add", {"a": 0, "b": 1}, client="c", key="0")
        before = threading.active_count()
        submits = [live.submit_async("add", {"a": n % 50, "b": 1}, client="c", key=str(n % 50)) for n in range(200)]
        wrong = live.submit_async("add", {"a": "one", "b": 1})
        conflict = live.submit_async("add", {"a": 7, "b": 7}, client="c", key="7")
        answers = await asyncio.gather(*submits[1:], wrong, conflict, return_exceptions=True)
        submits[0].close()
        assert threading.active_count() <= before + 2
        return list(answers)

    *receipts, wrong, conflict = asyncio.run(scenario())
    assert isinstance(wrong, ArgumentsError)
    assert isinstance(conflict, IdempotencyConflictError)
    ids = [receipt.job_id for receipt in receipts if not isinstance(receipt, BaseException)]  # type: ignore[attr-defined]
    assert len(ids) == 199
    assert len(set(ids)) == 50
    assert sum(count.n for count in live.counts()) == 50


def test_a_wait_ends_by_a_write_of_another_process(ledger_url: str, live: Ledger) -> None:
    receipt = live.submit("add", {"a": 1, "b": 2})
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=_work_elsewhere, args=(ledger_url,))
    child.start()
    try:
        assert asyncio.run(receipt.wait_async(60)).result == 3
    finally:
        child.join(60)
    assert child.exitcode == 0


FORKING = """
import json, os, sys
from holdfast import Ledger
from holdfast.core.errors import WaitTimeoutError

ledger = Ledger(sys.argv[1])
receipt = ledger.submit("noop")

def too_short():
    try:
        receipt.wait(0.05)
    except WaitTimeoutError:
        return True

assert too_short()  # from here on this process has the thread that waits
child = os.fork()
if child == 0:
    assert too_short()
    ledger.run_until_idle()
    os._exit(0 if receipt.wait(30).state == "succeeded" else 1)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps([status, receipt.wait(30).state.value]))
"""


def test_a_forked_child_waits_by_itself(ledger_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING, ledger_url],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout) == [0, "succeeded"]


def _work_elsewhere(url: str) -> None:
    with Ledger(url) as ledger:

        @ledger.operation("add")
        def add(run: Execution, a: int, b: int) -> int:
            return a + b

        ledger.run_until_idle()


async def counted(ledger: Ledger, n: int) -> None:
    """Return when the thread of a ledger serves so many waits."""
    give_up = time.monotonic() + PATIENCE_S
    while waiting_count(ledger) != n:
        assert time.monotonic() < give_up
        await asyncio.sleep(0.01)


def waiting_count(ledger: Ledger) -> int:
    """Return how many waits the thread of a ledger serves."""
    opened = ledger._opened
    waiter = None if opened is None else opened.attendants.get("waiter")
    return 0 if waiter is None else waiter.requests_waiting
