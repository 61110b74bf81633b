"""A worker in a process of its own, whose handlers hang, die or work: `python -m tests.engine.rulings_worker URL`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from holdfast import Execution, Ledger, Operations, RetryPolicy, Strategy, Worker

operations = Operations()
AT_ONCE = RetryPolicy(strategy=Strategy.IMMEDIATE, max_attempts=3, base_s=0)


@operations.operation("hang", lease_s=3.0, retry=AT_ONCE, max_attempts=3)
def hang(run: Execution, until: str) -> str:
    """Run until a file exists, whatever is requested."""
    while not Path(until).exists():
        time.sleep(0.02)
    return run.job.operation


@operations.operation("poison", lease_s=3.0, retry=AT_ONCE, max_attempts=3)
def poison(run: Execution, before: str) -> None:
    """End the process, once the neighbours have started."""
    Path(before).write_text(str(os.getpid()))
    time.sleep(0.2)
    os._exit(3)


@operations.operation("neighbour", lease_s=3.0, retry=AT_ONCE, max_attempts=3)
def neighbour(run: Execution, n: int) -> int:
    """Take a while, so that the poison finds it running."""
    time.sleep(0.5)
    return n


@operations.operation("alone", lease_s=3.0, max_attempts=1)
async def alone(run: Execution, *, dies: bool) -> int:
    """Use all of an execution, from an event loop, and return the process; or end it."""
    await asyncio.sleep(0)
    if dies:
        os._exit(3)
    kept = run.checkpoint("kept", lambda: 7)
    run.progress(0.5, "half")
    run.effect("INSERT INTO things VALUES (:n)", {"n": kept}, rows=1)
    run.after_commit(neighbour.call(n=kept))
    return os.getpid()


def main() -> None:
    """Work until SIGTERM."""
    with Ledger(sys.argv[1], operations) as ledger:
        worker = Worker(ledger, concurrency=4, poll_s=0.1, drain_s=0.2)
        signal.signal(signal.SIGTERM, lambda *_: worker.stop(at_once=True))
        print("ready", flush=True)
        worker.run()


if __name__ == "__main__":
    main()
