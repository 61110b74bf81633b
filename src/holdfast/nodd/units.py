"""A unit of work: one generation of one object, and the verdicts of the operators.

Invariants: the identity of a unit is (dataset, object_uri, time_range_start), and its `wal_id` is computed from it; a
later write to the same object is another unit, whose object_uri has the ETag; the same input gives the same verdict.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from holdfast.core.digest import Json
from holdfast.core.records import Job
from holdfast.nodd.notices import Notice, wal_id

OPERATION = "nodd.ingest"
CLIENT = "nodd"
QUEUE_NAME = "nodd-primary"  # the logical name of the queue in a record, never an ARN

# The outcome of a unit: stored with it at the commit, and part of its job's result.
OUTCOME = (
    "integrity_status", "metadata_status", "stac_status", "provenance_status", "stac_item_id", "stac_collection_id",
    "stac_item_href",
)  # fmt: skip
RUN = "ingest_run_id"  # the run that produced the outcome


class Fate(StrEnum):
    """The result of admitting a notice."""

    ADMITTED = "admitted"
    DUPLICATE = "duplicate"
    SUPERSEDED = "superseded"  # a later write is already known
    SIDECAR = "sidecar"
    IGNORED = "ignored"
    REJECTED = "rejected"


class Operator(StrEnum):
    """The operators in the order they run."""

    PARSE = "message-parse"
    INTEGRITY = "integrity-check"
    METADATA = "metadata-extract"
    GOVERNANCE = "governance-gate"
    STAC = "stac-register"
    PROVENANCE = "provenance-emit"


class OperatorVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an operator: its status, issues, the checks that ran, and the data that it extracted."""

    operator: Operator
    status: str
    issues: tuple[str, ...] = ()
    checks_run: tuple[str, ...] = ()
    data: dict[str, Any] = {}

    def as_json(self) -> dict[str, Json]:
        kept: dict[str, Json] = msgspec.json.decode(msgspec.json.encode(self))
        return kept


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """One generation of one object: the payload of its job."""

    wal_id: str
    dataset: str
    object_uri: str  # from the second generation on with `#etag=…`
    source_uri: str
    generation: int
    provider: str
    queue: str
    event_time: str | None
    time_range_start: str
    time_range_end: str | None
    supersedes: str | None  # the wal_id of the generation before
    notice: Notice

    @property
    def reconcile_command(self) -> str:
        """Return the command that admits a later write of the object, which is listed under the day of its cycle."""
        day = (self.notice.reference_time or self.time_range_start)[:10]
        return f"holdfast nodd reconcile {self.dataset} --date {day} --admit"


def next_command(job: Job, finding: str) -> str | None:
    """Return the command that can help a unit with a finding of `explain`; None if that of any job can.

    The bytes of a damaged object are the same after a release: only another write of it can help.
    """
    if job.operation != OPERATION:
        return None
    if finding in ("no_worker", "operation_not_served"):
        return "holdfast nodd run"
    refused = (job.quarantine_code or "").startswith(("integrity_", "metadata_"))
    if finding == "quarantined" and refused and job.payload is not None:
        return msgspec.json.decode(job.payload, type=Unit).reconcile_command
    return None


def unit_of(notice: Notice, *, generation: int = 1, supersedes: str | None = None) -> Unit:
    uri = notice.object_uri
    if generation > 1:
        mark = notice.content_etag or notice.sequencer or str(generation)
        uri = f"{uri}#etag={mark}"
    if generation > 2:
        # The same content can be written again later, and would get the URI of its earlier generation.
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
