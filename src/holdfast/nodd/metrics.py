"""The instruments of the application: a table of names, kinds and labels, and the sink that metrics go to.

Invariants: a metric is recorded under a name of the table, with exactly its labels; every label has few values: a
dataset, a status, a code, an environment; a `wal_id` is never a label; no label, span or log has an object's URI.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from holdfast.core.instruments import Instrument, InstrumentKind

PREFIX = "nodd_sns."
NO_DATASET = "unknown"  # label of messages that cannot be parsed


_C, _H, _G = InstrumentKind.COUNTER, InstrumentKind.HISTOGRAM, InstrumentKind.GAUGE

INSTRUMENTS = {
    row.name: row
    for row in (
        # The record of a unit, from the transitions of its job.
        Instrument("wal_records_total", _C, ("dataset", "status"), "{record}", "records that reached this status"),
        Instrument("wal_attempts_histogram", _H, ("dataset",), "{attempt}", "number of the attempt at each claim"),
        Instrument(
            "wal_replays_total", _C, ("dataset", "replay_reason"), "{record}", "failed records that were replayed"
        ),
        Instrument("replays_total", _C, ("dataset", "env", "reason"), "{record}", "the same, with the environment"),
        Instrument("replay_mismatch_total", _C, ("dataset", "env"), "{record}", "units with another item at a replay"),
        # The feed.
        Instrument("queue_depth", _G, ("queue", "env"), "{message}", "messages in the queue"),
        Instrument("queue_age_seconds", _H, ("queue", "env"), "s", "age of a message when it was received"),
        Instrument(
            "messages_parsed_total", _C, ("dataset", "status"), "{notice}", "notices by status: ok, ignored, failed"
        ),
        Instrument("parse_failures_total", _C, ("reason",), "{message}", "rejected messages"),
        Instrument(
            "dlq_messages_total", _C, ("queue", "env", "dataset"), "{message}", "messages received from the DLQ"
        ),
        Instrument("dlq_reprocessed_total", _C, (), "{message}", "messages of the DLQ that were processed"),
        # The operators.
        Instrument("integrity_checks_total", _C, ("dataset", "status"), "{check}", "verdicts of integrity-check"),
        Instrument(
            "integrity_failures_total", _C, ("dataset", "issue"), "{issue}", "issues of failed integrity-checks"
        ),
        Instrument("metadata_extract_total", _C, ("dataset", "status"), "{unit}", "verdicts of metadata-extract"),
        Instrument(
            "metadata_extract_failures_total", _C, ("dataset", "issue"), "{issue}", "issues of those that failed"
        ),
        Instrument(
            "validation_errors_total", _C, ("dataset", "env", "error_type"), "{error}", "messages and units refused"
        ),
        Instrument(
            "stac_writes_total", _C, ("dataset", "outcome"), "{item}", "by outcome: created, updated, no_op, failed"
        ),
        Instrument("stac_write_latency_seconds", _H, (), "s", "from the start of stac-register to its commit"),
        Instrument(
            "provenance_emits_total", _C, ("dataset", "status"), "{unit}", "units by status of their provenance"
        ),
        Instrument("provenance_failures_total", _C, ("dataset", "path"), "{unit}", "units without provenance"),
        Instrument("ingest_latency_seconds", _H, ("dataset", "env"), "s", "from the time of the notice to the commit"),
        Instrument("bytes_ingested_total", _C, (), "By", "size of catalogued objects"),
        # Replays.
        Instrument("replay_batches_total", _C, ("env", "replay_reason"), "{batch}", "batches of replays"),
        Instrument("replay_batch_size", _H, ("env",), "{record}", "replayed records per batch"),
        Instrument(
            "replay_guardrail_violations_total", _C, ("guard_type", "env"), "{run}", "replays that a guard refused"
        ),
        Instrument("replay_throttled_batches_total", _C, ("reason", "env"), "{batch}", "batches that waited"),
        Instrument("replay_skipped_records_total", _C, ("reason", "env"), "{record}", "records that were skipped"),
        Instrument("replay_cli_invocations_total", _C, ("command", "env"), "{call}", "calls of `nodd-replay`"),
        Instrument("replay_cli_failures_total", _C, ("command", "env", "error_code"), "{call}", "calls that failed"),
    )
}


class Span(Protocol):
    """An open span."""

    trace_id: str
    span_id: str

    def set(self, name: str, value: str) -> None:
        """Set an attribute."""


class Sink(Protocol):
    """A receiver of metrics and spans. Names are those of the table, without the prefix."""

    def add(self, name: str, n: int = 1, /, **labels: str) -> None:
        """Add to a counter."""

    def record(self, name: str, value: float, /, **labels: str) -> None:
        """Add a value to a histogram."""

    def observe(self, name: str, look: Callable[[], Iterable[tuple[float, Mapping[str, str]]]], /) -> None:
        """Register a function that returns the values of a gauge."""

    def span(self, name: str, attributes: Mapping[str, str]) -> AbstractContextManager[Span]:
        """Open a span, as a child of the one that is open in this thread."""
