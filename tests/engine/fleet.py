"""What the workers of an upgrade do: children of a fork server, each with the handlers of one release.

Invariants: an effect is one row, without any unique constraint, that says which job was done by a handler of which
version, so that a job that is done twice, or by a handler that does not speak its version, can be seen.
"""

from __future__ import annotations

import os
import random
import signal
import time

from holdfast import Execution, Ledger, Operations, RetryPolicy, Strategy, Worker
from holdfast.engine.worker import unsuccessful
from tests.support.roles import note

NAME = "ship"
DONE = "CREATE TABLE done (job_id bigint NOT NULL, requested text NOT NULL, handler text NOT NULL)"
EFFECT = "INSERT INTO done (job_id, requested, handler) VALUES (:job_id, :requested, :handler)"
NO_DELAY = RetryPolicy(strategy=Strategy.IMMEDIATE, max_attempts=100, base_s=0)


def handlers(*versions: str) -> Operations:
    """Return a release: one handler for each version, that says which one it is."""
    operations = Operations()

    def declare(version: str) -> None:
        @operations.operation(NAME, version=version, retry=NO_DELAY, lease_s=4.0)
        def ship(run: Execution, n: int) -> str:
            time.sleep(random.uniform(0, 0.004))
            requested = run.job.operation_version
            run.effect(EFFECT, {"job_id": run.job.job_id, "requested": requested, "handler": version}, rows=1)
            return version

    for version in versions:
        declare(version)
    return operations


def work(url: str, *, versions: list[str], notes: str) -> None:
    """Work with a release's handlers until SIGTERM; a job without a handler here is returned soon."""
    unsuccessful.HANDLER_MISSING_S = 0.05
    with Ledger(url, handlers(*versions)) as ledger:
        worker = Worker(ledger, concurrency=2, batch_max=2, poll_s=0.1)
        signal.signal(signal.SIGTERM, lambda *_: worker.stop())
        note(notes, f"{os.getpid()} {worker.worker_id}")
        worker.run()


def submit(url: str, *, versions: list[str], jobs: int, client: str) -> None:
    """Submit jobs by name, as a process with a release's handlers does."""
    with Ledger(url, handlers(*versions)) as ledger:
        for n in range(jobs):
            ledger.submit(NAME, {"n": n}, client=client, key=str(n))
            time.sleep(0.001)


# -- found by name in another process ---------------------------------------------------------------------------------

pair = Operations()


@pair.operation("pair", version="1.0.0")
def pair_old(run: Execution, n: int) -> list[object]:
    return ["old", n, os.getpid()]


@pair.operation("pair", version="2.0.0")
def pair_new(run: Execution, n: int, twice: bool = False) -> list[object]:
    return ["new", n, os.getpid()]
