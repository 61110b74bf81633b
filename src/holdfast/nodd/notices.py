"""Notices: messages of a feed, in all formats that the feeds use.

`parse(body)` takes the body of an SQS message and returns notices (an object of a dataset was written), ignored records
and rejected records, each with a reason.

Invariants: any text gives a result, never an exception; a notice is always complete; keys are decoded only where the
feed encodes them; a rejected record does not affect the other records of its message; no clock is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from unicodedata import is_normalized
from urllib.parse import unquote_plus
from uuid import UUID, uuid5

import msgspec

from holdfast.core.digest import Json
from holdfast.core.errors import InputError
from holdfast.core.json_input import loads
from holdfast.core.records import time_text
from holdfast.nodd.dataset import Datasets, Match

BODY_BYTES_MAX = 1 << 20  # SQS takes no more
NAMESPACE = UUID("7b0c4b0e-6f0e-5b7e-9d53-1f5c3f6a2a11")
SCHEMA_VERSION = "1.0"
RECORDS_MAX = 1000
DEPTH_MAX = 3  # of records within records
KEY_BYTES_MAX = 1024
SIZE_MAX = 5 * 2**40


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A notice that an object of a dataset was written: the complete envelope of message-parse."""

    dataset: str
    object_uri: str
    bucket: str
    key: str
    provider: str = "aws"
    event_time: str | None = None
    time_range_start: str
    time_range_end: str | None = None
    reference_time: str | None = None
    content_etag: str | None = None
    size: int | None = None
    sequencer: str | None = None
    version_id: str | None = None
    priority: str = "normal"
    schema_version: str = SCHEMA_VERSION
    fields: dict[str, str] = {}
    sidecar_of: str | None = None  # the key of the object that it belongs to
    raw: dict[str, str | None] = {}  # sqs_message_id, sns_message_id, topic_arn, subject

    @property
    def wal_id(self) -> str:
        """Return the id of the unit of work, which depends only on dataset, object and start time."""
        return wal_id(self.dataset, self.object_uri, self.time_range_start)


class IgnoredRecord(msgspec.Struct, frozen=True):
    """A record that needs no work: a test event, a removal, an object of no dataset."""

    reason: str
    subject: str


class RejectedRecord(msgspec.Struct, frozen=True):
    """A message or record that cannot be parsed; its body is stored."""

    code: str
    message: str


class ParsedMessage(msgspec.Struct, frozen=True):
    """The content of one message."""

    notices: tuple[Notice, ...] = ()
    ignored: tuple[IgnoredRecord, ...] = ()
    rejected: tuple[RejectedRecord, ...] = ()


