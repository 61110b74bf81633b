"""A worker process of its own. The one called A stops itself, by SIGSTOP, in the middle of its first attempt.

Invariants: it stops while none of its threads is inside a transaction, so that it holds no lock of the database; what
its worker logs is printed; SIGTERM ends it gracefully.

Usage: python -m tests.engine.stalling_child URL NAME
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast import Execution, Ledger, Worker
from holdfast.store import Transaction

LEASE_S = 1.0


def main(url: str, name: str) -> None:
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    ledger = Ledger(url)
    quiet = threading.Lock()
    begin = ledger.store.transaction

    @contextmanager
    def transaction() -> Iterator[Transaction]:
        with quiet, begin() as begun:
            yield begun

    ledger.store.transaction = transaction  # type: ignore[method-assign]

    @ledger.operation("charge", lease_s=LEASE_S)
    def charge(run: Execution, order: int) -> dict[str, int]:
        print(f"working on attempt {run.attempt}", flush=True)
        if name == "A":
            with quiet:
                os.kill(os.getpid(), signal.SIGSTOP)
        run.effect(
            "INSERT INTO effects (job_id, exec_id) VALUES (:job_id, :exec_id)",
            {"job_id": run.job.job_id, "exec_id": run.job.job_id * 1_000_000 + run.attempt},
        )
        return {"order": order, "exec_id": run.job.job_id * 1_000_000 + run.attempt}

    worker = Worker(ledger, concurrency=1, poll_s=0.1)
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    print("ready", flush=True)
    worker.run()
    ledger.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
