"""kill -9 of workers and submitters at random moments: nothing acknowledged is lost, no effect happens twice."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast import Ledger
from holdfast.core.machines import JobState
from tests.support.forkserver import Child, ForkServer, shared_server
from tests.support.promises import Facts, require_all_done, require_promises
from tests.support.roles import CLIENT, counting_ledger, create_effects, noted, succeeded, wait_until

pytestmark = pytest.mark.attack("faults")

SEED = 20261115
LEASE_S = 2.0
WORKERS = 3
BUSY = {"lease_s": LEASE_S, "work_ms_max": 60, "concurrency": 2}  # busy until the last kill with 35 jobs a kill
SUBMITTERS = 2


@pytest.fixture
def server() -> Iterator[ForkServer]:
    with shared_server("tests.support.roles", "psycopg") as server:
        yield server


class Crowd:
    """Workers and submitters that are killed and replaced."""

    def __init__(self, server: ForkServer, url: str, acknowledged: Path, jobs: int, pause_ms_max: float) -> None:
        self._server = server
        self._url = url
        self._acknowledged = acknowledged
        self._pause_ms_max = pause_ms_max
        self._keys = [[f"{part}-{n}" for n in range(jobs // SUBMITTERS)] for part in range(SUBMITTERS)]
        self.workers = [self._worker() for _ in range(WORKERS)]
        self.submitters = [self._submitter(part) for part in range(SUBMITTERS)]

    def interrupt(self, ledger: Ledger) -> None:
        """Kill all workers at once until a job is left running: a kill has interrupted it, whatever the load."""
        left = 0
        while not left:
            wait_until(lambda: running(ledger), 60, "a job runs", lambda: self._server.log[-4000:])
            assert [worker.kill() for worker in self.workers] == [-9] * WORKERS, self._server.log
            left = running(ledger)
            self.workers = [self._worker() for _ in range(WORKERS)]

    def kill_worker(self, chance: random.Random) -> int:
        n = chance.randrange(WORKERS)
        status = self.workers[n].kill()
        self.workers[n] = self._worker()
        return status

    def kill_submitter(self, chance: random.Random) -> None:
        n = chance.randrange(SUBMITTERS)
        self.submitters[n].kill()
        self.submitters[n] = self._submitter(n)

    def _worker(self) -> Child:
        return self._server.spawn("tests.support.roles:work", url=self._url, **BUSY)

    def _submitter(self, part: int) -> Child:
        # What was not acknowledged may have been recorded: it is submitted again under the same key.
        known = set(noted(self._acknowledged))
        return self._server.spawn(
            "tests.support.roles:submit",
            url=self._url,
            keys=[key for key in self._keys[part] if key not in known],
            acknowledged=str(self._acknowledged),
            pause_ms_max=self._pause_ms_max,
        )


def running(ledger: Ledger) -> int:
    return sum(count.n for count in ledger.counts() if count.state is JobState.RUNNING)


@contextmanager
def seeded(seed: int) -> Iterator[random.Random]:
    """Give randomness, and print its seed when the block fails."""
    try:
        yield random.Random(seed)
    except BaseException:
        print(f"seed {seed}")
        raise


def kill_and_check(server: ForkServer, url: str, directory: Path, *, jobs: int, kills: int, seed: int) -> None:
    acknowledged = directory / "acknowledged"
    pauses_s = 0.2  # the mean between two kills
    with seeded(seed) as chance, counting_ledger(url, lease_s=LEASE_S) as ledger:
        create_effects(ledger)
        pause_ms_max = 2000 * pauses_s * kills * SUBMITTERS / jobs * 0.5
        crowd = Crowd(server, url, acknowledged, jobs, pause_ms_max)
        crowd.interrupt(ledger)
        for kill in range(kills):
            time.sleep(chance.uniform(0, 2 * pauses_s))
            status = crowd.kill_worker(chance)
            assert status == -9, f"a worker ended by itself with {status}\n{server.log}"
            if kill % 5 == 4:
                crowd.kill_submitter(chance)
        wait_until(
            lambda: succeeded(ledger) == jobs,
            60,
            f"all {jobs} jobs succeeded",
            lambda: f"{ledger.counts()}\n{len(noted(acknowledged))} acknowledged\n{server.log[-4000:]}",
        )
        for submitter in crowd.submitters:
            assert submitter.wait(30) == 0, server.log
        for worker in crowd.workers:
            assert worker.running, server.log
            worker.signal(15)
        for worker in crowd.workers:
            assert worker.wait(30) == 0, server.log
        facts = Facts(ledger)
        require_promises(facts, acknowledged=[(CLIENT, key) for key in noted(acknowledged)])
        require_all_done(facts, jobs=jobs)
        assert len(noted(acknowledged)) == jobs
        # Kills that interrupted nothing would show nothing.
        ends = Counter(e.error_code for rows in facts.executions.values() for e in rows)
        print(f"{kills} kills interrupted {ends['lease_expired']} attempts")
        assert ends["lease_expired"] >= max(1, kills // 10), f"only {ends} after {kills} kills"
        assert ends.keys() <= {None, "lease_expired"}


@pytest.mark.req("M-08", "M-09", "M-11", "M-21", "G-13", "G-22")
def test_eight_kills_lose_nothing_and_repeat_no_effect(server: ForkServer, ledger_url: str, tmp_path: Path) -> None:
    kill_and_check(server, ledger_url, tmp_path, jobs=280, kills=8, seed=SEED)


@pytest.mark.slow
@pytest.mark.req("M-08", "M-09", "M-11", "M-21", "G-13", "G-22")
def test_two_hundred_kills_lose_nothing_and_repeat_no_effect(
    server: ForkServer, ledger_url: str, tmp_path: Path
) -> None:
    kill_and_check(server, ledger_url, tmp_path, jobs=7000, kills=200, seed=SEED + 1)
