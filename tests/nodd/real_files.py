"""Real files of NOAA, held against other people's readers, whole and broken.

The files are not part of this repository: HOLDFAST_NOAA_FILES names a directory with one folder per public repository,
`owner+name/path/of/file`, as `real_files.tsv` lists them with their digests. `python -m tests.nodd.real_files` prints
the table of docs/nodd.md.

Invariants: a key comes from the name of a file, never from its content; a file whose digest differs is not used.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import eccodes
import h5py
import msgspec
import pyproj

from holdfast.nodd import integrity, metadata
from holdfast.nodd.area import Point
from holdfast.nodd.dataset import shipped
from holdfast.nodd.formats import grib2
from holdfast.nodd.notices import listed_notice
from holdfast.nodd.units import OperatorVerdict, unit_of
from tests.nodd.objects import MemorySource

VARIABLE = "HOLDFAST_NOAA_FILES"
LISTED = Path(__file__).parent / "real_files.tsv"
NOW = datetime(2026, 11, 16, tzinfo=UTC)
ERROR_PAGE = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>SlowDown</Code><Message>Reduce your rate</Message></Error>\n'
)
CUTS = 24  # places at which a file is cut, besides those near its ends


class RealFile(msgspec.Struct, frozen=True):
    """A file: where it comes from, and the object that it would be."""

    source: str  # owner/name
    path: str
    dataset: str
    bucket: str
    key: str
    data: bytes

    @property
    def name(self) -> str:
        """Return the name of the file."""
        return self.path.rpartition("/")[2]


def directory() -> Path | None:
    """Return the directory of the files; None if there is none."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named and Path(named).is_dir() else None


def listed() -> list[tuple[str, str, str]]:
    """Return source, path and digest of each file."""
    lines = LISTED.read_text(encoding="utf-8").splitlines()[1:]
    return [(source, path, digest) for source, path, digest in (line.split("\t") for line in lines)]


def files() -> Iterator[RealFile]:
    """Yield the files that are there."""
    where = directory()
    for source, path, digest in listed() if where else ():
        assert where is not None
        place = where / source.replace("/", "+") / path
        if place.is_file() and hashlib.sha256(data := place.read_bytes()).hexdigest() == digest:
            named = object_of(path.rpartition("/")[2])
            if named is not None:
                yield RealFile(source, path, *named, lzma.decompress(data) if path.endswith(".xz") else data)


# ---------------------------------------------------------------------------------------------------------------------
# From the name of a file to its key

_REGIONS = {
    "01H_Pass1_00.00_20220601": "GUAM",
    "24H_Pass2": "CARIB",
    "01H_Pass1_00.00_20221024": "ALASKA",
    "12H": "ALASKA",
}
_OTHERS = {
    "gdaswave.t00z.wcoast.0p16.f000.grib2": (
        "gfs", "gdas.20211130/00/wave/gridded/gdaswave.t00z.wcoast.0p16.f000.grib2",
    ),
    "gdas.t00z.sfluxgrbf000.grib2.0.xz": ("gfs", "gdas.20240120/00/atmos/gdas.t00z.sfluxgrbf000.grib2"),
    "gdas.t12z.pgrb2.0p25.f000.12.xz": ("gfs", "gdas.20230111/12/atmos/gdas.t12z.pgrb2.0p25.f000"),
    "gdas.t12z.pgrb2.0p25.f000.46.xz": ("gfs", "gdas.20230111/12/atmos/gdas.t12z.pgrb2.0p25.f000"),
    "ds.minrh.bin.xz": ("ndfd", "opnl/AR.conus/VP.001-003/ds.minrh.bin"),
    "ds.critfireo.bin.xz": ("ndfd", "opnl/AR.conus/VP.001-003/ds.critfireo.bin"),
    "ds.sky.grib2": ("ndfd", "opnl/AR.puertori/VP.001-003/ds.sky.bin"),
    "ds.snow.grib2": ("ndfd", "opnl/AR.conus/VP.001-003/ds.snow.bin"),
    "Level2_KFTG_20150430_1419.ar2v": ("nexrad-l2", "2015/04/30/KFTG/KFTG20150430_141911_V06"),
    "KJKL_20240227_102059": ("nexrad-l2", "2024/02/27/KJKL/KJKL20240227_102059_V06"),
    "Level2_KLBB_single_chunk": ("nexrad-chunks", "KLBB/1/20150101-000000-002-I"),
}  # fmt: skip


