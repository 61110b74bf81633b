"""Reports the work of the application as metrics, spans and log entries, from the ledger's events and the operators.

Invariants: the results of an attempt are counted only after its commit, at the ledger's event; a no-op transition is
not counted; reporting never fails the work: facts that cannot be looked up are left out.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import msgspec

from holdfast.core.digest import sha256
from holdfast.core.errors import HoldfastError
from holdfast.core.machines import JOB, JobState
from holdfast.core.records import Job, time_from
from holdfast.engine.events import Bus, Subscription, Transition
from holdfast.engine.worker.execution import Execution
from holdfast.governance.approval import environment_of
from holdfast.governance.replay.events import ReplayBatch, ReplayRefused
from holdfast.nodd.admission import Admitted
from holdfast.nodd.metrics import NO_DATASET, Sink
from holdfast.nodd.queues import Queue, Received
from holdfast.nodd.replays import replay_of
from holdfast.nodd.statements import run_statement
from holdfast.nodd.units import OPERATION, QUEUE_NAME, Fate, Operator, OperatorVerdict, Unit
from holdfast.store import Store

logger = logging.getLogger("holdfast.nodd")
audit_logger = logging.getLogger("holdfast.nodd.audit")

INGEST_SPAN = "nodd_sns.ingest"
DEAD_QUEUE_NAME = "nodd-dlq"
OPEN_MAX = 10_000  # attempts without an event of their end

_FAILED, _QUARANTINED = "nodd.record_failed", "nodd.record_quarantined"
_SPANS = {
    Operator.PARSE: "message_parse",
    Operator.INTEGRITY: "integrity_check",
    Operator.METADATA: "metadata_extract",
    Operator.STAC: "stac_register",
    Operator.PROVENANCE: "provenance_emit",
}
_COUNTED = {
    Operator.INTEGRITY: ("integrity_checks_total", "integrity_failures_total"),
    Operator.METADATA: ("metadata_extract_total", "metadata_extract_failures_total"),
}
# The status of the record after an event of its job. A snoozed attempt is not a failure.
_ENDS = {"succeed": "succeeded", "fail": "failed", "quarantine": "quarantined", "cancel": "quarantined"}
_FAILED_BETWEEN = frozenset({"retry", "expire"})  # from running through failed to pending


class _Open(msgspec.Struct, kw_only=True):
    """An attempt before its commit, and the results to count after it."""

    unit: Unit
    trace_id: str
    span_id: str
    hot: bool
    size: int = 0
    outcome: str | None = None  # of stac-register
    registering: float = 0.0  # start of stac-register, by the monotonic clock
    diverged: bool = False
    emitted: str | None = None


class TelemetryReporter:
    """Reports the work of one process on one ledger to a sink."""

    def __init__(self, sink: Sink, store: Store[Any]) -> None:
        self._sink, self._store = sink, store
        with store.reading() as reading:
            self.env = environment_of(reading)
        self._open: OrderedDict[tuple[int, int], _Open] = OrderedDict()
        self._lock = threading.Lock()
        self._subscriptions: list[Subscription] = []

    def follow(self, bus: Bus) -> None:
        self._subscriptions += [
            bus.subscribe(self.on_transition, Transition),
            bus.subscribe(self.on_batch, ReplayBatch),
            bus.subscribe(self.on_refusal, ReplayRefused),
        ]

    def flush(self) -> None:
        """Wait until all events published so far are reported."""
        for subscription in self._subscriptions:
            subscription.flush()

    def close(self) -> None:
        """Report the events published so far, and end the subscriptions."""
        self.flush()
        for subscription in self._subscriptions:
            subscription.close()
        self._subscriptions.clear()

    @property
    def waiting(self) -> int:
        """The number of open attempts: no event has reported their end."""
        with self._lock:
            return len(self._open)

    # -- the ledger's events ------------------------------------------------------------------------------------------

    def on_transition(self, event: Transition) -> None:
        if event.machine != JOB.name or event.operation != OPERATION or event.job_id is None:
            return
        dataset = event.queue or NO_DATASET
        if event.event == "claim":
            self._sink.record("wal_attempts_histogram", event.attempt or 0, dataset=dataset)
        elif event.event == "replay":
            job = self._job(event.job_id)
            reason = (job.replay_reason if job else None) or "unknown"
            self._sink.add("wal_replays_total", dataset=dataset, replay_reason=reason)
            self._sink.add("replays_total", dataset=dataset, env=self.env, reason=reason)
        elif event.event in _ENDS or (event.event in _FAILED_BETWEEN and event.source == JobState.RUNNING):
            self._ended(event, dataset, _ENDS.get(event.event, "failed"))
        elif event.source == JobState.RUNNING:
            self._take(event)

    def _ended(self, event: Transition, dataset: str, status: str) -> None:
        opened = self._take(event)
        self._sink.add("wal_records_total", dataset=dataset, status=status)
        if status == "succeeded":
            if opened is not None:
                self._committed(opened, event)
            return
        job = self._job(event.job_id or 0)
        code = event.error_code or (job.last_error_code if job else None)
        wal_id = _wal_id(job) if job else None
        fields: dict[str, object] = {
            "wal_id": wal_id,
            "dataset": dataset,
            "last_error_code": code,
            "status": status,
            "issues": [code] if code else [],
            "object_uri_hash": sha256(opened.unit.object_uri) if opened else None,
            "trace_id": opened.trace_id if opened else None,
            "span_id": opened.span_id if opened else None,
        }
        if status == "failed":
            logger.warning("record %s of %s failed: %s", wal_id, dataset, code, extra={"event": _FAILED, **fields})
        else:
            fields |= {"actor": event.actor, "quarantine_code": job.quarantine_code if job else None}
            audit_logger.warning(
                "record %s of %s is quarantined: %s", wal_id, dataset, code, extra={"event": _QUARANTINED, **fields}
            )

    def _committed(self, made: _Open, event: Transition) -> None:
        dataset = made.unit.dataset
        self._sink.add("bytes_ingested_total", made.size)
        if made.outcome is not None:
            self._sink.add("stac_writes_total", dataset=dataset, outcome=made.outcome)
            self._sink.record("stac_write_latency_seconds", time.monotonic() - made.registering)
        if made.diverged:
            self._sink.add("replay_mismatch_total", dataset=dataset, env=self.env)
        if made.emitted is not None:
            self._sink.add("provenance_emits_total", dataset=dataset, status=made.emitted)
        if made.hot and made.unit.event_time:
            latency = max(event.at - time_from(made.unit.event_time), timedelta(0))
            self._sink.record("ingest_latency_seconds", latency.total_seconds(), dataset=dataset, env=self.env)

    def on_batch(self, batch: ReplayBatch) -> None:
        env = batch.environment
        self._sink.add("replay_batches_total", env=env, replay_reason=batch.replay_reason)
        self._sink.record("replay_batch_size", sum(batch.replayed.values()), env=env)
        for reason, n in batch.skipped.items():
            self._sink.add("replay_skipped_records_total", n, reason=reason, env=env)
        for reason, n in batch.throttled.items():
            self._sink.add("replay_throttled_batches_total", n, reason=reason, env=env)

    def on_refusal(self, refused: ReplayRefused) -> None:
        self._sink.add("replay_guardrail_violations_total", guard_type=refused.guard_type, env=refused.environment)

    # -- the feed -----------------------------------------------------------------------------------------------------

    def look_at(self, queue: Queue) -> None:
        """Report the number of messages in a queue as a gauge."""

        def look() -> list[tuple[float, Mapping[str, str]]]:
            try:
                n = int(queue.attributes()["ApproximateNumberOfMessages"])
            except (HoldfastError, KeyError):
                return []
            return [(n, {"queue": QUEUE_NAME, "env": self.env})]

        self._sink.observe("queue_depth", look)

    def received(self, messages: Sequence[Received]) -> None:
        now_ms = self._store.now().timestamp() * 1000
        for message in messages:
            if message.sent_at_ms is not None:
                age_s = max(now_ms - message.sent_at_ms, 0) / 1000
                self._sink.record("queue_age_seconds", age_s, queue=QUEUE_NAME, env=self.env)

    def admitted(self, found: Sequence[Admitted]) -> None:
        """Report the fates of notices after their admission has committed."""
        for one in found:
            dataset = one.dataset or NO_DATASET
            status = {Fate.REJECTED: "failed", Fate.IGNORED: "ignored"}.get(one.fate, "ok")
            self._sink.add("messages_parsed_total", dataset=dataset, status=status)
            if status == "failed":
                code = (one.reason or "unknown").partition(":")[0]
                self._sink.add("parse_failures_total", reason=code)
                self._sink.add("validation_errors_total", dataset=dataset, env=self.env, error_type=code)

    def dead_letter(self, dataset: str | None, *, settled: bool) -> None:
        """Report a message of the dead-letter queue, and whether it was processed."""
        self._sink.add("dlq_messages_total", queue=DEAD_QUEUE_NAME, env=self.env, dataset=dataset or NO_DATASET)
        if settled:
            self._sink.add("dlq_reprocessed_total")

    # -- an attempt ---------------------------------------------------------------------------------------------------

    @contextmanager
    def attempt(self, run: Execution, unit: Unit) -> Iterator[None]:
        """Report one attempt at a unit as a span."""
        backfill = run.job.priority < 0 or run.job.replay_reason == "backfill"
        attributes = {
            "nodd.wal_id": unit.wal_id,
            "nodd.dataset": unit.dataset,
            "nodd.object_uri_hash": sha256(unit.object_uri),
            "nodd.bucket_provider": unit.provider,
            "nodd.run_mode": "backfill" if backfill else "hot-path",
            **self._replay_of(run.job),
        }
        with self._sink.span(INGEST_SPAN, attributes) as span:
            with self._lock:
                self._open[run.job.job_id, run.attempt] = _Open(
                    unit=unit, trace_id=span.trace_id, span_id=span.span_id, hot=not backfill
                )
                if len(self._open) > OPEN_MAX:
                    self._open.popitem(last=False)
            yield

    @contextmanager
    def step(self, operator: Operator) -> Iterator[None]:
        """Report one operator as a span."""
        if operator not in _SPANS:
            yield
            return
        with self._sink.span(_SPANS[operator], {}):
            yield

    def judged(self, unit: Unit, verdict: OperatorVerdict, error_type: str | None = None) -> None:
        """Report an operator's verdict, and the reason if the unit is quarantined for it."""
        if verdict.operator in _COUNTED:
            counter, failures = _COUNTED[verdict.operator]
            self._sink.add(counter, dataset=unit.dataset, status=verdict.status)
            for issue in verdict.issues if verdict.status == "failed" else ():
                self._sink.add(failures, dataset=unit.dataset, issue=issue)
        if error_type is not None:
            self.invalid(unit, error_type)

    def invalid(self, unit: Unit, error_type: str) -> None:
        """Report that a unit is quarantined, with the reason."""
        self._sink.add("validation_errors_total", dataset=unit.dataset, env=self.env, error_type=error_type)

    def registering(self, run: Execution) -> None:
        self._note(run, lambda made: setattr(made, "registering", time.monotonic()))

    def registered(self, run: Execution, unit: Unit, outcome: str, *, item_id: str, size: int) -> None:
        """Note what the commit will do to the item."""
        diverged = outcome == "updated" and self._is_own_item(unit, item_id)

        def note(made: _Open) -> None:
            made.outcome, made.size, made.diverged = outcome.replace("-", "_"), size, diverged

        self._note(run, note)

    def not_registered(self, unit: Unit) -> None:
        self._sink.add("stac_writes_total", dataset=unit.dataset, outcome="failed")

    def emitted(self, run: Execution, status: str) -> None:
        """Note the status of the provenance that the commit will write."""
        self._note(run, lambda made: setattr(made, "emitted", status))

    def not_emitted(self, unit: Unit) -> None:
        """Report that provenance failed, both PROV and OpenLineage, which are made from the same facts."""
        self._sink.add("provenance_emits_total", dataset=unit.dataset, status="failed")
        self._sink.add("provenance_failures_total", dataset=unit.dataset, path="both")

    # -- looking up ---------------------------------------------------------------------------------------------------

    def _note(self, run: Execution, note: Callable[[_Open], None]) -> None:
        with self._lock:
            made = self._open.get((run.job.job_id, run.attempt))
        if made is not None:
            note(made)

    def _take(self, event: Transition) -> _Open | None:
        with self._lock:
            return self._open.pop((event.job_id or 0, event.attempt or 0), None)

    def _job(self, job_id: int) -> Job | None:
        try:
            with self._store.reading() as reading:
                return next(iter(reading.jobs.get_many([job_id])), None)
        except HoldfastError:
            return None

    def _is_own_item(self, unit: Unit, item_id: str) -> bool:
        """Return whether the stored item was made by the same unit; then a new one must be equal."""
        try:
            with self._store.reading() as reading:
                rows = run_statement(reading, "item_unit", item_id=item_id)
        except HoldfastError:
            return False
        return [row[0] for row in rows] == [unit.wal_id]

    def _replay_of(self, job: Job) -> dict[str, str]:
        """Return the span attributes of a replay; none for a first run."""
        try:
            found = replay_of(self._store, job)
        except HoldfastError as error:
            logger.warning("job %s: cannot look up its replay: %s", job.job_id, error)
            return {}
        if found is None:
            return {}
        attributes = {
            "nodd.replay_reason": found.reason,
            "nodd.replay_run_id": found.run_id,
            "nodd.replay_mode": found.mode,
            "nodd.replay_original_run": found.original_run,
        }
        return {name: value for name, value in attributes.items() if value is not None}


def _wal_id(job: Job) -> str:
    """Return the id of a job's record: its key, without the run that a replacement appends."""
    return (job.key or "").partition("#")[0]
