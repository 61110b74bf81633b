"""What messages say: every shape that the feeds have, and whatever else arrives."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.nodd.dataset import shipped
from holdfast.nodd.notices import Ignored, Notice, Parsed, Rejected, is_later, parsed
from tests.nodd.messages import CHUNK, GFS, GFS_TOPIC, GOES, chunk, enveloped, event, record

CHUNKS_TOPIC = "arn:aws:sns:us-east-1:684042711724:NewNEXRADLevel2ObjectFilterable"


def told(body: str) -> Parsed:
    return parsed(body, shipped(), sqs_message_id="m1")


@pytest.mark.req("K-41", "K-02")
def test_an_s3_event_in_the_envelope_of_sns() -> None:
    [notice] = told(enveloped(event(record()))).notices
    assert notice == Notice(
        dataset="gfs",
        object_uri=f"s3://noaa-gfs-bdp-pds/{GFS}",
        bucket="noaa-gfs-bdp-pds",
        key=GFS,
        event_time="2026-07-26T03:34:45.250000Z",
        time_range_start="2026-07-26T03:00:00.000000Z",
        time_range_end="2026-07-26T03:00:00.000000Z",
        reference_time="2026-07-26T00:00:00.000000Z",
        content_etag="7239138a465f83a247851a1a64ac8927",
        size=1063054,
        sequencer="005D48DA450E238E88",
        fields={
            "model": "gfs", "date": "20260726", "hour": "00", "component": "atmos", "cycle": "00",
            "product": "pgrb2.0p25", "fhr": "003",
        },
        raw={
            "sqs_message_id": "m1", "sns_message_id": "0b1c8fd4-1", "topic_arn": GFS_TOPIC,
            "subject": "Amazon S3 Notification",
        },
    )  # fmt: skip
    assert notice.wal_id == "d1e6671d-0363-5ed1-9595-12646b8bdf50"  # for ever
    assert notice.wal_id == told(event(record())).notices[0].wal_id


@pytest.mark.req("K-41")
def test_raw_delivery_is_the_event_itself() -> None:
    [notice] = told(event(record())).notices
    assert (notice.dataset, notice.raw) == ("gfs", {"sqs_message_id": "m1"})


def test_every_record_of_a_message_counts() -> None:
    answer = told(event(record(), record(key="nobody/knows"), record(key=GFS.replace("f003", "f006")), record(key="")))
    assert [notice.fields["fhr"] for notice in answer.notices] == ["003", "006"]
    assert answer.ignored == (Ignored("missing_dataset", "s3://noaa-gfs-bdp-pds/nobody/knows"),)
    assert answer.rejected == (Rejected("missing_required_field", "s3.object.key is missing"),)


def test_keys_of_s3_events_are_encoded_and_those_of_chunks_are_not() -> None:
    encoded = "CONUS%2FPrecipRate_00.00/20261114/MRMS_PrecipRate_00.00_20261114-000000.grib2.gz"
    [notice] = told(event(record(key=encoded, bucket="noaa-mrms-pds"))).notices
    assert notice.key == "CONUS/PrecipRate_00.00/20261114/MRMS_PrecipRate_00.00_20261114-000000.grib2.gz"
    assert told(chunk(CHUNK.replace("/", "%2F"))).notices == ()


@pytest.mark.parametrize("numbers", [{}, {"VolumeID": "399", "ChunkID": "048"}, {"VolumeID": "399", "ChunkID": "48"}])
def test_a_chunk_has_a_message_of_its_own_with_numbers_or_text(numbers: dict[str, Any]) -> None:
    [notice] = told(enveloped(chunk(**numbers), CHUNKS_TOPIC, None)).notices
    assert (notice.dataset, notice.key, notice.size, notice.content_etag) == ("nexrad-chunks", CHUNK, None, None)
    assert (notice.time_range_start, notice.time_range_end) == ("2026-10-09T04:30:37.000000Z", None)


def test_a_chunk_whose_message_contradicts_its_key_is_rejected() -> None:
    assert told(chunk(VolumeID=12)).rejected == (
        Rejected("missing_required_field", "VolumeID is not what the key says"),
    )


def test_an_index_is_a_sidecar_of_its_file() -> None:
    [notice] = told(event(record(key=f"{GFS}.idx"))).notices
    assert (notice.sidecar_of, notice.dataset, notice.key) == (GFS, "gfs", f"{GFS}.idx")


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.4", "2.5"])
def test_any_event_version_2_is_read(version: str) -> None:
    assert len(told(event(record(eventVersion=version))).notices) == 1


@pytest.mark.req("K-41")
@pytest.mark.parametrize(
    "body, code",
    [
        ("", "not_json"),
        ("[1]", "not_json"),
        ("\ud800", "not_json"),
        ("{}", "missing_required_field"),
        (enveloped("{}", "arn:aws:sns:us-east-1:000000000000:Other"), "unroutable_topic"),
        (enveloped("{}"), "missing_required_field"),
        (enveloped("nothing"), "not_json"),
        (json.dumps({"Records": {}}), "missing_required_field"),
        (json.dumps({"Records": [7]}), "missing_required_field"),
        (event(record(eventVersion="3.0")), "unsupported_schema_version"),
        (event(record(size=-1)), "missing_required_field"),
        (event(record(size=True)), "missing_required_field"),
        (event(record(sequencer="XYZ")), "missing_required_field"),
        (event(record(eventTime="yesterday")), "invalid_time_range"),
        (event(record(key="gfs.20261399/00/atmos/gfs.t00z.pgrb2.0p25.f003")), "invalid_time_range"),
    ],
)
def test_what_cannot_be_understood_is_rejected_with_a_code(body: str, code: str) -> None:
    answer = told(body)
    assert (answer.notices, answer.ignored, [found.code for found in answer.rejected]) == ((), (), [code])


@pytest.mark.parametrize(
    "body, reason",
    [
        (json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "b"}), "test_event"),
        (enveloped(json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "b"})), "test_event"),
        (event(record(eventName="ObjectRemoved:Delete")), "not_created"),
        (event(record(bucket="somebody-elses")), "unroutable_topic"),
        (event(record(key=GOES)), "missing_dataset"),
        (event(), "no_records"),
        (
            json.dumps({"Type": "SubscriptionConfirmation", "TopicArn": GFS_TOPIC, "Message": "x"}),
            "subscription_message",
        ),
    ],
)
def test_what_is_no_work_is_ignored_with_a_reason(body: str, reason: str) -> None:
    answer = told(body)
    assert (answer.notices, answer.rejected, [found.reason for found in answer.ignored]) == ((), (), [reason])


@pytest.mark.parametrize(
    "sequencer, etag, known_sequencer, known_etag, later",
    [
        ("0A", "a", "09", "b", True),
        ("9", "a", "0A", "b", False),
        ("00000A", "a", "A", "b", False),
        ("10", "a", "0F", "a", True),
        (None, "a", "0F", "b", True),
        (None, "a", None, "a", False),
        (None, None, None, "a", False),
    ],
)
def test_which_write_is_later(
    sequencer: str | None, etag: str | None, known_sequencer: str | None, known_etag: str | None, later: bool
) -> None:
    [notice] = told(event(record(sequencer=sequencer, eTag=etag))).notices
    assert is_later(notice, known_sequencer, known_etag) is later


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
_PATHS = (
    ("eventVersion",), ("eventName",), ("eventTime",), ("s3",), ("s3", "bucket"), ("s3", "bucket", "name"),
    ("s3", "object"), ("s3", "object", "key"), ("s3", "object", "size"), ("s3", "object", "sequencer"),
)  # fmt: skip


@given(st.one_of(st.text(), st.binary(), _JSON.map(json.dumps)))
@settings(max_examples=300)
def test_any_body_gets_an_answer(body: str | bytes) -> None:
    answer = parsed(body, shipped())
    assert len(answer.notices) + len(answer.ignored) + len(answer.rejected) >= 1


@given(st.sampled_from(_PATHS), _JSON, st.booleans())
@settings(max_examples=700)
def test_a_record_with_anything_anywhere_gets_one_answer(path: tuple[str, ...], value: Any, wrapped: bool) -> None:
    changed = record()
    inner: Any = changed
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    body = enveloped(event(changed)) if wrapped else event(changed)
    answer = parsed(body, shipped())
    assert len(answer.notices) + len(answer.ignored) + len(answer.rejected) == 1
