"""`async def` handlers: many at once on one loop, which a bad one cannot block for the others."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import Cancel, Execution, LeaseLostError, Ledger, Snooze, Worker
from holdfast.core.machines import JobState
from tests.engine.database import Database
from tests.engine.test_bad_handlers import UNSTORABLE
from tests.engine.working import PATIENCE_S, drained, ended, eventually, threaded, working


@pytest.fixture
def live(ledger_url: str) -> Iterator[Ledger]:
    with Ledger(ledger_url) as ledger:
        yield ledger


@pytest.fixture
def notes(database: Database) -> Database:
    database.run("CREATE TABLE notes (word TEXT)")
    return database


def test_handlers_on_a_loop_run_at_the_same_time(live: Ledger, notes: Database) -> None:
    together = asyncio.Barrier(3)

    @live.operation()
    async def meets(run: Execution, word: str) -> dict[str, Any]:
        await together.wait()  # no handler passes before all three are here
        run.effect("INSERT INTO notes (word) VALUES (:word)", {"word": word})
        run.progress(0.5)
        return {"kept": run.checkpoint("word", lambda: word), "thread": threading.current_thread().name}

    jobs = {word: live.submit(meets.call(word=word)).job_id for word in "abc"}
    drained(live, concurrency=3)
    results = {word: live.receipt(job_id).result for word, job_id in jobs.items()}
    assert results == {word: {"kept": word, "thread": "holdfast-loop"} for word in "abc"}
    assert notes.run("SELECT word FROM notes ORDER BY word") == [("a",), ("b",), ("c",)]


class OddError(BaseException):
    """Not even an Exception."""


@pytest.mark.parametrize("kind", ["threads", "processes", "inline", "executor"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_every_bad_handler_on_a_loop_ends_as_listed(live: Ledger, notes: Database, kind: str) -> None:
    async def forks(run: Execution) -> Any:
        child = os.fork()
        if child == 0:
            run.effect("INSERT INTO notes (word) VALUES ('by a fork')")
            return "fork"
        run.effect("INSERT INTO notes (word) VALUES ('by the parent')")
        return os.waitpid(child, 0)[1]  # noqa: ASYNC222 - the fork ends at once

    async def raises(run: Execution) -> Any:
        raise ValueError("x")

    async def exits(run: Execution) -> Any:
        sys.exit(3)

    async def interrupts(run: Execution) -> Any:
        raise KeyboardInterrupt

    async def is_odd(run: Execution) -> Any:
        raise OddError

    async def cancels_itself(run: Execution) -> Any:
        raise asyncio.CancelledError

    async def returns_a_set(run: Execution) -> Any:
        return {1}

    async def gives_up(run: Execution) -> Any:
        raise Cancel("never mind")

    async def snoozes(run: Execution) -> Any:
        raise Snooze(3600)

    expected = {
        "forks": ("succeeded", None, None),
        "raises": ("failed", "value_error", "ValueError: x"),
        "exits": ("failed", "system_exit", "SystemExit: 3"),
        "interrupts": ("failed", "keyboard_interrupt", "KeyboardInterrupt"),
        "is_odd": ("failed", "odd_error", "OddError"),
        "cancels_itself": ("failed", "cancelled_error", "CancelledError"),
        "returns_a_set": (
            "quarantined",
            "payload_not_json",
            f"{UNSTORABLE}PayloadNotJsonError: set is not a JSON type",
        ),
        "gives_up": ("quarantined", "cancelled", "Cancel: never mind"),
        "snoozes": ("pending", None, None),
    }
    jobs = {}
    for handler in (
        forks, raises, exits, interrupts, is_odd, cancels_itself, returns_a_set, gives_up, snoozes
    ):  # fmt: skip
        jobs[handler.__name__] = live.submit(live.operation(max_attempts=1)(handler).call()).job_id
        live.submit("noop")
    with ThreadPoolExecutor(1) as pool:
        drained(live, executor=pool if kind == "executor" else kind)
    assert {name: ended(live.job(job_id)) for name, job_id in jobs.items()} == expected
    assert live.receipt(jobs["forks"]).result == 0
    assert notes.run("SELECT word FROM notes") == [("by the parent",)]
    noop = {count.state: count.n for count in live.counts() if count.operation == "noop"}
    assert noop == {JobState.SUCCEEDED: 9}


def test_a_handler_past_its_timeout_is_cancelled_where_it_waits(live: Ledger) -> None:
    seen: list[object] = []

    @live.operation(timeout_s=0.05, max_attempts=1)
    async def waits(run: Execution) -> None:
        try:
            await asyncio.sleep(PATIENCE_S)
        except asyncio.CancelledError:
            seen.append(run.cancelled)
            raise

    slow, good = live.submit(waits.call()).job_id, live.submit("noop").job_id
    worker = drained(live)
    eventually(lambda: seen == [True])
    assert ended(live.job(slow)) == ("failed", "timed_out", "the handler ran longer than 0.05 s")
    assert live.job(good).state is JobState.SUCCEEDED
    eventually(lambda: not [thread for thread in threading.enumerate() if thread.name == "holdfast-loop"])
    assert worker.held() == []


def test_a_handler_that_blocks_the_loop_holds_up_no_other_for_longer_than_its_timeout(live: Ledger) -> None:
    release, awake = threading.Event(), threading.Event()
    refusals: list[object] = []

    @live.operation(timeout_s=0.1, max_attempts=1)
    async def blocks(run: Execution) -> str:
        release.wait(PATIENCE_S)  # not awaited: nothing else on this loop can run
        try:
            run.checkpoint("late", lambda: 1)
        except LeaseLostError as error:
            refusals.append(error)
        awake.set()
        return "late"

    @live.operation()
    async def polite(run: Execution) -> str:
        await asyncio.sleep(0)
        return "done"

    slow = live.submit(blocks.call()).job_id
    others = [live.submit(polite.call()).job_id for _ in range(3)]
    drained(live, concurrency=4)
    assert ended(live.job(slow))[:2] == ("failed", "timed_out")
    assert [live.receipt(job_id).result for job_id in others] == ["done"] * 3
    assert {live.job(job_id).attempts for job_id in others} == {1}
    assert not awake.is_set()
    release.set()
    assert awake.wait(PATIENCE_S)
    assert [type(error) for error in refusals] == [LeaseLostError]
    eventually(lambda: not [thread for thread in threading.enumerate() if thread.name == "holdfast-loop"])
    assert ended(live.job(slow))[:2] == ("failed", "timed_out")


def test_beyond_the_limit_of_blocked_loops_the_worker_ends_to_be_recycled(live: Ledger) -> None:
    release = threading.Event()

    @live.operation(timeout_s=0.05, max_attempts=1)
    async def blocks(run: Execution) -> None:
        release.wait(PATIENCE_S)

    jobs = [live.submit(blocks.call()).job_id for _ in range(3)]
    worker = Worker(live, concurrency=1, batch_max=1, abandoned_max=1, poll_s=0.05)
    worker.run()  # it is not stopped
    assert worker.recycle is True
    states = [ended(live.job(job_id))[:2] for job_id in jobs]
    assert states == [("failed", "timed_out"), ("failed", "timed_out"), ("pending", None)]
    release.set()


def test_handlers_that_block_their_loop_hold_up_no_other(live: Ledger) -> None:
    release = threading.Event()

    @live.operation()
    async def blocks(run: Execution) -> None:
        release.wait(PATIENCE_S)

    @live.operation()
    async def quick(run: Execution) -> None:
        pass

    stuck = [live.submit(blocks.call()).job_id for _ in range(2)]
    others = [live.submit(quick.call()).job_id for _ in range(5)]
    with working(live, concurrency=8):
        eventually(lambda: {live.job(job_id).state for job_id in others} == {JobState.SUCCEEDED})
        assert {live.job(job_id).state for job_id in stuck} == {JobState.RUNNING}
        release.set()
        eventually(lambda: {live.job(job_id).state for job_id in stuck} == {JobState.SUCCEEDED})
    assert {live.job(job_id).attempts for job_id in (*stuck, *others)} == {1}


def test_a_handler_that_ignores_its_cancellation_is_abandoned(live: Ledger) -> None:
    over = threading.Event()

    @live.operation(timeout_s=0.05, max_attempts=1)
    async def stubborn(run: Execution) -> str:
        while not over.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        return "late"

    slow, good = live.submit(stubborn.call()).job_id, live.submit("noop").job_id
    with working(live, concurrency=2, abandoned_max=0) as worker:
        eventually(lambda: worker.recycle)
    assert ended(live.job(slow))[:2] == ("failed", "timed_out")
    assert live.job(good).state is JobState.SUCCEEDED
    over.set()


def test_a_graceful_stop_returns_jobs_that_wait_on_a_loop(live: Ledger) -> None:
    begun = threading.Event()
    ends: list[str] = []

    @live.operation()
    async def waits(run: Execution) -> None:
        begun.set()
        try:
            await asyncio.sleep(PATIENCE_S)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    job_id = live.submit(waits.call()).job_id
    worker = Worker(live, concurrency=1, poll_s=0.05, drain_s=0.05)
    with threaded(worker.run):
        assert begun.wait(PATIENCE_S)
        worker.stop()
    job = live.job(job_id)
    assert (job.state, job.attempts, job.excused, job.spent) == (JobState.PENDING, 1, 1, 0)
    eventually(lambda: ends == ["cancelled"])  # it does not go on without its worker


def test_a_job_on_a_loop_sees_its_cancellation(live: Ledger) -> None:
    begun = threading.Event()

    @live.operation(lease_s=3)
    async def asks(run: Execution) -> str:
        begun.set()
        give_up = time.monotonic() + PATIENCE_S
        while not run.cancelled:
            assert time.monotonic() < give_up
            await asyncio.sleep(0.01)
        raise Cancel

    job_id = live.submit(asks.call()).job_id
    with working(live):
        assert begun.wait(PATIENCE_S)
        live.cancel(job_id)
        live.receipt(job_id).wait(PATIENCE_S)
    job = live.job(job_id)
    assert (ended(job), job.quarantine_code) == (("quarantined", "cancelled", "Cancel"), "cancelled")
