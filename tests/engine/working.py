"""Real workers on a real clock for tests: one that drains, one in a thread of its own.

Invariants: a worker that a test started has ended when its block ends, and what it raised is raised there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast import Ledger, Worker
from holdfast.core.records import Job

PATIENCE_S = 30.0


def drained(ledger: Ledger, **options: Any) -> Worker:
    """Work until nothing is due; return the worker that did."""
    worker = Worker(ledger, **{"concurrency": 1, "poll_s": 0.05, **options})
    worker.run(until_idle=True)
    return worker


@contextmanager
def working(ledger: Ledger, **options: Any) -> Iterator[Worker]:
    """Yield a worker that runs in a thread until it ends or the block does."""
    worker = Worker(ledger, **{"concurrency": 1, "poll_s": 0.05, "drain_s": 0.0, **options})
    with threaded(worker.run):
        try:
            yield worker
        finally:
            worker.stop(at_once=True)


@contextmanager
def threaded(run: Callable[[], object]) -> Iterator[threading.Thread]:
    failures: list[BaseException] = []

    def target() -> None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - raised again below
            failures.append(error)

    thread = threading.Thread(target=target, name="test-worker", daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "the worker did not end"
    if failures:
        raise failures[0]


def eventually(truth: Callable[[], Any], what: str = "it") -> Any:
    """Return the first true answer; fail if there is none in time."""
    began = time.monotonic()
    while not (answer := truth()):
        waited = time.monotonic() - began
        assert waited < PATIENCE_S, f"{what} did not happen"
        time.sleep(min(0.005 + waited / 20, 0.05))  # less often as time passes: each look costs CPU that others need
    return answer


def ended(job: Job) -> tuple[str, str | None, str | None]:
    """Return the state of a job, and the code and message of its last error."""
    return job.state.value, job.last_error_code, job.last_error_message


def excuses(ledger: Ledger, job_id: int) -> list[str | None]:
    """Return the reason of each excused attempt of a job."""
    with ledger.store.reading() as reading:
        return [execution.error_code for execution in reading.lists.executions(job_id) if execution.excused]
