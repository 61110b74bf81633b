"""Pain 2: rescue by elapsed time re-runs jobs that are still alive."""

from __future__ import annotations

import logging
import threading

import pytest

from holdfast import Execution, Ledger, Worker
from holdfast.engine.worker.attempt import HeldAttempt
from holdfast.engine.worker.heartbeat import Heartbeat
from holdfast.engine.worker.reaper import Reaper, recover
from holdfast.engine.world import World
from holdfast.store import Lease
from holdfast.testing import VirtualClock
from tests.pains.conftest import LEASE_S
from tests.support.promises import Facts, require_all_done, require_promises
from tests.support.roles import NO_DELAY, stage_effect, wait_until


def nothing() -> None:
    """Do nothing."""


@pytest.mark.req("G-15", "K-31", "M-06")
def test_a_job_may_run_for_two_hundred_leases(ledger_url: str) -> None:
    clock = VirtualClock()
    with Ledger(ledger_url, world=World(clock=clock)) as ledger:
        ledger.operation("long", lease_s=30)(lambda run: None)
        job_id = ledger.submit("long", {}).job_id
        [attempt] = ledger.perform(lambda tx: tx.executions.claim(Lease(owner="living", seconds=30)))
        running = HeldAttempt(ledger, attempt)
        heart = Heartbeat(ledger, lambda: [running], nothing)
        heart.stop()  # the test beats by hand, on its own clock
        for _ in range(210):
            clock.advance(29)
            assert recover(ledger, actor="reaper").recovered == 0
            heart.beat()
        assert heart.lost == 0
        assert not running.cancelled
        assert ledger.job(job_id).attempts == 1
        running.run()
        assert running.task is not None
        ledger.perform_tasks([running.task])
        assert ledger.job(job_id).state == "succeeded"


@pytest.mark.req("G-15", "K-31", "M-06")
def test_a_silent_job_is_reclaimed_as_soon_as_its_lease_ends_and_not_before(ledger_url: str) -> None:
    clock = VirtualClock()
    with Ledger(ledger_url, world=World(clock=clock)) as ledger:
        job_id = ledger.submit("noop", {}).job_id
        ledger.perform(lambda tx: tx.executions.claim(Lease(owner="silent", seconds=30)))
        clock.advance(29.999999)
        assert recover(ledger, actor="reaper").recovered == 0
        assert ledger.job(job_id).state == "running"
        clock.advance(0.000001)
        assert recover(ledger, actor="reaper").reopened == 1
        assert ledger.job(job_id).state == "pending"


class Host:
    """A wall clock and a monotonic one; only the first can be set."""

    def __init__(self) -> None:
        self.wall = VirtualClock()
        self.monotonic_s = 0.0
        self.looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return self.monotonic_s

    def live(self, seconds: float) -> None:
        """Let time pass on both, in steps too small to be taken for a jump."""
        for _ in range(int(seconds / 0.5)):
            self.wall.advance(0.5)
            self.monotonic_s += 0.5

    def wait_for_looks(self, n: int) -> None:
        seen = self.looks
        wait_until(lambda: self.looks >= seen + n, 20, f"the reaper has looked {n} times")


@pytest.mark.req("K-31", "G-15")
def test_a_clock_that_is_set_forward_ends_no_lease_for_a_lease_period(
    ledger_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host()
    with Ledger(ledger_url, world=World(clock=host.wall, monotonic=host.monotonic)) as ledger:
        job_id = ledger.submit("noop", {}).job_id
        ledger.perform(lambda tx: tx.executions.claim(Lease(owner="living", seconds=30)))
        with caplog.at_level(logging.WARNING, "holdfast"):
            reaper = Reaper(ledger, actor="reaper", period_s=0.002, lease_s=30, on_recovered=nothing)
            try:
                host.wait_for_looks(5)
                host.wall.advance(3600)
                host.wait_for_looks(5)
                host.live(29)
                host.wait_for_looks(5)
                assert ledger.job(job_id).state == "running"
                host.live(2)
                wait_until(lambda: ledger.job(job_id).state == "pending", 20, "it was reclaimed in the end")
            finally:
                reaper.stop()
        # By how much the clock jumped, and for how long no lease is reclaimed.
        assert [record.args for record in caplog.records] == [(3600.0, 30.0)]


@pytest.mark.req("G-15", "K-31")
def test_several_reapers_leave_a_long_job_alone(ledger: Ledger, ledger_url: str) -> None:
    # An operation with a long lease, held meanwhile, must not slow the heartbeats of the short one.
    release = threading.Event()

    @ledger.operation("slow", lease_s=600, retry=NO_DELAY)
    def slow(run: Execution) -> None:
        release.wait(30)
        stage_effect(run)

    slow_one = ledger.submit("slow", {})
    worker = Worker(ledger, concurrency=2)
    working = threading.Thread(target=worker.run)
    others = [Ledger(ledger_url) for _ in range(3)]
    reapers = [
        Reaper(other, actor=f"reaper-{n}", period_s=0.02, lease_s=LEASE_S, on_recovered=nothing)
        for n, other in enumerate(others)
    ]
    try:
        working.start()
        receipt = ledger.submit("last", {"seconds": 1.5 * LEASE_S})
        assert receipt.wait(30).state == "succeeded"
        release.set()
        assert slow_one.wait(30).state == "succeeded"
    finally:
        release.set()
        worker.stop()
        working.join()
        for reaper in reapers:
            reaper.stop()
        for other in others:
            other.close()
    facts = Facts(ledger)
    require_promises(facts)
    require_all_done(facts, jobs=2)
    assert {job.attempts for job in facts.jobs.values()} == {1}
