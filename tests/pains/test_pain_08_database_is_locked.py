"""Pain 8: SQLite says "database is locked" to the users."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Ledger
from tests.support.forkserver import ForkServer
from tests.support.promises import Facts, require_all_done, require_promises
from tests.support.roles import CLIENT, counting_ledger, create_effects, noted, succeeded, wait_until

KEYS = 60
PROCESSES = 4


@pytest.fixture
def ledger(sqlite_url: str) -> Iterator[Ledger]:
    with counting_ledger(sqlite_url) as ledger:
        create_effects(ledger)
        yield ledger


@pytest.mark.req("K-32")
def test_many_processes_work_beside_a_foreign_process_that_holds_the_lock(
    forks: ForkServer, ledger: Ledger, sqlite_url: str, tmp_path: Path
) -> None:
    acknowledged, notes = tmp_path / "acknowledged", tmp_path / "notes"
    earlier = len(forks.log)
    stranger = forks.spawn(
        "tests.support.roles:hold_write_lock", url=sqlite_url, seconds=0.4, times=5, notes=str(notes)
    )
    wait_until(lambda: noted(notes), 20, "the lock is held", lambda: forks.log)
    submitters = [
        forks.spawn(
            "tests.support.roles:submit",
            url=sqlite_url,
            keys=[f"{n}-{i}" for i in range(KEYS)],
            acknowledged=str(acknowledged),
            pause_ms_max=40,
        )
        for n in range(PROCESSES)
    ]
    workers = [forks.spawn("tests.support.roles:work", url=sqlite_url) for _ in range(2)]
    # No errors are allowed for: one would end its process with 1.
    assert [child.wait(60) for child in (*submitters, stranger)] == [0] * (PROCESSES + 1), forks.log
    jobs = PROCESSES * KEYS
    wait_until(lambda: succeeded(ledger) == jobs, 30, "all succeeded", lambda: forks.log)
    for worker in workers:
        worker.signal(15)
        assert worker.wait(30) == 0, forks.log
    assert "locked" not in forks.log[earlier:]
    assert noted(notes) == ["locked"] * 5
    facts = Facts(ledger)
    require_promises(facts, acknowledged=[(CLIENT, key) for key in noted(acknowledged)])
    require_all_done(facts, jobs=jobs)
    assert {job.attempts for job in facts.jobs.values()} == {1}
