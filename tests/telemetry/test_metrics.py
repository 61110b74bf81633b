"""The metrics of a ledger: each name and label is of the table, and each is counted when it happens."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

from holdfast import Execution, Ledger, RetryPolicy
from holdfast.core.errors import BrokenError
from holdfast.core.instruments import Instrument, InstrumentKind
from holdfast.engine.events import Transition
from holdfast.engine.worker.reaper import recover
from holdfast.engine.worker.signals import Quarantine
from holdfast.store import Lease
from holdfast.telemetry import Telemetry
from holdfast.telemetry.metrics import LEDGER, PREFIX, STATE
from holdfast.telemetry.reporter import LedgerReporter

# The list that dashboards and alerts rely on: name, labels.
LISTED = {
    "jobs": "operation queue state",
    "queue.depth": "queue",
    "queue.age": "queue",
    "queue.paused": "queue",
    "queue.workers": "queue",
    "workers": "",
    "worker.slots": "",
    "leases": "status",
    "seal.lag": "",
    "seal.unsealed": "",
    "job.transitions": "operation queue event source target",
    "job.time_in_state": "operation state",
    "job.attempts": "operation outcome",
    "lease.losses": "operation queue",
    "commit.batch": "",
    "commit.fsyncs": "",
    "telemetry.lost": "",
}


class Scope:
    """A ledger's telemetry, read back."""

    def __init__(self, ledger: Ledger) -> None:
        self.reader = InMemoryMetricReader()
        self.sink = Telemetry(MeterProvider([self.reader]), TracerProvider())
        self.reporter = LedgerReporter(self.sink, ledger.store)
        self.reporter.follow(ledger.bus)

    def points(self) -> dict[tuple[str, ...], tuple[int, float]]:
        """Of each metric and its labels: how many values, and their sum."""
        data: Any = self.reader.get_metrics_data()
        return {
            (
                metric.name.removeprefix(PREFIX),
                *(f"{name}={value}" for name, value in sorted(point.attributes.items())),
            ): ((point.count, point.sum) if hasattr(point, "sum") else (1, point.value))
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.data.data_points
        }


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    with Ledger(ledger_url) as opened:
        yield opened


def test_the_names_and_labels_are_those_of_the_list() -> None:
    assert {name: " ".join(row.labels) for name, row in LEDGER.items()} == LISTED


def test_the_page_has_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs/telemetry.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith(f"| `{PREFIX}")]
    assert rows == [
        f"| `{PREFIX}{row.name}` | {row.kind} | {', '.join(row.labels)} | {row.unit} | {row.description} |"
        for row in LEDGER.values()
    ]


def test_transitions_of_jobs_are_counted(ledger: Ledger) -> None:
    scope = Scope(ledger)

    @ledger.operation("good", queue="mail")
    def good(run: Execution) -> int:
        return 1

    @ledger.operation("bad", retry=RetryPolicy(max_attempts=2, base_s=0))
    def bad(run: Execution) -> None:
        raise OSError

    @ledger.operation("poison")
    def poison(run: Execution) -> None:
        raise Quarantine("poison")

    for call in (good.call(), bad.call(), poison.call()):
        ledger.submit(call)
    ledger.run_until_idle()
    scope.reporter.close()
    points: Any = scope.points()

    def moved(operation: str, queue: str, event: str, source: str, target: str) -> Any:
        labels = (f"event={event}", f"operation={operation}", f"queue={queue}", f"source={source}", f"target={target}")
        return points["job.transitions", *labels][1]

    assert moved("good", "mail", "submit", "", "pending") == 1
    assert moved("good", "mail", "claim", "pending", "running") == 1
    assert moved("good", "mail", "succeed", "running", "succeeded") == 1
    assert moved("bad", "default", "retry", "running", "pending") == 1
    assert moved("bad", "default", "fail", "running", "failed") == 1
    assert moved("poison", "default", "quarantine", "running", "quarantined") == 1
    assert {key[1:]: value for key, value in points.items() if key[0] == "job.attempts"} == {
        ("operation=good", "outcome=succeeded"): (1, 1),
        ("operation=bad", "outcome=failed"): (1, 2),
        ("operation=poison", "outcome=quarantined"): (1, 1),
    }
    waited = points["job.time_in_state", "operation=good", "state=pending"]
    ran = points["job.time_in_state", "operation=good", "state=running"]
    assert (waited[0], ran[0]) == (1, 1)
    assert 0 <= ran[1] < 60
    assert points["commit.fsyncs",][1] >= 4
    assert points["commit.batch",][0] >= points["commit.fsyncs",][1]
    assert points["jobs", "operation=good", "queue=mail", "state=succeeded"] == (1, 1)
    assert points["queue.depth", "queue=default"] == (1, 0)


