"""A check needs the memory of one page, and a time that grows no faster than the ledger."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import pytest

from holdfast.audit.check.runner import check
from holdfast.core.commands import Complete, Fail
from holdfast.store import Lease, Store, Submission, create_store
from holdfast.testing import VirtualClock


def grow(store: Store[Any], clock: VirtualClock, first: int, last: int) -> None:
    """Add jobs that succeeded, half of them at their second attempt."""
    with store.transaction() as transaction:
        transaction.jobs.submit(
            [Submission(operation="noop", payload=f"[{n}]", key=str(n)) for n in range(first, last)]
        )
    while True:
        with store.transaction() as transaction:
            attempts = transaction.executions.claim(Lease(owner="worker", seconds=60, n=1000))
            moves: list[tuple[Any, object]] = []
            for attempt in attempts:
                token, again = attempt.execution.lease_token, attempt.job.job_id % 2 and attempt.job.attempts == 1
                failure = Fail(token, "boom", "it broke", retry_at=clock())
                moves.append((attempt, failure if again else Complete(token, "[1]")))
            transaction.executions.move(moves, actor="worker")
        if not attempts:
            return


def peak_bytes(store: Store[Any], batch: int) -> int:
    tracemalloc.start()
    try:
        assert check(store, batch=batch).violations == ()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("page", [40, pytest.param(100, marks=pytest.mark.slow)])
def test_memory_does_not_grow_with_the_ledger(ledger_url: str, page: int) -> None:
    clock = VirtualClock()
    with create_store(ledger_url, clock) as store:
        grow(store, clock, 0, 3 * page)
        check(store, batch=10)  # fills the caches and prepares the statements
        small = peak_bytes(store, page)
        grow(store, clock, 3 * page, 12 * page)
        large = peak_bytes(store, page)
    assert large < small * 1.5, f"{small} bytes for {3 * page} jobs, {large} for {12 * page}"


@pytest.mark.slow
def test_twenty_thousand_jobs_in_seconds(ledger_url: str) -> None:
    clock = VirtualClock()
    with create_store(ledger_url, clock) as store:
        for first in range(0, 20_000, 1000):
            grow(store, clock, first, first + 1000)
        began = time.process_time()
        report = check(store)
        took_s = time.process_time() - began
    assert report.violations == ()
    assert report.checked == {"jobs": 20_000, "executions": 30_000, "journal": 80_000}
    print(f"{took_s:.1f} s of this process's time")
    assert took_s < 15  # a few seconds on a machine of its own
