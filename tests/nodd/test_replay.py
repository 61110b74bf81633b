"""`nodd-replay` on records of the application: what failed is selected, rehearsed, put back, and catalogued exactly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from holdfast import Ledger
from holdfast.core.records import time_text
from holdfast.nodd import provenance
from holdfast.nodd.admission import DECLARED, FeedMessage, admit
from holdfast.nodd.dataset import shipped
from holdfast.nodd.ingest import IngestSettings, declare
from holdfast.nodd.objects import S3Source
from holdfast.nodd.records import broken_rules
from holdfast.store import Lease
from tests.cli.commands import holdfast
from tests.cli.replaying import written
from tests.nodd.aws import Cloud
from tests.nodd.ingesting import BUCKET, records
from tests.nodd.messages import event, record
from tests.nodd.objects import MemorySource
from tests.nodd.replaying import (
    AT_ONCE,
    GONE,
    SINCE,
    appear,
    contents,
    contents_of_application,
    data_of,
    failed,
    items,
    key_of,
    kinds,
    lineage,
    notice,
    replay,
    texts,
    tried_once,
    undisturbed,
    yesterday,
)
from tests.nodd.replaying import no_variables as no_variables  # noqa: PLC0414 - a fixture

SWEEP = "2026/11/14/KDMX/KDMX20261114_233003_V06"


@pytest.fixture
def ledger(ledger_url: str, source: MemorySource) -> Iterator[Ledger]:
    with tried_once(ledger_url, source) as ledger:
        yield ledger


# ---------------------------------------------------------------------------------------------------------------------
# The main path


@pytest.mark.req("K-50", "K-52", "K-53", "K-54", "K-57", "K-64")
def test_failed_units_are_selected_rehearsed_replayed_and_catalogued(
    ledger: Ledger, source: MemorySource, tmp_path: Path
) -> None:
    hours = range(3, 8)
    found = failed(ledger, hours)
    spec = str(tmp_path / "gfs.yaml")
    chosen = ("--dataset", "gfs", "--error-code", GONE, *SINCE)
    selected = replay(ledger, "select", *chosen, "--save-spec", spec, "--show-examples", "1").json
    assert (selected["total"], selected["by_dataset"], selected["by_error"]) == (5, {"gfs": 5}, {GONE: 5})
    assert selected["by_operation"] == {"nodd.ingest": 5}

    before = contents(ledger.store)
    rehearsed = replay(ledger, "from-spec", spec, "--dry-run")
    assert (rehearsed.code, rehearsed.json["total"], rehearsed.json["ok"]) == (0, 5, True)
    assert contents(ledger.store) == before

    appear(source, hours)
    done = replay(ledger, "from-spec", spec, "--run", "--confirm", "--operator", "ann", "--reason", "INC-7")
    assert (done.code, done.json["state"], done.json["replayed"]) == (0, "done", 5)
    assert done.json["selection_hash"] == selected["selection_hash"]
    assert [one["status"] for one in records(ledger)] == ["pending"] * 5
    assert ledger.run_until_idle() == 5

    ended = records(ledger)
    shown = ("status", "attempts", "stac_status", "provenance_status", "replay_reason")
    assert [[one[name] for name in shown] for one in ended] == [["succeeded", 2, "created", "ok", "incident"]] * 5
    assert [one["wal_id"] for one in ended] == [one["wal_id"] for one in found]
    assert [rule for one in ended for rule in broken_rules(texts(one), shipped())] == []
    exact, statements = undisturbed(ledger, tmp_path, hours)
    assert items(ledger.store) == exact

    # Who, which selection, which records; and what it made is linked to what was tried before.
    seen = replay(ledger, "inspect", done.json["run_id"]).json
    assert (seen["actor"], seen["reason"], seen["selection_hash"]) == ("ann", "INC-7", selected["selection_hash"])
    assert [batch["replayed"] for batch in seen["touched"]] == [sorted(one["ext_job_id"] for one in ended)]
    made = {one.record_id for one in lineage(ledger.store) if one.kind == provenance.PROV}
    assert statements < made
    assert kinds(ledger.store)["wasInformedBy"] == 5

    # A second run is safe: nothing is left to replay.
    stood = contents_of_application(ledger.store)
    again = replay(ledger, "from-spec", spec, "--run", "--confirm")
    assert (again.code, again.json["state"], again.json["replayed"]) == (0, "done", 0)
    assert ledger.run_until_idle() == 0
    assert contents_of_application(ledger.store) == stood


@pytest.mark.req("K-50", "K-52", "K-64")
def test_objects_that_were_missing_are_catalogued_by_commands_alone(ledger_url: str, cloud: Cloud) -> None:
    cloud.bucket(BUCKET)
    hours = range(9, 12)
    for hour in hours:
        cloud.s3.delete_object(Bucket=BUCKET, Key=key_of(hour))
    with tried_once(ledger_url, S3Source(shipped().buckets(), endpoint=cloud.endpoint)) as ledger:
        failed(ledger, hours)
        for hour in hours:
            cloud.s3.put_object(Bucket=BUCKET, Key=key_of(hour), Body=data_of(hour), ACL="public-read")
        done = replay(ledger, "run", "--dataset", "gfs", *SINCE, "--confirm", "--batch-size", "2")
        assert (done.code, done.json["replayed"], done.json["batches"]) == (0, 3, 2)
        worked = holdfast(
            "nodd", "run", "--until-idle", "--endpoint", cloud.endpoint, "--db", ledger_url, "--json"
        )  # fmt: skip
        assert (worked.code, worked.json["executions"]) == (0, 3)
        answer = holdfast("nodd", "records", "--status", "succeeded", "--db", ledger_url, "--json").json
        assert sorted(one["object_uri"] for one in answer) == [f"s3://{BUCKET}/{key_of(hour)}" for hour in hours]
        assert len(items(ledger.store)) == 3
    assert holdfast("check", "--db", ledger_url, "--json").json["ok"] is True


# ---------------------------------------------------------------------------------------------------------------------
# Filters


@pytest.fixture
def mixed(ledger: Ledger, source: MemorySource) -> Ledger:
    """Three files of a forecast and a radar's sweep that are missing, one file that is not, and one that waits."""
    failed(ledger, range(3, 6))
    sweep = record(key=SWEEP, bucket="unidata-nexrad-level2", eventTime=time_text(yesterday(ledger.store)))
    admit(ledger.store, [FeedMessage(event(sweep))], shipped())
    appear(source, range(6, 7))
    admit(ledger.store, [notice(ledger.store, 6)], shipped())
    ledger.run_until_idle()
    admit(ledger.store, [notice(ledger.store, 7)], shipped())
    return ledger


