"""Objects in S3: their heads and ranges of their bytes, read without credentials.

Invariants: only buckets of known datasets are read, never an address from a message; a read names the expected ETag, so
all ranges come from the same write; an answer of S3 is a head, a range, None if the object does not exist, or an
ObjectError; every range of a bucket in a process goes through one pool of connections.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from holdfast.core.errors import InputError
from holdfast.core.feature_errors import extra
from holdfast.nodd.queues import aws_client

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import S3Store

RANGE_MAX = 8 << 20
CONNECT_S, REQUEST_S = 10, 60
RETRIES = 1
_STATUS = re.compile(r"non-2xx status code: (\d+)")  # obstore has no class for these answers


class ObjectHead(msgspec.Struct, frozen=True, kw_only=True):
    """Size, ETag and other properties of an object."""

    size: int
    etag: str | None
    last_modified: datetime | None = None
    content_type: str | None = None


class FirstRange(msgspec.Struct, frozen=True):
    """The head of an object, and its first bytes: one request returns both."""

    head: ObjectHead
    data: bytes


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
    """A source of objects; each call is one request."""

    def first(self, bucket: str, key: str, length: int) -> FirstRange | None:
        """Return the head of an object with at most `length` of its first bytes; None if it does not exist."""

    def read(self, bucket: str, key: str, start: int, length: int, *, etag: str | None = None) -> bytes:
        """Return at most `length` bytes of an object from `start`; fewer at its end."""


class ObjectReader(Protocol):
    """What the operators of a unit read objects with."""

    def head(self, bucket: str, key: str) -> ObjectHead | None:
        """Return the head of an object; None if it does not exist."""

    def read(self, bucket: str, key: str, start: int, length: int, *, etag: str | None = None) -> bytes:
        """Return at most `length` bytes of an object from `start`; fewer at its end."""


class S3Source:
    """Reads public buckets over the S3 protocol, unsigned; `endpoint` is for a server on loopback."""

    def __init__(self, buckets: frozenset[str], *, endpoint: str | None = None, region: str = "us-east-1") -> None:
        self._buckets, self._endpoint, self._region = buckets, endpoint, region
        self._stores: dict[str, S3Store] = {}
        self._lock = threading.Lock()
        # For listings; made now because it also checks the settings, which obstore does not.
        self._client = _listing_client(endpoint, region)

    def first(self, bucket: str, key: str, length: int) -> FirstRange | None:
        """Return the head of an object with at most `length` of its first bytes; None if it does not exist."""
        store = self._store(bucket)
        try:
            return _get(store, key, 0, length, None)
        except _NoSuchRangeError:
            # S3 refuses every range of an empty object.
            return _get(store, key, 0, None, None)

    def read(self, bucket: str, key: str, start: int, length: int, *, etag: str | None = None) -> bytes:
        """Return at most `length` bytes of an object from `start`; fewer at its end."""
        try:
            found = _get(self._store(bucket), key, start, length, etag)
        except _NoSuchRangeError:
            return b""
        return b"" if found is None else found.data

    def listed(self, bucket: str, prefix: str) -> Iterator[tuple[str, ObjectHead]]:
        """Yield the key and head of each object under a prefix."""
        self._require_known(bucket)
        # botocore lists, because a prefix of obstore ends at a "/": that of a cycle or a lead does not.
        token: dict[str, str] = {}
        while True:
            found = _listing_page(self._client, bucket, prefix, token)
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

    def _store(self, bucket: str) -> S3Store:
        self._require_known(bucket)
        with self._lock:
            if bucket not in self._stores:
                self._stores[bucket] = s3_store(bucket, endpoint=self._endpoint, region=self._region)
            return self._stores[bucket]

    def _require_known(self, bucket: str) -> None:
        if bucket not in self._buckets:
            raise InputError(f"bucket {bucket!r} belongs to no dataset", context={"bucket": bucket})


def s3_store(bucket: str, *, endpoint: str | None, region: str, signed: bool = False) -> S3Store:
    """Return the store of a bucket, which keeps its connections open; raise ExtraMissingError without obstore."""
    with extra("nodd"):
        from obstore.store import S3Store  # noqa: PLC0415 - an extra
    where: dict[str, Any] = {"virtual_hosted_style_request": endpoint is None}
    if endpoint is not None:
        where["endpoint"] = endpoint
    if signed:
        where["credential_provider"] = _credentials()
    return S3Store(
        bucket,
        region=region,
        skip_signature=not signed,
        client_options={
            "allow_http": endpoint is not None,
            "connect_timeout": timedelta(seconds=CONNECT_S),
            "timeout": timedelta(seconds=REQUEST_S),
        },
        retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=REQUEST_S)},
        **where,
    )


def _credentials() -> Any:
    """Return the credentials that boto3 finds: environment, profile, or the role of the machine."""
    from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415 - an extra

    try:
        return Boto3CredentialProvider()
    except ValueError:
        raise InputError(
            "there are no AWS credentials", next_step="Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        ) from None


class _NoSuchRangeError(Exception):
    """The object exists, and the range begins after its last byte."""


def _get(store: S3Store, key: str, start: int, length: int | None, etag: str | None) -> FirstRange | None:
    """Return a range with the head of its object, the whole object if `length` is None; None if it does not exist."""
    import obstore  # noqa: PLC0415 - an extra
    from obstore.exceptions import BaseError  # noqa: PLC0415 - an extra

    if not (start >= 0 and (length is None or 0 < length <= RANGE_MAX)):
        raise InputError(f"length must be from 1 to {RANGE_MAX}, and start not negative")
    if "" in key.split("/"):
        # obstore would read the object without the empty part.
        raise InputError(f"the key {key!r} has an empty part between slashes, and cannot be read", context={"key": key})
    options: GetOptions = {}
    if length is not None:
        options["range"] = (start, start + length)
    if etag:
        options["if_match"] = f'"{etag}"'
    where = f"s3://{store.config['bucket']}/{key}"
    try:
        answer = obstore.get(store, key, options=options)
        meta, data = answer.meta, bytes(answer.bytes())
    except FileNotFoundError:
        return None
    except BaseError as error:
        raise _error_of(error, where) from None
    if length is not None and len(data) != min(length, meta["size"] - start):
        raise ObjectUnavailableError(f"{where}: the connection ended before the last byte")
    head = ObjectHead(
        size=meta["size"],
        etag=(meta.get("e_tag") or "").strip('"') or None,
        last_modified=meta["last_modified"],
        content_type=answer.attributes.get("Content-Type"),
    )
    return FirstRange(head, data)


def _error_of(error: Exception, where: str) -> Exception:
    """Return the ObjectError for an answer of S3, or _NoSuchRangeError."""
    from obstore.exceptions import (  # noqa: PLC0415 - an extra
        PermissionDeniedError,
        PreconditionError,
        UnauthenticatedError,
    )

    if isinstance(error, (PermissionDeniedError, UnauthenticatedError)):
        return ObjectAccessError(f"{where}: access denied")
    if isinstance(error, PreconditionError):
        return ObjectChangedError(f"{where}: overwritten during the read")
    status = _STATUS.search(str(error).partition("\n")[0])
    if status is None:
        return ObjectUnavailableError(f"{where}: S3 cannot be reached, or the connection ended")
    if status[1] == "416":
        return _NoSuchRangeError()
    return ObjectUnavailableError(f"{where}: S3 answered {status[1]}")


def _listing_client(endpoint: str | None, region: str) -> Any:
    config = {
        "retries": {"max_attempts": RETRIES + 1, "mode": "standard"},
        "connect_timeout": CONNECT_S,
        "read_timeout": REQUEST_S,
        "s3": {"addressing_style": "path"} if endpoint else {},
    }
    return aws_client("s3", endpoint, region, config, signed=False)


def _listing_page(client: Any, bucket: str, prefix: str, token: Mapping[str, str]) -> Mapping[str, Any]:
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - an extra

    where = f"s3://{bucket}/"
    try:
        page: Mapping[str, Any] = client.list_objects_v2(Bucket=bucket, Prefix=prefix, **token)
    except ClientError as error:
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        if status == 404:
            return {}
        if status == 403:
            raise ObjectAccessError(f"{where}: access denied") from None
        code = error.response.get("Error", {}).get("Code", "") or status
        raise ObjectUnavailableError(f"{where}: S3 answered {code}") from None
    except BotoCoreError as error:
        raise ObjectUnavailableError(f"{where}: {type(error).__name__}") from None
    return page
