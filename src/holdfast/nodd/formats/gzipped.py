"""Gzip objects: unpacked in memory up to a limit, and verified by their checksum."""

from __future__ import annotations

import zlib

from holdfast.nodd.formats import Damaged, Read

PACKED_BYTES_MAX = 32 << 20
UNPACKED_BYTES_MAX = 256 << 20
PART_BYTES = 1 << 20


def unpacked(read: Read, size: int) -> bytes:
    """Return the content of a gzip object; raise Damaged if it is truncated, damaged or too large."""
    if size > PACKED_BYTES_MAX:
        raise Damaged("size_too_large", f"{size} compressed bytes are more than the limit of {PACKED_BYTES_MAX}")
    stream = zlib.decompressobj(wbits=31)  # with the header and the checksum of gzip
    parts: list[bytes] = []
    total = at = 0
    try:
        while at < size and not stream.eof:
            packed = read(at, min(PART_BYTES, size - at))
            if not packed:
                raise Damaged("truncated", f"the object ends after {at} of {size} bytes")
            at += len(packed)
            while packed and not stream.eof:
                parts.append(stream.decompress(packed, PART_BYTES))
                total += len(parts[-1])
                packed = stream.unconsumed_tail
                if total > UNPACKED_BYTES_MAX:
                    raise Damaged("size_too_large", f"more than {UNPACKED_BYTES_MAX} bytes after unpacking")
    except zlib.error as error:
        raise Damaged("bad_gzip", f"the object cannot be unpacked: {error}") from None
    if not stream.eof:
        raise Damaged("truncated", "the compressed data is not complete")
    if stream.unused_data or at < size:
        raise Damaged("trailing_data", "there are bytes after the compressed data")
    return b"".join(parts)
