"""A worker over many jobs: its memory, tenth by tenth; and how the suite of size fills its ledgers, by real work.

Invariants: jobs are submitted and run through the public API, the worker in a process of its own; the submitter waits
while many jobs are pending, as a caller under back-pressure would; a run stops if the ledger's counts are not exactly
those of the submitted jobs.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.peers._common import PAYLOAD, rss_mb
from holdfast import Execution, Ledger, Operations, Worker
from holdfast.core.machines import JobState

ROOT = Path(__file__).parents[1]
JOBS, JOBS_QUICK = 1_000_000, 500
PENDING_MAX = 20_000
CHUNK = 2_000
CONCURRENCY = 4
GIVE_UP_S = 60.0  # without any progress
MEMORY_MB = 60.0
FLAT = 1.1  # the last tenth over the third
OPEN = (JobState.PENDING, JobState.RUNNING)

operations = Operations()


@operations.operation("work", max_attempts=1)
def work(_run: Execution, /, *, fails: bool = False, **_payload: Any) -> None:
    """Do nothing, or fail."""
    if fails:
        raise RuntimeError("this job fails on purpose")


def calls(n: int, *, fail_every: int = 0) -> list[dict[str, Any]]:
    good = {"operation": "work", "payload": PAYLOAD}
    bad = {"operation": "work", "payload": {**PAYLOAD, "fails": True}}
    return [bad if fail_every and i % fail_every == 0 else good for i in range(n)]


@contextmanager
def worker_process(url: str) -> Iterator[int]:
    """Yield the process id of a worker of this ledger."""
    command = [sys.executable, "-m", "benchmarks.soak", url]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def unfinished(ledger: Ledger) -> int:
    return sum(count.n for count in ledger.counts() if count.state in OPEN)


def feed(ledger: Ledger, url: str, n: int, *, fail_every: int = 0, steps: int = 10) -> tuple[list[float], float]:
    """Submit `n` jobs and let one worker run them; return its memory after each step in MB, and jobs a second."""
    rest = unfinished(ledger)  # what is there already does not end
    memory: list[float] = []
    submitted, progress_at = 0, time.monotonic()
    began = progress_at
    with worker_process(url) as pid:
        while len(memory) < steps:
            pending = unfinished(ledger) - rest
            done = submitted - pending
            if done >= n * (len(memory) + 1) // steps:
                memory.append(round(rss_mb(pid), 1))
                progress_at = time.monotonic()
            elif submitted < n and pending < PENDING_MAX:
                ledger.submit_many(calls(min(CHUNK, n - submitted), fail_every=fail_every))
                submitted += min(CHUNK, n - submitted)
            elif time.monotonic() - progress_at > GIVE_UP_S + n / 1000:
                raise SystemExit(f"{done} of {submitted} submitted jobs ended, and no more")
            else:
                time.sleep(0.01)
        seconds = time.monotonic() - began
    return memory, n / seconds


def run(databases: Sequence[str], *, quick: bool, path: Path) -> None:
    """Measure a worker's memory on these databases, print it, and write the figures as JSON."""
    # Here, because the worker's process imports this module too, and its memory is what is measured.
    from rich.box import SIMPLE  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from benchmarks.databases import fresh_database  # noqa: PLC0415
    from benchmarks.disk import SimulatedDisk  # noqa: PLC0415

    jobs = JOBS_QUICK if quick else JOBS
    figures: list[dict[str, Any]] = []
    with SimulatedDisk() as disk:
        for database in databases:
            with fresh_database(database, disk) as url, Ledger(url, operations) as ledger:
                memory, rate = feed(ledger, url, jobs)
                total = sum(count.n for count in ledger.counts() if count.state is JobState.SUCCEEDED)
                if total != jobs:
                    raise SystemExit(f"{total} of {jobs} jobs succeeded")
            flat = memory[-1] / memory[2]
            figures.append(
                {
                    "database": database, "jobs": jobs, "rss_mb": memory, "per_second": round(rate), "flat": flat,
                    "met": flat <= FLAT and memory[-1] <= MEMORY_MB,
                }
            )  # fmt: skip
    result = {"suite": "memory", "quick": quick, "machine": platform.platform(), "limit_mb": MEMORY_MB}
    path.write_text(json.dumps(result | {"figures": figures}, indent=1) + "\n", encoding="utf-8")
    table = Table("database", "jobs", "MB after each tenth", f"≤ {MEMORY_MB:g} MB and flat", box=SIMPLE)
    for figure in figures:
        tenths = " ".join(f"{value:g}" for value in figure["rss_mb"])
        table.add_row(figure["database"], f"{figure['jobs']:,}", tenths, "met" if figure["met"] else "MISSED")
    Console(width=118).print(table)


def _work(url: str) -> None:
    """Run a worker until the process that started it ends."""

    def end() -> None:
        while os.read(0, 1):
            pass
        os._exit(0)

    threading.Thread(target=end, daemon=True).start()
    Worker(Ledger(url, operations), concurrency=CONCURRENCY).run()


if __name__ == "__main__":
    _work(sys.argv[1])
