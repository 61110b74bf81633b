"""NEXRAD Level III: the heading of a product, its message header and its description block.

Invariants: a product is complete only if its message has the length that its header gives; bytes after it are line ends
alone; a product that was packed for the satellite broadcast is unpacked first.
"""

from __future__ import annotations

import re
import struct
import zlib
from datetime import UTC, datetime, timedelta

import msgspec

from holdfast.nodd.formats import Damaged, Read, exactly

SIZE_MAX = 8 << 20
HEADER = struct.Struct(">hHIihhh")  # code, day, seconds, length, source, destination, blocks
DESCRIPTION = struct.Struct(
    ">hiihhhhhhHI"
)  # divider, lat, lon, height, product, mode, VCP, sequence, volume, day, time
STATUS_MESSAGE = 2  # a message about the radar itself, which has no description block
TEXT_PRODUCTS = frozenset({"FTM"})  # plain text: their length is nowhere in them
_START = b"\x01"
_HEADING = re.compile(
    rb"(?:\x01\r\r\n\d{3} ?\r\r\n)?[A-Z]{4}\d{2} [A-Z0-9]{4} \d{6}(?: [A-Z]{3})?\r\r\n"
    rb"([A-Z0-9]{3})([A-Z0-9]{3}) *\r\r\n"
)
_TRAILER = b"\r\r\n\x03"
_EPOCH = datetime(1969, 12, 31, tzinfo=UTC)  # day 1 is 1970-01-01


class Product(msgspec.Struct, frozen=True, kw_only=True):
    """A product: the letters of its heading, its code, its times and the place of its radar."""

    product: str
    station: str  # three letters
    code: int | None = None
    made: datetime | None = None
    volume: datetime | None = None  # start of the volume scan
    place: tuple[float, float] | None = None  # latitude, longitude
    verified: bool = True  # whether the header gives a length


def product(read: Read, size: int) -> Product:
    """Return the product in an object; raise Damaged if it is none, or is not complete."""
    if size > SIZE_MAX:
        raise Damaged("size_too_large", f"{size} bytes are more than the limit of {SIZE_MAX}")
    whole = exactly(read, 0, size, "the product")
    heading = _HEADING.match(whole)
    if heading is None:
        raise Damaged("bad_magic", "the object does not start with the heading of a radar product")
    letters, station = (part.decode("ascii") for part in heading.groups())
    body = whole[heading.end() :]
    if whole.startswith(_START):
        if not body.endswith(_TRAILER):
            raise Damaged("truncated", "the object does not end with the end of a bulletin")
        body = body[: -len(_TRAILER)]
    if letters in TEXT_PRODUCTS:
        return Product(product=letters, station=station, verified=False)
    if body[:1] == b"\x78":
        body = _without_control_block(_unpacked(body))
    return _of_message(letters, station, body)


def _unpacked(body: bytes) -> bytes:
    """Return a body that is a sequence of compressed blocks."""
    parts: list[bytes] = []
    total = 0
    while body[:1] == b"\x78":
        stream = zlib.decompressobj()
        try:
            parts.append(stream.decompress(body, SIZE_MAX - total + 1))
        except zlib.error:
            raise Damaged("bad_zlib", "the product cannot be unpacked") from None
        total += len(parts[-1])
        if total > SIZE_MAX:
            raise Damaged("size_too_large", f"more than {SIZE_MAX} bytes after unpacking")
        if not stream.eof:
            raise Damaged("truncated", "the compressed product is not complete")
        body = stream.unused_data
    _require_line_ends(body)
    return b"".join(parts)


def _without_control_block(body: bytes) -> bytes:
    """Return an unpacked body without the control block of the broadcast and the heading that follow each other."""
    words = int.from_bytes(body[:2], "big") & 0x3FFF  # the length of the block
    inner = _HEADING.match(body, 2 * words)
    if inner is None:
        raise Damaged("bad_header", "the compressed product has no heading")
    return body[inner.end() :]


def _require_line_ends(rest: bytes) -> None:
    if rest.strip(b"\r\n\x03\x00"):
        raise Damaged("trailing_data", f"there are {len(rest)} bytes after the product")


def _of_message(letters: str, station: str, body: bytes) -> Product:
    if len(body) < HEADER.size:
        raise Damaged("truncated", "the message header is not complete")
    code, day, seconds, length, *_ = HEADER.unpack_from(body)
    if not 0 < code < 500 or seconds >= 86_400 or length < HEADER.size:
        raise Damaged("bad_header", "the message header has no valid code, time or length")
    if length > len(body):
        raise Damaged("truncated", f"the header gives {length} bytes, but the product has only {len(body)}")
    _require_line_ends(body[length:])
    made = _EPOCH + timedelta(days=day, seconds=seconds)
    found = Product(product=letters, station=station, code=code, made=made)
    if code == STATUS_MESSAGE:
        return found
    if length < HEADER.size + DESCRIPTION.size:
        raise Damaged("truncated", "the description of the product is not complete")
    divider, lat, lon, _, described, _, _, _, _, day, seconds = DESCRIPTION.unpack_from(body, HEADER.size)
    place = lat / 1000, lon / 1000
    if divider != -1 or described != code or not (-90 <= place[0] <= 90 and -180 <= place[1] <= 180):
        raise Damaged("bad_header", "the description of the product contradicts its header")
    volume = _EPOCH + timedelta(days=day, seconds=seconds) if seconds < 86_400 else None
    return msgspec.structs.replace(found, place=place, volume=volume)
