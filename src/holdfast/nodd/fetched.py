"""The objects of one unit, fetched in few requests and shared by its operators.

Invariants: what was fetched is not requested again in an attempt; all parts of an object come from the same write; an
object of up to 25 MiB takes at most 4 requests, and so does a GRIB2 or NetCDF-4 file of any size, with 1 more for the
index of a GRIB2 file.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from holdfast.nodd.formats import Read
from holdfast.nodd.objects import RANGE_MAX, FirstRange, ObjectChangedError, ObjectHead, ObjectSource

PART_BYTES = 64 << 10  # an isolated read, such as that of an end marker, fetches so much
SMALL_BYTES_MAX = 1 << 20  # objects up to here are fetched whole; integrity-check hashes them
# What is fetched first of a larger object. The readers of these formats go on from there to the end, in ranges of up to
# RANGE_MAX; of an object of another format only the parts that are read are fetched.
SCANNED = {
    "grib2-gzip": RANGE_MAX,
    "grib2-wmo": RANGE_MAX,
    "netcdf4": SMALL_BYTES_MAX,
    "nexrad-chunk": RANGE_MAX,
    "nexrad-l2": RANGE_MAX,
}


class FetchedObjects:
    """Reads the objects of one unit, and keeps what was fetched until the attempt ends."""

    def __init__(self, source: ObjectSource, form: str, sizes: Mapping[str, int | None]) -> None:
        """Make a reader for a format; `sizes` are the announced sizes of the objects by key."""
        self._source, self._form, self._sizes = source, form, sizes
        self._objects: dict[tuple[str, str], _FetchedObject | None] = {}

    def head(self, bucket: str, key: str) -> ObjectHead | None:
        """Return the head of an object, which is fetched with its first bytes; None if it does not exist."""
        found = self._object(bucket, key)
        return None if found is None else found.head

    def read(self, bucket: str, key: str, start: int, length: int, *, etag: str | None = None) -> bytes:
        """Return at most `length` bytes of an object from `start`; fewer at its end."""
        found = self._object(bucket, key)
        if found is None:
            return b""
        if etag is not None and etag != found.head.etag:
            raise ObjectChangedError(f"s3://{bucket}/{key}: overwritten between two reads")
        return found.read(start, length)

    def _object(self, bucket: str, key: str) -> _FetchedObject | None:
        if (bucket, key) not in self._objects:
            first = self._source.first(bucket, key, self._first_bytes(key))
            read = partial(self._source.read, bucket, key, etag=first.head.etag if first else None)
            self._objects[bucket, key] = (
                None if first is None else _FetchedObject(first, read, scanned=self._form in SCANNED)
            )
        return self._objects[bucket, key]

    def _first_bytes(self, key: str) -> int:
        size = self._sizes.get(key)
        if size is None:
            return SMALL_BYTES_MAX
        if size <= (RANGE_MAX if self._form in SCANNED else SMALL_BYTES_MAX):
            return max(size, PART_BYTES)
        return SCANNED.get(self._form, PART_BYTES)


class _FetchedObject:
    """The fetched parts of one object, by their offsets."""

    def __init__(self, first: FirstRange, read: Read, *, scanned: bool) -> None:
        self.head = first.head
        self._read, self._scanned = read, scanned
        self._parts = {0: first.data}

    def read(self, start: int, length: int) -> bytes:
        at, end = start, min(start + length, self.head.size)
        found = []
        while at < end:
            part = self._fetched(at, end)
            if not part:
                self._fetch(at, end)
                part = self._fetched(at, end)
            if not part:
                break  # the source returned less than the size that it gave
            found.append(part)
            at += len(part)
        return b"".join(found)

    def _fetched(self, at: int, end: int) -> bytes:
        """Return what was fetched of a range from its start on; nothing if its first byte was not fetched."""
        for start, part in self._parts.items():
            if start <= at < start + len(part):
                return part[at - start : end - start]
        return b""

    def _fetch(self, at: int, end: int) -> None:
        """Fetch a range that begins at an offset, or before it if that is near the end of the object."""
        size = self.head.size
        before = max(start + len(part) for start, part in self._parts.items() if start <= at)
        after = min((start for start in self._parts if start > at), default=size)
        start = max(size - PART_BYTES, before) if at >= size - PART_BYTES else at
        # A part that ends near the end of the object is the last that is fetched.
        most = RANGE_MAX if self._scanned or size - start <= RANGE_MAX else max(end - start, PART_BYTES)
        until = min(start + min(most, RANGE_MAX), after)
        self._parts[start] = self._read(start, until - start)
