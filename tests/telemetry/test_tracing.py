"""Traces: from the submit in one process to the attempt and the follow-up in another, and nothing when they are off."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, get_current_span

from holdfast import Call, Execution, Ledger, Operations, RetryPolicy, Worker
from holdfast.store.verbs.traces import trace_of
from holdfast.telemetry import Target, Telemetry, start
from holdfast.telemetry.tracing import trace
from tests.cli.commands import process
from tests.telemetry.otlp import attributes, receiver

APP = """
from holdfast import Execution, Ledger
ledger = Ledger()

@ledger.operation("parent")
def parent(run: Execution, secret: str) -> None:
    run.after_commit(child.call())

@ledger.operation("child", queue="later")
def child(run: Execution) -> None: ...
"""


class Spans:
    """A ledger's spans, in memory."""

    def __init__(self, ledger: Ledger) -> None:
        self._exporter = InMemorySpanExporter()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = tracers.get_tracer("test")
        trace(ledger, Telemetry(MeterProvider(), tracers))

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]


def top_level(run: Execution, n: int) -> dict[str, Any]:
    """A handler that another process finds by its name; it returns the span in which it runs, and where that is."""
    if n < 0:
        raise ConnectionError("password=hunter2")
    run.after_commit(Call(operation="noop", payload={}, queue="later"))
    context = get_current_span().get_span_context()
    return {"span": f"{context.span_id:016x}", "process": os.getpid()}


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    with Ledger(ledger_url) as opened:
        yield opened


