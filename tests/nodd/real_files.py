"""Real files of NOAA, compared with other readers, complete and broken.

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
import tarfile
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
LISTED, VOLUMES = (Path(__file__).parent / f"real_{name}.tsv" for name in ("files", "volumes"))
NOW = datetime(2026, 11, 16, tzinfo=UTC)
ERROR_PAGE = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>SlowDown</Code><Message>Reduce your rate</Message></Error>\n'
)
CUTS = 24  # places at which a file is cut, besides those near its ends


ECCODES = "ecCodes: all points of the grid"
METPY = "MetPy: station, time, place of the radar"
ORACLES = {
    **dict.fromkeys(("gfs", "gefs", "hrrr", "mrms", "nbm", "ndfd"), ECCODES),
    "goes-abi": "h5py and PROJ: the corners by the file's own projection",
    "goes-glm": "h5py: all lightning events",
    "nexrad-chunks": METPY,
    "nexrad-l2": METPY,
    "nexrad-l3": "NOAA's table of radars",
    "nwm": "h5py and PROJ: all cells or rivers",
}


class RealFile(msgspec.Struct, frozen=True):
    """A file: where it comes from, and the object that it would be."""

    source: str  # owner/name
    name: str
    dataset: str
    bucket: str
    key: str
    data: bytes


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
            for name, held in _unpacked(path.rpartition("/")[2], data):
                named = object_of(name)
                if named is not None:
                    yield RealFile(source, name, *named, held)


def _unpacked(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each object in a file: an archive has several."""
    if name.endswith(".tar.gz"):
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in sorted(archive.getmembers(), key=lambda one: one.name):
                if (held := archive.extractfile(member)) is not None:
                    yield member.name.rpartition("/")[2], held.read()
    else:
        yield name, lzma.decompress(data) if name.endswith(".xz") else data


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
    "gfs.t12z.pgrb2.0p25.f023-PV-TMP-missing.grib2": ("gfs", "gfs.20260605/12/atmos/gfs.t12z.pgrb2.0p25.f023"),
    "gfs.t18z.pgrb2.0p25.f186-RH.grib2": ("gfs", "gfs.20230104/18/atmos/gfs.t18z.pgrb2.0p25.f186"),
    "gfswave.20210826.t12z.atlocn.0p16.f000.grib2": (
        "gfs", "gfs.20210826/12/wave/gridded/gfswave.t12z.atlocn.0p16.f000.grib2",
    ),
    "gfswave.t18z.atlocn.0p16.f001.grib2": (
        "gfs", "gfs.20230823/18/wave/gridded/gfswave.t18z.atlocn.0p16.f001.grib2",
    ),
    "gefs.chem.t00z.a2d_0p25.f000.grib2_subset": (
        "gefs", "gefs.20240309/00/chem/pgrb2ap25/gefs.chem.t00z.a2d_0p25.f000.grib2",
    ),
    "blend.t00z.core.f001.tmp.co.grib2": ("nbm", "blend.20250901/00/core/blend.t00z.core.f001.co.grib2"),
    "nwm_subset.nc": ("nwm", "nwm.20170418/forcing_short_range/nwm.t21z.short_range.forcing.f003.conus.nc"),
    "202008260100.CHRTOUT_DOMAIN1": (
        "nwm", "nwm.20200824/medium_range_mem1/nwm.t00z.medium_range.channel_rt_1.f049.conus.nc",
    ),
    "KLBB20160601_150025_V06": ("nexrad-l2", "2016/06/01/KLBB/KLBB20160601_150025_V06"),
    "Level2_KFTG_20150430_1419.ar2v": ("nexrad-l2", "2015/04/30/KFTG/KFTG20150430_141911_V06"),
    "KJKL_20240227_102059": ("nexrad-l2", "2024/02/27/KJKL/KJKL20240227_102059_V06"),
    "Level2_KLBB_single_chunk": ("nexrad-chunks", "KLBB/1/20150101-000000-002-I"),
}  # fmt: skip


