"""How much a worker claims, what it gives back unstarted, and that no wake-up is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast import Execution, Ledger, Worker
from holdfast.core.errors import StoreUnavailableError
from holdfast.core.machines import JobState
from holdfast.engine.worker import worker as worker_module
from holdfast.engine.worker.attempt import HeldAttempt
from holdfast.engine.worker.bell import Bell
from holdfast.engine.worker.pace import AHEAD_S, PAYLOAD_MAX, Pace
from holdfast.engine.worker.slots import ThreadSlots
from holdfast.store import Lease
from holdfast.store.transaction import Reading
from holdfast.store.verbs import long_payloads
from tests.engine.working import PATIENCE_S, eventually, excuses, threaded, working

SLOTS, MOST = 4, 1000


@pytest.fixture
def live(ledger_url: str) -> Iterator[Ledger]:
    with Ledger(ledger_url) as ledger:
        yield ledger


# -- how much is claimed ----------------------------------------------------------------------------------------------


def test_before_a_handler_has_ended_only_the_slots_are_filled() -> None:
    assert Pace(SLOTS, MOST).hold(0) == SLOTS
    assert Pace(SLOTS, 1).hold(0) == 1


@pytest.mark.parametrize("took_s, ahead", [(1.0, 0), (AHEAD_S, 4), (AHEAD_S / 10, 40), (AHEAD_S / 100, 400)])
def test_the_number_claimed_ahead_follows_the_time_of_the_handlers(took_s: float, ahead: int) -> None:
    pace = Pace(SLOTS, MOST)
    pace.ran(10, 10 * took_s)
    assert pace.hold(0) == pytest.approx(SLOTS + ahead, abs=1)
    assert pace.hold(2) == pytest.approx(SLOTS + ahead / 2, abs=1)
    assert pace.hold(SLOTS) == SLOTS  # every slot is busy with a long handler


def test_a_change_of_handler_time_is_followed_and_one_slow_handler_among_many_is_not() -> None:
    pace = Pace(SLOTS, MOST)
    pace.ran(1000, 1000 * 1e-5)
    assert pace.hold(0) == MOST
    pace.ran(1000, 1000 * 1e-5 + 0.015)  # one of them lost the processor for a while
    assert pace.hold(0) == MOST
    for _ in range(100):
        pace.ran(1, 0.5)
    assert pace.hold(0) == SLOTS


class Counting(Worker):
    """A worker that notes how many attempts it requests at each claim, and the longest payload that it gets."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.requested: list[int] = []
        self.longest = 0
        super().__init__(*args, **options)

    def _lease(self, n: int) -> Lease:
        self.requested.append(n)
        return super()._lease(n)

    def _write(self, room: int) -> list[Any]:
        claimed = super()._write(room)
        self.longest = max([self.longest, *(len(running.job.payload or "") for running in claimed)])
        return claimed


def test_a_worker_claims_its_free_slots_first_and_more_once_handlers_are_short(live: Ledger) -> None:
    live.submit_many([{"operation": "noop"}] * 400)
    worker = Counting(live, concurrency=3, poll_s=0.05)
    assert worker.run(until_idle=True) == 400
    assert worker.requested[0] == 3
    assert max(worker.requested) > 100


def test_a_worker_with_long_handlers_claims_one_attempt_a_slot(live: Ledger) -> None:
    @live.operation("slow")
    def slow(run: Execution) -> None:
        time.sleep(0.12)

    live.submit_many([slow.call()] * 8)
    worker = Counting(live, concurrency=2, poll_s=0.05)
    assert worker.run(until_idle=True) == 8
    assert max(worker.requested) <= 2


class Patient(Worker):
    """A worker that notes each claim that could have waited: it is for less than half, and each slot has work."""

    early = 0

    def _lease(self, n: int) -> Lease:
        self.early += 2 * n < n + len(self._held) and self._slots[0].waiting >= SLOTS
        return super()._lease(n)


def test_a_claim_waits_until_it_is_for_many_while_each_slot_has_its_next_attempt(live: Ledger) -> None:
    @live.operation("brief")
    def brief(run: Execution) -> None:
        time.sleep(0.003)

    live.submit_many([brief.call()] * 300)
    worker = Patient(live, concurrency=SLOTS, poll_s=0.05)
    assert worker.run(until_idle=True) == 300
    assert worker.early == 0


