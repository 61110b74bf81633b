"""A depth limit that parks, while submitters and workers are killed: never exceeded by a submit, nothing is lost."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.audit.check.runner import check
from holdfast.core.machines import JobState
from tests.crash.limit_run import deep_ledger
from tests.support.forkserver import ForkServer, shared_server

pytestmark = pytest.mark.attack("faults")

DEPTH, ENOUGH, PATIENCE_S = 10, 60, 60.0
WAITING = "SELECT count(*) FROM holdfast_jobs WHERE due_at IS NOT NULL AND parked IS NULL"


@pytest.fixture
def forks() -> Iterator[ForkServer]:
    with shared_server("tests.crash.limit_run") as forks:
        yield forks


@pytest.mark.req("G-24")
def test_parked_work_outlives_its_submitters_and_workers(forks: ForkServer, ledger_url: str, tmp_path: Path) -> None:
    noted, until = tmp_path / "noted", time.monotonic() + PATIENCE_S

    def acknowledged() -> set[int]:
        return {int(line) for line in noted.read_text().splitlines()} if noted.exists() else set()

    with deep_ledger(ledger_url) as ledger:
        ledger.limit("default", DEPTH, park=True)
        submitters = [
            forks.spawn("tests.crash.limit_run:submit_for_ever", url=ledger_url, client=f"c{n}", noted=str(noted))
            for n in range(3)
        ]
        most = 0
        while len(acknowledged()) < ENOUGH:
            assert time.monotonic() < until, forks.log
            with ledger.store.reading() as reading:
                [[waiting]] = reading.execute(WAITING)
            most = max(most, waiting)
        for child in submitters:
            child.signal(signal.SIGKILL)
            child.wait(10)
        assert most == DEPTH
        killed, worker = (forks.spawn("tests.crash.limit_run:work_deep", url=ledger_url) for _ in range(2))
        jobs = acknowledged()

        def done() -> set[int]:
            with ledger.store.reading() as reading:
                return {job.job_id for job in reading.jobs.get_many(jobs) if job.state is JobState.SUCCEEDED}

        while not done():
            assert time.monotonic() < until, forks.log
            time.sleep(0.01)
        killed.signal(signal.SIGKILL)
        killed.wait(10)
        while done() != jobs:
            assert time.monotonic() < until, (ledger.counts(), forks.log)
            time.sleep(0.05)
        worker.signal(signal.SIGTERM)
        assert worker.wait(20) == 0
        with ledger.store.reading() as reading:
            assert reading.limits.waiting() == []
        assert check(ledger.store).violations == ()
