"""NEXRAD Level II: the header of a volume, and its records of compressed messages.

Invariants: a volume is complete only if its records fill it to the last byte; a chunk is checked by itself: the first
chunk of a volume has the header, the others have only records. Truncation between two records is not detected.
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
    """The header of a volume: its version, station and start time, and the number of records."""

    version: str
    station: str
    start: datetime
    records: int


def header(read: Read) -> Volume:
    """Return the header of a volume without counting its records; raise Damaged if it is not valid."""
    head = exactly(read, 0, HEADER_BYTES, "the volume header")
    if not _ARCHIVE.match(head[:9]):
        raise Damaged("bad_magic", "the object does not start with the header of a NEXRAD volume")
    day, milliseconds = struct.unpack(">II", head[12:20])
    station = head[20:24]
    if not _STATION.fullmatch(station) or day > 1_000_000 or milliseconds >= 86_400_000:
        raise Damaged("bad_header", "the volume header has no valid station or time")
    start = _EPOCH + timedelta(days=day, milliseconds=milliseconds)
    return Volume(head[:9].decode("ascii", errors="replace").rstrip(". \0"), station.decode(), start, 0)


def volume(read: Read, size: int) -> Volume:
    """Return the header of a volume with the number of its records; raise Damaged if a record is not complete."""
    found = header(read)
    return msgspec.structs.replace(found, records=_records(read, HEADER_BYTES, size))


def chunk(read: Read, size: int, *, first: bool) -> Volume | None:
    """Return the header of the first chunk of a volume; None for other chunks. Raise Damaged for bad records."""
    if first:
        return volume(read, size)
    _records(read, 0, size)
    return None


def _records(read: Read, at: int, size: int) -> int:
    """Return the number of records. A record is a length (negative for the last one) and that many bytes of bzip2."""
    for number in range(RECORDS_MAX):
        if at == size:
            return number
        head = exactly(read, at, 6, "a record")
        (control,) = struct.unpack(">i", head[:4])
        length = abs(control)
        if not 0 < length <= RECORD_BYTES_MAX or head[4:] != BZIP2:
            raise Damaged("bad_record", f"no record starts at byte {at}")
        if at + 4 + length > size:
            raise Damaged("truncated", f"the record at byte {at} has {length} bytes, but the object has only {size}")
        at += 4 + length
    raise Damaged("bad_record", f"the object has more than {RECORDS_MAX} records")