def test_a_long_payload_is_not_claimed_ahead_and_its_handler_gets_it(live: Ledger) -> None:
    seen: list[tuple[int, int]] = []

    @live.operation("measure")
    def measure(run: Execution, blob: str) -> None:
        seen.append((len(blob), len(run.job.payload or "")))

    @live.operation("measure_async")
    async def measure_async(run: Execution, blob: str) -> None:
        seen.append((len(blob), len(run.job.payload or "")))

    sizes = [PAYLOAD_MAX - 11, PAYLOAD_MAX - 10, 10 * PAYLOAD_MAX]  # the payload is {"blob":"…"}
    for operation in (measure, measure_async):
        live.submit_many([operation.call(blob="x" * size) for size in sizes * 10])
    worker = Counting(live, concurrency=2, poll_s=0.05)
    assert worker.run(until_idle=True) == 60
    assert worker.longest == PAYLOAD_MAX
    assert sorted(seen) == sorted((size, size + 11) for size in sizes for _ in range(20))


def test_long_payloads_are_read_in_sets_within_a_bound_and_let_go_at_the_end(
    live: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_payloads, "SET_BYTES", 5 * PAYLOAD_MAX)
    run, sets = Reading.run, list[list[int]]()

    def noted(reading: Reading, name: str, /, **params: object) -> Any:
        rows = run(reading, name, **params)
        if name == "payloads_of":
            sets.append([len(payload) for _, payload in rows])
        return rows

    monkeypatch.setattr(Reading, "run", noted)

    @live.operation("measure")
    def measure(run: Execution, blob: str) -> int:
        return len(blob)

    sizes = [2 * PAYLOAD_MAX, 2 * PAYLOAD_MAX, 9 * PAYLOAD_MAX, 2 * PAYLOAD_MAX, 4 * PAYLOAD_MAX]
    ids = [live.submit(measure.call(blob="x" * (size - 11))).job_id for size in sizes]
    with live.store.transaction() as transaction:
        claimed = transaction.executions.claim(Lease(owner="w", seconds=60, n=5, payload_max=PAYLOAD_MAX))
    assert [attempt.job_id for attempt in claimed] == ids
    assert [len(attempt.payload or "") for attempt in claimed] == sizes
    assert sets == [[sizes[0], sizes[1]], [sizes[2]], [sizes[3]], [sizes[4]]]
    for attempt in claimed:
        attempt.forget_payload()
    assert claimed[0].job.payload is None
    assert len(claimed[0].payload or "") == sizes[0]  # read again, alone
    assert sets[4:] == [[sizes[0]]]


