"""`holdfast nodd`: from notices in files to a catalogue, without an account; and what bad input gets."""

from __future__ import annotations

import json
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.commands import Quarantine
from holdfast.nodd import samples
from holdfast.nodd.queues import WAIT_S
from holdfast.store import open_store
from tests.cli.commands import PROGRAM, holdfast
from tests.cli.replaying import counters_in
from tests.nodd.aws import Cloud
from tests.nodd.aws import cloud as cloud  # noqa: PLC0414 - a fixture
from tests.nodd.messages import GFS, chunk, event, record

BUCKET = "noaa-gfs-bdp-pds"
ENDS = dict.fromkeys(
    ("succeeded", "failed", "retried", "quarantined", "cancelled", "given_back", "expired", "unknown"), 0
)
GRIB = samples.grib2(datetime(2026, 7, 26, tzinfo=UTC), 3)


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")


def test_notices_from_files_are_listed_with_their_fates(ledger: str, tmp_path: Path) -> None:
    lines = tmp_path / "notices.jsonl"
    lines.write_text("\n".join([event(record()), event(record()), chunk(), event(record(key="x"))]) + "\n")
    garbage = tmp_path / "garbage.json"
    garbage.write_text("not json")
    found = holdfast("nodd", "admit", str(lines), str(garbage), "--db", ledger, "--json").json
    assert [list(one) for one in found] == [["fate", "dataset", "object_uri", "wal_id", "reason"]] * 5
    assert [one["fate"] for one in found] == ["admitted", "duplicate", "admitted", "ignored", "rejected"]
    assert found[0]["wal_id"] == "d1e6671d-0363-5ed1-9595-12646b8bdf50"
    assert found[3]["reason"] == "missing_dataset"
    again = holdfast("nodd", "admit", "--db", ledger, "--json", stdin=event(record()).encode()).json
    assert [one["fate"] for one in again] == ["duplicate"]
    kept = holdfast("nodd", "rejected", "--db", ledger, "--json").json
    assert [(one["code"], one["body"]) for one in kept] == [("not_json", "not json")]
    records = holdfast("nodd", "records", "--db", ledger, "--json").json
    assert sorted(one["dataset"] for one in records) == ["gfs", "nexrad-chunks"]


def test_a_queue_is_read_and_its_objects_are_catalogued(ledger: str, tmp_path: Path, cloud: Cloud) -> None:
    url, _ = cloud.queue()
    cloud.bucket(BUCKET)
    cloud.s3.put_object(Bucket=BUCKET, Key=GFS, Body=GRIB, ACL="public-read")
    head = cloud.s3.head_object(Bucket=BUCKET, Key=GFS)
    body = event(record(size=len(GRIB), eTag=head["ETag"].strip('"')))
    cloud.sqs.send_message(QueueUrl=url, MessageBody=body)
    catalog = tmp_path / "catalog"
    done = holdfast(
        "nodd", "run", "--until-idle", "--queue", url, "--endpoint", cloud.endpoint, "--catalog", str(catalog),
        "--db", ledger, "--json",
    )  # fmt: skip
    assert (done.code, done.json) == (
        0, {"fates": {"admitted": 1}, "executions": 2, "ended": {**ENDS, "succeeded": 2}}
    )  # fmt: skip
    [found] = holdfast("nodd", "records", "--status", "succeeded", "--db", ledger, "--json").json
    item = json.loads((catalog / found["stac_item_href"]).read_text(encoding="utf-8"))
    assert (item["id"], item["collection"]) == (found["stac_item_id"], "nodd-gfs")
    again = holdfast("nodd", "publish", "--catalog", str(catalog), "--db", ledger, "--json").json
    assert (again["items"], again["written"]) == (1, 0)
    shown = holdfast("check", "--db", ledger, "--json")
    assert (shown.code, shown.json["ok"]) == (0, True)


