"""How long a worker needs at its start to recover the 100,000 jobs of a crashed worker.

Invariants: the jobs are real jobs that were interrupted; their leases have expired, and a tenth of them are past the
commit boundary; the time is from the start of a worker until it has recovered all of them and its own queue is empty; a
run stops if the number of recovered jobs is wrong.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from benchmarks.databases import fresh_database
from benchmarks.disk import SimulatedDisk
from benchmarks.peers._common import fsyncs
from holdfast import Ledger, Worker
from holdfast.core.commands import Commit
from holdfast.store import Lease

ROOT = Path(__file__).parents[1]
JOBS, JOBS_QUICK = 100_000, 100
ROUNDS, ROUNDS_QUICK = 3, 1
TARGET_S = 5.0
BATCH = 5_000
LEASE_S = 4.0  # enough to commit a batch; then the suite waits until the last lease has expired
NAMES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}

Figure = dict[str, float | str | int]


def run(databases: Sequence[str], *, quick: bool, path: Path) -> None:
    """Measure these databases, print the table, and write the figures as JSON."""
    figures = []
    with SimulatedDisk() as disk:
        for database in databases:
            with fresh_database(database, disk) as url:
                command = [sys.executable, "-m", "benchmarks.recovery_bench", database, url]
                command += ["--quick"] if quick else []
                done = subprocess.run(command, env=disk.env(), cwd=ROOT, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
            figures.append(json.loads(done.stdout))
    path.write_text(json.dumps({"machine": platform.platform(), "figures": figures}, indent=1) + "\n", encoding="utf-8")
    table = Table("database", "interrupted jobs", "seconds", "slowest", "fsyncs", "target", box=SIMPLE)
    for figure in figures:
        met = "met" if figure["seconds"] < TARGET_S else "FALLS SHORT"
        table.add_row(
            NAMES[figure["database"]],
            f"{figure['jobs']:,}",
            f"{figure['seconds']:.2f}",
            f"{figure['slowest_s']:.2f}",
            f"{figure['fsyncs']:g}",
            "" if quick else f"under {TARGET_S:g} s: {met}",
        )
    rounds = ROUNDS_QUICK if quick else ROUNDS
    Console(width=118).print(table, f"Recovery at a worker's start: medians of {rounds}, 1 ms a sync")


def measure(database: str, url: str, *, quick: bool) -> Figure:
    """Return the median of several recoveries in one ledger; the ledger grows from round to round."""
    jobs = JOBS_QUICK if quick else JOBS
    timings = [_round(url, jobs, f"round-{n}") for n in range(ROUNDS_QUICK if quick else ROUNDS)]
    return {
        "database": database,
        "jobs": jobs,
        "seconds": statistics.median(seconds for seconds, _ in timings),
        "slowest_s": max(seconds for seconds, _ in timings),
        "fsyncs": statistics.median(syncs for _, syncs in timings),
    }


def _round(url: str, jobs: int, queue: str) -> tuple[float, int]:
    with Ledger(url) as ledger:
        for _ in range(0, jobs, BATCH):
            ledger.submit_many([{"operation": "noop", "queue": queue}] * min(BATCH, jobs))
        interrupt(ledger, queue, jobs)
    time.sleep(LEASE_S + 0.1)
    with Ledger(url) as ledger:
        worker = Worker(ledger, queues=["empty"])
        synced, began = fsyncs(), time.perf_counter()
        worker.run(until_idle=True)
        seconds = time.perf_counter() - began
        synced = fsyncs() - synced
        assert worker.report is not None
        assert (worker.report.finished, worker.report.reopened) == (jobs // 10, jobs - jobs // 10), worker.report
    return seconds, synced


def interrupt(ledger: Ledger, queue: str, jobs: int) -> None:
    """Leave jobs as a crashed worker does: claimed, and a tenth of them past the commit boundary."""
    for begin in range(0, jobs, BATCH):
        n = min(BATCH, jobs - begin)
        with ledger.store.transaction() as transaction:
            attempts = transaction.executions.claim(Lease(owner="crashed", seconds=LEASE_S, n=n, queues=(queue,)))
        with ledger.store.transaction() as transaction:
            committed = [(attempt, Commit(attempt.execution.lease_token)) for attempt in attempts[: n // 10]]
            transaction.executions.move(committed, actor="crashed")


def _main() -> None:
    parser = argparse.ArgumentParser(description="Measure one database; the caller provides the simulated disk.")
    parser.add_argument("database", choices=NAMES)
    parser.add_argument("url")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    print(json.dumps(measure(args.database, args.url, quick=args.quick)))


if __name__ == "__main__":
    _main()
