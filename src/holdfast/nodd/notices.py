"""Notices: what a message from a feed says, in every shape that the feeds have.

`parsed(body)` takes the body of an SQS message and answers with notices (an object of a dataset was written), what is
ignored and why, and what is rejected and why.

Invariants: any text gives an answer, never an exception; no notice is partial; keys are decoded only where the feed
encodes them; a record that is not understood never hides the others of its message; nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from unicodedata import is_normalized
from urllib.parse import unquote_plus
from uuid import UUID, uuid5

import msgspec

from holdfast.core.digest import Json, loads
from holdfast.core.errors import InputError
from holdfast.core.records import time_text
from holdfast.nodd.dataset import Datasets, Match

BODY_BYTES_MAX = 1 << 20  # SQS takes no more
NAMESPACE = UUID("7b0c4b0e-6f0e-5b7e-9d53-1f5c3f6a2a11")
SCHEMA_VERSION = "1.0"
RECORDS_MAX = 1000
KEY_BYTES_MAX = 1024
SIZE_MAX = 5 * 2**40


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """An object of a dataset was written: the envelope of message-parse, complete."""

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
    sidecar_of: str | None = None  # the key of the object that it stands beside
    raw: dict[str, str | None] = {}  # sqs_message_id, sns_message_id, topic_arn, subject

    @property
    def wal_id(self) -> str:
        """Return the id of the unit of work: the same for the same (dataset, object, start), for ever."""
        return wal_id(self.dataset, self.object_uri, self.time_range_start)


class IgnoredRecord(msgspec.Struct, frozen=True):
    """Nothing to do, and that is right: a test event, a removal, an object of no dataset."""

    reason: str
    subject: str


class RejectedRecord(msgspec.Struct, frozen=True):
    """A message, or a record of one, that cannot be understood: it is kept."""

    code: str
    message: str


class ParsedMessage(msgspec.Struct, frozen=True):
    """Everything that one message says."""

    notices: tuple[Notice, ...] = ()
    ignored: tuple[IgnoredRecord, ...] = ()
    rejected: tuple[RejectedRecord, ...] = ()


class _RejectError(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message

    def told(self) -> RejectedRecord:
        """Return it as an answer."""
        return RejectedRecord(self.code, _plain(self.message))


class _IgnoreError(Exception):
    def __init__(self, reason: str, subject: str) -> None:
        super().__init__(reason)
        self.reason, self.subject = reason, subject

    def told(self) -> IgnoredRecord:
        """Return it as an answer."""
        return IgnoredRecord(self.reason, _plain(self.subject))


def listed_notice(
    datasets: Datasets, bucket: str, key: str, *, size: int, etag: str | None, written_at: datetime | None
) -> Notice | None:
    """Return the notice that an object in a listing would have had; None if it is of no dataset, or names no time."""
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
    """Return the UUIDv5 of a unit's identity."""
    return str(uuid5(NAMESPACE, f"{dataset}|{object_uri}|{time_range_start}"))


def parse(body: str | bytes, datasets: Datasets, *, sqs_message_id: str | None = None) -> ParsedMessage:
    """Return what the body of an SQS message says."""
    notices: list[Notice] = []
    ignored: list[IgnoredRecord] = []
    rejected: list[RejectedRecord] = []
    try:
        outer = _object(body, "the body")
        message, raw = _unwrapped(outer)
        raw["sqs_message_id"] = sqs_message_id
        for take in _records(message, raw, datasets):
            try:
                notices.append(take())
            except _IgnoreError as aside:
                ignored.append(aside.told())
            except _RejectError as unclear:
                rejected.append(unclear.told())
    except _IgnoreError as aside:
        ignored.append(aside.told())
    except _RejectError as unclear:
        rejected.append(unclear.told())
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


def _unwrapped(outer: dict[str, Json]) -> tuple[dict[str, Json], dict[str, str | None]]:
    """Return the message itself, out of the envelope of SNS where there is one."""
    if "Message" not in outer or "TopicArn" not in outer:
        return outer, {}
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
    return _object(inner, "Message"), raw


def _records(message: dict[str, Json], raw: Mapping[str, str | None], datasets: Datasets) -> Iterator[Any]:
    """Yield one function for each record: it answers with a notice, or says why there is none."""
    if message.get("Event") == "s3:TestEvent":
        raise _IgnoreError("test_event", str(message.get("Bucket", "")))
    if "Records" in message:
        records = message["Records"]
        if not isinstance(records, list) or len(records) > RECORDS_MAX:
            raise _RejectError("missing_required_field", "Records is not a list of records")
        if not records:
            raise _IgnoreError("no_records", "")
        for record in records:
            yield lambda record=record: _of_s3_event(record, raw, datasets)
    elif "S3Bucket" in message and "Key" in message:
        yield lambda: _of_chunk(message, raw, datasets)
    else:
        topic = raw.get("topic_arn")
        code = "missing_required_field" if topic is None or topic in datasets.topics() else "unroutable_topic"
        raise _RejectError(code, "neither Records nor S3Bucket and Key")


