"""Pain 5: the lease is shorter than the run, so the job runs again: its effect still happens once."""

from __future__ import annotations

import logging
import threading

import pytest

from holdfast import Execution, Ledger, Worker
from holdfast.engine.worker.heartbeat import Heartbeat
from tests.pains.conftest import LEASE_S
from tests.support.promises import Facts, require_all_done, require_promises
from tests.support.roles import NO_DELAY, create_effects, stage_effect


@pytest.mark.req("G-13", "M-08", "M-10", "M-16", "M-18")
def test_two_workers_run_it_and_one_effect_happens(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    second_is_done = threading.Event()

    def declared(url: str) -> Ledger:
        ledger = Ledger(url)

        @ledger.operation("slow", lease_s=LEASE_S, retry=NO_DELAY)
        def slow(run: Execution) -> int:
            stage_effect(run)
            if run.attempt == 1:
                # Longer than any lease: until the other worker has done the work.
                assert second_is_done.wait(30)
            return run.attempt

        return ledger

    # No heartbeat gets through, as from behind a broken network: the lease is all the time there is.
    monkeypatch.setattr(Heartbeat, "beat", lambda self: None)
    with declared(ledger_url) as first, declared(ledger_url) as second:
        create_effects(first)
        workers = [Worker(each, concurrency=1, poll_s=0.1) for each in (first, second)]
        threads = [threading.Thread(target=worker.run) for worker in workers]
        with caplog.at_level(logging.WARNING, "holdfast"):
            for thread in threads:
                thread.start()
            receipt = first.submit("slow", {})
            done = receipt.wait(30)
            second_is_done.set()
            for worker in workers:
                worker.stop()
            for thread in threads:
                thread.join()
        assert (done.state, done.result) == ("succeeded", 2)
        facts = Facts(first)
        require_promises(facts)
        require_all_done(facts, jobs=1)
        [late, winner] = facts.executions[receipt.job_id]
        assert facts.effects[receipt.job_id] == [winner.exec_id]
        assert (late.status, late.error_code) == ("ABORTED", "lease_expired")
        refused = [r.getMessage() for r in caplog.records if "refused the end of attempt 1" in r.getMessage()]
        assert len(refused) == 1
