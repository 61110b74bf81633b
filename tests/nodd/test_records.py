"""The write-ahead record: 26 fields, their rules and their schema, at every moment of a unit's life."""

from __future__ import annotations

from datetime import datetime
from importlib.resources import files
from typing import Any

import jsonschema
import msgspec
import pytest

from holdfast import Ledger
from holdfast.core.errors import SpecInvalidError
from holdfast.core.records import time_text
from holdfast.nodd import metadata, validity
from holdfast.nodd.admission import FeedMessage, admit
from holdfast.nodd.dataset import Dataset, Datasets, load, shipped
from holdfast.nodd.records import WalRecord, broken_rules, json_schema
from holdfast.nodd.units import Operator, OperatorVerdict
from tests.nodd.ingesting import GRIB, announce, queried, records
from tests.nodd.messages import enveloped, event, record
from tests.nodd.objects import MemorySource

VALIDATOR = jsonschema.Draft7Validator(json_schema(), format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER)
CANONICAL = [
    "wal_id", "dataset", "object_uri", "provider", "queue", "event_time", "time_range_start", "time_range_end",
    "status", "attempts", "last_attempt_at", "last_error_code", "last_error_message", "integrity_status",
    "metadata_status", "stac_status", "provenance_status", "stac_item_id", "stac_collection_id", "stac_item_href",
    "ingest_run_id", "worker_id", "replay_reason", "created_at", "updated_at", "version",
]  # fmt: skip


def with_text_times(found: dict[str, Any]) -> dict[str, Any]:
    """Return a record with its times as text: PostgreSQL gives them as times."""
    return {name: time_text(value) if isinstance(value, datetime) else value for name, value in found.items()}


def problems(found: dict[str, Any]) -> list[str]:
    record = with_text_times(found)
    return [error.message for error in VALIDATOR.iter_errors(record)] + list(broken_rules(record, shipped()))


@pytest.mark.req("K-03", "K-04", "K-06")
def test_a_record_has_the_26_fields_and_declared_extensions_alone(ledger: Ledger, source: MemorySource) -> None:
    announce(ledger, GRIB, source)
    [found] = records(ledger)
    declared = list(WalRecord.__struct_fields__)
    assert declared[: len(CANONICAL)] == CANONICAL
    assert list(found) == declared
    assert all(name.startswith("ext_") for name in declared[len(CANONICAL) :])
    first = with_text_times(found)
    unknown = ("integrity_status", "metadata_status", "stac_status", "provenance_status")
    assert [first[name] for name in unknown] == ["unknown"] * 4
    assert (first["status"], first["attempts"], first["version"], first["queue"]) == ("pending", 0, 1, "nodd-primary")
    assert first["created_at"] == first["updated_at"]
    assert problems(found) == []


@pytest.mark.req("K-05", "K-12", "K-13")
def test_the_rules_hold_at_every_end(ledger: Ledger, source: MemorySource) -> None:
    announce(ledger, GRIB, source)
    announce(ledger, GRIB[:-1], source, key="gfs.20260726/00/atmos/gfs.t00z.pgrb2.0p25.f006")
    ledger.run_until_idle()
    source.down = True
    announce(ledger, GRIB, source, key="gfs.20260726/00/atmos/gfs.t00z.pgrb2.0p25.f009")
    ledger.run_until_idle()
    found = records(ledger)
    assert sorted(str(one["status"]) for one in found) == ["pending", "quarantined", "succeeded"]
    assert [problems(one) for one in found] == [[], [], []]


