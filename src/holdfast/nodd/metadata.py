"""metadata-extract: time, area, product and platform of an object, from its headers and its key.

Invariants: if the header and the key differ, the verdict is suspect; if the area is not known, it is left out and the
verdict names that issue; the result depends only on the object and the unit.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from holdfast.core.records import time_from, time_text
from holdfast.nodd.dataset import Bbox, Dataset
from holdfast.nodd.formats import Damaged, Read, grib2, gzipped, hdf5, nexrad
from holdfast.nodd.objects import RANGE_MAX, ObjectError, ObjectReader
from holdfast.nodd.stations import circle, place_of
from holdfast.nodd.units import Operator, OperatorVerdict, Unit

APART = timedelta(seconds=1)
NEXRAD_APART = timedelta(minutes=2)  # a volume is named by its first radial or by its start
CHECKS = ("temporal", "spatial", "product", "platform", "coverage")


class _Learned:
    """The metadata found so far."""

    def __init__(self, unit: Unit) -> None:
        self.start = time_from(unit.time_range_start)
        self.end = time_from(unit.time_range_end) if unit.time_range_end else None
        self.bbox: Bbox | None = None
        self.geometry: dict[str, Any] | None = None
        self.properties: dict[str, Any] = {}
        self.issues: list[str] = []


def extract(unit: Unit, dataset: Dataset, source: ObjectReader, integrity: OperatorVerdict) -> OperatorVerdict:
    """Return the verdict on the metadata of an object: its time, area, product and platform."""
    size, etag = int(integrity.data["actual_size_bytes"]), integrity.data.get("actual_etag")
    bucket, key = unit.notice.bucket, unit.notice.key

    def read(start: int, length: int) -> bytes:
        return source.read(bucket, key, start, min(length, RANGE_MAX), etag=etag)

    learned = _Learned(unit)
    _from_key(unit, dataset, learned)
    try:
        _HEADERS[dataset.spec.format](unit, read, size, learned)
    except Damaged as damaged:
        learned.issues.append("incomplete_product_metadata")
        learned.properties["nodd:unreadable"] = damaged.issue
    except ObjectError as trouble:
        return OperatorVerdict(operator=Operator.METADATA, status="failed", issues=(trouble.issue,), checks_run=CHECKS)
    _place(unit, dataset, learned)
    return _verdict(unit, dataset, learned)


def _verdict(unit: Unit, dataset: Dataset, learned: _Learned) -> OperatorVerdict:
    required = dataset.spec.policy.metadata_required
    failed = "bbox" in required and learned.bbox is None
    if learned.bbox is None:
        learned.issues.append("missing_geolocation")
    if learned.end is not None and learned.end < learned.start:
        learned.issues.append("invalid_time_range")
        failed = True
    status = "failed" if failed else "suspect" if learned.issues else "ok"
    data = {
        "geometry": learned.geometry,
        "bbox": list(learned.bbox) if learned.bbox else None,
        "properties": dict(sorted(learned.properties.items())),
        "time_range": {"start": time_text(learned.start), "end": time_text(learned.end) if learned.end else None},
        "reference_time": unit.notice.reference_time,
    }
    issues = tuple(dict.fromkeys(learned.issues))
    return OperatorVerdict(operator=Operator.METADATA, status=status, issues=issues, checks_run=CHECKS, data=data)


def _from_key(unit: Unit, dataset: Dataset, learned: _Learned) -> None:
    fields = unit.notice.fields
    learned.properties["nodd:dataset"] = dataset.name
    for name in ("product", "region", "level", "scene", "channel", "member", "station", "element", "component"):
        if name in fields:
            learned.properties[f"nodd:{name}"] = fields[name]
    if "sat" in fields:
        learned.properties["platform"] = f"goes-{fields['sat']}"
        learned.properties["instruments"] = ["glm" if "GLM" in unit.notice.key else "abi"]
    if unit.notice.reference_time:
        reference = time_from(unit.notice.reference_time)
        learned.properties["forecast:reference_datetime"] = time_text(reference)
        if learned.start >= reference:  # an analysis can be for earlier hours, and a horizon cannot be negative
            learned.properties["forecast:horizon"] = _duration(learned.start - reference)


# ---------------------------------------------------------------------------------------------------------------------
# Headers


def _grib2(unit: Unit, read: Read, size: int, learned: _Learned) -> None:
    head = read(0, min(size, 4096))
    at = max(head.find(grib2.MAGIC), 0)
    _of_message(unit, grib2.first_message(read, size, start=at), learned)


def _grib2_gzip(unit: Unit, read: Read, size: int, learned: _Learned) -> None:
    whole = gzipped.unpacked(read, size)
    _of_message(unit, grib2.first_message(lambda start, length: whole[start : start + length], len(whole)), learned)


def _of_message(unit: Unit, message: grib2.GribMessage, learned: _Learned) -> None:
    learned.properties |= {"nodd:center": message.center, "nodd:discipline": message.discipline}
    reference = time_from(unit.notice.reference_time) if unit.notice.reference_time else None
    expected, found = (
        (reference, message.reference) if reference else (learned.start, message.valid or message.reference)
    )
    if abs(found - expected) > APART:
        learned.issues.append("time_mismatch")
        learned.properties["nodd:header_time"] = time_text(found)
    if message.ends is not None and message.ends > learned.start and message.valid != message.ends:
        learned.properties["nodd:interval_end"] = time_text(message.ends)
    if message.bbox is not None:
        learned.bbox = _rounded(message.bbox)
    if message.shape is not None:
        learned.properties["nodd:grid_shape"] = list(message.shape)


def _netcdf4(_unit: Unit, read: Read, size: int, learned: _Learned) -> None:
    attributes = hdf5.attributes(read, size)
    if attributes is None:
        learned.issues.append("incomplete_product_metadata")
        return
    extent = attributes.get("geospatial_lat_lon_extent")
    if isinstance(extent, dict):
        learned.bbox = _extent(extent)
    for name, attribute, end in (("start", "time_coverage_start", False), ("end", "time_coverage_end", True)):
        moment = _moment(attributes.get(attribute))
        expected = learned.end if end else learned.start
        if moment is not None and expected is not None and abs(moment - expected) > APART:
            learned.issues.append("time_mismatch")
            learned.properties[f"nodd:header_{name}"] = time_text(moment)


def _extent(extent: dict[str, Any]) -> Bbox | None:
    names = (
        "geospatial_westbound_longitude",
        "geospatial_southbound_latitude",
        "geospatial_eastbound_longitude",
        "geospatial_northbound_latitude",
    )
    bounds = [extent.get(name) for name in names]
    if not all(isinstance(bound, (int, float)) and -360 <= bound <= 360 for bound in bounds):
        return None
    west, south, east, north = (float(bound) for bound in bounds if isinstance(bound, (int, float)))
    return _rounded((west, south, east, north)) if south <= north else None


def _nexrad(unit: Unit, read: Read, size: int, learned: _Learned) -> None:
    if unit.notice.fields.get("type", "S") != "S":
        return  # only the first chunk of a volume has the header
    if read(0, 2) == b"\x1f\x8b":
        whole = gzipped.unpacked(read, size)
        found = nexrad.header(lambda start, length: whole[start : start + length])
    else:
        found = nexrad.header(read)
    learned.properties["nodd:archive"] = found.version
    if found.station != unit.notice.fields.get("station"):
        learned.issues.append("station_mismatch")
        learned.properties["nodd:header_station"] = found.station
    if abs(found.start - learned.start) > NEXRAD_APART:
        learned.issues.append("time_mismatch")
        learned.properties["nodd:header_time"] = time_text(found.start)


def _nothing(_unit: Unit, _read: Read, _size: int, _learned: _Learned) -> None:
    """Read nothing: this format has no header."""


_HEADERS: dict[str, Callable[[Unit, Read, int, _Learned], None]] = {
    "grib2": _grib2,
    "grib2-gzip": _grib2_gzip,
    "grib2-wmo": _grib2,
    "netcdf4": _netcdf4,
    "nexrad-l2": _nexrad,
    "nexrad-chunk": _nexrad,
    "opaque": _nothing,
}


# ---------------------------------------------------------------------------------------------------------------------
# Place


def _place(unit: Unit, dataset: Dataset, learned: _Learned) -> None:
    geometry = dataset.spec.geometry
    if geometry.kind == "station-circle":
        place = place_of(unit.notice.fields.get(geometry.field or "", ""))
        if place is not None:
            ring = circle(*place, geometry.radius_km or 0)
            longitudes, latitudes = [point[0] for point in ring], [point[1] for point in ring]
            learned.geometry = {"type": "Polygon", "coordinates": [ring]}
            learned.bbox = (min(longitudes), min(latitudes), max(longitudes), max(latitudes))
        return
    if geometry.kind == "static":
        learned.bbox = learned.bbox or geometry.bbox
    elif geometry.kind == "by-field":
        learned.bbox = learned.bbox or geometry.bboxes.get(unit.notice.fields.get(geometry.field or "", ""))
    elif learned.bbox is None and geometry.bbox is not None:
        # The sector moves and the extent in the file cannot be read: use the full disk, and report the issue.
        learned.bbox = geometry.bbox
        learned.issues.append("missing_geolocation")
    if learned.bbox is not None:
        learned.geometry = box(learned.bbox)


def box(bbox: Bbox) -> dict[str, Any]:
    """Return the polygon of a box; two polygons if it crosses the antimeridian."""
    west, south, east, north = bbox
    if west > east:
        halves = [_ring(west, south, 180.0, north), _ring(-180.0, south, east, north)]
        return {"type": "MultiPolygon", "coordinates": [[half] for half in halves]}
    return {"type": "Polygon", "coordinates": [_ring(west, south, east, north)]}


def _ring(west: float, south: float, east: float, north: float) -> list[list[float]]:
    return [[west, south], [east, south], [east, north], [west, north], [west, south]]


def _rounded(bbox: Bbox) -> Bbox:
    west, south, east, north = (round(bound, 4) for bound in bbox)
    return west, south, east, north


def _moment(text: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def _duration(span: timedelta) -> str:
    """Return a duration in the format of ISO 8601."""
    hours, rest = divmod(int(span.total_seconds()), 3600)
    minutes, seconds = divmod(rest, 60)
    parts = "".join(f"{n}{unit}" for n, unit in ((hours, "H"), (minutes, "M"), (seconds, "S")) if n)
    return f"PT{parts or '0H'}"