def test_the_end_of_each_attempt_is_reported(ledger: str, cloud: Cloud) -> None:
    """One object is catalogued, one is cut off, one is not there yet, one should be there and is not."""
    cloud.bucket(BUCKET)
    now = datetime.now(UTC)
    for hour, (data, announced) in enumerate(((GRIB, now), (GRIB[:-1], now), (None, now), (None, now - timedelta(1)))):
        key = f"{GFS[:-3]}10{hour}"
        fields: dict[str, Any] = {"eventTime": f"{announced:%Y-%m-%dT%H:%M:%S.000Z}"}
        if data is not None:
            cloud.s3.put_object(Bucket=BUCKET, Key=key, Body=data, ACL="public-read")
            etag = cloud.s3.head_object(Bucket=BUCKET, Key=key)["ETag"].strip('"')
            fields |= {"size": len(data), "eTag": etag}
        assert holdfast("nodd", "admit", "--db", ledger, stdin=event(record(key=key, **fields)).encode()).code == 0
    run = ("nodd", "run", "--until-idle", "--endpoint", cloud.endpoint, "--db", ledger)
    ended = {**ENDS, "succeeded": 1, "retried": 1, "quarantined": 1, "given_back": 1}
    done = holdfast(*run, "--json")
    assert (done.code, done.json) == (0, {"fates": {}, "executions": 4, "ended": ended})
    assert holdfast(*run).tells("Executions", 0)
    assert holdfast("quarantine", "release", "2", "--reason", "again", "--db", ledger).code == 0
    assert holdfast(*run).tells("Executions", 1, "1 quarantined")
    with open_store(ledger) as store, store.transaction() as transaction:
        transaction.rulings.rule([(transaction.jobs.get(4), Quarantine("poison", "x"))], actor="tests")
    for job_id in ("2", "4"):
        assert holdfast("quarantine", "release", job_id, "--reason", "again", "--db", ledger).code == 0
    done = holdfast(*run, "--json").json
    assert (done["executions"], done["ended"]) == (2, {**ENDS, "retried": 1, "quarantined": 1})


def test_a_dataset_is_paused_and_resumed(ledger: str) -> None:
    assert holdfast("nodd", "pause", "gfs", "--reason", "bad feed", "--db", ledger, "--json").json["paused"] is True
    listed = holdfast("nodd", "datasets", "--db", ledger, "--json").json
    assert [one["dataset"] for one in listed if one["paused"]] == ["gfs"]
    assert holdfast("nodd", "resume", "gfs", "--reason", "mended", "--db", ledger, "--json").json["resumed"] is True
    assert holdfast("nodd", "resume", "gfs", "--reason", "again", "--db", ledger, "--json").json["resumed"] is False


def test_the_policy_is_printed_without_an_account() -> None:
    [plan] = holdfast("nodd", "subscribe", "gfs", "--account", "123456789012", "--json").json
    assert plan["subscription"]["FilterPolicyScope"] == "MessageBody"
    assert "aws:SourceArn" in plan["queue_attributes"]["Policy"]
    names = [one["dataset"] for one in holdfast("nodd", "datasets", "--json").json]
    assert len(names) == 14
    plans = [holdfast("nodd", "subscribe", "gfs", "--env", env, "--json").json[0] for env in ("prod", "dev")]
    assert [plan["queue_attributes"]["VisibilityTimeout"] for plan in plans] == ["300", "120"]


def test_with_verify_sns_only_signed_messages_are_admitted(ledger: str, cloud: Cloud) -> None:
    url, _ = cloud.queue()
    cloud.sqs.send_message(QueueUrl=url, MessageBody=event(record()))
    run = ("nodd", "run", "--until-idle", "--queue", url, "--endpoint", cloud.endpoint, "--db", ledger, "--json")
    assert holdfast(*run, "--verify-sns").json == {"fates": {"rejected": 1}, "executions": 0, "ended": ENDS}
    assert holdfast("nodd", "rejected", "--replay", "--db", ledger, "--json").json == []
    replay = ("nodd", "rejected", "--replay", "--code", "signature_missing", "--db", ledger, "--json")
    outcome = holdfast(*replay)
    assert [one["fate"] for one in outcome.json] == ["admitted"]