def _of_s3_event(record: Json, raw: Mapping[str, str | None], datasets: Datasets) -> Notice:
    version = _text(record, "eventVersion")
    if version.partition(".")[0] != "2":
        raise _RejectError("unsupported_schema_version", f"an event of version {version[:20]}")
    bucket = _text(record, "s3", "bucket", "name")
    encoded = _text(record, "s3", "object", "key")
    key = unquote_plus(encoded, errors="strict") if _is_utf8(encoded) else ""
    event = _text(record, "eventName")
    if not event.removeprefix("s3:").startswith("ObjectCreated:"):
        raise _IgnoreError("not_created", f"s3://{bucket}/{key}")
    match = _matched(datasets, bucket, key, "s3-event")
    return _notice(
        match,
        bucket,
        raw,
        event_time=_moment(record, "eventTime"),
        content_etag=_text_at(record, "s3", "object", "eTag"),
        size=_size(record),
        sequencer=_sequencer(record),
        version_id=_text_at(record, "s3", "object", "versionId"),
    )


def _of_chunk(message: dict[str, Json], raw: Mapping[str, str | None], datasets: Datasets) -> Notice:
    bucket, key = _text(message, "S3Bucket"), _text(message, "Key")
    match = _matched(datasets, bucket, key, "nexrad-chunk")
    # Numbers in some deliveries, text in others.
    for name, field in (("SiteID", "station"), ("VolumeID", "volume"), ("ChunkID", "chunk"), ("ChunkType", "type")):
        told = message.get(name)
        if told is not None and str(told).lstrip("0") != match.fields.get(field, "").lstrip("0"):
            raise _RejectError("missing_required_field", f"{name} is not what the key says")
    return _notice(match, bucket, raw)


def _matched(datasets: Datasets, bucket: str, key: str, envelope: str) -> Match:
    subject = f"s3://{bucket}/{key}"
    # Half a character is not printable, and has no bytes to count. A key that the ledger would write in another form
    # (NFC) would name another object.
    if not key or not _is_plain(key) or len(key.encode()) > KEY_BYTES_MAX:
        raise _RejectError("missing_required_field", "the key of the object is no key")
    if bucket not in datasets.buckets():
        raise _IgnoreError("unroutable_topic", subject)
    match = datasets.match(bucket, key)
    if match is None or match.dataset.spec.envelope != envelope:
        raise _IgnoreError("missing_dataset", subject)
    return match


def _notice(match: Match, bucket: str, raw: Mapping[str, str | None], **said: Any) -> Notice:
    try:
        told = match.time_range
    except (ValueError, OverflowError):  # a lead time may go beyond the last year that there is
        raise _RejectError("invalid_time_range", f"{match.key} names no time") from None
    if told.end is not None and told.end < told.start:
        raise _RejectError("invalid_time_range", f"{match.key} ends before it starts")
    return Notice(
        dataset=match.dataset.name,
        object_uri=f"s3://{bucket}/{match.key}",
        bucket=bucket,
        key=match.key,
        time_range_start=time_text(told.start),
        time_range_end=time_text(told.end) if told.end else None,
        reference_time=time_text(told.reference) if told.reference else None,
        fields=dict(match.fields),
        sidecar_of=match.sidecar_of,
        raw=dict(raw),
        **said,
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
    """Return what a message says of itself as text that every database and every terminal takes."""
    short = text[: 2 * KEY_BYTES_MAX]
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in short)


def _size(record: Json) -> int | None:
    size = _at(record, "s3", "object", "size")
    if size is None:
        return None
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= SIZE_MAX:
        raise _RejectError("missing_required_field", "s3.object.size is no size")
    return size


def _sequencer(record: Json) -> str | None:
    found = _text_at(record, "s3", "object", "sequencer")
    if found is not None and not all(digit in "0123456789ABCDEFabcdef" for digit in found):
        raise _RejectError("missing_required_field", "s3.object.sequencer is no number")
    return found


def _moment(record: Json, name: str) -> str | None:
    text = _text_at(record, name)
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return time_text(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError):  # a zone may carry it beyond the first year or the last
        raise _RejectError("invalid_time_range", f"{name} is no time") from None


def _is_utf8(encoded: str) -> bool:
    try:
        unquote_plus(encoded, errors="strict")
    except UnicodeDecodeError:
        return False
    return True


def is_later(one: Notice, sequencer: str | None, etags: Collection[str | None]) -> bool:
    """Tell whether a notice is of a later write to the same object than the last of which these are known.

    Where both have sequencers, they decide: hexadecimal, the shorter padded on the left. Else an ETag that was never
    seen is taken for a later write, and one that was for a notice that comes again.
    """
    if one.sequencer and sequencer:
        return int(one.sequencer, 16) > int(sequencer, 16)
    return one.content_etag is not None and one.content_etag not in etags
