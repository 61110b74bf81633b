"""Pain 1: recovery loses a race or swallows a passing database error, and work is never recovered."""

from __future__ import annotations

import logging
import threading
from collections import Counter

import pytest

from holdfast import Ledger
from holdfast.core.errors import StoreUnavailableError
from holdfast.engine.worker import recovery
from holdfast.engine.worker.reaper import Reaper, RecoveryReport, recover
from holdfast.engine.world import World
from holdfast.store import Lease
from holdfast.testing import VirtualClock
from tests.support.promises import Facts, require_promises
from tests.support.roles import wait_until


class Fault:
    """Makes writes fail at one point, as a database that went away does, for a number of times after the first few."""

    def __init__(self, point: str, after: int, times: int) -> None:
        self._point = point
        self._passing = range(after, after + times)
        self.reached = 0

    def __call__(self, point: str) -> None:
        if point == self._point:
            self.reached += 1
            if self.reached - 1 in self._passing:
                raise StoreUnavailableError("the database went away")


def interrupt(ledger: Ledger, clock: VirtualClock, jobs: int) -> None:
    """Leave this many jobs behind under leases that have run out."""
    ledger.submit_many([{"operation": "noop"} for _ in range(jobs)])
    with ledger.store.transaction() as transaction:
        assert len(transaction.executions.claim(Lease(owner="dead", seconds=10, n=jobs))) == jobs
    clock.advance(11)


def states(ledger: Ledger) -> dict[str, int]:
    return {count.state.value: count.n for count in ledger.counts()}


@pytest.mark.req("M-09", "M-11", "M-13", "G-14", "G-22")
def test_a_recovery_that_fails_in_the_middle_is_logged_and_continues(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recovery, "BATCH", 10)
    clock = VirtualClock()
    # Two batches pass; then the committer fails in every way that it tries, for two recoveries in a row.
    fault = Fault("during_recovery", after=2, times=6)
    with Ledger(ledger_url, world=World(clock=clock, reach=fault)) as ledger:
        interrupt(ledger, clock, 45)
        woken = threading.Event()
        with caplog.at_level(logging.WARNING, "holdfast"):
            thread = Reaper(ledger, actor="reaper", period_s=0.01, lease_s=10, on_recovered=woken.set)
            try:
                assert woken.wait(30)
                wait_until(lambda: states(ledger) == {"pending": 45}, 30, "all are pending again")
            finally:
                thread.stop()
        notes = [record.getMessage() for record in caplog.records if "recovery failed" in record.getMessage()]
        assert len(notes) == 2
        assert all("the database went away" in message for message in notes)
        facts = Facts(ledger, effects=False)
        require_promises(facts, effects=False)
        assert Counter(e.error_code for rows in facts.executions.values() for e in rows) == {"lease_expired": 45}


@pytest.mark.req("M-11", "M-13", "K-32")
def test_many_recoveries_at_once_end_every_attempt_once(ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "BATCH", 7)
    clock = VirtualClock()
    with Ledger(ledger_url, world=World(clock=clock)) as first:
        interrupt(first, clock, 150)
        # A ledger each: they meet in the database, as the reapers of several processes do.
        others = [Ledger(ledger_url, world=World(clock=clock)) for _ in range(4)]
        line = threading.Barrier(len(others))
        reports: list[RecoveryReport] = []

        def reap(ledger: Ledger) -> None:
            line.wait()
            reports.append(recover(ledger, actor="reaper"))
            ledger.close()

        threads = [threading.Thread(target=reap, args=(ledger,)) for ledger in others]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # One that met only rows that others held may end early; the skipped rows are theirs, or are found next time.
        reports.append(recover(first, actor="reaper"))
        assert sum(report.reopened for report in reports) == 150
        assert sum(report.recovered for report in reports) == 150
        facts = Facts(first, effects=False)
        require_promises(facts, effects=False)
        assert {job.state.value for job in facts.jobs.values()} == {"pending"}
        assert {job.attempts for job in facts.jobs.values()} == {1}
