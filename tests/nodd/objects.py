"""Objects in memory, to read from as from S3."""

from __future__ import annotations

import hashlib

from holdfast.nodd.objects import FirstRange, ObjectChangedError, ObjectHead, ObjectUnavailableError


class MemorySource:
    """Buckets in memory. `down` lets every read fail; `reads` counts bytes."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], bytes] = {}
        self.down = False
        self.read_bytes = 0

    def put(self, bucket: str, key: str, data: bytes) -> str:
        """Write an object, and return its ETag."""
        self.held[bucket, key] = data
        return hashlib.md5(data, usedforsecurity=False).hexdigest()

    def head(self, bucket: str, key: str) -> ObjectHead | None:
        """Return what is known of an object."""
        if self.down:
            raise ObjectUnavailableError("down")
        data = self.held.get((bucket, key))
        if data is None:
            return None
        return ObjectHead(size=len(data), etag=hashlib.md5(data, usedforsecurity=False).hexdigest())

    def first(self, bucket: str, key: str, length: int) -> FirstRange | None:
        """Return what is known of an object, with its first bytes."""
        head = self.head(bucket, key)
        return None if head is None else FirstRange(head, self.read(bucket, key, 0, length))

    def read(self, bucket: str, key: str, start: int, length: int, *, etag: str | None = None) -> bytes:
        """Return a part of an object."""
        head = self.head(bucket, key)
        if head is None:
            return b""
        if etag is not None and etag != head.etag:
            raise ObjectChangedError("overwritten")
        self.read_bytes += length
        return self.held[bucket, key][start : start + length]
