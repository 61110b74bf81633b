"""NEXRAD Level II: the header of a volume, and its records of compressed messages, one after another to the end.

Invariants: a volume is whole only if its records fill it to the last byte; a chunk is judged by itself: the first of a
volume has the header, the others are records alone. A cut that falls between two records is not seen here.
"""

from __future__ import annotations

import re
import struct
from datetime import UTC, datetime, timedelta

import msgspec

from holdfast.nodd.formats import Damaged, Read, exactly

HEADER_BYTES = 24
RECORD_BYTES_MAX = 64 << 20
RECORDS_MAX = 10_000
_ARCHIVE = re.compile(rb"(AR2V|ARCHIVE2)[0-9.]+\.?")
_STATION = re.compile(rb"[A-Z0-9]{4}")
_EPOCH = datetime(1969, 12, 31, tzinfo=UTC)  # day 1 is 1970-01-01
BZIP2 = b"BZ"


class Volume(msgspec.Struct, frozen=True):
    """The header of a volume: its version, where and when it begins, and how many records follow."""

    version: str
    station: str
    start: datetime
    records: int


def header(read: Read) -> Volume:
    """Return the header of a volume, without its records."""
    head = exactly(read, 0, HEADER_BYTES, "the volume header")
    if not _ARCHIVE.match(head[:9]):
        raise Damaged("bad_magic", "the object does not begin as a NEXRAD volume")
    day, milliseconds = struct.unpack(">II", head[12:20])
    station = head[20:24]
    if not _STATION.fullmatch(station) or day > 1_000_000 or milliseconds >= 86_400_000:
        raise Damaged("bad_header", "the volume header names no station or no time")
    start = _EPOCH + timedelta(days=day, milliseconds=milliseconds)
    return Volume(head[:9].decode("ascii", errors="replace").rstrip(". \0"), station.decode(), start, 0)


def volume(read: Read, size: int) -> Volume:
    """Return the header of a volume whose records were all stepped over; raise Damaged if one is cut off."""
    found = header(read)
    return msgspec.structs.replace(found, records=_records(read, HEADER_BYTES, size))


def chunk(read: Read, size: int, *, first: bool) -> Volume | None:
    """Return the header that the first chunk of a volume has; None for the others, which were stepped over."""
    if first:
        return volume(read, size)
    _records(read, 0, size)
    return None


def _records(read: Read, at: int, size: int) -> int:
    """Step over the records: a length, whose sign marks the last, then that many bytes of bzip2."""
    for number in range(RECORDS_MAX):
        if at == size:
            return number
        head = exactly(read, at, 6, "a record")
        (control,) = struct.unpack(">i", head[:4])
        length = abs(control)
        if not 0 < length <= RECORD_BYTES_MAX or head[4:] != BZIP2:
            raise Damaged("bad_record", f"no record begins at {at}")
        if at + 4 + length > size:
            raise Damaged("truncated", f"the record at {at} has {length} bytes, and the object ends at {size}")
        at += 4 + length
    raise Damaged("bad_record", f"more than {RECORDS_MAX} records")
