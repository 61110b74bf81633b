"""NEXRAD Level II: the header of a volume, and its records: compressed since 2016, plain messages before.

Invariants: a volume is complete only if its records fill it to the last byte and the last one says that it is the last;
volumes of 1991 to 2005 have no station in the header; a chunk is checked by itself: the first chunk of a volume has the
header, the others have only records.
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
MESSAGE_BYTES = 2432  # of a message that is not compressed
PART_MESSAGES = 400  # read at a time: about a megabyte
_ARCHIVE = re.compile(rb"(AR2V|ARCHIVE2)[0-9.]+\.?")
_STATION = re.compile(rb"[A-Z0-9]{4}")
_EPOCH = datetime(1969, 12, 31, tzinfo=UTC)  # day 1 is 1970-01-01
BZIP2 = b"BZ"
RADIAL, RADIAL_STATUS, END_OF_VOLUME = 1, 40, 4  # a message of radar data, where its status is, and the last status


class Volume(msgspec.Struct, frozen=True):
    """The header of a volume: its version, station and start time, and its records.

    `station` is None in volumes of the oldest kind. `ended` is False if the record that ends a volume is missing: the
    volume was cut between two records, or the radar stopped.
    """

    version: str
    station: str | None
    start: datetime
    records: int = 0
    ended: bool = False


def header(read: Read) -> Volume:
    """Return the header of a volume without its records; raise Damaged if it is not valid."""
    head = exactly(read, 0, HEADER_BYTES, "the volume header")
    if not _ARCHIVE.match(head[:9]):
        raise Damaged("bad_magic", "the object does not start with the header of a NEXRAD volume")
    day, milliseconds = struct.unpack(">II", head[12:20])
    station = head[20:24]
    nameless = head.startswith(b"ARCHIVE2") and not station.strip(b"\0 ")
    if not (nameless or _STATION.fullmatch(station)) or not 0 < day < 1_000_000 or milliseconds >= 86_400_000:
        raise Damaged("bad_header", "the volume header has no valid station or time")
    start = _EPOCH + timedelta(days=day, milliseconds=milliseconds)
    version = head[:9].decode("ascii", errors="replace").rstrip(". \0")
    return Volume(version, None if nameless else station.decode(), start)


def volume(read: Read, size: int) -> Volume:
    """Return a volume with the number of its records; raise Damaged if a record is not complete."""
    found = header(read)
    if read(HEADER_BYTES + 4, 2) == BZIP2:
        records, ended = _records(read, HEADER_BYTES, size)
        ended = ended and records > 1  # the first record has only metadata
    else:
        records, ended = _messages(read, size)
    return msgspec.structs.replace(found, records=records, ended=ended)


def chunk(read: Read, size: int, *, kind: str) -> Volume | None:
    """Return the header of the first chunk of a volume (`S`); None for other chunks.

    Raises Damaged for bad records, and for a last chunk (`E`) whose last record does not say that it is the last.
    """
    if kind == "S":
        found = header(read)
        records, ended = _records(read, HEADER_BYTES, size)
        return msgspec.structs.replace(found, records=records, ended=ended)
    _, ended = _records(read, 0, size)
    if kind == "E" and not ended:
        raise Damaged("truncated", "the last chunk of a volume does not contain the last record")
    return None


def _records(read: Read, at: int, size: int) -> tuple[int, bool]:
    """Return the number of records, and whether the last one says that it is the last.

    A record is a length (negative for the last one of a volume) and that many bytes of bzip2.
    """
    if at >= size:
        raise Damaged("truncated", "the object has no records")
    for number in range(1, RECORDS_MAX + 1):
        head = exactly(read, at, 6, "a record")
        (control,) = struct.unpack(">i", head[:4])
        length = abs(control)
        if not 0 < length <= RECORD_BYTES_MAX or head[4:] != BZIP2:
            raise Damaged("bad_record", f"no record starts at byte {at}")
        if at + 4 + length > size:
            raise Damaged("truncated", f"the record at byte {at} has {length} bytes, but the object has only {size}")
        at += 4 + length
        if control < 0 and at != size:
            raise Damaged("trailing_data", f"the last record ends at byte {at}, but the object has {size}")
        if at == size:
            return number, control < 0
    raise Damaged("bad_record", f"the object has more than {RECORDS_MAX} records")


def _messages(read: Read, size: int) -> tuple[int, bool]:
    """Return the number of messages of a volume that is not compressed, and whether its last radial is there."""
    count, rest = divmod(size - HEADER_BYTES, MESSAGE_BYTES)
    if rest or not count:
        raise Damaged("truncated", f"{size} bytes are not a whole number of messages of {MESSAGE_BYTES} bytes")
    last = None
    number = count
    while number > 0 and last is None:
        first = max(0, number - PART_MESSAGES)
        length = (number - first) * MESSAGE_BYTES
        part = exactly(read, HEADER_BYTES + first * MESSAGE_BYTES, length, "the messages")
        for at in range(length - MESSAGE_BYTES, -1, -MESSAGE_BYTES):
            if part[at + 15] == RADIAL:
                (last,) = struct.unpack(">H", part[at + RADIAL_STATUS : at + RADIAL_STATUS + 2])
                break
        number = first
    if last is None:
        raise Damaged("bad_record", "the volume has no radar data")
    return count, last == END_OF_VOLUME
