"""The roles of a fork server's children: they submit jobs and work on them until they are stopped or killed.

Invariants: a key is noted, by one write to a file, only after its submit has returned; an effect is one row in a table
without a unique constraint, so that a repeated effect is visible; an unexpected error ends the child.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from holdfast import Execution, Ledger, RetryPolicy, Strategy, Worker
from holdfast.core.errors import StoreError

CLIENT = "crash"
COUNT = "count"
EFFECTS = "CREATE TABLE effects (job_id bigint NOT NULL, exec_id bigint NOT NULL, attempt integer NOT NULL)"
EFFECT = "INSERT INTO effects (job_id, exec_id, attempt) VALUES (:job_id, :exec_id, :attempt)"
NO_DELAY = RetryPolicy(strategy=Strategy.IMMEDIATE, max_attempts=100, base_s=0)


def counting_ledger(url: str, *, lease_s: float = 2.0, work_ms_max: float = 8.0) -> Ledger:
    """Return a ledger whose operation `count` takes a few milliseconds and stages one row."""
    ledger = Ledger(url)

    @ledger.operation(COUNT, lease_s=lease_s, retry=NO_DELAY)
    def count(run: Execution, key: str) -> dict[str, str]:
        time.sleep(random.uniform(0, work_ms_max) / 1000)
        stage_effect(run)
        return {"key": key}

    @ledger.operation("last", lease_s=lease_s, retry=NO_DELAY)
    def last(run: Execution, seconds: float) -> int:
        """Run for some time in small steps, and return the process id."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.01)
        stage_effect(run)
        return os.getpid()

    @ledger.operation("hang", lease_s=lease_s, retry=NO_DELAY)
    def hang(run: Execution, started: str) -> int:
        """Note that it runs; then hang in the first attempt, and return at once in later ones."""
        note(started, f"{os.getpid()} {run.attempt}")
        while run.attempt == 1:
            time.sleep(0.01)
        stage_effect(run)
        return os.getpid()

    return ledger


def stage_effect(run: Execution) -> None:
    run.effect(
        EFFECT,
        {"job_id": run.job.job_id, "exec_id": run.job.job_id * 1_000_000 + run.attempt, "attempt": run.attempt},
        rows=1,
    )


def create_effects(ledger: Ledger) -> None:
    """Create the table of effects in the ledger's own database."""
    with ledger.store.transaction() as transaction:
        ledger.store.execute(transaction.connection, EFFECTS)


def note(path: str | Path, line: str) -> None:
    """Append a line by one write, so that it survives the end of the process."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def noted(path: str | Path) -> list[str]:
    """Return the lines noted so far; a last line that a kill has cut short is left out."""
    try:
        text = Path(path).read_text()
    except FileNotFoundError:
        return []
    return text.split("\n")[:-1]


# ---------------------------------------------------------------------------------------------------------------------
# Roles


def work(
    url: str,
    *,
    lease_s: float = 2.0,
    work_ms_max: float = 8.0,
    concurrency: int = 4,
    drain_s: float = 30.0,
    poll_s: float = 0.2,
    notes: str | None = None,
) -> None:
    """Work until SIGTERM; a second SIGTERM stops without waiting for running jobs.

    `notes` gets the worker id, and `stopping` at each signal.
    """
    _log_to_stderr()
    ledger = counting_ledger(url, lease_s=lease_s, work_ms_max=work_ms_max)
    worker = Worker(ledger, concurrency=concurrency, drain_s=drain_s, poll_s=poll_s)
    signals: list[int] = []

    def stop(signum: int, _frame: object) -> None:
        worker.stop(at_once=bool(signals))
        signals.append(signum)
        if notes is not None:
            note(notes, "stopping")

    signal.signal(signal.SIGTERM, stop)
    if notes is not None:
        note(notes, worker.worker_id)
    worker.run()
    ledger.close()


def submit(
    url: str, *, keys: Sequence[str], acknowledged: str, errors: str | None = None, pause_ms_max: float = 0.0
) -> None:
    """Submit one job per key, again under the same key if the database is unreachable."""
    ledger = counting_ledger(url)
    for key in keys:
        _submit_until_taken(ledger, key, errors)
        note(acknowledged, key)
        time.sleep(random.uniform(0, pause_ms_max) / 1000)
    ledger.close()


def _submit_until_taken(ledger: Ledger, key: str, errors: str | None) -> None:
    while True:
        try:
            ledger.submit(COUNT, {"key": key}, client=CLIENT, key=key)
        except StoreError as error:
            if errors is None:
                raise
            note(errors, f"{error.code} {key}")
            time.sleep(0.02)
        else:
            return


def submit_and_work(url: str, *, name: str, threads: int, jobs: int, total: int, lease_s: float) -> None:
    """Submit `jobs` jobs from many threads while working, until `total` jobs of all processes have succeeded."""
    ledger = counting_ledger(url, lease_s=lease_s, work_ms_max=1.0)
    worker = Worker(ledger, concurrency=threads, poll_s=0.2)
    failures: list[BaseException] = []

    def submitter(mine: Iterable[int]) -> None:
        try:
            for n in mine:
                ledger.submit(COUNT, {"key": str(n)}, client=name, key=str(n))
        except BaseException as error:  # noqa: BLE001 - the process fails with it
            failures.append(error)

    def stop_when_done() -> None:
        for thread in submitters:
            thread.join()
        while not failures and succeeded(ledger) < total:
            time.sleep(0.05)
        worker.stop()

    submitters = [threading.Thread(target=submitter, args=(range(i, jobs, threads),)) for i in range(threads)]
    for thread in [*submitters, threading.Thread(target=stop_when_done)]:
        thread.start()
    worker.run()
    if failures:
        raise failures[0]
    ledger.close()


def succeeded(ledger: Ledger) -> int:
    """Return how many jobs have succeeded."""
    return sum(count.n for count in ledger.counts() if count.state == "succeeded")


def hold_write_lock(url: str, *, seconds: float, times: int, notes: str) -> None:
    """Hold the write lock of a SQLite file from outside Holdfast `times` times, as a shell or a backup does."""
    import sqlite3

    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=30)
    for _ in range(times):
        connection.execute("BEGIN IMMEDIATE")
        note(notes, "locked")
        time.sleep(seconds)
        connection.execute("ROLLBACK")
        time.sleep(seconds / 4)
    connection.close()


def _log_to_stderr() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(process)d %(asctime)s %(message)s", force=True)


def wait_until(holds: Any, timeout_s: float, what: str, say: Any = None) -> None:
    """Wait until `holds()`; after `timeout_s` fail with `what` and the text of `say()`."""
    began = time.monotonic()
    while not holds():
        waited = time.monotonic() - began
        if waited > timeout_s:
            raise AssertionError(f"after {timeout_s:g} s still not: {what}\n{say() if say else ''}")
        time.sleep(min(0.02 + waited / 20, 0.1))  # less often as time passes: each look costs CPU that others need