class _RejectError(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message

    def record(self) -> RejectedRecord:
        return RejectedRecord(self.code, _plain(self.message))


class _IgnoreError(Exception):
    def __init__(self, reason: str, subject: str) -> None:
        super().__init__(reason)
        self.reason, self.subject = reason, subject

    def record(self) -> IgnoredRecord:
        return IgnoredRecord(self.reason, _plain(self.subject))


def listed_notice(
    datasets: Datasets, bucket: str, key: str, *, size: int, etag: str | None, written_at: datetime | None
) -> Notice | None:
    """Return a notice for an object of a listing; None if it belongs to no dataset, or its key has no valid time."""
    raw = {"subject": "listing"}
    event_time = time_text(written_at) if written_at else None
    try:
        match = datasets.match(bucket, key)
        if match is None:
            return None
        return _notice(match, bucket, raw, event_time=event_time, content_etag=etag, size=size, priority="low")
    except _RejectError:
        return None


def wal_id(dataset: str, object_uri: str, time_range_start: str) -> str:
    """Return the id of a unit: the UUIDv5 of its dataset, object and start time."""
    return str(uuid5(NAMESPACE, f"{dataset}|{object_uri}|{time_range_start}"))


def parse(body: str | bytes, datasets: Datasets, *, sqs_message_id: str | None = None) -> ParsedMessage:
    """Parse the body of an SQS message."""
    notices: list[Notice] = []
    ignored: list[IgnoredRecord] = []
    rejected: list[RejectedRecord] = []
    try:
        for take in _all_records(_object(body, "the body"), _Envelope(), sqs_message_id, datasets):
            try:
                notices.append(take())
            except _IgnoreError as aside:
                ignored.append(aside.record())
            except _RejectError as unclear:
                rejected.append(unclear.record())
    except _IgnoreError as aside:
        ignored.append(aside.record())
    except _RejectError as unclear:
        rejected.append(unclear.record())
    return ParsedMessage(tuple(notices), tuple(ignored), tuple(rejected))


# ---------------------------------------------------------------------------------------------------------------------
# Envelopes


def _object(text: str | bytes, what: str) -> dict[str, Json]:
    try:
        value = loads(text, size_max=BODY_BYTES_MAX)
    except InputError as error:
        raise _RejectError("not_json", f"{what} is not JSON: {error.code}") from None
    if not isinstance(value, dict):
        raise _RejectError("not_json", f"{what} is not an object")
    return value


class _Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """What the envelope of SNS says about a message; nothing for a message without one."""

    raw: dict[str, str | None] = {}
    sent_at: str | None = None

    @property
    def topic(self) -> str | None:
        return self.raw.get("topic_arn")


def _unwrapped(outer: dict[str, Json]) -> tuple[dict[str, Json], _Envelope]:
    """Return the message without the envelope of SNS, and the envelope if there is one."""
    if "Message" not in outer or "TopicArn" not in outer:
        return outer, _Envelope()
    raw = {
        "sns_message_id": _text_or_none(outer.get("MessageId")),
        "topic_arn": _text_or_none(outer["TopicArn"]),
        "subject": _text_or_none(outer.get("Subject")),
    }
    if outer.get("Type") in ("SubscriptionConfirmation", "UnsubscribeConfirmation"):
        raise _IgnoreError("subscription_message", raw["topic_arn"] or "")
    inner = outer["Message"]
    if not isinstance(inner, str):
        raise _RejectError("missing_required_field", "Message is not text")
    return _object(inner, "Message"), _Envelope(raw=raw, sent_at=_moment(outer, "Timestamp"))


def _all_records(
    outer: dict[str, Json], around: _Envelope, sqs_message_id: str | None, datasets: Datasets, depth: int = 0
) -> Iterator[Any]:
    """Yield a function for each record of a message, also inside records of Lambda, and of SQS as Lambda has them."""
    message, envelope = _unwrapped(outer)
    envelope = envelope if envelope.raw else around
    records = message.get("Records")
    wrapped = [_inner(one) for one in records] if isinstance(records, list) else []
    if depth < DEPTH_MAX and any(inner is not None for inner in wrapped):
        if len(wrapped) > RECORDS_MAX:
            raise _RejectError("missing_required_field", f"Records has more than {RECORDS_MAX} records")
        for inner in wrapped:
            if inner is None:
                raise _RejectError("missing_required_field", "Records has records of different kinds")
            yield from _all_records(inner[0], envelope, inner[1] or sqs_message_id, datasets, depth + 1)
        return
    envelope = msgspec.structs.replace(envelope, raw={**envelope.raw, "sqs_message_id": sqs_message_id})
    yield from _records(message, envelope, datasets)


def _inner(record: Json) -> tuple[dict[str, Json], str | None] | None:
    """Return the message inside a record that Lambda got from SNS or SQS, and its id in SQS; None for other records."""
    if not isinstance(record, dict):
        return None
    if isinstance(notification := record.get("Sns"), dict):
        return notification, None
    if isinstance(body := record.get("body"), str) and record.get("eventSource") == "aws:sqs":
        return _object(body, "body"), _text_or_none(record.get("messageId"))
    return None


def _records(message: dict[str, Json], envelope: _Envelope, datasets: Datasets) -> Iterator[Any]:
    """Yield a function for each record, which returns its notice or raises _IgnoreError or _RejectError."""
    if message.get("Event") == "s3:TestEvent":
        raise _IgnoreError("test_event", str(message.get("Bucket", "")))
    if "Records" in message:
        records = message["Records"]
        if not isinstance(records, list) or len(records) > RECORDS_MAX:
            raise _RejectError("missing_required_field", f"Records is not a list of at most {RECORDS_MAX} records")
        if not records:
            raise _IgnoreError("no_records", "")
        for record in records:
            yield lambda record=record: _of_s3_event(record, envelope, datasets)
    elif "S3Bucket" in message and "Key" in message:
        yield lambda: _of_chunk(message, envelope, datasets)
    else:
        topic = envelope.topic
        if topic is not None and topic not in datasets.topics():
            raise _RejectError("unroutable_topic", f"the topic {topic} belongs to no dataset")
        raise _RejectError("missing_required_field", "the message has neither Records nor S3Bucket and Key")


def _of_s3_event(record: Json, envelope: _Envelope, datasets: Datasets) -> Notice:
    version = _text(record, "eventVersion")
    if version.partition(".")[0] != "2":
        raise _RejectError("unsupported_schema_version", f"eventVersion is {version[:20]}, not 2.x")
    bucket = _text(record, "s3", "bucket", "name")
    encoded = _text(record, "s3", "object", "key")
    key = unquote_plus(encoded, errors="strict") if _is_utf8(encoded) else ""
    event = _text(record, "eventName")
    if not event.removeprefix("s3:").startswith("ObjectCreated:"):
        raise _IgnoreError("not_created", f"s3://{bucket}/{key}")
    # The bucket of chunks sends these too, besides the messages of its own kind.
    match = _matched(datasets, bucket, key)
    return _notice(
        match,
        bucket,
        envelope.raw,
        event_time=_moment(record, "eventTime") or envelope.sent_at,
        content_etag=_text_at(record, "s3", "object", "eTag"),
        size=_size(record),
        sequencer=_sequencer(record),
        version_id=_text_at(record, "s3", "object", "versionId"),
    )


def _of_chunk(message: dict[str, Json], envelope: _Envelope, datasets: Datasets) -> Notice:
    bucket, key = _text(message, "S3Bucket"), _text(message, "Key")
    match = _matched(datasets, bucket, key, "nexrad-chunk")
    # Some messages have numbers here, others text.
    for name, field in (("SiteID", "station"), ("VolumeID", "volume"), ("ChunkID", "chunk"), ("ChunkType", "type")):
        value = message.get(name)
        if value is not None and str(value).lstrip("0") != match.fields.get(field, "").lstrip("0"):
            raise _RejectError("missing_required_field", f"{name} differs from the key")
    return _notice(match, bucket, envelope.raw, event_time=envelope.sent_at)


def _matched(datasets: Datasets, bucket: str, key: str, envelope: str | None = None) -> Match:
    subject = f"s3://{bucket}/{key}"
    # A lone surrogate is not printable and cannot be encoded. A key that is not in NFC would be stored as another key,
    # because the ledger normalises text.
    if not key or not _is_plain(key) or len(key.encode()) > KEY_BYTES_MAX:
        raise _RejectError(
            "missing_required_field", f"the key is empty, longer than {KEY_BYTES_MAX} bytes, or not printable"
        )
    if bucket not in datasets.buckets():
        raise _IgnoreError("unknown_bucket", subject)
    match = datasets.match(bucket, key)
    if match is None or envelope not in (None, match.dataset.spec.envelope):
        raise _IgnoreError("missing_dataset", subject)
    return match


def _notice(match: Match, bucket: str, raw: Mapping[str, str | None], **fields: Any) -> Notice:
    try:
        time_range = match.time_range
    except (ValueError, OverflowError) as error:  # a lead time can go beyond the year 9999
        raise _RejectError("invalid_time_range", f"{match.key} has no valid time: {error}") from None
    if time_range.end is not None and time_range.end < time_range.start:
        raise _RejectError("invalid_time_range", f"the time range of {match.key} ends before it starts")
    return Notice(
        dataset=match.dataset.name,
        object_uri=f"s3://{bucket}/{match.key}",
        bucket=bucket,
        key=match.key,
        time_range_start=time_text(time_range.start),
        time_range_end=time_text(time_range.end) if time_range.end else None,
        reference_time=time_text(time_range.reference) if time_range.reference else None,
        fields=dict(match.fields),
        sidecar_of=match.sidecar_of,
        raw=dict(raw),
        **fields,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Fields


def _at(value: Json, *path: str) -> Json:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _text(value: Json, *path: str) -> str:
    found = _at(value, *path)
    if not isinstance(found, str) or not found.strip():
        raise _RejectError("missing_required_field", f"{'.'.join(path)} is missing")
    return found


def _text_at(value: Json, *path: str) -> str | None:
    return _text_or_none(_at(value, *path))


def _text_or_none(value: Json) -> str | None:
    return value[:KEY_BYTES_MAX] if isinstance(value, str) and value.strip() and _is_plain(value) else None


def _is_plain(text: str) -> bool:
    return text.isprintable() and (text.isascii() or is_normalized("NFC", text))


def _plain(text: str) -> str:
    """Return text from a message shortened and escaped, so that every database and terminal can take it."""
    short = text[: 2 * KEY_BYTES_MAX]
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in short)


def _size(record: Json) -> int | None:
    size = _at(record, "s3", "object", "size")
    if size is None:
        return None
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= SIZE_MAX:
        raise _RejectError("missing_required_field", f"s3.object.size is not a number from 0 to {SIZE_MAX}")
    return size


def _sequencer(record: Json) -> str | None:
    found = _text_at(record, "s3", "object", "sequencer")
    if found is not None and not all(digit in "0123456789ABCDEFabcdef" for digit in found):
        raise _RejectError("missing_required_field", "s3.object.sequencer is not a hexadecimal number")
    return found


def _moment(record: Json, name: str) -> str | None:
    text = _text_at(record, name)
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return time_text(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError):  # in UTC it can be before the year 1 or after 9999
        raise _RejectError("invalid_time_range", f"{name} is not a time") from None


def _is_utf8(encoded: str) -> bool:
    try:
        unquote_plus(encoded, errors="strict")
    except UnicodeDecodeError:
        return False
    return True


def is_later(one: Notice, sequencer: str | None, etags: Collection[str | None]) -> bool:
    """Return whether a notice is of a later write than the last known one, which has this sequencer.

    If both have a sequencer, the greater number is later. Otherwise a new ETag means a later write, and a known ETag
    means a repeated notice.
    """
    if one.sequencer and sequencer:
        return int(one.sequencer, 16) > int(sequencer, 16)
    return one.content_etag is not None and one.content_etag not in etags
