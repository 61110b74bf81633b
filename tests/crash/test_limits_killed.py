"""Limits while workers are killed: never exceeded, and afterwards every slot is free and every job done."""

from __future__ import annotations

import random
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.machines import JobState
from tests.crash.limit_run import limited_ledger
from tests.support.forkserver import Child, ForkServer, shared_server

pytestmark = pytest.mark.attack("faults")

JOBS, CUSTOMERS, WORKERS, PATIENCE_S = 120, 6, 4, 60.0


@pytest.fixture
def forks() -> Iterator[ForkServer]:
    with shared_server("tests.crash.limit_run") as forks:
        yield forks


def most_at_once(noted: Path, killed: dict[int, float]) -> dict[str, int]:
    """Return how many jobs of each customer ran at the same time; a killed process ran until it was killed."""
    moves: dict[str, list[tuple[float, int]]] = defaultdict(list)
    begun: dict[tuple[str, str], str] = {}
    for line in noted.read_text().splitlines():
        what, pid, customer, job_id, at = line.split()
        moves[customer].append((float(at), 1 if what == "begin" else -1))
        if what == "begin":
            begun[pid, job_id] = customer
        else:
            del begun[pid, job_id]
    for (pid, _), customer in begun.items():
        moves[customer].append((killed[int(pid)], -1))
    found = {}
    for customer, changes in moves.items():
        now = most = 0
        for _, change in sorted(changes):
            now += change
            most = max(most, now)
        assert now == 0
        found[customer] = most
    return found


def test_a_limit_holds_while_workers_are_killed(forks: ForkServer, ledger_url: str, tmp_path: Path) -> None:
    noted, limit = tmp_path / "noted", 2
    killed: dict[int, float] = {}
    chance = random.Random()

    def spawn() -> Child:
        return forks.spawn("tests.crash.limit_run:work", url=ledger_url, limit=limit, noted=str(noted))

    with limited_ledger(ledger_url, limit, str(noted)) as ledger:
        ledger.submit_many(
            [ledger.operations.get("order").call({"id": n % CUSTOMERS}) for n in range(JOBS)]  # type: ignore[union-attr]
        )
        workers = [spawn() for _ in range(WORKERS)]
        until = time.monotonic() + PATIENCE_S
        kills = 1
        while True:
            counts = {count.state: count.n for count in ledger.counts() if count.operation == "order"}
            done = counts.get(JobState.SUCCEEDED, 0)
            if done == JOBS:
                break
            assert time.monotonic() < until, (counts, forks.log)
            if kills and done >= JOBS // 10 and counts.get(JobState.RUNNING):
                for child in chance.sample(workers, 2):
                    workers.remove(child)
                    child.signal(signal.SIGKILL)
                    child.wait(10)
                    killed[child.pid] = time.monotonic()
                    workers.append(spawn())
                kills -= 1
            time.sleep(0.02)
        for child in workers:
            child.signal(signal.SIGTERM)
        assert [child.wait(20) for child in workers] == [0] * WORKERS, forks.log
        with ledger.store.reading() as reading:
            assert (reading.limits.held(), reading.limits.waiting()) == ([], [])
    assert kills == 0
    found = most_at_once(noted, killed)
    assert set(found) == {str(n) for n in range(CUSTOMERS)}
    assert all(1 <= most <= limit for most in found.values()), found
