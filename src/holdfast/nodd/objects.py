"""Objects in S3: their heads and ranges of their bytes, read without credentials.

Invariants: only buckets of known datasets are read, never an address from a message; a read names the expected ETag, so
all ranges come from the same write; an answer of S3 is a head, a range, None if the object does not exist, or an
ObjectError.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Protocol

import msgspec

from holdfast.core.errors import InputError
from holdfast.nodd.queues import aws_client

RANGE_MAX = 8 << 20


class ObjectHead(msgspec.Struct, frozen=True, kw_only=True):
    """Size, ETag and other properties of an object."""

    size: int
    etag: str | None
    last_modified: datetime | None = None
    content_type: str | None = None
    checksums: dict[str, str] = {}


class ObjectError(Exception):
    """An object could not be read; `issue` is the issue that an operator reports."""

    issue = "transient_network_error"


class ObjectUnavailableError(ObjectError):
    """S3 could not be reached, throttled the request, or answered with an internal error."""


class ObjectAccessError(ObjectError):
    """Access was denied: in a public bucket this usually means that the object does not exist."""

    issue = "access_denied"


class ObjectChangedError(ObjectError):
    """The object was overwritten while it was read; the notice of the later write has its own unit."""

    issue = "etag_mismatch"


class ObjectSource(Protocol):
    """A source of objects."""

    def head(self, bucket: str, key: str) -> ObjectHead | None:
        """Return the head of an object; None if it does not exist."""

    def read(self, bucket: str, key: str, start: int, length: int, *, etag: str | None = None) -> bytes:
        """Return at most `length` bytes of an object from `start`; fewer at its end."""


class S3Source:
    """Reads public buckets over the S3 protocol, unsigned; `endpoint` is for a server on loopback."""

    def __init__(self, buckets: frozenset[str], *, endpoint: str | None = None, region: str = "us-east-1") -> None:
        self._buckets = buckets
        self._client = _client(endpoint, region)

    def head(self, bucket: str, key: str) -> ObjectHead | None:
        """Return the head of an object; None if it does not exist."""
        found = self._call("head_object", bucket, key, ChecksumMode="ENABLED")
        if found is None:
            return None
        checksums = {
            name.removeprefix("Checksum").lower(): str(value)
            for name, value in found.items()
            if name.startswith("Checksum") and name != "ChecksumType"
        }
        return ObjectHead(
            size=int(found["ContentLength"]),
            etag=str(found["ETag"]).strip('"') if found.get("ETag") else None,
            last_modified=found.get("LastModified"),
            content_type=found.get("ContentType"),
            checksums=checksums,
        )

    def read(self, bucket: str, key: str, start: int, length: int, *, etag: str | None = None) -> bytes:
        """Return at most `length` bytes of an object from `start`; fewer at its end."""
        if not (start >= 0 and 0 < length <= RANGE_MAX):
            raise InputError(f"length must be from 1 to {RANGE_MAX}, and start not negative")
        match: dict[str, Any] = {"IfMatch": f'"{etag}"'} if etag else {}
        found = self._call("get_object", bucket, key, Range=f"bytes={start}-{start + length - 1}", **match)
        if found is None:
            return b""
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - an extra

        try:
            body: bytes = found["Body"].read(length)
        except BotoCoreError as error:
            raise ObjectUnavailableError(f"s3://{bucket}/{key}: {type(error).__name__}") from None
        if len(body) != found["ContentLength"]:
            raise ObjectUnavailableError(f"s3://{bucket}/{key}: the connection ended before the last byte")
        return body

    def listed(self, bucket: str, prefix: str) -> Iterator[tuple[str, ObjectHead]]:
        """Yield the key and head of each object under a prefix."""
        token: dict[str, str] = {}
        while True:
            found = self._call("list_objects_v2", bucket, None, Prefix=prefix, **token) or {}
            for entry in found.get("Contents", ()):
                yield (
                    str(entry["Key"]),
                    ObjectHead(
                        size=int(entry["Size"]), etag=entry["ETag"].strip('"'), last_modified=entry["LastModified"]
                    ),
                )
            if not found.get("IsTruncated"):
                return
            token = {"ContinuationToken": str(found["NextContinuationToken"])}

    def _call(self, verb: str, bucket: str, key: str | None, **how: Any) -> Mapping[str, Any] | None:
        if bucket not in self._buckets:
            raise InputError(f"bucket {bucket!r} belongs to no dataset", context={"bucket": bucket})
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - an extra

        try:
            which = {} if key is None else {"Key": key}
            answer: Mapping[str, Any] = getattr(self._client, verb)(Bucket=bucket, **which, **how)
        except ClientError as error:
            _require_absent(error, bucket, key or "")
            return None
        except BotoCoreError as error:
            raise ObjectUnavailableError(f"s3://{bucket}/{key or ''}: {type(error).__name__}") from None
        return answer


def _require_absent(error: Any, bucket: str, key: str) -> None:
    """Return if the object or range does not exist; raise an ObjectError for every other answer."""
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    where = f"s3://{bucket}/{key}"
    if code in ("404", "NoSuchKey", "NotFound", "NoSuchBucket") or status == 404:
        return
    if code == "InvalidRange" or status == 416:
        return
    if code in ("403", "AccessDenied") or status == 403:
        raise ObjectAccessError(f"{where}: access denied")
    if code == "PreconditionFailed" or status == 412:
        raise ObjectChangedError(f"{where}: overwritten during the read")
    raise ObjectUnavailableError(f"{where}: S3 answered {code or status}")


def _client(endpoint: str | None, region: str) -> Any:
    config = {
        "retries": {"max_attempts": 2, "mode": "standard"},
        "connect_timeout": 10,
        "read_timeout": 30,
        "max_pool_connections": 32,
        "s3": {"addressing_style": "path"} if endpoint else {},
    }
    return aws_client("s3", endpoint, region, config, signed=False)
