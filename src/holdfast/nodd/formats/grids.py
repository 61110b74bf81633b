"""Grids, of a section of GRIB2 or of the axes of NetCDF: what projection a grid has, and which area its cells cover.

Invariants: an area reaches to the edges of the outer cells, not to their centres; projections are computed by PROJ; a
grid whose template is not known has no area, and that is not damage.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any

import msgspec

from holdfast.nodd import area
from holdfast.nodd.area import Point
from holdfast.nodd.dataset import Bbox

AXES = -1
MICRO, MILLI = 1e-6, 1e-3
MISSING = 0xFFFFFFFF
SIDE_MAX = 100_000
STEPS = 32  # points on each side of the outline that the bbox is computed from
OUTLINE_STEPS = 8  # of these, on each side of the outline of an item
OBLIQUE = "+proj=ob_tran"
PLANES = ("lcc", "stere", "merc")  # the projections that are taken from the text of a file
_NUMBERS = ("lat_0", "lat_1", "lat_2", "lat_ts", "lon_0", "x_0", "y_0", "k_0", "a", "b", "R")
_PARAMETER = re.compile(r"\+(\w+)=(\S+)")
_SPHERES = {0: 6_367_470.0, 6: 6_371_229.0, 8: 6_371_200.0}
_ELLIPSOIDS = {2: "+a=6378160 +rf=297", 4: "+ellps=GRS80", 5: "+datum=WGS84"}


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """A grid: its template and shape, and the area and projection if they are known."""

    template: int  # of GRIB2; AXES for a grid of another format
    shape: tuple[int, int] | None = None  # (rows, columns)
    bbox: Bbox | None = None
    outline: tuple[Point, ...] | None = None  # closed, with unwrapped longitudes; None for a plain box
    crs: str | None = None  # in the words of PROJ
    transform: tuple[float, ...] | None = None  # from column and row to the edge of a cell, as in GDAL and STAC


def signed(raw: int) -> int:
    """Return a number of GRIB, whose first bit is the sign."""
    return -(raw & 0x7FFFFFFF) if raw & 0x80000000 else raw


@lru_cache(maxsize=256)  # the files of a dataset have few grids, and PROJ takes milliseconds for the edges of one
def grid(section: bytes) -> Grid:
    """Return the grid that a grid section describes; raise struct.error or IndexError if the section is too short."""
    (template,) = struct.unpack(">H", section[12:14])
    read = _TEMPLATES.get(template)
    try:
        return read(section, template) if read else Grid(template=template)
    except ValueError:  # impossible numbers: the message can be decoded, but its place is not known
        return Grid(template=template)


def parameters(proj4: str) -> dict[str, str]:
    """Return the projection and its numbers from a text of PROJ; nothing else is taken from a file.

    Raises ValueError if the projection is not one of PLANES, or a number is not valid.
    """
    said = dict(_PARAMETER.findall(proj4))
    if said.get("proj") not in PLANES or said.get("units", "m") != "m":
        raise ValueError("a projection that is not known")
    return {"proj": said["proj"]} | {name: f"{float(said[name]):.17g}" for name in _NUMBERS if name in said}


def of_axes(proj4: str, columns: tuple[float, float, int], rows: tuple[float, float, int]) -> Grid:
    """Return the grid between the first and last centres of its columns and rows, in the metres of a projection.

    Raises ValueError if the projection is not known or the axes are impossible.
    """
    crs = " ".join(f"+{name}={value}" for name, value in parameters(proj4).items()) + " +units=m +no_defs"
    edges, steps = [], []
    for first, last, count in (columns, rows):
        step = (last - first) / (count - 1) if 1 < count < SIDE_MAX else 0.0
        if not step or not math.isfinite(step):
            raise ValueError("an axis without steps")
        edges.append(sorted((first - step / 2, last + step / 2)))
        steps.append(step)
    (west, east), (south, north) = edges
    scan = (0x80 if steps[0] < 0 else 0) | (0x40 if steps[1] > 0 else 0)
    known = Grid(template=AXES, shape=(rows[2], columns[2]), crs=crs)
    return _projected(known, (west, south, east, north), (abs(steps[0]), abs(steps[1])), scan)


def _number(section: bytes, at: int) -> int:
    return int(struct.unpack(">I", section[at : at + 4])[0])


def _angle(section: bytes, at: int) -> float:
    return signed(_number(section, at)) * MICRO


def _side(section: bytes, at: int) -> int:
    length = _number(section, at)
    if not 0 < length < SIDE_MAX:
        raise ValueError("a grid of impossible size")
    return length


def _earth(section: bytes) -> str:
    """Return the shape of the Earth in the words of PROJ."""
    shape = section[14]
    if shape in _SPHERES:
        return f"+R={_SPHERES[shape]:.17g}"
    if shape in _ELLIPSOIDS:
        return _ELLIPSOIDS[shape]
    if shape == 1:
        return f"+R={_scaled(section, 15):.17g}"
    if shape in (3, 7):
        unit = 1000.0 if shape == 3 else 1.0
        return f"+a={_scaled(section, 20) * unit:.17g} +b={_scaled(section, 25) * unit:.17g}"
    raise ValueError("a shape of the Earth that is not known")


def _scaled(section: bytes, at: int) -> float:
    scale = section[at]
    scale = -(scale & 0x7F) if scale & 0x80 else scale
    length = _number(section, at + 1) / 10.0**scale
    if not 1e3 < length < 1e8:
        raise ValueError("an impossible radius of the Earth")
    return float(length)


# ---------------------------------------------------------------------------------------------------------------------
# Latitudes and longitudes


def _regular(section: bytes, template: int) -> Grid:
    """A grid of latitudes and longitudes, or a Gaussian grid, whose rows are not quite equally far apart."""
    columns, rows, scan = _number(section, 30), _side(section, 34), section[71]
    south, north, west, span, steps = _corners(section, columns, rows, scan)
    bottom, top = south, north
    south, north = max(-90.0, south), min(90.0, north)
    if columns == MISSING:  # reduced: rows have different lengths
        return Grid(template=template, bbox=(-180.0, south, 180.0, north))
    known: dict[str, Any] = {"template": template, "shape": (rows, _side(section, 30)), "crs": _degrees(section)}
    if template == 0:
        known["transform"] = _transform(steps, (west, bottom, west + span, top), scan)
    if span >= area.WHOLE - steps[0] * MILLI:
        return Grid(bbox=(-180.0, south, 180.0, north), **known)
    return Grid(bbox=(area.normal(west), south, area.normal(west + span, upper=True), north), **known)


def _degrees(section: bytes) -> str:
    return f"+proj=longlat {_earth(section)} +no_defs"


def _corners(
    section: bytes, columns: int, rows: int, scan: int
) -> tuple[float, float, float, float, tuple[float, float]]:
    """Return the south and north edge, the west edge, the width between the outer edges, and the steps."""
    unit = _unit(section)
    first_lat, first_lon, last_lat, last_lon = (signed(_number(section, at)) * unit for at in (46, 50, 55, 59))
    if scan & 0x80:
        first_lon, last_lon = last_lon, first_lon
    span = (last_lon - first_lon) % area.WHOLE
    if columns in (MISSING, 1):
        step_x = 0.0 if columns == MISSING else _number(section, 63) * unit
    else:
        step_x = span / (columns - 1)
    step_y = abs(first_lat - last_lat) / (rows - 1) if rows > 1 else _number(section, 67) * unit
    south, north = sorted((first_lat, last_lat))
    if not -90.1 <= south <= north <= 90.1:
        raise ValueError("a latitude beyond the poles")
    south, north = south - step_y / 2, north + step_y / 2
    return south, north, first_lon - step_x / 2, span + step_x, (step_x, step_y)


def _unit(section: bytes) -> float:
    basic, parts = _number(section, 38), _number(section, 42)
    return MICRO if basic in (0, MISSING) or parts in (0, MISSING) else basic / parts


def _transform(steps: tuple[float, float], edges: Bbox, scan: int) -> tuple[float, ...]:
    """Return the affine transform of the rows and columns in the order in which the values follow each other."""
    dx, dy = steps
    west, south, east, north = edges
    x, dx = (east, -dx) if scan & 0x80 else (west, dx)
    y, dy = (south, dy) if scan & 0x40 else (north, -dy)
    return dx, 0.0, x, 0.0, dy, y


def _rotated(section: bytes, template: int) -> Grid:
    """Latitudes and longitudes of a globe that is turned, so that its south pole is elsewhere."""
    columns, rows, scan = _side(section, 30), _side(section, 34), section[71]
    south, north, west, span, steps = _corners(section, columns, rows, scan)
    (turn,) = struct.unpack(">f", section[80:84])
    pole_lat, pole_lon = _angle(section, 72), _angle(section, 76)
    known = Grid(template=template, shape=(rows, columns), crs=_oblique(section, pole_lat, pole_lon, turn))
    west = area.normal(west)
    return _projected(known, (west, south, west + span, north), steps, scan)


def _rotated_by_center(section: bytes, template: int) -> Grid:
    """The rotated grid of NCEP: the centre of the grid is the origin; the first and last point are geographic."""
    columns, rows, scan = _side(section, 30), _side(section, 34), section[71]
    center_lat, center_lon = _angle(section, 55), _angle(section, 59)
    crs = _oblique(section, center_lat - 90, center_lon, 0.0)
    projection = _Projection(crs)
    first = projection.forward(_angle(section, 50), _angle(section, 46))
    last = projection.forward(_angle(section, 76), _angle(section, 72))
    west, east = sorted((first[0], last[0]))
    south, north = sorted((first[1], last[1]))
    dx, dy = (east - west) / max(columns - 1, 1), (north - south) / max(rows - 1, 1)
    edges = (west - dx / 2, south - dy / 2, east + dx / 2, north + dy / 2)
    return _projected(Grid(template=template, shape=(rows, columns), crs=crs), edges, (dx, dy), scan)


def _oblique(section: bytes, pole_lat: float, pole_lon: float, turn: float) -> str:
    """Return the projection whose x and y are degrees on a globe with its south pole at a place."""
    return (
        f"{OBLIQUE} +o_proj=longlat +o_lat_p={-pole_lat:.9g} +o_lon_p={turn:.9g} +lon_0={pole_lon:.9g}"
        f" {_earth(section)} +to_meter=0.0174532925199433 +no_defs"
    )


# ---------------------------------------------------------------------------------------------------------------------
# Projections of the globe on a plane


def _mercator(section: bytes, template: int) -> Grid:
    crs = (
        f"+proj=merc +lat_ts={_angle(section, 47):.9g} +lon_0={_first(section)[0]:.9g}"
        f" {_earth(section)} +units=m +no_defs"
    )
    return _plane(section, template, crs, (64, 68), section[59])


def _polar(section: bytes, template: int) -> Grid:
    pole = -90 if section[63] & 0x80 else 90
    true_at = abs(_angle(section, 47)) * math.copysign(1, pole)
    crs = (
        f"+proj=stere +lat_0={pole} +lat_ts={true_at:.9g} +lon_0={_angle(section, 51):.9g}"
        f" {_earth(section)} +units=m +no_defs"
    )
    return _plane(section, template, crs, (55, 59), section[64])


def _lambert(section: bytes, template: int) -> Grid:
    crs = (
        f"+proj=lcc +lat_1={_angle(section, 65):.9g} +lat_2={_angle(section, 69):.9g} +lat_0={_angle(section, 47):.9g}"
        f" +lon_0={_angle(section, 51):.9g} {_earth(section)} +units=m +no_defs"
    )
    return _plane(section, template, crs, (55, 59), section[64])


def _first(section: bytes) -> Point:
    return _angle(section, 42), _angle(section, 38)


def _plane(section: bytes, template: int, crs: str, steps_at: tuple[int, int], scan: int) -> Grid:
    columns, rows = _side(section, 30), _side(section, 34)
    dx, dy = (_number(section, at) * MILLI for at in steps_at)
    if not (dx > 0 and dy > 0):
        raise ValueError("a grid without steps")
    x, y = _Projection(crs).forward(*_first(section))
    if not (math.isfinite(x) and math.isfinite(y)):
        raise ValueError("a grid that starts outside its projection")
    west = x - (columns - 0.5) * dx if scan & 0x80 else x - dx / 2
    south = y - dy / 2 if scan & 0x40 else y - (rows - 0.5) * dy
    edges = west, south, west + columns * dx, south + rows * dy
    return _projected(Grid(template=template, shape=(rows, columns), crs=crs), edges, (dx, dy), scan)


def _projected(known: Grid, edges: Bbox, steps: tuple[float, float], scan: int) -> Grid:
    """Return a grid with its area, which is between edges in the units of its projection."""
    projection = _Projection(known.crs or "")
    outline = area.unwrapped([projection.inverse(x, y) for x, y in _border(edges)])
    if not all(math.isfinite(part) for point in outline for part in point):
        return known  # the edge is beyond what the projection shows
    known = msgspec.structs.replace(known, transform=_transform(steps, edges, scan))
    poles = [latitude for latitude in (-90.0, 90.0) if _within(edges, projection.forward(0.0, latitude))]
    if poles:
        latitudes = [*poles, *(latitude for _, latitude in outline)]
        return msgspec.structs.replace(known, bbox=(-180.0, min(latitudes), 180.0, max(latitudes)))
    kept = tuple(outline[:: STEPS // OUTLINE_STEPS])
    return msgspec.structs.replace(known, bbox=area.bbox_of(outline), outline=kept)


def _border(edges: Bbox) -> list[Point]:
    """Return a closed line along the edges, counter-clockwise from the south-west."""
    west, south, east, north = edges
    corners = [(west, south), (east, south), (east, north), (west, north), (west, south)]
    points = [
        (x0 + (x1 - x0) * step / STEPS, y0 + (y1 - y0) * step / STEPS)
        for (x0, y0), (x1, y1) in pairwise(corners)
        for step in range(STEPS)
    ]
    return [*points, corners[0]]


def _within(edges: Bbox, place: Point) -> bool:
    return edges[0] <= place[0] <= edges[2] and edges[1] <= place[1] <= edges[3]


class _Projection:
    """A projection of PROJ, between longitude and latitude and its own x and y."""

    def __init__(self, crs: str) -> None:
        from pyproj import Proj  # noqa: PLC0415 - an extra
        from pyproj.exceptions import CRSError  # noqa: PLC0415 - an extra

        try:
            self._proj = Proj(crs)
        except CRSError:
            raise ValueError("a projection that PROJ does not accept") from None
        self._unit = math.degrees(1) if OBLIQUE in crs else 1.0  # PROJ counts a turned globe in radians

    def forward(self, lon: float, lat: float) -> Point:
        """Return x and y of a place; both are infinite if the projection does not show it."""
        x, y = self._proj(lon, lat)
        return x * self._unit, y * self._unit

    def inverse(self, x: float, y: float) -> Point:
        """Return longitude and latitude; both are infinite if there is no such place."""
        lon, lat = self._proj(x / self._unit, y / self._unit, inverse=True)
        return float(lon), float(lat)


_TEMPLATES: dict[int, Callable[[bytes, int], Grid]] = {
    0: _regular,
    1: _rotated,
    10: _mercator,
    20: _polar,
    30: _lambert,
    40: _regular,
    32769: _rotated_by_center,
}
