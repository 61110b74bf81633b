"""The database dies under a fleet and comes back: every worker lives on, nothing is lost, nothing is done twice."""

from __future__ import annotations

import itertools
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast import Ledger
from holdfast.core.errors import StoreError, StoreUnavailableError
from holdfast.core.machines import JobState
from tests.support.forkserver import Child, ForkServer, shared_server
from tests.support.postgres import Server
from tests.support.promises import Facts, require_all_done, require_promises
from tests.support.roles import CLIENT, COUNT, counting_ledger, create_effects, noted, succeeded, wait_until

pytestmark = pytest.mark.attack("faults")

SEED = 20261115
LEASE_S = 1.5
WORK = "tests.support.roles:work"


@pytest.fixture
def forks() -> Iterator[ForkServer]:
    with shared_server("tests.support.roles", "psycopg") as forks:
        yield forks


@pytest.fixture
def ledger(new_postgres_ledger: str) -> Iterator[Ledger]:
    with counting_ledger(new_postgres_ledger, lease_s=LEASE_S) as ledger:
        create_effects(ledger)
        yield ledger


class Fleet:
    """Two workers and a submitter, which the test does not kill."""

    def __init__(self, forks: ForkServer, url: str, directory: Path, jobs: int, pause_ms_max: float) -> None:
        self._forks = forks
        self._jobs = jobs
        self.acknowledged, self.errors = directory / "acknowledged", directory / "errors"
        self.workers = [forks.spawn(WORK, url=url, lease_s=LEASE_S, work_ms_max=30, concurrency=2) for _ in range(2)]
        self.submitter: Child = forks.spawn(
            "tests.support.roles:submit",
            url=url,
            keys=[str(n) for n in range(jobs)],
            acknowledged=str(self.acknowledged),
            errors=str(self.errors),
            pause_ms_max=pause_ms_max,
        )

    def require_at_work(self, ledger: Ledger) -> None:
        """Wait until both workers have opened the ledger: one that cannot open it ends, as it should."""
        seen = "SELECT count(*) FROM holdfast_workers"

        def both() -> bool:
            with ledger.store.reading() as reading:
                return reading.execute(seen) == [(len(self.workers),)]

        wait_until(both, 60, "both workers are there", lambda: self._forks.log[-4000:])

    def require_all_done(self, ledger: Ledger) -> None:
        assert self.submitter.wait(120) == 0, self._forks.log
        acknowledged = [(CLIENT, key) for key in noted(self.acknowledged)]
        assert len(acknowledged) == self._jobs
        require_promises(Facts(ledger), acknowledged=acknowledged)
        wait_until(lambda: succeeded(ledger) == self._jobs, 120, "all succeeded", lambda: self._state(ledger))
        facts = Facts(ledger)
        require_promises(facts, acknowledged=acknowledged)
        require_all_done(facts, jobs=self._jobs)
        codes = {e.error_code for rows in facts.executions.values() for e in rows}
        # An outage does not fail a job: at worst its lease expires.
        assert codes <= {None, "lease_expired"}, self._state(ledger)

    def _state(self, ledger: Ledger) -> str:
        """Return the jobs that have not succeeded at the first attempt, with their attempts, and the end of the log."""
        facts = Facts(ledger)
        lines = [f"{len(facts.jobs)} of {self._jobs} jobs, counts {facts.counts}"]
        for job in facts.jobs.values():
            if (job.state, job.attempts) != (JobState.SUCCEEDED, 1):
                lines.append(f"job {job.job_id}: {job.state}, due {job.run_at}, {job.last_error_message}")
                lines += [
                    f"  {e.attempt}: {e.status} by {e.lease_owner} until {e.lease_expires_at}, {e.error_code}"
                    for e in facts.executions[job.job_id]
                ]
        return "\n".join([*lines, self._forks.log[-4000:]])

    def require_every_duty(self, ledger: Ledger) -> None:
        """Fail unless the workers still claim, keep their leases, and recover what a dead one held."""
        long = ledger.submit("last", {"seconds": 1.5 * LEASE_S}, client=CLIENT, key="long")
        assert long.wait(90).state == "succeeded"
        assert ledger.job(long.job_id).attempts == 1, "no heartbeat kept the lease"
        started = self.acknowledged.with_name("started")
        orphan = ledger.submit("hang", {"started": str(started)}, client=CLIENT, key="orphan")
        wait_until(lambda: noted(started), 20, "the job hangs")
        victim = int(noted(started)[0].split()[0])
        [dead] = [worker for worker in self.workers if worker.pid == victim]
        dead.kill()
        self.workers.remove(dead)
        assert orphan.wait(90).state == "succeeded", "no worker reclaimed the job"

    def require_alive(self) -> None:
        """Fail unless the workers that were started are still there, and stop on SIGTERM."""
        for worker in self.workers:
            assert worker.signal(signal.SIGTERM), self._forks.log
        assert [worker.wait(30) for worker in self.workers] == [0] * len(self.workers), self._forks.log


