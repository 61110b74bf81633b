"""The instruments of the application: one table of names, kinds and labels, and the sink that they are told to.

Invariants: a metric is told under a name of the table, with exactly its labels; every label has few values: a dataset,
a status, a code, an environment; a `wal_id` is never one, nor is an object's URI, which no span and no log shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Protocol

import msgspec

PREFIX = "nodd_sns."
NO_DATASET = "unknown"  # what a message that cannot be read is about


class InstrumentKind(StrEnum):
    """How an instrument adds up."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"


class Instrument(msgspec.Struct, frozen=True):
    """One metric: its name after the prefix, how it adds up, its labels, its unit, and what it tells."""

    name: str
    kind: InstrumentKind
    labels: tuple[str, ...]
    unit: str
    tells: str


_C, _H, _G = InstrumentKind.COUNTER, InstrumentKind.HISTOGRAM, InstrumentKind.GAUGE

INSTRUMENTS = {
    row.name: row
    for row in (
        # The record of a unit, from the transitions of its job.
        Instrument("wal_records_total", _C, ("dataset", "status"), "{record}", "records that ended so"),
        Instrument("wal_attempts_histogram", _H, ("dataset",), "{attempt}", "which attempt a claim began"),
        Instrument("wal_replays_total", _C, ("dataset", "replay_reason"), "{record}", "failed records put back"),
        Instrument("replays_total", _C, ("dataset", "env", "reason"), "{record}", "the same, with the environment"),
        Instrument("replay_mismatch_total", _C, ("dataset", "env"), "{record}", "units that gave another item again"),
        # The feed.
        Instrument("queue_depth", _G, ("queue", "env"), "{message}", "messages that wait"),
        Instrument("queue_age_seconds", _H, ("queue", "env"), "s", "how old a message was when it was received"),
        Instrument("messages_parsed_total", _C, ("dataset", "status"), "{notice}", "notices: ok, ignored, failed"),
        Instrument("parse_failures_total", _C, ("reason",), "{message}", "bodies that were rejected"),
        Instrument("dlq_messages_total", _C, ("queue", "env", "dataset"), "{message}", "dead letters received"),
        Instrument("dlq_reprocessed_total", _C, (), "{message}", "dead letters that were settled"),
        # The operators.
        Instrument("integrity_checks_total", _C, ("dataset", "status"), "{check}", "verdicts of integrity-check"),
        Instrument("integrity_failures_total", _C, ("dataset", "issue"), "{issue}", "what those that failed found"),
        Instrument("metadata_extract_total", _C, ("dataset", "status"), "{unit}", "verdicts of metadata-extract"),
        Instrument("metadata_extract_failures_total", _C, ("dataset", "issue"), "{issue}", "what the failed found"),
        Instrument(
            "validation_errors_total", _C, ("dataset", "env", "error_type"), "{error}", "refused for what it is"
        ),
        Instrument("stac_writes_total", _C, ("dataset", "outcome"), "{item}", "created, updated, no_op, failed"),
        Instrument("stac_write_latency_seconds", _H, (), "s", "from the start of stac-register to its commit"),
        Instrument("provenance_emits_total", _C, ("dataset", "status"), "{unit}", "units whose provenance is durable"),
        Instrument("provenance_failures_total", _C, ("dataset", "path"), "{unit}", "units that gave none"),
        Instrument("ingest_latency_seconds", _H, ("dataset", "env"), "s", "from the notice's time to the commit"),
        Instrument("bytes_ingested_total", _C, (), "By", "the sizes of objects that were catalogued"),
        # Replays.
        Instrument("replay_batches_total", _C, ("env", "replay_reason"), "{batch}", "batches made"),
        Instrument("replay_batch_size", _H, ("env",), "{record}", "records that a batch put back"),
        Instrument(
            "replay_guardrail_violations_total", _C, ("guard_type", "env"), "{run}", "replays that were refused"
        ),
        Instrument("replay_throttled_batches_total", _C, ("reason", "env"), "{batch}", "waits before a batch"),
        Instrument("replay_skipped_records_total", _C, ("reason", "env"), "{record}", "records passed over"),
        Instrument("replay_cli_invocations_total", _C, ("command", "env"), "{call}", "calls of `nodd-replay`"),
        Instrument(
            "replay_cli_failures_total", _C, ("command", "env", "error_code"), "{call}", "calls that ended in an error"
        ),
    )
}


class Span(Protocol):
    """An open span."""

    trace_id: str
    span_id: str

    def set(self, name: str, value: str) -> None:
        """Set an attribute."""
        ...


class Sink(Protocol):
    """Where it is told. Names are those of the table, without the prefix."""

    def add(self, name: str, n: int = 1, /, **labels: str) -> None:
        """Count."""
        ...

    def record(self, name: str, value: float, /, **labels: str) -> None:
        """Add a value to a histogram."""
        ...

    def observe(self, name: str, look: Callable[[], Iterable[tuple[float, Mapping[str, str]]]], /) -> None:
        """Ask for a gauge's values whenever they are wanted."""
        ...

    def span(self, name: str, attributes: Mapping[str, str]) -> AbstractContextManager[Span]:
        """Open a span, inside the one that is open in this thread."""
        ...