def found_by(ledger: Ledger, tmp_path: Path, **filters: Any) -> list[str]:
    """Return the ends of the objects' names that a spec with these filters is about, whatever their state."""
    spec = {
        "apiVersion": "kfm.nodd.replay/v1alpha1",
        "kind": "ReplaySelection",
        "metadata": {"name": "s", "env": "dev"},
        "spec": {"filters": filters},
    }
    path = written(tmp_path, json.dumps(spec), f"{uuid4().hex}.json")
    answer = replay(ledger, "inspect", "--selection-file", path, "--show-fields", "object_uri").json
    return sorted(one["object_uri"][-4:] for one in answer)


@pytest.mark.req("K-52", "K-54", "K-64")
def test_every_filter_selects_by_the_fields_of_the_record(mixed: Ledger, tmp_path: Path) -> None:
    rows = {row["object_uri"][-4:]: row for row in records(mixed)}
    begin = yesterday(mixed.store)
    at = {hour: rows[f"f00{hour}"]["event_time"] for hour in (3, 4, 5)}
    everything = {"status": ["failed", "pending", "succeeded"]}
    assert found_by(mixed, tmp_path, datasets=["gfs"]) == ["f003", "f004", "f005"]
    assert found_by(mixed, tmp_path) == ["_V06", "f003", "f004", "f005"]
    assert found_by(mixed, tmp_path, datasets_exclude=["gfs"]) == ["_V06"]
    assert found_by(mixed, tmp_path, event_time={"start": at[4], "end": at[5]}) == ["f004"]
    assert found_by(mixed, tmp_path, event_time={"end": time_text(begin - timedelta(hours=1))}) == []
    assert found_by(mixed, tmp_path, created_at={"start": time_text(begin)}, **everything) == [
        "_V06", "f003", "f004", "f005", "f006", "f007",
    ]  # fmt: skip
    assert found_by(mixed, tmp_path, attempts={"max": 0}, status=["pending"]) == ["f007"]
    assert found_by(mixed, tmp_path, error_codes=["stac_validation_failed"]) == []
    assert found_by(mixed, tmp_path, error_codes=[GONE], datasets=["nexrad-l2"]) == ["_V06"]
    assert found_by(mixed, tmp_path, wal_ids=[rows["f004"]["wal_id"]]) == ["f004"]
    # A forecast is of one moment; of a sweep only the start is known.
    noon = {"start": "2026-07-26T04:00:00Z", "end": "2026-07-26T05:00:00Z"}
    assert found_by(mixed, tmp_path, time_range_overlap=noon) == ["f004"]
    assert rows["_V06"]["time_range_end"] is None
    evening = {"start": "2026-11-14T23:30:00Z", "end": "2026-11-14T23:31:00Z"}
    assert found_by(mixed, tmp_path, time_range_overlap=evening) == ["_V06"]


