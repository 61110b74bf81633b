"""A page of jobs costs the same in a large ledger: the database reads little more than the rows of the page."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast import Execution, Ledger
from holdfast.store.postgres.idioms import pyformat
from holdfast.store.statements import statements

ENDED, WAITING, PAGE = 4_000, 200, 10
MIDDLE = ENDED // 2
ANY: dict[str, Any] = dict.fromkeys(
    ("state", "operation", "queue", "client", "before", "code", "but", "until", "queues", "operations")
)
PAGES: dict[str, dict[str, Any]] = {
    "list_jobs": {"before": MIDDLE},
    "list_waiting_jobs": {"state": "pending"},
    "list_running_jobs": {"state": "running"},
    "list_resting_jobs": {"state": "failed", "before": MIDDLE},
    "list_quarantined": {"state": "failed", "before": MIDDLE, "slimmed": True},
    "quarantined_facts": {"state": "failed", "after": MIDDLE},
    "resting_jobs_after": {"state": "failed", "job_id": MIDDLE},
    "jobs_after": {"state": "succeeded", "job_id": MIDDLE},
    "slimmable_jobs": {"states": '["succeeded"]', "after": MIDDLE, "before": "9999-01-01"},
    "jobs_to_check": {"after": MIDDLE},
    "job_lines": {"before": MIDDLE, "after": 0, "window": PAGE},
    "resting_lines": {"state": "failed", "before": MIDDLE, "after": 0, "window": PAGE},
    "waiting_lines": {"state": "pending", "before": ENDED, "after": 0},
    "running_lines": {"state": "running", "before": ENDED, "after": 0},
}
# Of a page of ten: SQLite's virtual machine takes a few dozen steps a row, and a scan of the ledger 20,000 at least.
ROWS_MAX, STEPS_MAX = WAITING * 2, 12_000


def test_a_page_of_a_large_ledger_reads_few_rows(ledger_url: str) -> None:
    """The jobs that wait are the oldest ones: a walk from the newest job meets every job that has ended."""
    with Ledger(ledger_url) as ledger:

        @ledger.operation("work", max_attempts=1)
        def work(_run: Execution, fails: bool) -> None:
            if fails:
                raise ValueError("this job fails on purpose")

        later = datetime.now(UTC) + timedelta(days=365)
        ledger.submit_many([{"operation": "work", "payload": {"fails": False}, "run_at": later}] * WAITING)
        ledger.submit_many([work.call(fails=number % 10 == 0) for number in range(ENDED)])
        ledger.run_until_idle(concurrency=2)
        with ledger.store.transaction() as transaction:
            transaction.execute("ANALYZE")
        measure, most = (_steps, STEPS_MAX) if ledger.store.dialect == "sqlite" else (_rows, ROWS_MAX)
        costs = {name: measure(ledger, name, {**ANY, "n": PAGE, **params}) for name, params in PAGES.items()}
        assert {name: cost for name, cost in costs.items() if cost > most} == {}


def _steps(ledger: Ledger, name: str, params: dict[str, Any]) -> int:
    """Return how many steps SQLite's virtual machine takes, to the next hundred."""
    hundreds = [0]

    def count() -> int:
        hundreds[0] += 1
        return 0

    with ledger.store.reading() as reading:
        reading.connection.set_progress_handler(count, 100)
        try:
            for sql in statements("sqlite")[name]:
                reading.connection.execute(sql, params).fetchall()
        finally:
            reading.connection.set_progress_handler(None, 0)
    return hundreds[0] * 100


def _rows(ledger: Ledger, name: str, params: dict[str, Any]) -> int:
    """Return how many rows the busiest part of PostgreSQL's plan has read."""
    [sql] = statements("postgres")[name]
    with ledger.store.reading() as reading:
        explain = f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) {pyformat(sql)}"
        [[[plan]]] = reading.connection.execute(explain, params).fetchall()
    return max(_of_each_node(plan["Plan"]))


def _of_each_node(node: dict[str, Any]) -> Iterator[int]:
    read = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
    yield int(read * node["Actual Loops"])
    for child in node.get("Plans", ()):
        yield from _of_each_node(child)
