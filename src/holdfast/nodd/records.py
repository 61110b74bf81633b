"""The write-ahead record as K has it: its 26 fields, their JSON Schema, and the rules between fields.

Invariants: the schema is derived from the type `WalRecord`; a record of the view `nodd_wal_records` keeps the schema
and the rules at every moment of its life.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from holdfast.nodd.dataset import Datasets


class RecordStatus(StrEnum):
    """The status of a record."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    QUARANTINED = "quarantined"


Text = Annotated[str, Meta(min_length=1)]
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Count = Annotated[int, Meta(ge=0)]
CheckStatus = Literal["unknown", "ok", "suspect", "failed"]
WriteStatus = Literal["unknown", "created", "updated", "no-op", "failed"]
EmitStatus = Literal["unknown", "ok", "partial", "failed"]


class WalRecord(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A write-ahead record. Fields that start with `ext_` are declared extensions; no others are allowed."""

    wal_id: Annotated[str, Meta(extra_json_schema={"format": "uuid"})]
    dataset: Text
    object_uri: Annotated[str, Meta(pattern="^s3://[a-z0-9][a-z0-9.-]*/.+$")]
    provider: Literal["aws", "azure", "gcp"]
    queue: Annotated[str, Meta(pattern="^[a-z0-9-]+$")]  # a logical name, never an ARN
    event_time: Time | None = None
    time_range_start: Time | UnsetType = UNSET
    time_range_end: Time | None = None
    status: RecordStatus
    attempts: Count
    last_attempt_at: Time | None = None
    last_error_code: Text | None = None
    last_error_message: Annotated[str, Meta(max_length=500)] | None = None
    integrity_status: CheckStatus = "unknown"
    metadata_status: CheckStatus = "unknown"
    stac_status: WriteStatus = "unknown"
    provenance_status: EmitStatus = "unknown"
    stac_item_id: Text | None = None
    stac_collection_id: Text | None = None
    stac_item_href: Text | None = None
    ingest_run_id: Text | None = None
    worker_id: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]+$")] | None = None  # no host, no person
    replay_reason: Literal["dlq-drain", "incident", "backfill", "test"] | None = None
    created_at: Time
    updated_at: Time
    version: Annotated[int, Meta(ge=1)]
    ext_generation: int | UnsetType = UNSET
    ext_supersedes: Text | None = None
    ext_superseded_by: Text | None = None
    ext_quarantine_code: Text | None = None
    ext_job_id: int | UnsetType = UNSET


def json_schema() -> dict[str, Any]:
    derived = msgspec.json.schema(WalRecord)
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "NODD write-ahead record", **derived}


def broken_rules(record: Mapping[str, Any], datasets: Datasets) -> Iterator[str]:
    """Yield the name of each rule between fields that a record breaks."""
    end = record["time_range_end"]
    failed_ever = record["last_error_code"] is not None
    written = record["stac_status"] in ("created", "updated", "no-op")
    failed = record["status"] in ("failed", "quarantined")
    rules = {
        "time_range_ordered": end is None or record["time_range_start"] <= end,
        "attempts_not_negative": record["attempts"] >= 0,
        "updated_after_created": record["created_at"] <= record["updated_at"],
        "message_has_code": failed_ever or record["last_error_message"] is None,
        "failure_has_code": not failed or failed_ever,
        "catalogued_has_item": not written or record["stac_item_id"] is not None,
        "item_in_own_collection": record["stac_item_id"] is None or _collection_is_right(record, datasets),
        "stac_failure_is_no_success": record["stac_status"] != "failed" or failed or record["status"] == "pending",
        "success_of_every_operator": record["status"] != "succeeded" or _all_well(record, datasets),
    }
    yield from (name for name, holds in rules.items() if not holds)


def _collection_is_right(record: Mapping[str, Any], datasets: Datasets) -> bool:
    named = record["dataset"] in datasets
    return named and record["stac_collection_id"] == datasets[record["dataset"]].spec.collection.id


def _all_well(record: Mapping[str, Any], datasets: Datasets) -> bool:
    named = record["dataset"] in datasets
    may_fail = named and datasets[record["dataset"]].spec.policy.provenance_may_fail
    return (
        record["integrity_status"] in ("ok", "suspect")
        and record["metadata_status"] in ("ok", "suspect")
        and record["stac_status"] in ("created", "updated", "no-op")
        and record["provenance_status"] in (("ok", "partial", "failed") if may_fail else ("ok", "partial"))
    )