def object_of(name: str) -> tuple[str, str, str] | None:
    """Return dataset, bucket and key for the name of a file; None if it is of no dataset here."""
    found = _key_of(name)
    if found is None:
        return None
    dataset, key = found
    buckets = [*shipped()[dataset].spec.buckets, *shipped()[dataset].spec.archives]
    satellite = re.search(r"_G(\d\d)_", name)
    bucket = next(one for one in buckets if satellite is None or one.endswith(satellite[1]))
    return dataset, bucket, key


def _key_of(name: str) -> tuple[str, str] | None:
    if name in _OTHERS:
        return _OTHERS[name]
    if goes := re.match(
        r"OR_(ABI-L\d[a-z]?-[A-Za-z]+?|GLM-L2-LCFA)(?:\d-M.*|F-.*|C-.*)?_G\d\d_s(\d{4})(\d{3})(\d{2})", name
    ):
        form = "goes-glm" if goes[1].startswith("GLM") else "goes-abi"
        return form, f"{goes[1]}/{goes[2]}/{goes[3]}/{goes[4]}/{name}"
    if mrms := re.match(r"MRMS_(.+)_(\d\d\.\d\d)_(\d{8})-\d{6}\.grib2\.gz", name):
        region = next((region for part, region in _REGIONS.items() if part in name), "CONUS")
        return "mrms", f"{region}/{mrms[1]}_{mrms[2]}/{mrms[3]}/{name}"
    if volume := re.match(r"(K[A-Z]{3})_?(\d{4})(\d\d)(\d\d)_(\d{6})\.gz", name):
        station, year, month, number, time = volume.groups()
        return "nexrad-l2", f"{year}/{month}/{number}/{station}/{station}{year}{month}{number}_{time}.gz"
    for form in (
        r"K[A-Z]{3}_[A-Z]{4}\d\d_(?P<product>\w{3})(?P<station>\w{3})_(?P<day>\d{8})(?P<time>\d{4})",
        r"Level3_(?P<station>\w{3})_(?P<product>\w{3})_(?P<day>\d{8})_(?P<time>\d{4})\.nids",
        r"K(?P<station>[A-Z]{3})_(?P<product>\w{3})_(?P<day>\d{8})_(?P<time>\d{4})(?:\.nids)?",
    ):
        if product := re.fullmatch(form, name):
            day, time = product["day"], product["time"]
            stamp = f"{day[:4]}_{day[4:6]}_{day[6:]}_{time[:2]}_{time[2:]}_00"
            return "nexrad-l3", f"{product['station']}_{product['product']}_{stamp}"
    return None


# ---------------------------------------------------------------------------------------------------------------------
# The operators and the oracles


def looked_at(file: RealFile, data: bytes | None = None, key: str | None = None) -> tuple[str, OperatorVerdict | None]:
    """Return the integrity status of an object, and the verdict on its metadata if it was not refused."""
    held = file.data if data is None else data
    source, wanted = MemorySource(), key or file.key
    etag = source.put(file.bucket, wanted, held)
    notice = listed_notice(shipped(), file.bucket, wanted, size=len(held), etag=etag, written_at=NOW)
    assert notice is not None, wanted
    unit, dataset = unit_of(notice), shipped()[file.dataset]
    checked = integrity.check(unit, dataset, source, [], NOW)
    if checked.status == "failed":
        return "failed", None
    return checked.status, metadata.extract(unit, dataset, source, checked)


