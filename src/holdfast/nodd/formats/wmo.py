"""Bulletins of the WMO with GRIB2 messages in them, as NDFD has them: a heading before each message.

Invariants: a file is complete only if each message is complete, only headings and line ends are between them, and a
file whose first line gives its length has that length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.nodd.formats import Damaged, Read, exactly, grib2

HEADING_BYTES_MAX = 512
WHOLE_BYTES_MAX = 8 << 20  # a file of up to this size is read at once, since its messages are small
_COUNTED = re.compile(rb"\*{4}(\d{10})\*{4}\n")
_LINE_ENDS = re.compile(rb"[\r\n\x01\x03]+")
_LINE = re.compile(rb"\*{4}\d{10}\*{4}|\d{3} ?|[A-Z]{4}\d{2} [A-Z0-9]{4} \d{6}(?: [A-Z]{3})? *")


def messages(read: Read, size: int) -> Iterator[grib2.GribMessage]:
    """Yield the messages of a file in order; raise Damaged if one is not complete, or other bytes are between them."""
    if size <= WHOLE_BYTES_MAX:
        whole = exactly(read, 0, size, "the file")
        read = lambda start, length: whole[start : start + length]  # noqa: E731 - the same file, in memory
    at = 0
    while at < size:
        head = read(at, min(HEADING_BYTES_MAX, size - at))
        _require_counted(head, at, size)
        start = head.find(grib2.MAGIC)
        lines = _lines(head if start < 0 else head[:start], at)
        if start >= 0:
            message = grib2.first_message(read, size, start=at + start)
            yield message
            at += start + message.length
        elif not lines and at:
            return  # the line ends after the last message
        else:
            raise Damaged("truncated", f"no message follows the heading at byte {at}")


def require_counted(read: Read, size: int) -> None:
    """Raise Damaged unless the first line of a file gives its length, and the file has that length."""
    counted = _COUNTED.match(read(0, HEADING_BYTES_MAX))
    if counted is None:
        raise Damaged("bad_magic", "the first line of the file does not give its length")
    if counted.end() + int(counted[1]) != size:
        raise Damaged("truncated", f"the first line gives {int(counted[1])} bytes, but the object has {size}")


def _lines(part: bytes, at: int) -> list[bytes]:
    """Return the lines between two messages; raise Damaged if one is not part of a heading."""
    lines = [line for line in _LINE_ENDS.split(part) if line]
    if not all(_LINE.fullmatch(line) for line in lines):
        raise Damaged("bad_section", f"there are bytes of no message and of no heading at byte {at}")
    return lines


def _require_counted(head: bytes, at: int, size: int) -> None:
    """Raise Damaged if a heading gives the length of what follows it, and that is not there."""
    counted = _COUNTED.match(head)
    if counted is not None and at + counted.end() + int(counted[1]) > size:
        raise Damaged(
            "truncated", f"the heading at byte {at} gives {int(counted[1])} bytes, but the object has only {size}"
        )
