"""Pain 14: deploys consume attempts."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from pathlib import Path

import pytest

from holdfast import Execution, Ledger, Worker
from tests.pains.conftest import LEASE_S
from tests.support.forkserver import Child, ForkServer
from tests.support.promises import Facts, require_all_done, require_promises
from tests.support.roles import noted, wait_until

WORK = "tests.support.roles:work"


def hold(
    forks: ForkServer, ledger: Ledger, started: Path, drain_s: float, notes: Path | None = None
) -> tuple[Child, int]:
    """Start a worker that holds one job whose first attempt never ends by itself."""
    worker = forks.spawn(WORK, url=ledger.store.url, lease_s=LEASE_S, drain_s=drain_s, notes=notes and str(notes))
    receipt = ledger.submit("hang", {"started": str(started)})
    wait_until(lambda: noted(started), 20, "the job runs", lambda: forks.log)
    return worker, receipt.job_id


@pytest.mark.req("M-11", "G-22")
def test_sigterm_lets_running_jobs_finish_and_starts_no_others(
    forks: ForkServer, ledger: Ledger, ledger_url: str
) -> None:
    receipts = [ledger.submit("last", {"seconds": 0.5}) for _ in range(6)]
    worker = forks.spawn(WORK, url=ledger_url, lease_s=LEASE_S, concurrency=2)

    def running() -> int:
        return sum(ledger.job(receipt.job_id).state == "running" for receipt in receipts)

    wait_until(lambda: running() == 2, 20, "two jobs run", lambda: forks.log)
    worker.signal(signal.SIGTERM)
    assert worker.wait(30) == 0, forks.log
    facts = Facts(ledger)
    require_promises(facts)
    states = Counter(job.state.value for job in facts.jobs.values())
    assert states["succeeded"] >= 2
    assert states.keys() <= {"succeeded", "pending"}
    assert all(job.attempts == (job.state == "succeeded") for job in facts.jobs.values())
    assert {job.excused for job in facts.jobs.values()} == {0}


@pytest.mark.req("M-11", "G-22")
def test_a_job_that_does_not_finish_in_time_is_returned_excused(
    forks: ForkServer, ledger: Ledger, tmp_path: Path
) -> None:
    worker, job_id = hold(forks, ledger, tmp_path / "started", drain_s=0.2)
    worker.signal(signal.SIGTERM)
    assert worker.wait(30) == 0, forks.log
    job = ledger.job(job_id)
    assert (job.state, job.attempts, job.excused, job.spent) == ("pending", 1, 1, 0)
    [execution] = Facts(ledger).executions[job_id]
    assert (execution.status, execution.excused) == ("ABORTED", True)
    # It is due at once, not when the lease would have ended.
    assert ledger.run_until_idle() == 1
    facts = Facts(ledger)
    require_promises(facts)
    require_all_done(facts, jobs=1)
    assert facts.jobs[job_id].spent == 1


@pytest.mark.req("M-11")
def test_a_second_signal_stops_at_once(forks: ForkServer, ledger: Ledger, tmp_path: Path) -> None:
    # Longer than the test may take: without the second signal the worker would not end.
    notes = tmp_path / "notes"
    worker, job_id = hold(forks, ledger, tmp_path / "started", 600, notes)
    worker.signal(signal.SIGTERM)
    wait_until(lambda: "stopping" in noted(notes), 20, "the worker has handled the signal", lambda: forks.log)
    with pytest.raises(TimeoutError):
        worker.wait(0.5)
    assert ledger.job(job_id).state == "running"
    worker.signal(signal.SIGTERM)
    assert worker.wait(30) == 0, forks.log
    job = ledger.job(job_id)
    assert (job.state, job.attempts, job.excused) == ("pending", 1, 1)
    require_promises(Facts(ledger))


@pytest.mark.req("M-05", "M-11")
def test_more_deploys_than_attempts_do_not_fail_a_job(ledger: Ledger) -> None:
    began, enough = threading.Semaphore(0), threading.Event()

    @ledger.operation("patient", max_attempts=2, lease_s=30)
    def patient(run: Execution) -> int:
        began.release()
        while not enough.is_set() and not run.cancelled:
            enough.wait(0.01)
        if not enough.is_set():
            enough.wait(30)  # deaf to the stop: it has to be given back
        return run.attempt

    receipt = ledger.submit("patient", {})
    for _ in range(3):
        worker = Worker(ledger, concurrency=1, drain_s=0.05)
        thread = threading.Thread(target=worker.run)
        thread.start()
        assert began.acquire(timeout=20)
        worker.stop()
        thread.join()
    job = ledger.job(receipt.job_id)
    assert (job.state, job.attempts, job.excused, job.spent) == ("pending", 3, 3, 0)
    enough.set()
    assert ledger.run_until_idle() == 1
    assert (receipt.wait(0).state, receipt.wait(0).result) == ("succeeded", 4)
    require_promises(Facts(ledger), effects=False)
