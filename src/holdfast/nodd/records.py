"""The write-ahead record as K has it: its 26 fields, their rules, and its JSON Schema.

Invariants: the schema and the rules are derived from one table; a record of the view `nodd_wal_records` keeps both, at
any moment of its life.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from holdfast.nodd.dataset import Datasets


class RecordStatus(StrEnum):
    """Where a record stands."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    QUARANTINED = "quarantined"


STATUSES = tuple(map(str, RecordStatus))
CHECKED = ("unknown", "ok", "suspect", "failed")
WRITTEN = ("unknown", "created", "updated", "no-op", "failed")
EMITTED = ("unknown", "ok", "partial", "failed")
PROVIDERS = ("aws", "azure", "gcp")
REASONS = ("dlq-drain", "incident", "backfill", "test")
MESSAGE_MAX = 500

_TIME = {"type": "string", "format": "date-time"}
_TEXT = {"type": "string", "minLength": 1}
_COUNT = {"type": "integer", "minimum": 0}


def _or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"anyOf": [dict(schema), {"type": "null"}]}


FIELDS: dict[str, dict[str, Any]] = {
    "wal_id": {"type": "string", "format": "uuid"},
    "dataset": _TEXT,
    "object_uri": {"type": "string", "pattern": "^s3://[a-z0-9][a-z0-9.-]*/.+$"},
    "provider": {"enum": list(PROVIDERS)},
    "queue": {"type": "string", "pattern": "^[a-z0-9-]+$"},  # a logical name, never an ARN
    "event_time": _or_null(_TIME),
    "time_range_start": _TIME,
    "time_range_end": _or_null(_TIME),
    "status": {"enum": list(STATUSES)},
    "attempts": _COUNT,
    "last_attempt_at": _or_null(_TIME),
    "last_error_code": _or_null(_TEXT),
    "last_error_message": _or_null({"type": "string", "maxLength": MESSAGE_MAX}),
    "integrity_status": {"enum": list(CHECKED)},
    "metadata_status": {"enum": list(CHECKED)},
    "stac_status": {"enum": list(WRITTEN)},
    "provenance_status": {"enum": list(EMITTED)},
    "stac_item_id": _or_null(_TEXT),
    "stac_collection_id": _or_null(_TEXT),
    "stac_item_href": _or_null(_TEXT),
    "ingest_run_id": _or_null(_TEXT),
    "worker_id": _or_null({"type": "string", "pattern": "^[A-Za-z0-9_-]+$"}),  # no host, no person
    "replay_reason": _or_null({"enum": list(REASONS)}),
    "created_at": _TIME,
    "updated_at": _TIME,
    "version": {"type": "integer", "minimum": 1},
}
EXTENSIONS = ("ext_generation", "ext_supersedes", "ext_superseded_by", "ext_quarantine_code", "ext_job_id")
REQUIRED = (
    "wal_id", "dataset", "object_uri", "provider", "queue", "status", "attempts", "created_at", "updated_at", "version",
)  # fmt: skip


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a record; other fields than these are declared extensions, or refused."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "NODD write-ahead record",
        "type": "object",
        "required": list(REQUIRED),
        "properties": {**FIELDS, **{name: {} for name in EXTENSIONS}},
        "additionalProperties": False,
    }


def broken_rules(record: Mapping[str, Any], datasets: Datasets) -> Iterator[str]:
    """Yield the rules between fields that a record breaks; none for one that is as it must be."""
    end = record["time_range_end"]
    failed_ever = record["last_error_code"] is not None
    written = record["stac_status"] in ("created", "updated", "no-op")
    rules = (
        (end is None or record["time_range_start"] <= end, "the time range ends before it starts"),
        (record["attempts"] >= 0, "attempts are less than none"),
        (record["created_at"] <= record["updated_at"], "it was updated before it was created"),
        (failed_ever or record["last_error_message"] is None, "a message without an error"),
        (record["status"] not in ("failed", "quarantined") or failed_ever, "it failed, and no error says why"),
        (not written or record["stac_item_id"] is not None, "it was catalogued, and no item is named"),
        (record["stac_item_id"] is None or _collection_is_right(record, datasets), "the item is of another collection"),
        (record["stac_status"] != "failed" or record["status"] in ("failed", "quarantined", "pending"), "stac failed"),
        (record["status"] != "succeeded" or _all_well(record, datasets), "it succeeded, and an operator did not"),
    )
    for holds, words in rules:
        if not holds:
            yield words


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