def parent_of(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def span_id(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


@pytest.mark.parametrize("handlers", [[], ["--processes"]], ids=["threads", "processes"])
def test_a_trace_is_seen_end_to_end_through_an_otlp_receiver(
    ledger_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handlers: list[str]
) -> None:
    (tmp_path / "shop.py").write_text(APP, encoding="utf-8")
    with receiver() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.endpoint)
        monkeypatch.syspath_prepend(str(tmp_path))
        sink = start(Target.OTLP, "web")
        assert sink is not None
        with Ledger(ledger_url) as ledger:
            ledger.operation("parent")(lambda run, secret: None)
            trace(ledger, sink)
            receipt = ledger.submit("parent", {"secret": "hunter2"}, client="ann", key="card-4711")
        sink.close()
        done = process(
            "worker", "shop:ledger", "--until-idle", "--queue", "default", "--queue", "later", "--telemetry", "otlp",
            *handlers, "--db", ledger_url, "--json",
            env={"OTEL_EXPORTER_OTLP_ENDPOINT": received.endpoint, "PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=tmp_path,
        )  # fmt: skip
        assert (done.code, done.out.count('"attempts": 2')) == (0, 1)
        spans = {span.name: (service, span) for service, span in received.spans()}
    assert spans.keys() == {"submit default", "process default", "process later"}
    (web, submitted), (worker, attempt), (_, followup) = (
        spans[name] for name in ("submit default", "process default", "process later")
    )
    assert (web, worker) == ("web", "holdfast")
    assert submitted.trace_id == attempt.trace_id == followup.trace_id
    assert (attempt.parent_span_id, followup.parent_span_id) == (submitted.span_id, attempt.span_id)
    assert (submitted.kind, attempt.kind) == (4, 5)  # PRODUCER, CONSUMER
    assert attributes(submitted) == {
        "messaging.system": "holdfast",
        "messaging.operation.name": "submit",
        "messaging.operation.type": "send",
        "messaging.destination.name": "default",
        "messaging.message.id": str(receipt.job_id),
        "holdfast.operation": "parent",
    }
    assert attributes(attempt)["messaging.operation.type"] == "process"
    assert attributes(attempt)["messaging.message.id"] == str(receipt.job_id)
    assert not any(word in str(span) for _, span in spans.values() for word in ("hunter2", "card-4711", "ann"))
    assert {"holdfast.job.transitions", "holdfast.queue.depth", "holdfast.commit.fsyncs"} <= received.metrics()


def test_attempts_of_one_job_are_siblings_and_a_failure_has_its_code_only(ledger: Ledger) -> None:
    @ledger.operation("bad", retry=RetryPolicy(max_attempts=2, base_s=0))
    def bad(run: Execution) -> None:
        raise ConnectionError("password=hunter2")

    spans = Spans(ledger)
    with spans.tracer.start_as_current_span("request") as request:
        ledger.submit(bad.call())
    ledger.run_until_idle()
    [submitted] = spans.named("submit default")
    attempts = spans.named("process default")
    assert parent_of(submitted) == request.get_span_context().span_id
    assert [parent_of(span) for span in attempts] == [span_id(submitted)] * 2
    assert [dict(span.attributes or {})["holdfast.attempt"] for span in attempts] == ["1", "2"]
    assert {span.status.description for span in attempts} == {"ConnectionError"}
    assert {dict(span.attributes or {})["error.type"] for span in attempts} == {"ConnectionError"}
    assert not any("hunter2" in span.to_json() for span in attempts)


def test_a_span_of_a_handler_is_a_child_of_its_attempt(ledger: Ledger) -> None:
    @ledger.operation("plain")
    def plain(run: Execution) -> None:
        with spans.tracer.start_as_current_span("inside"):
            pass

    @ledger.operation("waits")
    async def waits(run: Execution) -> None:
        await asyncio.sleep(0)
        with spans.tracer.start_as_current_span("inside"):
            pass

    spans = Spans(ledger)
    ledger.submit_many([plain.call(), {"operation": "waits"}])
    ledger.run_until_idle()
    [submitted] = spans.named("submit default")
    assert dict(submitted.attributes or {})["messaging.batch.message_count"] == "2"
    attempts = spans.named("process default")
    assert {parent_of(span) for span in spans.named("inside")} == {span_id(span) for span in attempts}
    assert {parent_of(span) for span in attempts} == {span_id(submitted)}
    assert {span.kind for span in attempts} == {SpanKind.CONSUMER}


def test_a_submit_from_an_event_loop_and_in_a_transaction_of_the_caller_are_traced(ledger: Ledger) -> None:
    spans = Spans(ledger)
    receipt = asyncio.run(ledger.submit_async("noop", queue="mail"))
    with ledger.store.transaction() as transaction:
        borrowed: Any = transaction.connection
        inside = ledger.submit("noop", connection=borrowed) if ledger.store.dialect == "postgres" else receipt
    with ledger.store.reading() as reading:
        assert trace_of(reading, receipt.job_id) is not None
        assert trace_of(reading, inside.job_id) is not None
    assert len(spans.named("submit mail")) == 1


def test_a_repeated_submit_keeps_the_first_trace(ledger: Ledger) -> None:
    Spans(ledger)
    first = ledger.submit("noop", client="web", key="a")
    with ledger.store.reading() as reading:
        kept = trace_of(reading, first.job_id)
    assert not ledger.submit("noop", client="web", key="a").is_new
    with ledger.store.reading() as reading:
        assert trace_of(reading, first.job_id) == kept


def test_retention_deletes_traces(ledger: Ledger) -> None:
    Spans(ledger)
    receipt = ledger.submit("noop")
    ledger.run_until_idle()
    with ledger.store.transaction() as transaction, transaction.maintenance.open(who="t", why="t"):
        transaction.retention.slim([receipt.job_id], before=ledger.store.now())
    with ledger.store.reading() as reading:
        assert trace_of(reading, receipt.job_id) is None


def test_without_tracing_no_trace_is_written_or_read(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    run = type(ledger.store).run

    def noted(self: Any, connection: Any, name: str, params: Any) -> Any:
        ran.append(name)
        return run(self, connection, name, params)

    monkeypatch.setattr(type(ledger.store), "run", noted)
    ledger.submit("noop")
    ledger.run_until_idle()
    assert not [name for name in ran if "trace" in name]


@pytest.mark.parametrize("pool", ["processes", "executor"])
def test_a_handler_in_another_process_runs_in_the_span_of_its_attempt(ledger_url: str, pool: str) -> None:
    operations = Operations()
    by_function = operations.operation("by_function", max_attempts=1)(top_level)
    with Ledger(ledger_url, operations) as ledger, ExitStack() as ends:
        executor: Any = pool
        if pool == "executor":
            executor = ends.enter_context(ProcessPoolExecutor(1, multiprocessing.get_context("spawn")))
        spans = Spans(ledger)
        receipt = ledger.submit(by_function.call(n=21))
        failed = ledger.submit(by_function.call(n=-1), queue="other")
        Worker(ledger, executor=executor, concurrency=1, queues=["default", "other"]).run(until_idle=True)
        result = receipt.wait(60).result
        [submitted], [attempt], [broken] = (
            spans.named(name) for name in ("submit default", "process default", "process other")
        )
        assert result["process"] != os.getpid()
        assert (parent_of(attempt), result["span"]) == (span_id(submitted), f"{span_id(attempt):016x}")
        assert dict(attempt.attributes or {})["messaging.message.id"] == str(receipt.job_id)
        assert failed.wait(60).state == "failed"
        assert (broken.status.description, "hunter2" in broken.to_json()) == ("connection_error", False)
        with ledger.store.reading() as reading:
            [followup] = reading.lists.jobs(operation="noop", limit=2)
            carried = trace_of(reading, followup.job_id)
        assert carried is not None
        assert carried.traceparent.split("-")[2] == result["span"]


def test_a_plain_call_of_a_traced_handler_needs_no_attempt(ledger: Ledger) -> None:
    @ledger.operation("plain")
    def plain(run: Any, n: int) -> int:
        return n

    @ledger.operation("waits")
    async def waits(run: Any, n: int) -> int:
        return n

    Spans(ledger)
    run: Any = None
    assert plain.fn(run, n=1) == 1
    assert asyncio.run(waits.fn(run, n=2)) == 2