def test_an_attempt_whose_payload_cannot_be_read_is_given_back_excused(
    live: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    @live.operation("measure", max_attempts=1)
    def measure(run: Execution, blob: str) -> int:
        return len(blob)

    job_id = live.submit(measure.call(blob="x" * 2 * PAYLOAD_MAX)).job_id
    run = Reading.run
    fails = iter([True])

    def failing(reading: Reading, name: str, /, **params: object) -> Any:
        if name == "payloads_of" and next(fails, False):
            raise StoreUnavailableError("planned")
        return run(reading, name, **params)

    monkeypatch.setattr(Reading, "run", failing)
    assert Worker(live, concurrency=1, poll_s=0.05).run(until_idle=True) == 2
    job = live.job(job_id)
    assert (job.state, job.attempts, job.excused) == (JobState.SUCCEEDED, 2, 1)


# -- what no slot takes -----------------------------------------------------------------------------------------------


def test_an_attempt_that_no_slot_starts_within_a_second_is_returned_excused(live: Ledger, late_slots: float) -> None:
    """Short handlers let a worker claim ahead; then one takes long, and what waits behind it goes to other workers."""
    go_on = threading.Event()

    @live.operation("stuck", priority=-1)
    def stuck(run: Execution) -> None:
        assert go_on.wait(PATIENCE_S)

    live.submit_many([{"operation": "noop"}] * 200)
    first = live.submit(stuck.call()).job_id
    waiting = [receipt.job_id for receipt in live.submit_many([stuck.call()] * 5)]
    with working(live, concurrency=1) as worker:
        eventually(lambda: any(running.job.job_id == first and running.taken_at for running in worker.held()))
        claimed = [running.job.job_id for running in worker.held() if running.job.job_id in waiting]
        assert claimed, "nothing was claimed ahead"
        eventually(lambda: all(live.job(job_id).state is JobState.PENDING for job_id in claimed), "giving back")
        time.sleep(3 * late_slots)  # the one slot is busy: nothing is claimed ahead again
        jobs = [live.job(job_id) for job_id in claimed]
        assert {(job.attempts, job.excused, job.spent) for job in jobs} == {(1, 1, 0)}
        assert {tuple(excuses(live, job_id)) for job_id in claimed} == {("not_started",)}
        go_on.set()
        for job_id in (first, *waiting):
            live.receipt(job_id).wait(PATIENCE_S)
    assert {live.job(job_id).spent for job_id in (first, *waiting)} == {1}


def test_hanging_handlers_hold_up_no_quick_job(live: Ledger) -> None:
    """One worker has all its slots taken by handlers that hang, and quick jobs behind them: another one runs those."""
    go_on = threading.Event()

    @live.operation("hang", priority=-1)
    def hang(run: Execution) -> None:
        assert go_on.wait(PATIENCE_S)

    live.submit_many([{"operation": "noop"}] * 200)  # short: the worker claims ahead
    hanging = [receipt.job_id for receipt in live.submit_many([hang.call()] * 2)]
    quick = [receipt.job_id for receipt in live.submit_many([{"operation": "noop", "priority": -2}] * 50)]
    try:
        with working(live, concurrency=2) as first:
            eventually(lambda: {h.job.job_id for h in first.held() if h.taken_at} >= set(hanging))
            with working(live, concurrency=2):
                for job_id in quick:
                    assert live.receipt(job_id).wait(PATIENCE_S).state is JobState.SUCCEEDED
                assert {live.job(job_id).state for job_id in hanging} == {JobState.RUNNING}
            go_on.set()
            for job_id in hanging:
                assert live.receipt(job_id).wait(PATIENCE_S).state is JobState.SUCCEEDED
    finally:
        go_on.set()
    assert {live.job(job_id).spent for job_id in (*hanging, *quick)} == {1}


@pytest.fixture
def late_slots(monkeypatch: pytest.MonkeyPatch) -> float:
    """Wait less than a second."""
    monkeypatch.setattr(worker_module, "UNSTARTED_S", 0.2)
    monkeypatch.setattr("holdfast.engine.worker.heartbeat.LOOK_S", 0.05)
    return 0.2


def test_an_attempt_that_is_taken_back_from_the_slots_does_not_start_there() -> None:
    began = threading.Event()
    go_on = threading.Event()

    class Fake:
        ended = False

        def __init__(self, claimed_at: float) -> None:
            self.claimed_at = claimed_at

        def run(self) -> bool:
            began.set()
            return go_on.wait(PATIENCE_S)

    done: list[Any] = []
    slots = ThreadSlots(1, done.append)
    running, old, young = attempts = [cast("HeldAttempt", Fake(at)) for at in (1.0, 2.0, 3.0)]
    slots.start(attempts)
    assert began.wait(PATIENCE_S)
    assert slots.take_back(2.5) == [old]
    assert slots.waiting == 1
    go_on.set()
    eventually(lambda: done == [running, young])
    slots.close()


# -- wake-ups ---------------------------------------------------------------------------------------------------------


def test_a_wakeup_between_the_look_and_the_sleep_is_not_lost() -> None:
    bell = Bell()
    work: list[int] = []

    def look() -> bool:
        if work:
            return True
        work.append(1)  # another thread adds work just after this look, and wakes the sleeper
        bell.ring()
        return False

    began = time.monotonic()
    bell.sleep(PATIENCE_S, look)
    assert time.monotonic() - began < PATIENCE_S / 2
    bell.sleep(0.01, lambda: False)  # the wake-up was consumed
    bell.close()
    bell.ring()  # of a closed bell does nothing


def test_a_worker_may_be_run_again_and_one_that_never_ran_holds_no_file(live: Ledger) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    workers = [Worker(live) for _ in range(10)]
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    for _ in range(2):
        live.submit("noop")
        assert workers[0].run(until_idle=True) >= 1


def test_a_worker_that_polls_seldom_is_seen_as_often_as_any(live: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "SEEN_S", 0.05)

    def seen_at() -> list[datetime]:
        with live.store.reading() as reading:
            return [worker.seen_at for worker in reading.lists.workers()]

    with working(live, poll_s=60.0):
        eventually(seen_at)
        first = seen_at()
        eventually(lambda: seen_at() > first)


@pytest.mark.parametrize("size", [1, 3])
def test_no_attempt_is_left_in_the_slots_while_threads_sleep(size: int) -> None:
    """Attempts come one by one, just as the threads go to sleep: each is run."""

    class Fake:
        ended, claimed_at = False, 0.0

        def run(self) -> bool:
            return True

    done = threading.Semaphore(0)
    slots = ThreadSlots(size, lambda _: done.release())
    for n in range(2000):
        slots.start([cast("HeldAttempt", Fake())] * (1 + n % size))
        for _ in range(1 + n % size):
            assert done.acquire(timeout=PATIENCE_S), f"attempt {n} was not run"
    slots.close()


def test_no_submit_and_no_end_is_missed_by_a_worker_that_goes_to_sleep(live: Ledger) -> None:
    """One job after the other, each submitted as soon as the last one ended: the worker goes to sleep in between."""
    ran: list[float] = []

    @live.operation("chain")
    def chain(run: Execution) -> None:
        ran.append(time.monotonic())

    with working(live, concurrency=2, poll_s=20.0) as worker:
        for _ in range(30):
            receipt = live.submit(chain.call())
            worker.wake()
            assert receipt.wait(PATIENCE_S / 2).state is JobState.SUCCEEDED
    assert len(ran) == 30


# -- turns on other connections ---------------------------------------------------------------------------------------


BACKLOG = 1500


class Sharing(Worker):
    """A worker that notes how many attempts its other connections claim."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.shared: list[int] = []
        super().__init__(*args, **options)

    def _give_turn(self, room: int) -> None:
        super()._give_turn(room)
        self.shared.append(self._turns.room if self._turns else 0)


def test_a_backlog_is_written_on_two_connections_where_the_database_has_many_writers(live: Ledger) -> None:
    live.submit_many([{"operation": "noop"}] * BACKLOG)
    worker = Sharing(live, concurrency=2, batch_max=200, poll_s=0.05)
    assert worker.run(until_idle=True) == BACKLOG
    assert any(worker.shared) is not live.store.one_writer
    assert [(c.state.value, c.n) for c in live.counts() if c.n] == [("succeeded", BACKLOG)]
    assert worker.held() == []
    assert "holdfast-turns" not in [thread.name for thread in threading.enumerate()]


def test_with_a_subscriber_everything_is_written_on_one_connection(live: Ledger) -> None:
    heard: list[int] = []
    subscription = live.subscribe(lambda transition: heard.append(transition.subject))
    live.submit_many([{"operation": "noop"}] * BACKLOG)
    worker = Sharing(live, concurrency=2, batch_max=200, poll_s=0.05)
    assert worker.run(until_idle=True) == BACKLOG
    assert not any(worker.shared)
    subscription.close()


def test_a_worker_that_is_stopped_while_two_connections_write_loses_nothing(live: Ledger) -> None:
    live.submit_many([{"operation": "noop"}] * BACKLOG)
    worker = Sharing(live, concurrency=2, batch_max=200, poll_s=0.05, drain_s=PATIENCE_S)
    with threaded(worker.run):
        eventually(lambda: live.store.one_writer or any(worker.shared))
        worker.stop()
    assert worker.held() == []
    with live.store.reading() as reading:
        running = reading.lists.jobs(state=JobState.RUNNING, limit=10)
    assert running == []
    worker = Sharing(live, concurrency=2, poll_s=0.05)
    worker.run(until_idle=True)
    assert {(c.state.value, c.n) for c in live.counts() if c.n} == {("succeeded", BACKLOG)}


def test_ends_that_another_connection_could_not_write_are_written_again(
    live: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.submit_many([{"operation": "noop"}] * BACKLOG)
    committer = live.second_committer()
    failures = iter([StoreUnavailableError("gone")])
    perform = committer.perform

    def sometimes(tasks: Any) -> None:
        for error in failures:
            for task in tasks:
                task.failed(error)
            return
        perform(tasks)

    monkeypatch.setattr(committer, "perform", sometimes)
    monkeypatch.setattr(live, "second_committer", lambda: committer)
    worker = Sharing(live, concurrency=2, batch_max=200, poll_s=0.05)
    assert worker.run(until_idle=True) == BACKLOG
    assert {(c.state.value, c.n) for c in live.counts() if c.n} == {("succeeded", BACKLOG)}
    assert live.store.one_writer or next(failures, None) is None  # it was tried
