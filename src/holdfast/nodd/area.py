"""Areas on the globe: from an outline or a box to the bbox and the geometry of STAC.

Invariants: longitudes are in -180 to 180; a bbox whose west is greater than its east crosses the antimeridian, and its
geometry is cut there; an outline is closed and lists longitude before latitude.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from holdfast.nodd.dataset import Bbox

Point = tuple[float, float]  # longitude, latitude
WHOLE = 360.0
DECIMALS = 4  # of degrees: about ten metres


def unwrapped(points: Sequence[Point]) -> list[Point]:
    """Return points whose longitudes go on without a jump of half a turn, and so can leave -180 to 180."""
    found: list[Point] = []
    for lon, lat in points:
        near = lon if not found else lon + WHOLE * round((found[-1][0] - lon) / WHOLE)
        found.append((near, lat))
    return found


def bbox_of(points: Sequence[Point]) -> Bbox:
    longitudes, latitudes = [lon for lon, _ in points], [lat for _, lat in points]
    west, east = min(longitudes), max(longitudes)
    if east - west >= WHOLE:
        return -180.0, min(latitudes), 180.0, max(latitudes)
    return normal(west), min(latitudes), normal(east, upper=True), max(latitudes)


def normal(longitude: float, *, upper: bool = False) -> float:
    """Return a longitude in -180 to 180; the antimeridian is 180 as the upper bound of an area, else -180."""
    found = (longitude + 180) % WHOLE - 180
    return 180.0 if upper and found == -180 else found


def rounded(bbox: Bbox) -> Bbox:
    """Return a bbox with the decimals of an item."""
    west, south, east, north = (round(bound, DECIMALS) for bound in bbox)
    return west, south, east, north


def plain(number: float) -> float:
    """Return a number as canonical JSON writes it: a whole one as an integer, which is encoded faster."""
    return int(number) if number == int(number) else number


def box(bbox: Bbox) -> dict[str, Any]:
    """Return the polygon of a box; two polygons if it crosses the antimeridian."""
    west, south, east, north = bbox
    far = east if west <= east else east + WHOLE
    return polygon([(west, south), (far, south), (far, north), (west, north), (west, south)])


def polygon(points: Sequence[Point]) -> dict[str, Any]:
    """Return the polygon of an outline with unwrapped longitudes; two polygons if it crosses the antimeridian."""
    turns = {int((lon + 180) // WHOLE) for lon, _ in points if (lon + 180) % WHOLE != 0}
    rings = []
    for turn in sorted(turns) or [0]:
        part = _clipped(_clipped(points, -180 + WHOLE * turn, keep_east=True), 180 + WHOLE * turn, keep_east=False)
        if len(part) >= 4:
            rings.append(
                [[plain(round(lon - WHOLE * turn, DECIMALS)), plain(round(lat, DECIMALS))] for lon, lat in part]
            )
    if len(rings) == 1:
        return {"type": "Polygon", "coordinates": rings}
    return {"type": "MultiPolygon", "coordinates": [[ring] for ring in rings]}


def _clipped(points: Sequence[Point], meridian: float, *, keep_east: bool) -> list[Point]:
    """Return the part of a closed outline on one side of a meridian."""
    kept: list[Point] = []
    for before, after in pairwise(points):
        inside = [(lon >= meridian) if keep_east else (lon <= meridian) for lon, _ in (before, after)]
        if inside[0]:
            kept.append(before)
        if inside[0] != inside[1]:
            share = (meridian - before[0]) / (after[0] - before[0])
            kept.append((meridian, before[1] + share * (after[1] - before[1])))
    return [*kept, kept[0]] if kept else []


def overlap(one: Bbox, other: Bbox) -> float:
    """Return the share of the smaller of two boxes that is in both; 0 if they do not meet."""
    height = min(one[3], other[3]) - max(one[1], other[1])
    width = sum(max(0.0, min(east, far) - max(west, near)) for west, east in _spans(one) for near, far in _spans(other))
    smaller = min(_size(one), _size(other))
    return max(0.0, height) * width / smaller if smaller > 0 else 0.0


def _spans(bbox: Bbox) -> list[tuple[float, float]]:
    """Return the longitudes of a box, in two parts if it crosses the antimeridian."""
    west, _, east, _ = bbox
    return [(west, east)] if west <= east else [(west, 180.0), (-180.0, east)]


def _size(bbox: Bbox) -> float:
    return (bbox[3] - bbox[1]) * sum(east - west for west, east in _spans(bbox))