def disturb(seed: int, times: int, pause_s: float, act: Callable[[], None]) -> None:
    chance = random.Random(seed)
    print(f"seed {seed}")
    for _ in range(times):
        time.sleep(chance.uniform(0.3, 1.0) * pause_s)
        act()


def crash(server: Server, down_s: float, *, kill: bool = False) -> None:
    """Stop the server as a crash would, or kill its postmaster; leave it down for a while, and start it again."""
    if kill:
        server.kill()
    else:
        server.stop("immediate")
    time.sleep(down_s)
    server.start()


@pytest.mark.req("M-11", "M-13", "G-22")
def test_a_fleet_lives_through_crashes_of_the_server(
    forks: ForkServer, ledger: Ledger, new_postgres_ledger: str, pg_server: Server, tmp_path: Path
) -> None:
    fleet = Fleet(forks, new_postgres_ledger, tmp_path, jobs=200, pause_ms_max=16)
    fleet.require_at_work(ledger)
    disturb(SEED, 2, 1.0, lambda: crash(pg_server, 0.3))
    fleet.require_all_done(ledger)
    fleet.require_every_duty(ledger)
    fleet.require_alive()
    codes = {line.split()[0] for line in noted(fleet.errors)}
    assert codes, "no submit met an outage"
    assert codes <= {"store_unavailable", "commit_unknown"}


@pytest.mark.slow
@pytest.mark.req("M-11", "M-13", "G-22")
def test_a_fleet_lives_through_many_crashes_of_the_server(
    forks: ForkServer, ledger: Ledger, new_postgres_ledger: str, pg_server: Server, tmp_path: Path
) -> None:
    fleet = Fleet(forks, new_postgres_ledger, tmp_path, jobs=3000, pause_ms_max=24)
    fleet.require_at_work(ledger)
    turns = itertools.cycle([False, False, True])
    disturb(SEED + 1, 30, 1.2, lambda: crash(pg_server, 0.1, kill=next(turns)))
    fleet.require_all_done(ledger)
    fleet.require_every_duty(ledger)
    fleet.require_alive()


@pytest.mark.req("M-11", "M-13")
def test_a_fleet_lives_through_the_loss_of_its_connections(
    forks: ForkServer, ledger: Ledger, new_postgres_ledger: str, tmp_path: Path
) -> None:
    fleet = Fleet(forks, new_postgres_ledger, tmp_path, jobs=200, pause_ms_max=8)
    fleet.require_at_work(ledger)
    with psycopg.connect(new_postgres_ledger, autocommit=True) as operator:

        def drop() -> None:
            operator.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )

        disturb(SEED, 6, 0.2, drop)
    fleet.require_all_done(ledger)
    fleet.require_alive()
    assert {line.split()[0] for line in noted(fleet.errors)} <= {"store_unavailable", "commit_unknown"}


def test_a_submit_during_an_outage_is_an_error_and_succeeds_later_under_the_same_key(
    ledger: Ledger, pg_server: Server
) -> None:
    before = ledger.submit(COUNT, {"key": "before"}, client=CLIENT, key="before")
    pg_server.stop("immediate")
    for _ in range(3):
        with pytest.raises(StoreUnavailableError) as raised:
            ledger.submit(COUNT, {"key": "during"}, client=CLIENT, key="during")
        assert raised.value.code == "store_unavailable"
        assert raised.value.exit_code == 4
    with pytest.raises(StoreError):
        ledger.job(before.job_id)
    pg_server.start()
    during = ledger.submit(COUNT, {"key": "during"}, client=CLIENT, key="during")
    assert during.is_new
    assert not ledger.submit(COUNT, {"key": "before"}, client=CLIENT, key="before").is_new
    assert ledger.run_until_idle() == 2
    require_all_done(Facts(ledger), jobs=2)


def test_the_first_submit_after_a_restart_succeeds_whatever_the_pool_still_holds(
    ledger: Ledger, pg_server: Server
) -> None:
    # Several transactions at once leave several idle connections, all of which the restart kills.
    with ledger.store.transaction(), ledger.store.transaction(), ledger.store.transaction(), ledger.store.reading():
        pass
    pg_server.restart("immediate")
    assert ledger.submit(COUNT, {"key": "first"}, client=CLIENT, key="first").is_new


def test_opening_a_ledger_neither_waits_for_locks_nor_holds_any(ledger: Ledger, new_postgres_ledger: str) -> None:
    ledger.submit(COUNT, {"key": "held"}, client=CLIENT, key="held")
    with psycopg.connect(new_postgres_ledger) as other:
        other.execute("SELECT * FROM holdfast_jobs FOR UPDATE").fetchall()
        # Another transaction holds rows of the ledger; a worker that starts now must not mind.
        with Ledger(new_postgres_ledger) as second:
            assert [count.n for count in second.counts()] == [1]
