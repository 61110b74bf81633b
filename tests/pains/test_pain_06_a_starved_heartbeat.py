"""Pain 6: C code starves the heartbeat, another worker repeats the job, and both finish: one effect happens."""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Execution, Ledger, Worker
from tests.support.forkserver import ForkServer, shared_server
from tests.support.promises import Facts, require_all_done, require_promises
from tests.support.roles import NO_DELAY, create_effects, note, noted, stage_effect, wait_until

LEASE_S = 3.0
STARVED_S = 5


@pytest.fixture
def forks() -> Iterator[ForkServer]:
    with shared_server(__name__, "psycopg") as forks:
        yield forks


def declared(url: str, notes: str) -> Ledger:
    ledger = Ledger(url)

    @ledger.operation("starve", lease_s=LEASE_S, retry=NO_DELAY)
    def starve(run: Execution) -> int:
        stage_effect(run)
        note(notes, f"began {run.attempt}")
        if run.attempt == 1:
            # PyDLL, unlike CDLL, keeps the GIL: no other thread of this process moves, the heartbeat's included.
            ctypes.PyDLL(None).sleep(STARVED_S)
            note(notes, "awake")
        return os.getpid()

    return ledger


def starving(url: str, *, notes: str) -> None:
    """Work until another worker has done the job and the ledger has refused the end of this one."""
    ledger = declared(url, notes)
    worker = Worker(ledger, concurrency=1, poll_s=0.1)

    class Stop(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "refused the end of attempt 1" in record.getMessage():
                note(notes, "refused")
                worker.stop()

    logging.getLogger("holdfast").addHandler(Stop())
    worker.run()
    ledger.close()


@pytest.mark.req("G-13", "G-15", "M-06", "M-10", "M-18")
def test_the_starved_worker_is_refused_and_the_effect_happens_once(
    forks: ForkServer, ledger_url: str, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    with declared(ledger_url, str(notes)) as ledger:
        create_effects(ledger)
        starved = forks.spawn(f"{__name__}:starving", url=ledger_url, notes=str(notes))
        receipt = ledger.submit("starve", {})
        wait_until(lambda: noted(notes), 20, "the first attempt began", lambda: forks.log)
        worker = Worker(ledger, concurrency=1, poll_s=0.1)
        working = threading.Thread(target=worker.run)
        working.start()
        try:
            assert receipt.wait(30).result == os.getpid()
        finally:
            worker.stop()
            working.join()
        assert starved.wait(30) == 0, forks.log
        assert sorted(noted(notes)) == ["awake", "began 1", "began 2", "refused"]
        facts = Facts(ledger)
        require_promises(facts)
        require_all_done(facts, jobs=1)
        [first, second] = facts.executions[receipt.job_id]
        assert (first.status, first.error_code) == ("ABORTED", "lease_expired")
        assert facts.effects[receipt.job_id] == [second.exec_id]
