"""integrity-check: whether the object exists, is the announced write, and is complete.

Invariants: read-only, and only a few small ranges are read; an unknown format fails; an object that is not published
yet, one that has expired and one that is damaged have different issues.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from holdfast.core.records import time_from
from holdfast.nodd import structure
from holdfast.nodd.dataset import Dataset, DatasetPolicy
from holdfast.nodd.formats import Damaged, Read, grib2, idx
from holdfast.nodd.formats.idx import IndexedMessage
from holdfast.nodd.objects import RANGE_MAX, ObjectAccessError, ObjectError, ObjectHead, ObjectReader
from holdfast.nodd.units import Operator, OperatorVerdict, Unit

MD5 = re.compile(r"[0-9a-f]{32}")
MD5_BYTES_MAX = 1 << 20  # larger objects are not hashed
INDEX_BYTES_MAX = 4 << 20
INDEX_MESSAGES_MAX = 2_000  # a longer index is an asset of the item without the ranges of its messages
NOT_YET, EXPIRED = "not_published_yet", "expired"
RETRY_LATER = frozenset({NOT_YET, "transient_network_error"})
"""Issues that can pass by themselves: another attempt follows later."""


class Sidecar(msgspec.Struct, frozen=True):
    """An object that belongs to another, such as its index."""

    uri: str
    etag: str | None
    size: int | None

    @property
    def key(self) -> str:
        """Return its key without the bucket."""
        return self.uri.removeprefix("s3://").partition("/")[2]


class _Findings:
    """The checks that ran, and their findings."""

    def __init__(self) -> None:
        self.checks: list[str] = []
        self.issues: list[str] = []
        self.suspicions: list[str] = []
        self.data: dict[str, object] = {}

    def verdict(self) -> OperatorVerdict:
        status = "failed" if self.issues else "suspect" if self.suspicions else "ok"
        issues = tuple(dict.fromkeys((*self.issues, *self.suspicions)))
        checks = tuple(dict.fromkeys(self.checks))
        return OperatorVerdict(
            operator=Operator.INTEGRITY, status=status, issues=issues, checks_run=checks, data=dict(self.data)
        )


def check(
    unit: Unit, dataset: Dataset, source: ObjectReader, sidecars: Sequence[Sidecar], now: datetime
) -> OperatorVerdict:
    """Return the verdict on the object of a unit: ok, suspect or failed, with the issues found."""
    found = _Findings()
    bucket, key = unit.notice.bucket, unit.notice.key
    try:
        found.checks.append("exists")
        head = source.head(bucket, key)
        if head is None:
            found.issues.append(_missing(unit, dataset.spec.policy, now))
            return found.verdict()
        found.data |= {"actual_size_bytes": head.size, "actual_etag": head.etag, "content_type": head.content_type}
        _check_size(unit, dataset.spec.policy, head, found)
        _check_etag(unit, head, found)
        if found.issues:
            return found.verdict()

        def read(start: int, length: int) -> bytes:
            return source.read(bucket, key, start, min(length, RANGE_MAX), etag=head.etag)

        _check_hash(head, read, found)
        # Before the structure: the read of the last message fetches the end of the object too.
        for sidecar in sidecars:
            if sidecar.key.endswith(".idx"):
                found.checks.append("index_offsets")
                listed = _index(sidecar, bucket, source, head.size)
                issues = _index_issues([message.offset for message in listed], read, head.size)
                found.suspicions += issues
                found.data["index"] = _index_facts(sidecar, [] if issues else listed)
        found.checks.append("headers_minimal")
        whole = structure.check(dataset.spec.format, unit, read, head.size)
        found.data["structure"] = whole.data
        found.suspicions += whole.suspicions
    except Damaged as damaged:
        found.issues.append("missing_required_header")
        found.data |= {"structure_issue": damaged.issue, "structure_detail": damaged.detail}
    except ObjectAccessError as trouble:
        # If a bucket may not be listed, S3 also denies access to objects that do not exist.
        missing = _missing(unit, dataset.spec.policy, now)
        found.issues.append(missing if missing == NOT_YET else trouble.issue)
    except ObjectError as trouble:
        found.issues.append(trouble.issue)
    return found.verdict()


def _missing(unit: Unit, policy: DatasetPolicy, now: datetime) -> str:
    announced = time_from(unit.event_time or unit.time_range_start)
    if now < announced + timedelta(seconds=policy.publication_window_s):
        return NOT_YET
    return EXPIRED if now > announced + timedelta(seconds=policy.max_age_s) else "missing_object"


def _check_size(unit: Unit, policy: DatasetPolicy, head: ObjectHead, found: _Findings) -> None:
    found.checks.append("size")
    if head.size == 0:
        found.issues.append("size_zero")
    elif head.size < policy.min_size:
        found.issues.append("size_too_small")
    elif head.size > policy.max_size:
        found.issues.append("size_too_large")
    elif unit.notice.size is not None and head.size != unit.notice.size and _same_write(unit, head):
        # Without an ETag to compare, only the size shows that a GRIB file is cut between two messages.
        cut = unit.notice.content_etag is None and head.size < unit.notice.size
        (found.issues if cut else found.suspicions).append("size_mismatch")


def _same_write(unit: Unit, head: ObjectHead) -> bool:
    return unit.notice.content_etag is None or unit.notice.content_etag == head.etag


def _check_etag(unit: Unit, head: ObjectHead, found: _Findings) -> None:
    if unit.notice.content_etag is not None and head.etag is not None:
        found.checks.append("etag_match")
        if not _same_write(unit, head):
            # The object was written again; the notice of that write has its own unit.
            found.issues.append("etag_mismatch")


def _check_hash(head: ObjectHead, read: Read, found: _Findings) -> None:
    """Hash a small object whose ETag is an MD5: uploaded in one part and not encrypted."""
    if head.etag is None or not MD5.fullmatch(head.etag) or head.size > MD5_BYTES_MAX:
        return
    found.checks.append("md5")
    whole = read(0, head.size)
    found.data["sha256"] = hashlib.sha256(whole).hexdigest()
    if hashlib.md5(whole, usedforsecurity=False).hexdigest() != head.etag:
        found.issues.append("etag_mismatch")


def _index(sidecar: Sidecar, bucket: str, source: ObjectReader, size: int) -> list[IndexedMessage]:
    """Return the messages that an index lists for an object of a size; none if it cannot be read."""
    head = source.head(bucket, sidecar.key)
    if head is None or not 0 < head.size <= INDEX_BYTES_MAX:
        return []
    text = source.read(bucket, sidecar.key, 0, head.size, etag=head.etag).decode("ascii", errors="replace")
    return idx.messages(text, size)


def _index_facts(sidecar: Sidecar, listed: Sequence[IndexedMessage]) -> dict[str, object]:
    """Return what the item says about the index; messages only if they are not too many for an item."""
    kept = msgspec.to_builtins(listed) if len(listed) <= INDEX_MESSAGES_MAX else []
    return {"uri": sidecar.uri, "size": sidecar.size, "messages": kept}


def _index_issues(offsets: Sequence[int], read: Read, size: int) -> list[str]:
    """Check the first, middle and last offset of an index: a message must start there."""
    if not offsets:
        return ["index_unreadable"]
    for at in sorted({offsets[0], offsets[len(offsets) // 2], offsets[-1]}):
        if at + grib2.INDICATOR_BYTES > size or read(at, 4) != grib2.MAGIC:
            return ["index_stale"]
    return []
