"""Parsing of messages: every shape that the feeds send, and any other body."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.audit.check.runner import check
from holdfast.nodd import rejected as rejections
from holdfast.nodd.admission import FeedMessage, admit
from holdfast.nodd.dataset import shipped
from holdfast.nodd.feed import Feed
from holdfast.nodd.notices import IgnoredRecord, Notice, ParsedMessage, RejectedRecord, is_later, parse
from holdfast.nodd.queues import Queue, Received
from holdfast.nodd.units import Fate
from holdfast.store import Store
from tests.nodd.ingesting import queried
from tests.nodd.messages import CHUNK, GFS, GFS_TOPIC, GOES, chunk, enveloped, event, record

pytestmark = pytest.mark.attack("input")

# Ten bodies each, as the poller takes them: a thousand bodies, and a hundred thousand in `make prove`.
BATCHES = 10_000 if os.environ.get("HOLDFAST_HYPOTHESIS") == "prove" else 100
CHUNKS_TOPIC = "arn:aws:sns:us-east-1:684042711724:NewNEXRADLevel2ObjectFilterable"


def parsed(body: str) -> ParsedMessage:
    return parse(body, shipped(), sqs_message_id="m1")


@pytest.mark.req("K-41", "K-02")
def test_an_s3_event_in_the_envelope_of_sns() -> None:
    [notice] = parsed(enveloped(event(record()))).notices
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
    assert notice.wal_id == parsed(event(record())).notices[0].wal_id


@pytest.mark.req("K-41")
def test_raw_delivery_is_the_event_itself() -> None:
    [notice] = parsed(event(record())).notices
    assert (notice.dataset, notice.raw) == ("gfs", {"sqs_message_id": "m1"})


def test_every_record_of_a_message_counts() -> None:
    answer = parsed(
        event(record(), record(key="nobody/knows"), record(key=GFS.replace("f003", "f006")), record(key=""))
    )
    assert [notice.fields["fhr"] for notice in answer.notices] == ["003", "006"]
    assert answer.ignored == (IgnoredRecord("missing_dataset", "s3://noaa-gfs-bdp-pds/nobody/knows"),)
    assert answer.rejected == (RejectedRecord("missing_required_field", "s3.object.key is missing"),)


def test_keys_of_s3_events_are_encoded_and_those_of_chunks_are_not() -> None:
    encoded = "CONUS%2FPrecipRate_00.00/20261114/MRMS_PrecipRate_00.00_20261114-000000.grib2.gz"
    [notice] = parsed(event(record(key=encoded, bucket="noaa-mrms-pds"))).notices
    assert notice.key == "CONUS/PrecipRate_00.00/20261114/MRMS_PrecipRate_00.00_20261114-000000.grib2.gz"
    assert parsed(chunk(CHUNK.replace("/", "%2F"))).notices == ()


@pytest.mark.parametrize("numbers", [{}, {"VolumeID": "399", "ChunkID": "048"}, {"VolumeID": "399", "ChunkID": "48"}])
def test_a_chunk_has_a_message_of_its_own_with_numbers_or_text(numbers: dict[str, Any]) -> None:
    [notice] = parsed(enveloped(chunk(**numbers), CHUNKS_TOPIC, None)).notices
    assert (notice.dataset, notice.key, notice.size, notice.content_etag) == ("nexrad-chunks", CHUNK, None, None)
    assert (notice.time_range_start, notice.time_range_end) == ("2026-10-09T04:30:37.000000Z", None)


def test_a_chunk_whose_message_contradicts_its_key_is_rejected() -> None:
    [rejected] = parsed(chunk(VolumeID=12)).rejected
    assert (rejected.code, "VolumeID" in rejected.message) == ("missing_required_field", True)


def test_an_index_is_a_sidecar_of_its_file() -> None:
    [notice] = parsed(event(record(key=f"{GFS}.idx"))).notices
    assert (notice.sidecar_of, notice.dataset, notice.key) == (GFS, "gfs", f"{GFS}.idx")


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.4", "2.5"])
def test_any_event_version_2_is_read(version: str) -> None:
    assert len(parsed(event(record(eventVersion=version))).notices) == 1


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
def test_an_unreadable_message_is_rejected_with_a_code(body: str, code: str) -> None:
    answer = parsed(body)
    assert (answer.notices, answer.ignored, [found.code for found in answer.rejected]) == ((), (), [code])


@pytest.mark.parametrize(
    "body, reason",
    [
        (json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "b"}), "test_event"),
        (enveloped(json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "b"})), "test_event"),
        (event(record(eventName="ObjectRemoved:Delete")), "not_created"),
        (event(record(bucket="somebody-elses")), "unknown_bucket"),
        (event(record(key=GOES)), "missing_dataset"),
        (event(), "no_records"),
        (
            json.dumps({"Type": "SubscriptionConfirmation", "TopicArn": GFS_TOPIC, "Message": "x"}),
            "subscription_message",
        ),
    ],
)
def test_a_record_without_work_is_ignored_with_a_reason(body: str, reason: str) -> None:
    answer = parsed(body)
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
def test_the_later_of_two_writes(
    sequencer: str | None, etag: str | None, known_sequencer: str | None, known_etag: str | None, later: bool
) -> None:
    [notice] = parsed(event(record(sequencer=sequencer, eTag=etag))).notices
    assert is_later(notice, known_sequencer, {known_etag}) is later


# ---------------------------------------------------------------------------------------------------------------------
# Any other body

GOLDEN = [path.read_text(encoding="utf-8") for path in sorted((Path(__file__).parent / "golden").glob("*.json"))]

_SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30)
_JSON = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=6,
)
# Values at an edge: the first and the last moment, half a character, a key that names no time.
_EDGES = st.sampled_from([
    "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-02-30T00:00:00Z", "\ud800", "\x00", "%ff", "%00",
    "gfs.99991231/23/atmos/gfs.t23z.pgrb2.0p25.f999", "gfs.00010101/00/atmos/gfs.t00z.pgrb2.0p25.f000",
    "gfs.20261399/00/atmos/gfs.t00z.pgrb2.0p25.f003", f"{GFS}.idx", "noaa-mrms-pds", "2.9", "3", "s3:ObjectCreated:Put",
    "F" * 1024, "", " ", 2**63, -1, 1e308,
])  # fmt: skip
_PATHS = (
    ("eventVersion",), ("eventName",), ("eventTime",), ("s3",), ("s3", "bucket"), ("s3", "bucket", "name"),
    ("s3", "object"), ("s3", "object", "key"), ("s3", "object", "size"), ("s3", "object", "sequencer"),
    ("s3", "object", "eTag"), ("s3", "object", "versionId"),
)  # fmt: skip
_FIELDS = ("S3Bucket", "Key", "SiteID", "DateTime", "VolumeID", "ChunkID", "ChunkType", "L2Version")


def _changed(path: tuple[str, ...], value: Any, wrapped: bool) -> str:
    """Return a message with one record in which the value at one place is replaced."""
    changed = record()
    inner: Any = changed
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return enveloped(event(changed)) if wrapped else event(changed)


def _spliced(text: str, at: int, length: int, put: str) -> str:
    start = at % len(text)
    return text[:start] + put + text[start + length :]


_RECORDS = st.builds(_changed, st.sampled_from(_PATHS), _EDGES | _JSON, st.booleans())
_CHUNKS = st.builds(lambda name, value: chunk(**{name: value}), st.sampled_from(_FIELDS), _EDGES | _JSON)
_SPLICED = st.builds(
    _spliced, st.sampled_from(GOLDEN), st.integers(0, 4000), st.integers(0, 40), st.text(max_size=8) | st.just("null")
)
_BODIES = st.one_of(st.text(), _JSON.map(json.dumps), _RECORDS, _CHUNKS, _SPLICED)


def lambda_of_sns(*messages: str) -> str:
    """Return what Lambda gives a function that a topic calls."""
    records = [
        {"EventSource": "aws:sns", "EventVersion": "1.0", "EventSubscriptionArn": GFS_TOPIC, "Sns": json.loads(one)}
        for one in messages
    ]
    return json.dumps({"Records": records})


def lambda_of_sqs(*bodies: str) -> str:
    """Return what Lambda gives a function that reads a queue."""
    records = [
        {"messageId": f"q{number}", "receiptHandle": "r", "body": body, "attributes": {}, "eventSource": "aws:sqs"}
        for number, body in enumerate(bodies)
    ]
    return json.dumps({"Records": records})


@pytest.mark.req("K-41")
def test_records_of_lambda_and_of_sqs_are_unwrapped() -> None:
    first = event(record(), record(key=GFS.replace("f003", "f006")))
    inside = [enveloped(first), enveloped(event(record(key=GFS.replace("f003", "f009"))))]
    for body in (lambda_of_sns(*inside), lambda_of_sqs(*inside), lambda_of_sqs(lambda_of_sns(*inside))):
        found = parsed(body)
        assert [notice.fields["fhr"] for notice in found.notices] == ["003", "006", "009"]
        assert (found.ignored, found.rejected) == ((), ())
        assert {notice.raw["topic_arn"] for notice in found.notices} == {GFS_TOPIC}
    assert [notice.raw["sqs_message_id"] for notice in parsed(lambda_of_sqs(*inside)).notices] == ["q0", "q0", "q1"]
    deep = event(record())
    for _ in range(6):
        deep = lambda_of_sqs(deep)
    assert [one.code for one in parsed(deep).rejected] == ["missing_required_field"]
    mixed = json.dumps({"Records": [record(), json.loads(lambda_of_sqs(event(record())))["Records"][0]]})
    assert [one.code for one in parsed(mixed).rejected] == ["missing_required_field"]


@pytest.mark.req("K-41")
def test_the_bucket_of_chunks_can_send_events_of_s3() -> None:
    [notice] = parsed(event(record(key=CHUNK, bucket="unidata-nexrad-level2-chunks"))).notices
    assert (notice.dataset, notice.size, notice.fields["chunk"]) == ("nexrad-chunks", 1063054, "048")


@pytest.mark.req("K-41")
def test_a_cycle_that_is_not_the_hour_of_its_directory_is_rejected() -> None:
    [rejected] = parsed(event(record(key=GFS.replace("t00z", "t06z")))).rejected
    assert rejected.code == "invalid_time_range"


def test_ignored_records_are_listed_by_reason_and_shape(store: Store[Any]) -> None:
    bodies = [event(record(key=f"gfs.2026072{n}/README.txt")) for n in range(3)]
    bodies += [event(record(bucket="somebody-elses"))]
    admit(store, [FeedMessage(body) for body in bodies], shipped())
    admit(store, [FeedMessage(bodies[0])], shipped())
    found = {(one.reason, one.shape): one for one in rejections.ignored(store)}
    assert {key: one.times for key, one in found.items()} == {
        ("missing_dataset", "s3://noaa-gfs-bdp-pds/gfs.#/README.txt"): 4,
        ("unknown_bucket", "s3://somebody-elses/gfs.#/#/atmos/gfs.t#z.pgrb#.#p#.f#"): 1,
    }
    assert [one.reason for one in rejections.ignored(store, reason="unknown_bucket")] == ["unknown_bucket"]


@given(st.one_of(st.binary(), _BODIES))
def test_any_body_gets_an_answer(body: str | bytes) -> None:
    answer = parse(body, shipped())
    assert len(answer.notices) + len(answer.ignored) + len(answer.rejected) >= 1


@given(_RECORDS)
def test_a_record_with_anything_anywhere_gets_one_answer(body: str) -> None:
    answer = parse(body, shipped())
    assert len(answer.notices) + len(answer.ignored) + len(answer.rejected) == 1


class Line(Queue):
    """A queue in memory that gives a message again and again until it is deleted: SQS itself takes no such bodies."""

    def __init__(self, bodies: Sequence[str]) -> None:
        self.held = {
            f"m{n}": Received(body, f"m{n}", f"r{n}", sent_at_ms=None, attributes={}) for n, body in enumerate(bodies)
        }

    def receive(self, *, wait_s: int = 0, n: int = 10, visibility_s: int | None = None) -> list[Received]:
        """Return the first that are left."""
        del wait_s, visibility_s
        return list(self.held.values())[:n]

    def delete(self, messages: Sequence[Received]) -> list[Received]:
        """Delete messages."""
        for message in messages:
            del self.held[message.message_id]
        return []


def kept_as(body: str) -> str:
    """Return the id under which a body that was rejected is kept."""
    text = body.encode(errors="backslashreplace").decode().replace("\x00", "\\x00")
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.timeout(1800)  # a hundred thousand take some minutes
@pytest.mark.req("K-41")
def test_no_body_stops_the_poller_and_none_is_lost(store: Store[Any]) -> None:
    total: Counter[str] = Counter()
    expected: set[str] = set()

    @given(st.lists(_BODIES, min_size=10, max_size=10))
    @settings(max_examples=BATCHES, database=None)
    def poll(bodies: list[str]) -> None:
        line = Line(bodies)
        polled = Feed(store, line, shipped()).poll(wait_s=0)
        assert (polled.received, polled.left, line.held) == (10, 0, {})
        fates = Counter((found.message_id, str(found.fate)) for found in polled.admitted)
        for n, body in enumerate(bodies):
            said = parse(body, shipped())
            mine = {fate: times for (message, fate), times in fates.items() if message == f"m{n}"}
            # Each record of each message has one fate, and what cannot be read is rejected, never dropped.
            assert sum(mine.values()) == len(said.notices) + len(said.ignored) + len(said.rejected) >= 1
            assert (mine.get("ignored", 0), mine.get("rejected", 0)) == (len(said.ignored), len(said.rejected))
            if said.rejected:
                expected.add(kept_as(body))
        reasons = [found.reason for found in polled.admitted if found.fate in (Fate.IGNORED, Fate.REJECTED)]
        assert all(reasons)
        total.update(str(found.fate) for found in polled.admitted)
        total["bodies"] += len(bodies)

    poll()
    assert total["bodies"] >= 10 * BATCHES
    # At the end the ledger holds every announced object.
    counted = dict(queried(store, "SELECT fate, sum(n) FROM nodd_counts GROUP BY fate"))
    assert {fate: int(n) for fate, n in counted.items()} == {name: n for name, n in total.items() if name != "bodies"}
    kept = queried(store, "SELECT sha256, body FROM nodd_rejected")
    assert {digest for digest, _ in kept} == expected
    assert [digest for digest, body in kept if hashlib.sha256(body.encode()).hexdigest() != digest] == []
    [[units]] = queried(store, "SELECT count(*) FROM nodd_units u JOIN holdfast_jobs j ON j.job_id = u.job_id")
    admitted = queried(store, "SELECT count(*) FROM holdfast_jobs WHERE operation = 'nodd.ingest'")
    assert (admitted, total["admitted"] >= units > 0) == ([(units,)], True)
    assert {"ignored", "rejected", "duplicate"} <= set(total)
    assert check(store).violations == ()


def test_a_body_at_an_edge_of_time_or_text_is_rejected_and_kept(store: Store[Any]) -> None:
    last = "gfs.99991231/23/atmos/gfs.t23z.pgrb2.0p25.f999"
    bodies = [
        event(record(eventTime="0001-01-01T00:00:00+14:00")),
        event(record(eventTime="9999-12-31T23:59:59-14:00")),
        event(record(key=last)),
        event(record(key="\ud800")),
        event(record(eventVersion="3\x00\ud800")),
    ]
    polled = Feed(store, Line(bodies), shipped()).poll(wait_s=0)
    reasons = [found.reason or "" for found in polled.admitted]
    assert [reason.partition(": ")[0] for reason in reasons] == [
        "invalid_time_range",
        "invalid_time_range",
        "invalid_time_range",
        "missing_required_field",
        "unsupported_schema_version",
    ]
    for reason, part in zip(reasons, ("eventTime", "eventTime", last, "key", "3\\x00\\ud800"), strict=True):
        assert part in reason
    assert {digest for [digest] in queried(store, "SELECT sha256 FROM nodd_rejected")} == {
        kept_as(one) for one in bodies
    }


def test_a_key_that_would_be_written_in_another_form_is_rejected(store: Store[Any]) -> None:
    decomposed = event(record(key="gfs.e\u0301/x"))
    polled = Feed(store, Line([decomposed]), shipped()).poll(wait_s=0)
    [found] = polled.admitted
    assert (found.reason or "").partition(": ")[0] == "missing_required_field"
    assert queried(store, "SELECT sha256 FROM nodd_rejected") == [(kept_as(decomposed),)]
    assert queried(store, "SELECT count(*) FROM nodd_units") == [(0,)]
    composed = event(record(key="gfs.\u00e9/x"))
    polled = Feed(store, Line([composed]), shipped()).poll(wait_s=0)
    assert [found.reason for found in polled.admitted] == ["missing_dataset"]


def test_ignored_records_are_printed_as_plain_text() -> None:
    [ignored] = parsed(event(record(bucket="some\x00where\ud800", eventName="ObjectRemoved:Delete"))).ignored
    assert ignored == IgnoredRecord("not_created", f"s3://some\\x00where\\ud800/{GFS}")
