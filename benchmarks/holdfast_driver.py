"""Drives Holdfast through its public API and its real worker, as the drivers of the peers drive theirs.

Invariants: journal, triggers and full durability are on, as always; the stopwatch measures only the work; a run stops
if its ledger does not contain exactly the expected jobs and effects.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from benchmarks.peers import _common as common
from holdfast import Execution, Ledger, Operations, Worker
from holdfast.core.machines import JobState

CONCURRENCY = 4
IDLE_WORKER = "--idle-worker"

operations = Operations()


@operations.operation("handle")
def handle(_run: Execution, /, **_payload: Any) -> None:
    """Do nothing."""


@operations.operation("handle-effect")
def handle_effect(run: Execution, /, **payload: Any) -> None:
    """Stage one row."""
    run.effect("INSERT INTO effects VALUES (:job, :amount)", {"job": payload["order"], "amount": payload["amount"]})


@operations.operation("report-start")
def report_start(_run: Execution, /, **_payload: Any) -> None:
    """Print the time at which the handler started."""
    sys.stdout.write(f"{time.monotonic_ns()}\n")
    sys.stdout.flush()


@contextmanager
def scratch(url: str) -> Iterator[str]:
    """Yield the URL of a new database next to the one that the URL names."""
    if not url.startswith("postgres"):
        with common.scratch_file(url, "ledger.db") as path:
            yield str(path)
        return
    name, scratch_url = common.scratch_database(url)
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(f'CREATE DATABASE "{name}"')
        try:
            yield scratch_url
        finally:
            server.execute(f'DROP DATABASE "{name}" (FORCE)')


def succeeded(ledger: Ledger) -> int:
    return sum(count.n for count in ledger.counts() if count.state is JobState.SUCCEEDED)


def drain(base: str, n: int, *, effect: bool) -> dict[str, Any]:
    name = "handle-effect" if effect else "handle"
    with scratch(base) as url, Ledger(url, operations) as ledger:
        with ledger.store.transaction() as transaction:
            transaction.execute(common.EFFECTS_TABLE)
        for begin in range(0, n, common.BULK_CHUNK):
            call = {"operation": name, "payload": common.PAYLOAD}
            ledger.submit_many([call] * min(common.BULK_CHUNK, n - begin))
        if url.startswith("postgres"):
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("VACUUM ANALYZE")
        worker = Worker(ledger, concurrency=CONCURRENCY)
        watch = common.Stopwatch()
        watch.start()
        worker.run(until_idle=True)
        watch.stop()
        with ledger.store.reading() as reading:
            [[effects]] = reading.execute("SELECT count(*) FROM effects")
        if succeeded(ledger) != n or effects != (n if effect else 0):
            raise SystemExit(f"{succeeded(ledger)} succeeded and {effects} effects of {n} jobs")
    return {"setting": f"threads={CONCURRENCY}", "concurrency": CONCURRENCY, **watch.figures(n)}


def submit(base: str, n: int, callers: int) -> dict[str, Any]:
    with scratch(base) as url, Ledger(url, operations) as ledger:
        ledger.submit("handle", common.PAYLOAD)  # opens the ledger
        figures: dict[str, Any] = common.by_threads(n, callers, lambda: ledger.submit("handle", common.PAYLOAD))
        if sum(count.n for count in ledger.counts()) != n + 1:
            raise SystemExit("lost submissions")
    return figures


def bulk(base: str, n: int) -> dict[str, Any]:
    with scratch(base) as url, Ledger(url, operations) as ledger:
        ledger.submit("handle", common.PAYLOAD)
        watch = common.Stopwatch()
        watch.start()
        for begin in range(0, n, common.BULK_CHUNK):
            call = {"operation": "handle", "payload": common.PAYLOAD}
            ledger.submit_many([call] * min(common.BULK_CHUNK, n - begin))
        watch.stop()
    return {"setting": f"{common.BULK_CHUNK} a call", **watch.figures(n)}


def idle(base: str, n: int) -> dict[str, Any]:
    with scratch(base) as url, Ledger(url, operations) as ledger:
        ledger.submit("noop")
        ledger.run_until_idle()

        async def submit_one() -> None:
            ledger.submit("report-start", common.PAYLOAD)

        command = [sys.executable, "-m", "benchmarks.holdfast_driver", IDLE_WORKER, url]
        figures: dict[str, Any] = asyncio.run(common.sample_idle("holdfast", url, n, submit_one, command))
    return figures


def idle_worker(url: str) -> None:
    """Run a worker until the sampler closes its standard input."""
    worker = Worker(Ledger(url, operations), concurrency=1)
    threading.Thread(target=_stop_at_the_end_of_input, args=(worker,), daemon=True).start()
    worker.run()


def _stop_at_the_end_of_input(worker: Worker) -> None:
    sys.stdin.read()
    worker.stop()


def durability(url: str) -> str:
    if url.startswith("postgres"):
        return "logged tables, synchronous_commit=on"
    return f"WAL, synchronous=FULL, SQLite {sqlite3.sqlite_version}"


def main() -> None:
    if sys.argv[1:2] == [IDLE_WORKER]:
        idle_worker(sys.argv[2])
        return
    args: argparse.Namespace = common.arguments()
    match args.scenario:
        case "submit":
            figures = submit(args.url, args.n, args.callers)
        case "bulk":
            figures = bulk(args.url, args.n)
        case "idle":
            figures = idle(args.url, args.n)
        case scenario:
            figures = drain(args.url, args.n, effect=scenario == "drain-effect")
    common.report("holdfast", args, durability(args.url), figures)


if __name__ == "__main__":
    main()