@pytest.mark.req("K-06", "K-22", "K-40")
def test_an_operator_that_refused_the_object_stops_those_after_it(
    ledger: Ledger, source: MemorySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce(ledger, GRIB[:-1], source)
    ledger.run_until_idle()
    [refused] = records(ledger)
    assert (refused["status"], refused["last_error_code"]) == ("quarantined", "integrity_missing_required_header")
    assert (refused["integrity_status"], refused["metadata_status"]) == ("failed", "unknown")
    verdict = OperatorVerdict(operator=Operator.METADATA, status="failed", issues=("missing_geolocation",))
    monkeypatch.setattr(metadata, "extract", lambda *_: verdict)
    announce(ledger, GRIB, source, key="gfs.20260726/00/atmos/gfs.t00z.pgrb2.0p25.f006")
    ledger.run_until_idle()
    _, later = records(ledger)
    assert (later["status"], later["integrity_status"], later["metadata_status"]) == ("quarantined", "ok", "failed")
    assert [(one["stac_status"], one["provenance_status"]) for one in (refused, later)] == [("unknown", "unknown")] * 2
    assert queried(ledger.store, "SELECT count(*) FROM nodd_items") == [(0,)]
    assert [problems(one) for one in (refused, later)] == [[], []]


@pytest.mark.req("K-22", "K-44")
def test_an_item_that_is_not_valid_is_not_promoted_and_its_record_has_failed(
    ledger: Ledger, source: MemorySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validity, "problems", lambda _item: ["wrong"])
    announce(ledger, GRIB, source)
    ledger.run_until_idle()
    [found] = records(ledger)
    fields = ("status", "last_error_code", "metadata_status", "stac_status", "provenance_status", "stac_item_id")
    refused = ["quarantined", "stac_validation_failed", "ok", "failed", "unknown", None]
    assert [found[name] for name in fields] == refused
    assert problems(found) == []
    assert queried(ledger.store, "SELECT count(*) FROM nodd_items") == [(0,)]


@pytest.mark.req("K-34")
def test_the_attempts_of_a_dataset_can_be_set(ledger: Ledger, source: MemorySource) -> None:
    gfs = shipped()["gfs"]
    policy = msgspec.structs.replace(gfs.spec.policy, max_attempts=2)
    own = Dataset("gfs", msgspec.structs.replace(gfs.spec, policy=policy))
    datasets = Datasets({dataset.name: dataset for dataset in shipped()} | {"gfs": own})
    admit(ledger.store, [FeedMessage(event(record()))], datasets)
    with ledger.store.reading() as reading:
        assert reading.jobs.get(1).max_attempts == 2
    text = (files("holdfast.nodd") / "datasets" / "gfs.toml").read_text(encoding="utf-8")
    with pytest.raises(SpecInvalidError) as refused:
        load("gfs", text.replace("min_size = 100", "min_size = 100\nmax_attempts = 0"))
    assert refused.value.context == {"dataset": "gfs", "path": "policy.max_attempts"}


@pytest.mark.req("K-41")
def test_the_time_of_an_event_without_one_is_that_of_its_envelope(ledger: Ledger) -> None:
    silent = record()
    del silent["eventTime"]
    admit(ledger.store, [FeedMessage(enveloped(event(silent)))], shipped())
    [found] = records(ledger)
    assert found["event_time"] == "2026-07-26T03:34:46.000000Z"


@pytest.mark.req("K-05", "K-22")
@pytest.mark.parametrize(
    "change, rule",
    [
        ({"stac_status": "failed"}, "stac_failure_is_no_success"),
        ({"time_range_end": "2020-01-01T00:00:00.000000Z"}, "time_range_ordered"),
        ({"updated_at": "2020-01-01T00:00:00.000000Z"}, "updated_after_created"),
        ({"last_error_message": "x"}, "message_has_code"),
        ({"status": "failed"}, "failure_has_code"),
        ({"stac_item_id": None}, "catalogued_has_item"),
        ({"stac_collection_id": "other"}, "item_in_own_collection"),
        ({"integrity_status": "failed"}, "success_of_every_operator"),
    ],
)
def test_a_record_that_breaks_a_rule_is_reported(change: dict[str, Any], rule: str) -> None:
    record = {
        "wal_id": "d1e6671d-0363-5ed1-9595-12646b8bdf50", "dataset": "gfs", "object_uri": "s3://b/k", "provider": "aws",
        "queue": "nodd-primary", "event_time": None, "time_range_start": "2026-07-26T03:00:00.000000Z",
        "time_range_end": None, "status": "succeeded", "attempts": 1, "last_attempt_at": None, "last_error_code": None,
        "last_error_message": None, "integrity_status": "ok", "metadata_status": "ok", "stac_status": "created",
        "provenance_status": "ok", "stac_item_id": "i", "stac_collection_id": "nodd-gfs", "stac_item_href": "h",
        "ingest_run_id": "r", "worker_id": "w", "replay_reason": None, "created_at": "2026-07-26T03:00:00.000000Z",
        "updated_at": "2026-07-26T03:00:01.000000Z", "version": 3,
    }  # fmt: skip
    assert list(broken_rules(record, shipped())) == []
    assert rule in list(broken_rules({**record, **change}, shipped()))


@pytest.mark.req("K-03", "K-04", "K-06")
def test_the_schema_refuses_what_is_not_declared_and_asks_for_what_is_required() -> None:
    schema = json_schema()
    [name] = [name for name, one in schema["$defs"].items() if "properties" in one]
    assert schema["$defs"][name]["required"] == [
        "wal_id", "dataset", "object_uri", "provider", "queue", "status", "attempts", "created_at", "updated_at",
        "version",
    ]  # fmt: skip
    assert any("unexpected" in error.message for error in VALIDATOR.iter_errors({"other": 1}))
    fields = schema["$defs"][name]["properties"]
    checked, emitted = ["failed", "ok", "suspect", "unknown"], ["failed", "ok", "partial", "unknown"]
    assert fields["integrity_status"]["enum"] == fields["metadata_status"]["enum"] == checked
    assert fields["stac_status"]["enum"] == ["created", "failed", "no-op", "unknown", "updated"]
    assert fields["provenance_status"]["enum"] == emitted
