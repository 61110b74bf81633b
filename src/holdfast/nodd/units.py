"""A unit of work: one generation of one object, and what each operator finds about it.

Invariants: a unit's identity is (dataset, object_uri, time_range_start) and its `wal_id` follows from it; a later write
to the same object is another unit, whose URI carries the ETag; a verdict is data: the same input gives the same one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from holdfast.core.digest import Json
from holdfast.nodd.notices import Notice, wal_id

OPERATION = "nodd.ingest"
CLIENT = "nodd"
QUEUE_NAME = "nodd-primary"  # what the record calls the queue it came from: a logical name, never an ARN

# What came of a unit: written with it at its commit, and part of its job's result.
OUTCOME = (
    "integrity_status", "metadata_status", "stac_status", "provenance_status", "stac_item_id", "stac_collection_id",
    "stac_item_href",
)  # fmt: skip
RUN = "ingest_run_id"  # and by which run


class Fate(StrEnum):
    """What became of a notice."""

    ADMITTED = "admitted"
    DUPLICATE = "duplicate"
    SUPERSEDED = "superseded"  # of a write that a later one has followed already
    SIDECAR = "sidecar"
    IGNORED = "ignored"
    REJECTED = "rejected"


class Operator(StrEnum):
    """The operators, in their order."""

    PARSE = "message-parse"
    INTEGRITY = "integrity-check"
    METADATA = "metadata-extract"
    GOVERNANCE = "governance-gate"
    STAC = "stac-register"
    PROVENANCE = "provenance-emit"


class OperatorVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator found: a status of its own vocabulary, its issues, what it ran, and what it learned."""

    operator: Operator
    status: str
    issues: tuple[str, ...] = ()
    checks_run: tuple[str, ...] = ()
    data: dict[str, Any] = {}

    def as_json(self) -> dict[str, Json]:
        """Return the verdict as a checkpoint keeps it."""
        kept: dict[str, Json] = msgspec.json.decode(msgspec.json.encode(self))
        return kept


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """One generation of one object: the payload of its job."""

    wal_id: str
    dataset: str
    object_uri: str  # with `#etag=…` from the second generation on
    source_uri: str
    generation: int
    provider: str
    queue: str
    event_time: str | None
    time_range_start: str
    time_range_end: str | None
    supersedes: str | None  # the wal_id of the generation before
    notice: Notice


def unit_of(notice: Notice, *, generation: int = 1, supersedes: str | None = None) -> Unit:
    """Return the unit that a notice announces."""
    uri = notice.object_uri
    if generation > 1:
        mark = notice.content_etag or notice.sequencer or str(generation)
        uri = f"{uri}#etag={mark}"
    if generation > 2:
        # The same content may come back after another: the mark alone would name the unit of the first time.
        uri = f"{uri}&generation={generation}"
    return Unit(
        wal_id=wal_id(notice.dataset, uri, notice.time_range_start),
        dataset=notice.dataset,
        object_uri=uri,
        source_uri=notice.object_uri,
        generation=generation,
        provider=notice.provider,
        queue=QUEUE_NAME,
        event_time=notice.event_time,
        time_range_start=notice.time_range_start,
        time_range_end=notice.time_range_end,
        supersedes=supersedes,
        notice=notice,
    )
