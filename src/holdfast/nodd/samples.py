"""Sample objects: small and valid in their formats, for tests and the demonstration.

Invariants: the same arguments give the same bytes; the readers of `formats` and of other libraries accept them.
"""

from __future__ import annotations

import bz2
import gzip
import struct
from datetime import UTC, datetime
from typing import Any

from holdfast.nodd.formats.grib2 import END, MAGIC

_EPOCH = datetime(1969, 12, 31, tzinfo=UTC)


def _sized(number: int, body: bytes) -> bytes:
    return struct.pack(">IB", 5 + len(body), number) + body


def _angle(degrees: float) -> bytes:
    micro = round(abs(degrees) * 1e6)
    return struct.pack(">I", micro | (0x80000000 if degrees < 0 else 0))


def _time(moment: datetime) -> bytes:
    return struct.pack(">HBBBBB", moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second)


def latitudes_and_longitudes(columns: int = 1440, rows: int = 721) -> bytes:
    """Return the body of a grid section for the globe, from north to south and eastwards from Greenwich."""
    step_x, step_y = 360 / columns, 180 / (rows - 1)
    return (
        struct.pack(">BIBBH", 0, columns * rows, 0, 0, 0)
        + struct.pack(">BBIBIBI", 6, 0, 0, 0, 0, 0, 0)
        + struct.pack(">II", columns, rows)
        + struct.pack(">II", 0, 0xFFFFFFFF)
        + _angle(90) + _angle(0) + b"\x30" + _angle(-90) + _angle(360 - step_x)
        + struct.pack(">IIB", round(step_x * 1e6), round(step_y * 1e6), 0)
    )  # fmt: skip


def conus_box(columns: int = 70, rows: int = 35) -> bytes:
    """Return the body of a grid section for MRMS: latitudes 20 to 55, longitudes -130 to -60."""
    return (
        struct.pack(">BIBBH", 0, columns * rows, 0, 0, 0)
        + struct.pack(">BBIBIBI", 6, 0, 0, 0, 0, 0, 0)
        + struct.pack(">II", columns, rows)
        + struct.pack(">II", 0, 0xFFFFFFFF)
        + _angle(55) + _angle(230) + b"\x30" + _angle(20) + _angle(300)
        + struct.pack(">IIB", round(70 / (columns - 1) * 1e6), round(35 / (rows - 1) * 1e6), 0)
    )  # fmt: skip


def lambert(columns: int = 1799, rows: int = 1059) -> bytes:
    """Return the body of a grid section for HRRR: a Lambert conformal grid of the contiguous states."""
    return (
        struct.pack(">BIBBH", 0, columns * rows, 0, 0, 30)
        + struct.pack(">BBIBIBI", 6, 0, 0, 0, 0, 0, 0)
        + struct.pack(">II", columns, rows)
        + _angle(21.138123) + _angle(237.280472) + b"\x08" + _angle(38.5) + _angle(262.5)
        + struct.pack(">IIBB", 3_000_000, 3_000_000, 0, 0x40)
        + _angle(38.5) + _angle(38.5) + _angle(-90) + _angle(0)
    )  # fmt: skip


def grib2(
    reference: datetime, lead_hours: int = 0, *, grid: bytes | None = None, parameter: int = 0, category: int = 0
) -> bytes:
    """Return one GRIB2 message with a constant field, which needs no data bits."""
    body = grid or latitudes_and_longitudes()
    (points,) = struct.unpack(">I", body[1:5])
    sections = (
        _sized(1, struct.pack(">HHBBB", 7, 0, 2, 1, 1) + _time(reference) + b"\x00\x01")
        + _sized(3, body)
        + _sized(4, struct.pack(">HHBBBBBHBBI", 0, 0, category, parameter, 2, 0, 96, 0, 0, 1, lead_hours)
                 + struct.pack(">BBIBBI", 1, 0, 0, 255, 0, 0))
        + _sized(5, struct.pack(">IHfHHBB", points, 0, 273.15, 0, 0, 0, 0))
        + _sized(6, b"\xff")
        + _sized(7, b"")
        + END
    )  # fmt: skip
    return MAGIC + b"\x00\x00\x00\x02" + struct.pack(">Q", 16 + len(sections)) + sections


def grib2_index(messages: list[bytes], reference: datetime) -> bytes:
    """Return the index of a file of messages, in the format of `wgrib2`."""
    lines, at = [], 0
    for number, message in enumerate(messages, start=1):
        lines.append(f"{number}:{at}:d={reference:%Y%m%d%H}:TMP:2 m above ground:anl:\n")
        at += len(message)
    return "".join(lines).encode()


def gzipped(data: bytes) -> bytes:
    """Return compressed data without a timestamp."""
    return gzip.compress(data, mtime=0)


def nexrad_volume(station: str, start: datetime, records: int = 3) -> bytes:
    """Return a volume: its header, and records of compressed zeros."""
    since = start - _EPOCH
    milliseconds = since.seconds * 1000 + since.microseconds // 1000
    head = b"AR2V0006.001" + struct.pack(">II", since.days, milliseconds) + station.encode("ascii")
    return head + nexrad_records(records, last=True)


def nexrad_records(records: int, *, last: bool = False) -> bytes:
    """Return records of compressed zeros; the length of a volume's last record is negative."""
    parts = []
    for number in range(records):
        packed = bz2.compress(bytes(100 + number))
        length = -len(packed) if last and number == records - 1 else len(packed)
        parts.append(struct.pack(">i", length) + packed)
    return b"".join(parts)


def nexrad_product(station: str, product: str, at: datetime, *, place: tuple[float, float], code: int = 94) -> bytes:
    """Return a Level III product without data: its heading, message header and description block."""
    since = at - _EPOCH
    heading = f"SDUS54 KOUN {at:%d%H%M}\r\r\n{product}{station}\r\r\n".encode("ascii")
    body = struct.pack(
        ">hiihhhhhhHI", -1, round(place[0] * 1000), round(place[1] * 1000), 1200, code, 2, 21, 0, 1, since.days,
        since.seconds,
    ).ljust(102, b"\0")  # fmt: skip
    return heading + struct.pack(">hHIihhh", code, since.days, since.seconds, 18 + len(body), 1, 0, 2) + body


def goes_file(start: datetime, end: datetime, *, bbox: tuple[float, float, float, float], sat: str = "G19") -> bytes:
    """Return a small NetCDF-4 file with the attributes of a GOES product; h5py is required."""
    import io  # noqa: PLC0415 - with h5py

    import h5py  # noqa: PLC0415 - optional

    west, south, east, north = bbox
    held = io.BytesIO()
    with h5py.File(held, "w", track_order=True) as file:
        attributes: dict[str, Any] = {
            "platform_ID": sat,
            "time_coverage_start": f"{start:%Y-%m-%dT%H:%M:%S}.{start.microsecond // 100_000}Z",
            "time_coverage_end": f"{end:%Y-%m-%dT%H:%M:%S}.{end.microsecond // 100_000}Z",
            "dataset_name": "OR_ABI-L2-CMIPF",
        }
        for name, value in attributes.items():
            file.attrs[name] = value
        extent = file.create_dataset("geospatial_lat_lon_extent", data=-999.0)
        extent.attrs["geospatial_westbound_longitude"] = west
        extent.attrs["geospatial_southbound_latitude"] = south
        extent.attrs["geospatial_eastbound_longitude"] = east
        extent.attrs["geospatial_northbound_latitude"] = north
        file.create_dataset("CMI", data=[[0, 1], [2, 3]])
    return held.getvalue()
