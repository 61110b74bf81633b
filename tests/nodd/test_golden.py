"""Golden messages: every shape that the feeds send, byte for byte, and beside each its complete parsed answer."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from holdfast.nodd.dataset import shipped
from holdfast.nodd.notices import ParsedMessage, parse

GOLDEN = Path(__file__).parent / "golden"

_ENVELOPE = (
    '{"Type":"Notification","MessageId":', ',"TopicArn":', ',"Subject":"Amazon S3 Notification"', ',"Message":"{',
    ',"Timestamp":', ',"SignatureVersion":"1"', ',"Signature":', ',"SigningCertURL":', ',"UnsubscribeURL":',
)  # fmt: skip
_RECORD = (
    r"\"eventSource\":\"aws:s3\",\"awsRegion\":", r"\"eventTime\":", r"\"userIdentity\":", r"\"requestParameters\":",
    r"\"responseElements\":", r"\"s3\":{\"s3SchemaVersion\":\"1.0\",\"configurationId\":", r"\"bucket\":{\"name\":",
    r"\"ownerIdentity\":", r"\"arn\":", r"\"sequencer\":\"005D48DA450E238E88\"}}}]}",
)  # fmt: skip
_CHUNK = (
    '{"S3Bucket":"unidata-nexrad-level2-chunks","Key":"KTLX/399/20261009-043037-048-I","SiteID":"KTLX",'
    '"DateTime":"2026-10-09T04:30:37","VolumeID":399,"ChunkID":48,"ChunkType":"I","L2Version":"V06"}'
)
_CHUNK_TEXT = _CHUNK.replace(":399,", ':"399",').replace(":48,", ':"48",')


def _quoted(text: str) -> str:
    return json.dumps(text)[1:-1]


# Every shape that is known of the feeds, and what each must have in it to be that shape.
SHAPES: dict[str, tuple[str, ...]] = {
    # An S3 event in the envelope of SNS, as captured: of a satellite whose feed is off, of one whose feed is on, and of
    # an object that was written in parts, whose ETag is no MD5.
    "a-envelope-goes17": (
        *_ENVELOPE, *_RECORD, r"{\"Records\":[{\"eventVersion\":\"2.1\"", r"\"eventName\":\"ObjectCreated:Put\"",
        r"\"key\":\"ABI-L1b-RadM/2019/", r"_G17_", r"\"size\":1063054,\"eTag\":\"7239138a465f83a247851a1a64ac8927\"",
    ),
    "a-envelope-goes18": (*_ENVELOPE, *_RECORD, "_G18_"),
    "a-envelope-multipart": (
        *_ENVELOPE, *_RECORD, r"\"eventName\":\"ObjectCreated:CompleteMultipartUpload\"",
        r"\"size\":24209676,\"eTag\":\"92917931abf93d1adfe0f1d8dce3b293-3\"",
    ),
    # Raw delivery: the event itself.
    "b-raw": ('{"Records":[{"eventVersion":"2.1"',),
    # The feed of chunks: no S3 event, and numbers in some deliveries where others have text.
    "c-chunk-numbers": (_quoted(_CHUNK), '"VolumeID":{"Type":"Number"', '"ChunkID":{"Type":"Number"'),
    "c-chunk-strings": (_quoted(_CHUNK_TEXT), '"VolumeID":{"Type":"String"', '"ChunkID":{"Type":"String"'),
    "c-chunk-raw": (_CHUNK,),
    "c-chunk-key-is-not-encoded": ('"Key":"KTLX%2F399%2F',),
    # The first message of every new configuration.
    "d-test-event": ('{"Service":"Amazon S3","Event":"s3:TestEvent","Time":', ',"Bucket":'),
    "d-test-event-enveloped": (*_ENVELOPE, r"{\"Service\":\"Amazon S3\",\"Event\":\"s3:TestEvent\",\"Time\":"),
    # The rules of reading.
    "rule-all-records": (r"},{\"eventVersion\"",),
    "rule-encoded-key-of-s3": ("MRMS%5FPrecipRate",),
    "rule-encoded-key-of-no-dataset": ("blendv5.0_conus_sky_2026-10-05T12%3A00_2026-10-05T13%3A00.tif",),
    "rule-plus-is-a-space": ("READ+ME",),
    "rule-event-version-2.0": ('"eventVersion":"2.0"',),
    "rule-event-version-2.4": ('"eventVersion":"2.4"',),
    "rule-event-version-2.5": ('"eventVersion":"2.5"',),
    "rule-event-version-3.0": ('"eventVersion":"3.0"',),
    "rule-unknown-fields": ('"newField":', '"anotherField":', '"glacierEventData":'),
    "rule-created-of-any-kind": (
        '"ObjectCreated:Put"', '"ObjectCreated:Post"', '"ObjectCreated:Copy"',
        '"ObjectCreated:CompleteMultipartUpload"',
    ),
    "rule-removed": ('"ObjectRemoved:Delete"', '"ObjectRemoved:DeleteMarkerCreated"'),
    "rule-unknown-bucket": ('"name":"noaa-himawari9"',),
    "rule-unknown-key": ('"key":"gfs.20260726/README.txt"',),
    "rule-sidecar": (".idx",),
    # Which of two writes of one object is later.
    "semantics-no-sequencer": ('"eTag":"7239138a465f83a247851a1a64ac8927"}',),
    "semantics-version-id": ('"versionId":',),
}  # fmt: skip


def body_of(shape: str) -> bytes:
    return (GOLDEN / f"{shape}.json").read_bytes()


def whole(said: ParsedMessage) -> object:
    """Return everything that an answer holds, with the id that follows from each notice, as JSON has it."""
    notices = [{"wal_id": notice.wal_id, **msgspec.to_builtins(notice)} for notice in said.notices]
    return msgspec.json.decode(msgspec.json.encode({**msgspec.to_builtins(said), "notices": notices}))


@pytest.mark.req("K-41")
def test_every_shape_has_its_file_and_its_answer() -> None:
    expected = {name for shape in SHAPES for name in (f"{shape}.json", f"{shape}.parsed.json")}
    assert {path.name for path in GOLDEN.iterdir()} == expected


@pytest.mark.req("K-41")
@pytest.mark.parametrize("shape", SHAPES)
def test_a_file_is_of_its_shape_to_the_byte(shape: str) -> None:
    text = body_of(shape).decode()
    assert [part for part in SHAPES[shape] if part not in text] == []
    # As it is sent: on one line, with nothing before it or after it.
    assert json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False) == text


@pytest.mark.req("K-02", "K-41")
@pytest.mark.parametrize("shape", SHAPES)
def test_a_golden_message_parses_to_its_golden_answer(shape: str) -> None:
    expected = json.loads((GOLDEN / f"{shape}.parsed.json").read_text(encoding="utf-8"))
    assert whole(parse(body_of(shape), shipped(), sqs_message_id="m1")) == expected
    # A queue gives text, a file may give bytes.
    assert whole(parse(body_of(shape).decode(), shipped(), sqs_message_id="m1")) == expected


def test_every_answer_is_there() -> None:
    """Require a varied set: notices, what is ignored and what is rejected all occur, with these reasons."""
    answers = [json.loads((GOLDEN / f"{shape}.parsed.json").read_text(encoding="utf-8")) for shape in SHAPES]
    assert {notice["dataset"] for answer in answers for notice in answer["notices"]} == {
        "gfs", "goes-abi", "mrms", "nexrad-chunks",
    }  # fmt: skip
    assert {ignored["reason"] for answer in answers for ignored in answer["ignored"]} == {
        "missing_dataset", "not_created", "test_event", "unknown_bucket",
    }  # fmt: skip
    assert {rejected["code"] for answer in answers for rejected in answer["rejected"]} == {
        "missing_required_field", "unsupported_schema_version",
    }  # fmt: skip
