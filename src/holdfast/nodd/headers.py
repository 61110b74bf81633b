"""Compares the header of an object with its key: the part of metadata-extract that reads the bytes.

Invariants: a check is listed only if both the header and the key have the value; a difference is an issue, and the item
has the value of the header.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.core.records import time_from, time_text
from holdfast.nodd import area
from holdfast.nodd.area import Point
from holdfast.nodd.dataset import Bbox, Dataset
from holdfast.nodd.formats import Damaged, Read, grib2, grids, gzipped, hdf5, nexrad, nids, wmo
from holdfast.nodd.structure import GZIP, in_memory
from holdfast.nodd.units import Unit

APART = timedelta(seconds=1)
NEXRAD_APART = timedelta(minutes=3)  # a volume is named by its first radial or by its start
ISSUED_APART = timedelta(days=1)  # a bulletin is issued for a reference time before or after it
PRODUCT_APART = timedelta(minutes=15)  # a product is named when it is made; its volume started before
PLACELESS = ("channel", "reservoir")  # products of the water model about rivers and lakes: their files have no grid
RESOLUTION_APART = 0.01  # degrees; 0p16 is a sixth
TEMPORAL, SPATIAL, PRODUCT, PLATFORM, COVERAGE = "temporal", "spatial", "product", "platform", "coverage"
CHECKS = (TEMPORAL, SPATIAL, PRODUCT, PLATFORM, COVERAGE)
TIME_MISMATCH, LEAD_MISMATCH, REGION_MISMATCH = "time_mismatch", "lead_mismatch", "region_mismatch"
PRODUCT_MISMATCH, PLATFORM_MISMATCH, STATION_MISMATCH = "product_mismatch", "platform_mismatch", "station_mismatch"
_SATELLITE = re.compile(r"_G\d{2}_")
_RESOLUTION = re.compile(r"(?:^|[._])(\d)p(\d{2})(?:$|[._])")


class Learned:
    """The metadata found so far, the checks that compared something, and the issues."""

    def __init__(self, unit: Unit) -> None:
        self.start = time_from(unit.time_range_start)
        self.end = time_from(unit.time_range_end) if unit.time_range_end else None
        self.bbox: Bbox | None = None
        self.outline: tuple[Point, ...] | None = None
        self.place: tuple[float, float] | None = None  # latitude and longitude of a radar
        self.covers_domain = False  # the header has no places, but names the domain of its model
        self.properties: dict[str, Any] = {}
        self.projection: dict[str, Any] = {}
        self.issues: list[str] = []
        self.checks: set[str] = set()

    def compare(self, check: str, issue: str, *, agree: bool, **said: Any) -> None:
        """Record that a check compared the header with the key; if they differ, keep what the header says."""
        self.checks.add(check)
        if not agree:
            self.issues.append(issue)
            self.properties |= {f"nodd:header_{name}": value for name, value in said.items()}


def read_header(unit: Unit, dataset: Dataset, read: Read, size: int, learned: Learned) -> None:
    """Learn from the header of an object; raise Damaged if it cannot be read."""
    _HEADERS[dataset.spec.format](unit, dataset, read, size, learned)


# ---------------------------------------------------------------------------------------------------------------------
# GRIB2


def _grib2(unit: Unit, dataset: Dataset, read: Read, size: int, learned: Learned) -> None:
    at = read(0, min(size, 4096)).find(grib2.MAGIC)
    _of_message(unit, dataset, grib2.first_message(read, size, start=max(at, 0)), learned)


def _grib2_gzip(unit: Unit, dataset: Dataset, read: Read, size: int, learned: Learned) -> None:
    _of_message(unit, dataset, grib2.first_message(*in_memory(gzipped.unpacked(read, size))), learned)


def _grib2_wmo(unit: Unit, dataset: Dataset, read: Read, size: int, learned: Learned) -> None:
    if size > wmo.WHOLE_BYTES_MAX:
        _grib2(unit, dataset, read, size, learned)
        return
    messages = list(wmo.messages(read, size))
    if not messages:
        raise Damaged("truncated", "the object has no messages")
    _of_message(unit, dataset, messages[0], learned)
    ends = [end for message in messages if (end := message.ends or message.valid) is not None]
    if ends and learned.end is not None:
        learned.end = max(learned.end, *ends)


def _of_message(unit: Unit, dataset: Dataset, message: grib2.GribMessage, learned: Learned) -> None:
    header = dataset.spec.header
    learned.properties |= {"nodd:center": message.center, "nodd:discipline": message.discipline}
    if header.centers:
        agree = message.center in header.centers
        learned.compare(PLATFORM, PLATFORM_MISMATCH, agree=agree)
    _times(unit, dataset, message, learned)
    wanted = header.parameters.get(unit.notice.fields.get("element", ""))
    if wanted is not None:
        found = (message.discipline, message.category, message.parameter)
        learned.compare(PRODUCT, PRODUCT_MISMATCH, agree=found == wanted, parameter=list(found))
    if message.grid is not None:
        learned.properties["nodd:grid_template"] = message.grid.template
        _grid(unit, message.grid, learned)


def _times(unit: Unit, dataset: Dataset, message: grib2.GribMessage, learned: Learned) -> None:
    """Compare the cycle, and the valid time; a bulletin is named by its issue time, which is neither."""
    valid = message.ends or message.valid
    rule = dataset.spec.time
    if rule.rule == "issued":
        if rule.reference_in(unit.notice.fields):
            agree = abs(message.reference - learned.start) <= ISSUED_APART
            learned.compare(TEMPORAL, TIME_MISMATCH, agree=agree, time=time_text(message.reference))
            learned.properties["nodd:issued"] = time_text(learned.start)
        if valid is not None:
            learned.start, learned.end = message.valid or valid, valid
        learned.properties["forecast:reference_datetime"] = time_text(message.reference)
        return
    reference = time_from(unit.notice.reference_time) if unit.notice.reference_time else None
    expected, found = (reference, message.reference) if reference else (learned.start, valid or message.reference)
    learned.compare(TEMPORAL, TIME_MISMATCH, agree=abs(found - expected) <= APART, time=time_text(found))
    if reference and valid is not None:
        # A file with steps of minutes begins after the hour before.
        slack = timedelta(hours=1) if _is_subhourly(unit) else timedelta()
        lead, said = learned.start - reference, valid - message.reference
        learned.compare(TEMPORAL, LEAD_MISMATCH, agree=lead - slack <= said <= lead, lead=int(said.total_seconds()))
    if message.ends is not None and message.ends > learned.start and message.valid != message.ends:
        learned.properties["nodd:interval_end"] = time_text(message.ends)


def _is_subhourly(unit: Unit) -> bool:
    return "subh" in (unit.notice.fields.get("product"), unit.notice.fields.get("subhourly"))


def _grid(unit: Unit, grid: grids.Grid, learned: Learned) -> None:
    if grid.bbox is not None:
        learned.checks.add(SPATIAL)
        learned.bbox, learned.outline = area.rounded(grid.bbox), grid.outline
    if grid.shape is not None:
        learned.properties["nodd:grid_shape"] = list(grid.shape)
    if grid.crs is not None and grid.transform is not None:
        transform = [area.plain(term) for term in grid.transform]
        learned.projection = {"crs": grid.crs, "shape": list(grid.shape or ()), "transform": transform}
        resolution = _RESOLUTION.search(unit.notice.fields.get("product", ""))
        if resolution is not None and grid.template == 0:
            named, step = float(f"{resolution[1]}.{resolution[2]}"), abs(grid.transform[0])
            learned.compare(
                PRODUCT, PRODUCT_MISMATCH, agree=abs(named - step) <= RESOLUTION_APART, resolution=round(step, 6)
            )


# ---------------------------------------------------------------------------------------------------------------------
# NetCDF-4


def _netcdf4(unit: Unit, dataset: Dataset, read: Read, size: int, learned: Learned) -> None:
    attributes = hdf5.attributes(read, size)
    if attributes is None:
        learned.issues.append("incomplete_product_metadata")
        return
    learned.bbox = _extent(attributes.get(hdf5.EXTENT)) or _field_of_view(attributes.get(hdf5.FIELD_OF_VIEW))
    if learned.bbox is not None:
        learned.checks.add(SPATIAL)
    for name, expected in (("start", learned.start), ("end", learned.end)):
        moment = _moment(attributes.get(f"time_coverage_{name}"))
        if moment is not None and expected is not None:
            agree = abs(moment - expected) <= APART
            learned.compare(TEMPORAL, TIME_MISMATCH, agree=agree, **{name: time_text(moment)})
    _of_goes(unit, attributes, learned)
    _of_water_model(unit, dataset, attributes, learned)


def _of_water_model(unit: Unit, dataset: Dataset, attributes: dict[str, Any], learned: Learned) -> None:
    """Compare cycle, valid time, product and domain of WRF-Hydro, and take the place of its grid.

    Files about rivers and lakes have no places in them: their area is the domain of the model, if their projection is
    that of the domain in the key.
    """
    key, proj4 = unit.notice.fields, attributes.get("proj4")
    kind, valid = attributes.get("model_output_type"), _model_time(attributes.get("model_output_valid_time"))
    axes = attributes.get(hdf5.GRID)
    placeless = key.get("product", "").startswith(PLACELESS)
    if isinstance(kind, str) and "product" in key:
        learned.compare(PRODUCT, PRODUCT_MISMATCH, agree=key["product"].startswith(kind), product=kind)
    elif placeless and axes is not None:
        learned.compare(PRODUCT, PRODUCT_MISMATCH, agree=False, product="grid")
    if valid is not None:
        learned.compare(TEMPORAL, TIME_MISMATCH, agree=abs(valid - learned.start) <= APART, time=time_text(valid))
    cycle = _model_time(attributes.get("model_initialization_time"))
    if cycle is not None and unit.notice.reference_time and key.get("lead", "").startswith("f"):
        agree = abs(cycle - time_from(unit.notice.reference_time)) <= APART  # an analysis begins before its cycle
        learned.compare(TEMPORAL, TIME_MISMATCH, agree=agree, cycle=time_text(cycle))
    try:
        said = grids.parameters(str(proj4))
        if axes is not None:
            _grid(unit, grids.of_axes(str(proj4), *(tuple(axis) for axis in axes)), learned)
    except ValueError:
        return
    domain = dataset.spec.header.meridians.get(key.get("region", ""))
    if domain is not None:
        agree = (said["proj"], float(said.get("lon_0", "nan"))) == domain
        learned.compare(COVERAGE, REGION_MISMATCH, agree=agree, projection=str(proj4))
        learned.covers_domain = agree and placeless and learned.bbox is None and axes is None


def _model_time(text: object) -> datetime | None:
    try:
        return datetime.strptime(str(text), "%Y-%m-%d_%H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return None


def _of_goes(unit: Unit, attributes: dict[str, Any], learned: Learned) -> None:
    """Compare the satellite, and the name that the file gives itself up to its times."""
    platform, sat = attributes.get("platform_ID"), unit.notice.fields.get("sat")
    if isinstance(platform, str) and sat is not None:
        learned.compare(PLATFORM, PLATFORM_MISMATCH, agree=platform == f"G{sat}", platform=platform)
    name = attributes.get("dataset_name")
    if isinstance(name, str) and name.endswith(".nc") and sat is not None:
        said, wanted = (_SATELLITE.split(text.rpartition("/")[2])[0] for text in (name, unit.notice.key))
        learned.compare(PRODUCT, PRODUCT_MISMATCH, agree=said == wanted, product=said)


def _extent(extent: Any) -> Bbox | None:
    if not isinstance(extent, dict):
        return None
    names = ("westbound_longitude", "southbound_latitude", "eastbound_longitude", "northbound_latitude")
    return _bounds(*(extent.get(f"geospatial_{name}") for name in names))


def _field_of_view(view: Any) -> Bbox | None:
    """Return the bounds of a lightning mapper, whose latitudes come in either order."""
    if not isinstance(view, dict):
        return None
    pairs: list[Any] = [view.get(axis) for axis in ("lon", "lat")]
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        return None
    (west, east), (one, other) = pairs
    return _bounds(west, min(one, other), east, max(one, other))


def _bounds(*bounds: object) -> Bbox | None:
    if not all(isinstance(bound, (int, float)) and -360 <= bound <= 360 for bound in bounds):
        return None
    west, south, east, north = (float(bound) for bound in bounds if isinstance(bound, (int, float)))
    if not -90 <= south <= north <= 90:
        return None
    return area.rounded((area.normal(west), south, area.normal(east, upper=True), north))


def _moment(text: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo else None


# ---------------------------------------------------------------------------------------------------------------------
# NEXRAD


def _nexrad(unit: Unit, _dataset: Dataset, read: Read, size: int, learned: Learned) -> None:
    if unit.notice.fields.get("type", "S") != "S":
        return  # only the first chunk of a volume has the header
    if read(0, 2) == GZIP:
        read, _ = in_memory(gzipped.unpacked(read, size))
    found = nexrad.header(read)
    learned.properties["nodd:archive"] = found.version
    if found.station is not None:
        agree = found.station == unit.notice.fields.get("station")
        learned.compare(PLATFORM, STATION_MISMATCH, agree=agree, station=found.station)
    agree = abs(found.start - learned.start) <= NEXRAD_APART
    learned.compare(TEMPORAL, TIME_MISMATCH, agree=agree, time=time_text(found.start))


def _nexrad_l3(unit: Unit, _dataset: Dataset, read: Read, size: int, learned: Learned) -> None:
    found, fields = nids.product(read, size), unit.notice.fields
    learned.compare(PLATFORM, STATION_MISMATCH, agree=found.station == fields.get("station"), station=found.station)
    learned.compare(PRODUCT, PRODUCT_MISMATCH, agree=found.product == fields.get("product"), product=found.product)
    if found.code is not None:
        learned.properties["nodd:product_code"] = found.code
    times = [moment for moment in (found.made, found.volume) if moment is not None]
    if times:
        near = min(times, key=lambda moment: abs(moment - learned.start))
        agree = abs(near - learned.start) <= PRODUCT_APART
        learned.compare(TEMPORAL, TIME_MISMATCH, agree=agree, time=time_text(near))
    if found.place is not None:
        learned.checks.add(SPATIAL)
        learned.place = found.place


def _nothing(_unit: Unit, _dataset: Dataset, _read: Read, _size: int, _learned: Learned) -> None:
    """Read nothing: this format has no header."""


_HEADERS: dict[str, Callable[[Unit, Dataset, Read, int, Learned], None]] = {
    "grib2": _grib2,
    "grib2-gzip": _grib2_gzip,
    "grib2-wmo": _grib2_wmo,
    "netcdf4": _netcdf4,
    "nexrad-l2": _nexrad,
    "nexrad-chunk": _nexrad,
    "nexrad-l3": _nexrad_l3,
    "opaque": _nothing,
}
