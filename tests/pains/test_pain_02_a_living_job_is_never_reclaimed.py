"""Pain 2: rescue by elapsed time re-runs jobs that are still alive."""

from __future__ import annotations

import threading

import pytest

from holdfast import Execution, Ledger, Worker
from holdfast.engine.heartbeat import Heartbeat
from holdfast.engine.reaper import Reaper, recover
from holdfast.engine.running import Running
from holdfast.engine.world import World
from holdfast.store import Lease
from tests.pains.conftest import LEASE_S
from tests.support.clock import VirtualClock
from tests.support.promises import Facts, require_all_done, require_promises
from tests.support.roles import NO_DELAY, stage_effect


def nothing() -> None:
    """Do nothing."""


@pytest.mark.req("G-15", "K-31", "M-06")
def test_a_job_may_run_for_two_hundred_leases(ledger_url: str) -> None:
    clock = VirtualClock()
    with Ledger(ledger_url, world=World(clock=clock)) as ledger:
        ledger.operation("long", lease_s=30)(lambda run: None)
        job_id = ledger.submit("long", {}).job_id
        [attempt] = ledger.perform(lambda tx: tx.claim(Lease(owner="living", seconds=30)))
        running = Running(ledger, attempt)
        heart = Heartbeat(ledger, lambda: [running], nothing)
        heart.stop()  # the test beats by hand, on its own clock
        for _ in range(210):
            clock.advance(29)
            assert recover(ledger, actor="reaper").recovered == 0
            heart.beat()
        assert heart.lost == 0
        assert not running.execution.cancelled
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
        ledger.perform(lambda tx: tx.claim(Lease(owner="silent", seconds=30)))
        clock.advance(29.999999)
        assert recover(ledger, actor="reaper").recovered == 0
        assert ledger.job(job_id).state == "running"
        clock.advance(0.000001)
        assert recover(ledger, actor="reaper").reopened == 1
        assert ledger.job(job_id).state == "pending"


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
        receipt = ledger.submit("last", {"seconds": 3 * LEASE_S})
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