def test_a_commit_that_changes_nothing_waits_for_no_disk(ledger: Ledger) -> None:
    scope = Scope(ledger)
    ledger.submit("noop", client="web", key="a")
    assert not ledger.submit("noop", client="web", key="a").is_new
    ledger.pause("default", actor="ann", reason="x")
    scope.reporter.close()
    points = scope.points()
    assert (points["commit.batch",][0], points["commit.fsyncs",][1]) == (3, 2)


def test_a_lost_lease_is_counted(ledger: Ledger) -> None:
    ledger.submit("noop")
    scope = Scope(ledger)
    ledger.perform(lambda tx: tx.executions.claim(Lease(owner="worker-1", seconds=0.001)))
    while not recover(ledger, actor="tests").recovered:
        pass
    scope.reporter.close()
    assert scope.points()["lease.losses", "operation=noop", "queue=default"] == (1, 1)


def test_events_that_did_not_fit_are_counted(ledger: Ledger) -> None:
    scope = Scope(ledger)
    scope.reporter._subscriptions[0].lost = 3
    scope.reporter.close()
    assert scope.points()["telemetry.lost",] == (1, 3)


def test_a_ledger_out_of_reach_leaves_its_gauges_out(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.core.errors import StoreUnavailableError
    from holdfast.telemetry import reporter

    scope = Scope(ledger)

    def gone(_store: object) -> None:
        raise StoreUnavailableError("gone")

    monkeypatch.setattr(reporter, "state_of", gone)
    ledger.submit("noop")
    scope.reporter.close()
    names = {name for name, *_ in scope.points()}
    assert "commit.fsyncs" in names
    assert not names & STATE.keys()


def test_a_label_that_is_not_in_the_table_is_refused(ledger: Ledger) -> None:
    with pytest.raises(BrokenError, match=r"lease\.losses"):
        Scope(ledger).sink.add("lease.losses", operation="noop", job_id="1")


@pytest.mark.parametrize(
    "name, kind, unit, exposed",
    [
        ("queue.age", InstrumentKind.GAUGE, "s", "holdfast_queue_age_seconds"),
        ("age_seconds", InstrumentKind.HISTOGRAM, "s", "holdfast_age_seconds"),
        ("records_total", InstrumentKind.COUNTER, "{record}", "holdfast_records_total"),
        ("commit.fsyncs", InstrumentKind.COUNTER, "{fsync}", "holdfast_commit_fsyncs_total"),
        ("read", InstrumentKind.COUNTER, "By", "holdfast_read_bytes_total"),
        ("read_bytes_total", InstrumentKind.COUNTER, "By", "holdfast_read_bytes_total"),
    ],
)
def test_names_for_prometheus(name: str, kind: InstrumentKind, unit: str, exposed: str) -> None:
    assert Instrument(name, kind, (), unit, "").exposed(PREFIX) == exposed


def test_a_process_without_telemetry_imports_nothing_of_it(new_sqlite_ledger: str) -> None:
    code = (
        "import sys; from holdfast import Ledger; ledger = Ledger(sys.argv[1]); ledger.submit('noop');"
        "assert ledger.run_until_idle() == 1;"
        "sys.exit(any(n.startswith(('opentelemetry', 'holdfast.telemetry', 'holdfast.engine.events'))"
        " for n in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, new_sqlite_ledger], check=False, timeout=60)
    assert done.returncode == 0


def test_events_that_are_not_of_a_job_are_passed_over(ledger: Ledger) -> None:
    scope = Scope(ledger)
    scope.reporter.moved(
        Transition(
            machine="EXECUTION", subject=1, event="begin", source=None, target="IN_PROGRESS", job_id=1,
            operation="noop", queue="default", attempt=1, actor="w", error_code=None, excused=False,
            at=datetime.now(UTC),
        )
    )  # fmt: skip
    assert not [key for key in scope.points() if key[0] == "job.transitions"]
