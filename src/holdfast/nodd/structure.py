"""Whether an object is complete, by its format: the part of integrity-check that reads the bytes.

Invariants: bytes that contradict the format raise Damaged; what is allowed but unusual is a suspicion; an unknown
format raises Damaged.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.nodd.formats import Damaged, Read, grib2, gzipped, hdf5, nexrad, nids, wmo
from holdfast.nodd.units import Unit

INCOMPLETE = "volume_incomplete"  # the record that ends a volume is missing
UNVERIFIED = "length_unverified"  # nothing in the object gives its length
GZIP = b"\x1f\x8b"


class Structure(msgspec.Struct, frozen=True):
    """What the structure of an object shows: facts, and suspicions about it."""

    data: dict[str, object] = {}
    suspicions: tuple[str, ...] = ()


def check(form: str, unit: Unit, read: Read, size: int) -> Structure:
    """Return the structure of an object of a format; raise Damaged if the object contradicts the format."""
    check_format = _FORMATS.get(form)
    if check_format is None:
        raise Damaged("unknown_format", f"the format {form!r} is not known")
    return check_format(unit, read, size)


def in_memory(whole: bytes) -> tuple[Read, int]:
    """Return bytes as an object to read from, and their number."""
    return lambda start, length: whole[start : start + length], len(whole)


def _grib2(_unit: Unit, read: Read, size: int) -> Structure:
    first = grib2.first_message(read, size)
    grib2.require_end(read, size)
    return Structure({"messages_from": first.offset, "first_message_bytes": first.length})


def _grib2_gzip(_unit: Unit, read: Read, size: int) -> Structure:
    whole = gzipped.unpacked(read, size)
    messages = list(grib2.messages(*in_memory(whole)))
    if not messages:
        raise Damaged("truncated", "the object has no messages")
    return Structure({"messages": len(messages), "unpacked_bytes": len(whole)})


def _grib2_wmo(_unit: Unit, read: Read, size: int) -> Structure:
    if size > wmo.WHOLE_BYTES_MAX:
        wmo.require_counted(read, size)
        first = next(wmo.messages(read, size))
        grib2.require_end(read, size)
        return Structure({"messages_from": first.offset, "first_message_bytes": first.length})
    messages = list(wmo.messages(read, size))
    if not messages:
        raise Damaged("truncated", "the object has no messages")
    return Structure({"messages_from": messages[0].offset, "messages": len(messages)})


def _netcdf4(_unit: Unit, read: Read, size: int) -> Structure:
    found = hdf5.superblock(read, size)
    return Structure({"superblock": found.version, "ends_at": found.end})


def _nexrad_l2(_unit: Unit, read: Read, size: int) -> Structure:
    if read(0, 2) == GZIP:
        read, size = in_memory(gzipped.unpacked(read, size))
    volume = nexrad.volume(read, size)
    data: dict[str, object] = {"station": volume.station, "records": volume.records}
    return Structure(data, () if volume.ended else (INCOMPLETE,))


def _nexrad_chunk(unit: Unit, read: Read, size: int) -> Structure:
    found = nexrad.chunk(read, size, kind=unit.notice.fields.get("type", "S"))
    return Structure({"station": found.station} if found else {})


def _nexrad_l3(_unit: Unit, read: Read, size: int) -> Structure:
    found = nids.product(read, size)
    return Structure({"product": found.product, "code": found.code}, () if found.verified else (UNVERIFIED,))


def _opaque(_unit: Unit, read: Read, size: int) -> Structure:
    if len(read(size - 1, 1)) != 1:
        raise Damaged("truncated", "the last byte cannot be read")
    return Structure()


_FORMATS: dict[str, Callable[[Unit, Read, int], Structure]] = {
    "grib2": _grib2,
    "grib2-gzip": _grib2_gzip,
    "grib2-wmo": _grib2_wmo,
    "netcdf4": _netcdf4,
    "nexrad-l2": _nexrad_l2,
    "nexrad-chunk": _nexrad_chunk,
    "nexrad-l3": _nexrad_l3,
    "opaque": _opaque,
}