def oracle_points(file: RealFile) -> list[Point] | None:
    """Return places that the area of an item must contain, as another library reads them; None if it cannot."""
    if file.dataset in ("goes-abi", "goes-glm"):
        return _hdf5_points(file.data)
    if file.dataset in ("gfs", "mrms", "ndfd"):
        return _grib_points(file.data)
    if file.dataset == "nexrad-l3":
        return _station_points(file)
    return None


def _grib_points(data: bytes) -> list[Point]:
    whole = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    handle = eccodes.codes_new_from_message(whole[whole.find(b"GRIB") :])
    try:
        latitudes, longitudes = (eccodes.codes_get_array(handle, axis) for axis in ("latitudes", "longitudes"))
    finally:
        eccodes.codes_release(handle)
    return [(float(lon), float(lat)) for lon, lat in zip(longitudes[::97], latitudes[::97], strict=True)]


def _hdf5_points(data: bytes) -> list[Point]:
    """Return where the lightning of a file was, or the centre and corners of an image by its own projection."""
    with h5py.File(io.BytesIO(data), "r") as file:
        if "event_lat" in file:
            axes = [file[name] for name in ("event_lon", "event_lat")]
            lon, lat = (
                axis[()].astype("uint16") * axis.attrs["scale_factor"][0] + axis.attrs["add_offset"][0] for axis in axes
            )
            return [(float(x), float(y)) for x, y in zip(lon, lat, strict=True)]
        view = file["goes_imager_projection"].attrs
        height = float(view["perspective_point_height"][0])
        project = pyproj.Proj(
            proj="geos", h=height, lon_0=float(view["longitude_of_projection_origin"][0]), sweep="x",
            a=float(view["semi_major_axis"][0]), b=float(view["semi_minor_axis"][0]),
        )  # fmt: skip
        edges = [
            [
                float(file[axis][at] * file[axis].attrs["scale_factor"][0] + file[axis].attrs["add_offset"][0]) * height
                for at in (0, -1)
            ]
            for axis in ("x", "y")
        ]
        return [project(x, y, inverse=True) for x in edges[0] for y in edges[1]]


def _station_points(file: RealFile) -> list[Point] | None:
    """Return the place of the radar in the table of NOAA: the other source besides the header of the product."""
    from holdfast.nodd.stations import place_of

    place = place_of(file.key[:3])
    return [(place[1], place[0])] if place else None


def outside(bbox: list[float], points: list[Point], slack: float) -> int:
    """Return how many places are outside a box."""
    west, south, east, north = bbox
    width = (east - west) % 360 or 360.0
    return sum(
        not (south - slack <= lat <= north + slack and (lon - west + slack) % 360 <= width + 2 * slack)
        for lon, lat in points
    )


# ---------------------------------------------------------------------------------------------------------------------
# Broken variants


