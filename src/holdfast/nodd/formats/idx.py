"""The index of a GRIB2 file, as `wgrib2` writes it: where each message begins, and what it holds.

Invariants: lines that are no entries are skipped; the length of a message is the distance to the next one.
"""

from __future__ import annotations

import re

import msgspec

_OFFSET = re.compile(r"[0-9]{1,15}")


class IndexedMessage(msgspec.Struct, frozen=True, array_like=True):
    """One message of a GRIB2 file by its index."""

    offset: int
    length: int
    parameter: str
    level: str
    step: str


def messages(text: str, size: int) -> list[IndexedMessage]:
    """Return the messages that an index lists for an object of a size, in the order of the index."""
    entries = [line.split(":") for line in text.splitlines()]
    found = [(int(one[1]), one) for one in entries if len(one) >= 3 and _OFFSET.fullmatch(one[1])]
    starts = sorted({offset for offset, _ in found})
    ends = dict(zip(starts, [*starts[1:], size], strict=False))  # the last one ends with the object
    return [
        IndexedMessage(offset, max(ends[offset] - offset, 0), *(one[n] if n < len(one) else "" for n in (3, 4, 5)))
        for offset, one in found
    ]
