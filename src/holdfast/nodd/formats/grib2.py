"""GRIB2: the indicator, identification, grid and product sections of each message, and its end marker.

Invariants: a message is complete only if its sections are consistent and `7777` is at the end that its length gives;
times are in UTC; an unknown grid has no bounds, which is not damage.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec

from holdfast.nodd.formats import Damaged, Read, exactly
from holdfast.nodd.formats.grids import Grid, grid, signed

MAGIC, END = b"GRIB", b"7777"
INDICATOR_BYTES = 16
SECTION_BYTES_MAX = 64 << 10  # of the sections that are read; the data section is skipped
HEAD_BYTES = 1024
MESSAGES_MAX = 100_000

_UNITS = {
    0: timedelta(minutes=1), 1: timedelta(hours=1), 2: timedelta(days=1), 10: timedelta(hours=3),
    11: timedelta(hours=6), 12: timedelta(hours=12), 13: timedelta(seconds=1),
}  # fmt: skip
# Product definition templates, and the offset of the lead time in the section: it is later in those of a constituent or
# an aerosol. Then those with the end of an interval, and the offset of that time.
_LEADS = dict.fromkeys(range(16), 17) | dict.fromkeys(range(40, 44), 19) | dict.fromkeys(range(45, 48), 30)
_LEADS |= {48: 41, 49: 41}
_INTERVAL_ENDS = {8: 34, 9: 47, 10: 35, 11: 37, 12: 36, 42: 36, 43: 39, 46: 47, 47: 50}


class GribMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One GRIB2 message: its position and its metadata."""

    offset: int
    length: int
    discipline: int
    center: int
    reference: datetime
    valid: datetime | None = None
    ends: datetime | None = None  # end of the interval of an accumulation or a maximum
    category: int | None = None
    parameter: int | None = None
    grid: Grid | None = None


def first_message(read: Read, size: int, *, start: int = 0) -> GribMessage:
    """Return the message at an offset; raise Damaged if it is not complete."""
    return _message(read, size, start)


def messages(read: Read, size: int) -> Iterator[GribMessage]:
    """Yield the messages of an object in order; raise Damaged if they do not fill it."""
    at = 0
    for _ in range(MESSAGES_MAX):
        if at >= size:
            return
        message = _message(read, size, at)
        yield message
        at += message.length


def require_end(read: Read, size: int) -> None:
    """Raise Damaged unless the object ends with the end marker of a message."""
    if size < INDICATOR_BYTES + len(END):
        raise Damaged("truncated", f"the object has {size} bytes, too few for a GRIB message")
    if exactly(read, size - len(END), len(END), "the end") != END:
        raise Damaged("missing_end_marker", "the object does not end with 7777")


def _message(read: Read, size: int, start: int) -> GribMessage:
    head = exactly(read, start, INDICATOR_BYTES, "the indicator section")
    if head[:4] != MAGIC:
        raise Damaged("bad_magic", f"no GRIB message starts at byte {start}")
    if head[7] != 2:
        raise Damaged("unsupported_edition", f"GRIB edition {head[7]} is not supported, only 2")
    (length,) = struct.unpack(">Q", head[8:16])
    if length < INDICATOR_BYTES + len(END) or start + length > size:
        raise Damaged("truncated", f"the message at byte {start} has {length} bytes, but the object has only {size}")
    if exactly(read, start + length - len(END), len(END), "the end marker") != END:
        raise Damaged("missing_end_marker", f"the message at byte {start} does not end with 7777")
    found = _sections(read, start + INDICATOR_BYTES, start + length - len(END))
    if 1 not in found:
        raise Damaged("bad_section", f"the message at byte {start} has no identification section")
    return _message_of(start, length, head[6], found)


def _sections(read: Read, at: int, end: int) -> dict[int, bytes]:
    """Return the identification, grid and product sections; skip the others."""
    found: dict[int, bytes] = {}
    buffer, based = read(at, min(HEAD_BYTES, end - at)), at
    while at < end and not {1, 3, 4} <= found.keys():
        if not based <= at <= based + len(buffer) - 5:
            buffer, based = read(at, min(HEAD_BYTES, end - at)), at
        if len(buffer) < at - based + 5:
            raise Damaged("truncated", f"the section at byte {at} is not complete")
        length, number = struct.unpack(">IB", buffer[at - based : at - based + 5])
        wanted = number in (1, 3, 4)
        if not (5 <= length <= end - at and 1 <= number <= 7) or (wanted and length > SECTION_BYTES_MAX):
            raise Damaged("bad_section", f"section {number} at byte {at} has {length} bytes")
        if wanted and number not in found:
            held = buffer[at - based : at - based + length]
            found[number] = held if len(held) == length else exactly(read, at, length, f"section {number}")
        at += length
    return found


def _message_of(offset: int, length: int, discipline: int, found: dict[int, bytes]) -> GribMessage:
    try:
        center, reference = _identification(found[1])
        found_grid = grid(found[3]) if 3 in found else None
        valid, ends, category, parameter = _product(found[4], reference) if 4 in found else (None, None, None, None)
    except (struct.error, IndexError, ValueError, OverflowError, ZeroDivisionError) as error:
        raise Damaged("bad_section", f"the message at byte {offset} cannot be read: {type(error).__name__}") from None
    return GribMessage(
        offset=offset,
        length=length,
        discipline=discipline,
        center=center,
        reference=reference,
        valid=valid,
        ends=ends,
        category=category,
        parameter=parameter,
        grid=found_grid,
    )


def _identification(section: bytes) -> tuple[int, datetime]:
    (center,) = struct.unpack(">H", section[5:7])
    return center, _moment(section, 12)


def _moment(section: bytes, at: int) -> datetime:
    year, month, day, hour, minute, second = struct.unpack(">HBBBBB", section[at : at + 7])
    return datetime(year, month, day, hour, minute, second, tzinfo=UTC)


def _product(section: bytes, reference: datetime) -> tuple[datetime | None, datetime | None, int, int]:
    (template,) = struct.unpack(">H", section[7:9])
    category, parameter = section[9], section[10]
    if template not in _LEADS:
        return None, None, category, parameter
    unit, lead = struct.unpack_from(">BI", section, _LEADS[template])
    valid = reference + signed(lead) * _UNITS[unit] if unit in _UNITS else None
    ends = _moment(section, _INTERVAL_ENDS[template]) if template in _INTERVAL_ENDS else None
    return valid, ends, category, parameter