def broken(file: RealFile) -> Iterator[tuple[str, bytes]]:
    """Yield a file cut at many places, an error page of S3, and noise, each with its name."""
    size = len(file.data)
    places = {1, 8, 100, size // 2, size - 1, size - 4, size - 100, *(size * n // CUTS for n in range(1, CUTS))}
    yield from (("cut", file.data[:at]) for at in sorted(places) if 0 < at < size)
    yield from (("cut between parts", file.data[:at]) for at in _boundaries(file))
    yield "error page", ERROR_PAGE
    yield "noise", random.Random(size).randbytes(4096)


def _boundaries(file: RealFile) -> list[int]:
    """Return places between two messages or records, where what is left has a valid structure."""
    if file.dataset in ("gfs", "ndfd"):
        read: Callable[[int, int], bytes] = lambda start, length: file.data[start : start + length]  # noqa: E731
        found, at = [], file.data.find(b"GRIB")
        while 0 <= at < len(file.data):
            message = grib2.first_message(read, len(file.data), start=at)
            found.append(at + message.length)
            at = file.data.find(b"GRIB", at + message.length)
        return found[:-1]
    if file.dataset == "nexrad-l2" and file.data[28:30] == b"BZ":
        found, at = [], 24
        while at < len(file.data):
            at += 4 + abs(int.from_bytes(file.data[at : at + 4], "big", signed=True))
            found.append(at)
        return found[:-1]
    return []


def another_key(file: RealFile) -> str | None:
    """Return the key of another object of the dataset, with which this file does not agree."""
    swaps = {
        "goes-glm": ("_G", "_G"), "nexrad-l3": (file.key[:3], "AMX"), "mrms": (file.key.partition("/")[0], "HAWAII"),
        "nexrad-l2": (file.key[11:15], "KAMX"), "gfs": (".f000", ".f006"), "ndfd": ("", ""), "goes-abi": ("M2", "M1"),
    }  # fmt: skip
    old, new = swaps.get(file.dataset, ("", ""))
    if file.dataset == "goes-glm":
        old, new = file.bucket[-2:], {"16": "17", "17": "16", "18": "19", "19": "18"}[file.bucket[-2:]]
        old, new = f"_G{old}_", f"_G{new}_"
    key = file.key.replace(old, new) if old else file.key
    return key if key != file.key else None


class Row(msgspec.Struct):
    """The results of one dataset."""

    files: int = 0
    statuses: Counter[str] = msgspec.field(default_factory=Counter)
    compared: int = 0
    misplaced: int = 0
    broken: int = 0
    missed: Counter[str] = msgspec.field(default_factory=Counter)
    swapped: int = 0
    unnoticed: int = 0
    sources: set[str] = msgspec.field(default_factory=set)


def measured() -> dict[str, Row]:
    """Return the results of all files by dataset."""
    rows: dict[str, Row] = {}
    for file in files():
        row = rows.setdefault(file.dataset, Row())
        row.files += 1
        row.sources.add(file.source)
        status, verdict = looked_at(file)
        row.statuses[status if verdict is None or status != "ok" else verdict.status] += 1
        points = oracle_points(file)
        if verdict is not None and verdict.data["bbox"] and points is not None:
            row.compared += 1
            row.misplaced += outside(verdict.data["bbox"], points, 0.02) > 0
        for name, data in broken(file):
            row.broken += 1
            found, learned = looked_at(file, data)
            row.missed[name] += found == "ok" and learned is not None and learned.status == "ok"
        other = another_key(file)
        if other is not None:
            row.swapped += 1
            found, learned = looked_at(file, key=other)
            row.unnoticed += found == "ok" and learned is not None and learned.status == "ok"
    return rows


ORACLES = {
    "gfs": "ecCodes: all points of the grid", "mrms": "ecCodes: all points of the grid",
    "ndfd": "ecCodes: all points of the grid", "goes-abi": "h5py and PROJ: the corners by the file's own projection",
    "goes-glm": "h5py: all lightning events", "nexrad-l3": "NOAA's table of radars", "nexrad-l2": "-",
    "nexrad-chunks": "-",
}  # fmt: skip


def table() -> str:
    """Return the table of docs/nodd.md."""
    lines = [
        "| dataset | real files | status | oracle of the place | inside / compared | broken: caught | missed | moved |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in sorted(measured().items()):
        statuses = ", ".join(f"{n} {status}" for status, n in sorted(row.statuses.items()))
        missed = ", ".join(f"{n} {kind}" for kind, n in sorted(row.missed.items()) if n) or "0"
        caught = row.broken - row.missed.total()
        lines.append(
            f"| `{name}` | {row.files} ({', '.join(sorted(row.sources))}) | {statuses} | {ORACLES[name]}"
            f" | {row.compared - row.misplaced} / {row.compared} | {caught} of {row.broken} | {missed}"
            f" | {row.swapped - row.unnoticed} of {row.swapped} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