_HRRR_DAYS = {"t00z.wrfprsf00": "20260301", "t00z.wrfsfcf00": "20251203", "t06z.wrfsfcf01": "20230722"}


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
    if hrrr := re.match(r"hrrr\.(t\d\dz\.wrf\w+)-", name):
        return "hrrr", f"hrrr.{_HRRR_DAYS[hrrr[1]]}/conus/hrrr.{hrrr[1]}.grib2"
    if name.startswith("nbm-"):
        return "nbm", "blend.20260616/12/core/blend.t12z.core.f001.co.grib2"
    if re.fullmatch(r"\d{8}-\d{6}-\d{3}-[SIE]", name):
        return "nexrad-chunks", f"KLOT/1/{name}"
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
    if ORACLES[file.dataset] == ECCODES:
        return _grib_points(file.data)
    if file.dataset == "nwm":
        return _water_points(file.data)
    if file.dataset == "nexrad-l3":
        return _station_points(file)
    volume = volumes().get(file.name)
    return [volume.place] if volume is not None and volume.place is not None else None


_GRIDS: dict[str, list[Point]] = {}  # by the digest of the grid: many files have the same


def _grib_points(data: bytes) -> list[Point]:
    whole = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    handle = eccodes.codes_new_from_message(whole[whole.find(b"GRIB") :])
    try:
        grid = eccodes.codes_get(handle, "md5GridSection")
        if grid not in _GRIDS:
            latitudes, longitudes = (
                eccodes.codes_get_array(handle, axis)[::97] for axis in ("latitudes", "longitudes")
            )
            _GRIDS[grid] = [(float(lon), float(lat)) for lon, lat in zip(longitudes, latitudes, strict=True)]
    finally:
        eccodes.codes_release(handle)
    return _GRIDS[grid]


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


def _water_points(data: bytes) -> list[Point] | None:
    """Return the centres of the cells of a grid, by its attributes of CF in place of its text of PROJ."""
    with h5py.File(io.BytesIO(data), "r") as file:
        if "x" not in file:
            return [(float(x), float(y)) for x, y in zip(file["longitude"], file["latitude"], strict=True)]
        mapping = file["ProjectionCoordinateSystem"].attrs
        first, second = (float(parallel) for parallel in mapping["standard_parallel"])
        project = pyproj.Proj(
            proj="lcc", lat_1=first, lat_2=second, R=float(mapping["earth_radius"][0]),
            lat_0=float(mapping["latitude_of_projection_origin"][0]),
            lon_0=float(mapping["longitude_of_central_meridian"][0]),
        )  # fmt: skip
        return [project(x, y, inverse=True) for x in file["x"][()] for y in file["y"][()]]


class VolumeFacts(msgspec.Struct, frozen=True):
    """What MetPy 1.7.1 reads in a volume of NEXRAD: it is not installed here, so its answers are kept in a file."""

    station: str | None
    start: datetime
    sweeps: int
    place: Point | None  # of the radar, in volumes since 2008


def volumes() -> dict[str, VolumeFacts]:
    """Return what MetPy reads in each volume and first chunk, by the name of the file."""
    found = {}
    for line in VOLUMES.read_text(encoding="utf-8").splitlines()[1:]:
        name, station, start, sweeps, lon, lat = line.split("\t")
        place = (float(lon), float(lat)) if lon else None
        found[name] = VolumeFacts(station or None, datetime.fromisoformat(start), int(sweeps), place)
    return found


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
    if shipped()[file.dataset].spec.format in ("grib2", "grib2-wmo"):
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
        "nexrad-l2": (file.key[11:15], "KAMX"), "gfs": (".f000", ".f006"), "goes-abi": ("M2", "M1"),
        "hrrr": ("/conus/", "/alaska/"), "nbm": (".co.", ".ak."), "gefs": (".f000", ".f003"),
        "nwm": (".conus", ".hawaii"), "ndfd": (file.key.rpartition("ds.")[2], "maxt.bin"),
        "nexrad-chunks": ("KLOT", "KAMX") if file.name.endswith("S") else ("", ""),
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


def table() -> str:
    """Return the table of docs/nodd.md."""
    lines = [
        "| dataset | real files | status | oracle of the place | inside / compared | broken: caught | missed | moved |",
        "|---|---|---|---|---|---|---|---|",
    ]
    found = measured()
    for name in sorted(dataset.name for dataset in shipped()):
        if (row := found.get(name)) is None:
            lines.append(f"| `{name}` | none was found |  |  | 0 / 0 | 0 of 0 | 0 | 0 of 0 |")
            continue
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
