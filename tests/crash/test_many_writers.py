"""Many threads of many processes submit to one SQLite ledger and work on it: no error, and everything is done once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support.forkserver import ForkServer, shared_server
from tests.support.promises import Facts, require_all_done, require_promises
from tests.support.roles import counting_ledger, create_effects

pytestmark = pytest.mark.attack("faults")


@pytest.fixture
def forks() -> Iterator[ForkServer]:
    with shared_server("tests.support.roles", "psycopg") as forks:
        yield forks


def crowd(forks: ForkServer, url: str, *, processes: int, threads: int, jobs: int) -> None:
    with counting_ledger(url) as ledger:
        create_effects(ledger)
        children = [
            forks.spawn(
                "tests.support.roles:submit_and_work",
                url=url,
                name=f"process-{n}",
                threads=threads,
                jobs=jobs // processes,
                total=jobs,
                lease_s=30.0,
            )
            for n in range(processes)
        ]
        # A child that meets any error, a locked database among them, ends with 1 and says why in the log.
        assert [child.wait(240) for child in children] == [0] * processes, forks.log
        facts = Facts(ledger)
        clients = {f"process-{n}" for n in range(processes)}
        require_promises(facts, acknowledged=[(c, str(n)) for c in clients for n in range(jobs // processes)])
        require_all_done(facts, jobs=jobs)
        # No process died, so no work was done again.
        assert Counter(job.attempts for job in facts.jobs.values()) == {1: jobs}
        with ledger.store.reading() as reading:
            workers = reading.lists.workers()
        assert len(workers) == processes
        assert all(worker.stopped_at is not None for worker in workers)


@pytest.mark.req("K-32", "M-06", "G-07")
def test_sixteen_threads_and_four_processes(forks: ForkServer, sqlite_url: str) -> None:
    crowd(forks, sqlite_url, processes=4, threads=16, jobs=4000)


@pytest.mark.slow
@pytest.mark.req("K-32", "M-06", "G-07")
def test_sixty_four_threads_and_eight_processes(forks: ForkServer, sqlite_url: str) -> None:
    crowd(forks, sqlite_url, processes=8, threads=64, jobs=16000)