def test_with_ack_after_work_a_message_is_deleted_after_its_work(ledger: str, cloud: Cloud) -> None:
    url, _ = cloud.queue()
    cloud.bucket(BUCKET)
    cloud.s3.put_object(Bucket=BUCKET, Key=GFS, Body=GRIB, ACL="public-read")
    etag = cloud.s3.head_object(Bucket=BUCKET, Key=GFS)["ETag"].strip('"')
    cloud.sqs.send_message(QueueUrl=url, MessageBody=event(record(size=len(GRIB), eTag=etag)))
    command = [
        *PROGRAM,
        "nodd",
        "run",
        "--ack-after-work",
        "--queue",
        url,
        "--endpoint",
        cloud.endpoint,
        "--db",
        ledger,
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as running:
        try:
            ends = time.monotonic() + 60
            while _messages(cloud, url) and time.monotonic() < ends:
                time.sleep(0.2)
            [found] = holdfast("nodd", "records", "--db", ledger, "--json").json
        finally:
            running.terminate()
        terminated_at = time.monotonic()
        assert running.wait(60) == 0
        assert time.monotonic() - terminated_at < WAIT_S  # it does not wait until the queue has answered
    assert (found["status"], _messages(cloud, url)) == ("succeeded", 0)


def _messages(cloud: Cloud, url: str) -> int:
    attributes = cloud.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    return sum(int(attributes[f"ApproximateNumberOfMessages{which}"]) for which in ("", "NotVisible"))


@pytest.mark.parametrize(
    "arguments, code",
    [
        (("reconcile", "nobody", "--date", "2026-07-26"), "bad_input"),
        (("reconcile", "gfs", "--date", "yesterday"), "bad_input"),
        (("backfill", "gfs", "--from", "2026-07-27", "--to", "2026-07-26"), "bad_input"),
        (("admit", "/nowhere/at/all.json"), "bad_input"),
        (("pause", "nobody", "--reason", "r"), "bad_input"),
        (("run", "--until-idle", "--ack-after-work", "--queue", "q"), "bad_input"),
        (("run", "--verify-sns"), "bad_input"),
        (("subscribe", "gfs", "--apply"), "bad_input"),
    ],
)
def test_bad_input_is_refused_with_exit_2(sqlite_ledger: str, arguments: tuple[str, ...], code: str) -> None:
    refused = holdfast("nodd", *arguments, "--db", sqlite_ledger, "--json")
    assert (refused.code, refused.error_code) == (2, code)


def test_the_doctor_finds_nothing_in_an_idle_ledger(sqlite_ledger: str) -> None:
    assert holdfast("nodd", "doctor", "--db", sqlite_ledger, "--json").json == {"ok": True, "findings": []}


@pytest.mark.req("K-60", "K-61")
def test_admission_and_a_drain_count_their_results(ledger: str, cloud: Cloud) -> None:
    lines = "\n".join([event(record()), event(record()), event(record(key="x"))])
    outcome = holdfast("nodd", "admit", "--telemetry", "console", "--db", ledger, "--json", stdin=lines.encode())
    assert [one["fate"] for one in json.loads(outcome.out)] == ["admitted", "duplicate", "ignored"]
    assert counters_in(outcome.err) == {
        "messages_parsed_total dataset=gfs status=ok": 2,
        "messages_parsed_total dataset=unknown status=ignored": 1,
    }
    dead, _ = cloud.queue()
    cloud.sqs.send_message(QueueUrl=dead, MessageBody="garbage")
    outcome = holdfast(
        "nodd", "drain-dlq", "--queue", dead, "--reason", "INC-7", "--telemetry", "console", "--endpoint",
        cloud.endpoint, "--db", ledger, "--json",
    )  # fmt: skip
    assert json.loads(outcome.out)["fates"] == {"rejected": 1}
    assert counters_in(outcome.err) == {
        "dlq_messages_total dataset=unknown env=dev queue=nodd-dlq": 1,
        "dlq_reprocessed_total ": 1,
    }


def test_a_bad_line_does_not_affect_other_lines(sqlite_ledger: str, tmp_path: Path) -> None:
    lines = tmp_path / "mixed.jsonl"
    lines.write_text("\n".join([event(record()), "garbage", chunk()]))
    spread = tmp_path / "spread.json"
    spread.write_text(json.dumps(json.loads(event(record())), indent=2))
    found = holdfast("nodd", "admit", str(lines), str(spread), "--db", sqlite_ledger, "--json").json
    assert [one["fate"] for one in found] == ["admitted", "rejected", "admitted", "duplicate"]


def test_reading_a_rejected_message_again_does_not_count_as_a_delivery(ledger: str) -> None:
    holdfast("nodd", "admit", "--db", ledger, stdin=b"garbage")
    again = holdfast("nodd", "rejected", "--replay", "--db", ledger, "--json").json
    assert [one["fate"] for one in again] == ["rejected"]
    [kept] = holdfast("nodd", "rejected", "--db", ledger, "--json").json
    assert (kept["times"], kept["replayed_at"]) == (1, None)


def test_a_snapshot_names_the_tables_it_leaves_out_and_a_ledger_without_them_is_refused(
    ledger: str, tmp_path: Path
) -> None:
    holdfast("nodd", "admit", "--db", ledger, stdin=event(record()).encode())
    file, copy = str(tmp_path / "a.snapshot"), str(tmp_path / "copy.db")
    answer = holdfast("snapshot", "create", file, "--db", ledger, "--json").json
    assert "nodd_units" in {name.rpartition(".")[2] for name in answer["not_in_it"]}
    assert holdfast("snapshot", "restore", file, "--db", copy, "--json").code == 0
    for command in (("records",), ("run", "--until-idle"), ("rejected",), ("doctor",)):
        refused = holdfast("nodd", *command, "--db", copy, "--json")
        assert (refused.code, refused.error_code) == (4, "store_damaged")
