"""A worker of a limited ledger: its handler notes when it begins and when it ends, in one write each.

Invariants: the times are of the monotonic clock, which all processes of a machine share; what a killed process did not
note, it did not end.
"""

from __future__ import annotations

import os
import random
import signal
import time

from holdfast import Execution, Ledger, RetryPolicy, Strategy, Worker
from tests.support.roles import note

NO_DELAY = RetryPolicy(strategy=Strategy.IMMEDIATE, max_attempts=100, base_s=0)
LEASE_S = 4.0


def limited_ledger(url: str, limit: int, noted: str) -> Ledger:
    """Return a ledger whose operation `order` is limited for each customer."""
    ledger = Ledger(url)

    @ledger.operation("order", limit=limit, limit_key="customer.id", lease_s=LEASE_S, retry=NO_DELAY)
    def order(run: Execution, customer: dict[str, int]) -> None:
        note(noted, f"begin {os.getpid()} {customer['id']} {run.job.job_id} {time.monotonic()!r}")
        time.sleep(random.uniform(0.005, 0.02))
        note(noted, f"end {os.getpid()} {customer['id']} {run.job.job_id} {time.monotonic()!r}")

    return ledger


def work(url: str, *, limit: int, noted: str) -> None:
    """Work until SIGTERM."""
    with limited_ledger(url, limit, noted) as ledger:
        worker = Worker(ledger, concurrency=4, poll_s=0.2)
        signal.signal(signal.SIGTERM, lambda *_: worker.stop())
        worker.run()


def deep_ledger(url: str) -> Ledger:
    """Return a ledger with a quick operation `order`."""
    ledger = Ledger(url)

    @ledger.operation("order", lease_s=LEASE_S, retry=NO_DELAY)
    def order(run: Execution) -> None:
        time.sleep(0.002)

    return ledger


def submit_for_ever(url: str, *, client: str, noted: str) -> None:
    """Submit, and note each job after its submit has returned."""
    with deep_ledger(url) as ledger:
        for n in range(1_000_000):
            note(noted, f"{ledger.submit('order', client=client, key=str(n)).job_id}")


def work_deep(url: str) -> None:
    """Work until SIGTERM."""
    with deep_ledger(url) as ledger:
        worker = Worker(ledger, concurrency=4, poll_s=0.2)
        signal.signal(signal.SIGTERM, lambda *_: worker.stop())
        worker.run()