@pytest.mark.req("K-06", "K-52")
def test_statuses_and_ids_are_those_of_the_record(mixed: Ledger) -> None:
    with mixed.store.transaction() as transaction:
        transaction.executions.claim(Lease(owner="w", seconds=600, queues=("gfs",)))
    rows = {row["wal_id"]: row for row in records(mixed)}
    for status, n in (("failed", 4), ("pending", 0), ("in_progress", 1), ("succeeded", 1), ("quarantined", 0)):
        outcome = replay(mixed, "inspect", "--status", status).json
        assert [one["status"] for one in outcome] == [status] * n
        for one in outcome:
            row = rows[one["wal_id"]]
            assert (row["status"], row["dataset"], row["ext_job_id"]) == (status, one["dataset"], one["job_id"])
    [wal_id] = [wal_id for wal_id, row in rows.items() if row["status"] == "in_progress"]
    one = replay(mixed, "inspect", wal_id, "--show-fields", "event_time,object_uri").json
    assert (one["wal_id"], one["status"], one["state"]) == (wal_id, "in_progress", "running")
    assert (one["event_time"], one["object_uri"]) == (rows[wal_id]["event_time"], rows[wal_id]["object_uri"])
    none = replay(mixed, "inspect", str(uuid4()))
    assert (none.code, none.error_code) == (1, "record_not_found")
    # What waits or runs is never replayed.
    for status in ("pending", "in_progress"):
        outcome = replay(mixed, "select", "--dataset", "gfs", *SINCE, "--status", status)
        assert (outcome.code, outcome.error_code) == (2, "spec_invalid")


# ---------------------------------------------------------------------------------------------------------------------
# Guards


@pytest.mark.req("K-53", "K-55", "K-64")
def test_a_paused_dataset_is_not_replayed(ledger: Ledger, source: MemorySource) -> None:
    failed(ledger, range(3, 5))
    url = ledger.store.url
    assert holdfast("nodd", "pause", "gfs", "--reason", "bad feed", "--db", url, "--json").code == 0
    before = contents(ledger.store)
    chosen = ("--dataset", "gfs", *SINCE)
    outcome = replay(ledger, "run", *chosen, "--confirm")
    assert (outcome.code, outcome.error_code, outcome.json["context"]["guard_type"]) == (
        3,
        *("kill_switch_active",) * 2,
    )
    assert replay(ledger, "dry-run", *chosen).code == 3
    assert contents(ledger.store) == before
    assert holdfast("nodd", "resume", "gfs", "--reason", "mended", "--db", url, "--json").code == 0
    appear(source, range(3, 5))
    assert replay(ledger, "run", *chosen, "--confirm").json["replayed"] == 2
    assert ledger.run_until_idle() == 2
    assert [one["status"] for one in records(ledger)] == ["succeeded"] * 2


@pytest.mark.req("K-14", "K-55", "K-64")
def test_records_without_attempts_left_are_skipped_and_counted(ledger: Ledger, source: MemorySource) -> None:
    chosen: tuple[str, ...] = ("--dataset", "gfs", *SINCE)
    admit(ledger.store, [notice(ledger.store, 3)], shipped())
    source.down = True
    with Ledger(ledger.store.url) as stubborn:
        declare(stubborn, IngestSettings(datasets=shipped(), source=source, retry=AT_ONCE))
        assert stubborn.run_until_idle() == DECLARED.max_attempts
        for n in range(DECLARED.replay_attempts):
            [row] = records(ledger)
            assert (row["status"], row["attempts"]) == ("failed", DECLARED.max_attempts + n)
            assert replay(ledger, "run", *chosen, "--confirm").json["replayed"] == 1
            assert stubborn.run_until_idle() == 1
    # Without attempts left, it is quarantined, and no selection includes it.
    assert [row["status"] for row in records(ledger)] == ["quarantined"]
    assert replay(ledger, "run", *chosen, "--confirm").json["replayed"] == 0
    chosen += ("--status", "failed,quarantined")
    refused = replay(ledger, "run", *chosen, "--confirm")
    assert (refused.code, refused.json["context"]["guard_type"]) == (3, "attempts_exceeded")

    # Among others it is skipped and counted.
    admit(ledger.store, [notice(ledger.store, 4)], shipped())
    ledger.run_until_idle()
    source.down = False
    appear(source, range(3, 5))
    done = replay(ledger, "run", *chosen, "--confirm").json
    assert (done["replayed"], done["passed_over"]) == (1, {"attempts_exceeded": 1})
    ledger.run_until_idle()
    assert [(row["status"], row["attempts"]) for row in records(ledger)] == [
        ("quarantined", DECLARED.max_attempts + DECLARED.replay_attempts),
        ("succeeded", 2),
    ]
