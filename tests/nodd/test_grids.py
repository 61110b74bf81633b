"""The area of a grid, compared with the points that ecCodes computes for the same message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import eccodes
import pytest

from holdfast.nodd import area
from holdfast.nodd.formats import grib2
from holdfast.nodd.formats.grids import Grid

NDFD_EARTH = {
    "shapeOfTheEarth": 1,
    "scaleFactorOfRadiusOfSphericalEarth": 0,
    "scaledValueOfRadiusOfSphericalEarth": 6371200,
}
NCEP_EARTH = {"shapeOfTheEarth": 6}
# The numbers are those of files of NOAA: NDFD, NBM, HRRR, SREF and RAP.
GRIDS: dict[str, dict[str, Any]] = {
    "mercator, Puerto Rico": {
        "gridType": "mercator", **NDFD_EARTH, "Ni": 177, "Nj": 129, "latitudeOfFirstGridPoint": 16828685,
        "longitudeOfFirstGridPoint": 291804687, "LaD": 20000000, "latitudeOfLastGridPoint": 19736200,
        "longitudeOfLastGridPoint": 296015600, "Di": 2500000, "Dj": 2500000, "jScansPositively": 1,
    },
    "mercator, Guam": {
        "gridType": "mercator", **NDFD_EARTH, "Ni": 193, "Nj": 193, "latitudeOfFirstGridPoint": 12349884,
        "longitudeOfFirstGridPoint": 143686538, "LaD": 20000000, "latitudeOfLastGridPoint": 16794399,
        "longitudeOfLastGridPoint": 148280000, "Di": 2500000, "Dj": 2500000, "jScansPositively": 1,
    },
    "polar, Alaska": {
        "gridType": "polar_stereographic", **NCEP_EARTH, "Nx": 1299, "Ny": 919, "latitudeOfFirstGridPoint": 41612949,
        "longitudeOfFirstGridPoint": 185117126, "LaD": 60000000, "orientationOfTheGrid": 225000000, "Dx": 3000000,
        "Dy": 3000000, "jScansPositively": 1,
    },
    "polar, over the antimeridian": {
        "gridType": "polar_stereographic", **NCEP_EARTH, "Nx": 139, "Ny": 107, "latitudeOfFirstGridPoint": 30000000,
        "longitudeOfFirstGridPoint": 187000000, "LaD": 60000000, "orientationOfTheGrid": 225000000, "Dx": 45000000,
        "Dy": 45000000, "jScansPositively": 1,
    },
    "lambert, 40 km": {
        "gridType": "lambert", **NCEP_EARTH, "Nx": 185, "Ny": 129, "latitudeOfFirstGridPoint": 12190000,
        "longitudeOfFirstGridPoint": 226541000, "LaD": 25000000, "LoV": 265000000, "Dx": 40635000, "Dy": 40635000,
        "Latin1": 25000000, "Latin2": 25000000, "jScansPositively": 1,
    },
    "rotated": {
        "gridType": "rotated_ll", **NCEP_EARTH, "Ni": 254, "Nj": 129, "latitudeOfFirstGridPoint": -12302500,
        "longitudeOfFirstGridPoint": 345178780, "latitudeOfLastGridPoint": 16497500,
        "longitudeOfLastGridPoint": 42103780, "latitudeOfSouthernPole": -36088520,
        "longitudeOfSouthernPole": 245305142, "iDirectionIncrement": 225000, "jDirectionIncrement": 225000,
        "jScansPositively": 1,
    },
    "latitudes over the antimeridian": {
        "gridType": "regular_ll", **NCEP_EARTH, "Ni": 41, "Nj": 29, "latitudeOfFirstGridPoint": 69000000,
        "longitudeOfFirstGridPoint": 170000000, "latitudeOfLastGridPoint": 55000000,
        "longitudeOfLastGridPoint": 190000000, "iDirectionIncrement": 500000, "jDirectionIncrement": 500000,
    },
}  # fmt: skip


@contextmanager
def message_of(settings: dict[str, Any]) -> Iterator[int]:
    """A message with a grid, made by ecCodes."""
    handle = eccodes.codes_grib_new_from_samples("GRIB2")
    try:
        for name, value in settings.items():
            eccodes.codes_set(handle, name, value)
        columns = settings.get("Ni") or settings["Nx"]
        rows = settings.get("Nj") or settings["Ny"]
        eccodes.codes_set(handle, "numberOfDataPoints", columns * rows)
        eccodes.codes_set_values(handle, [0.0] * (columns * rows))
        yield handle
    finally:
        eccodes.codes_release(handle)


def grid_of(data: bytes) -> Grid:
    found = grib2.first_message(lambda start, length: data[start : start + length], len(data)).grid
    assert found is not None
    return found


@pytest.mark.req("K-43")
@pytest.mark.parametrize("name", GRIDS)
def test_an_area_covers_the_points_of_its_grid_and_no_more(name: str) -> None:
    with message_of(GRIDS[name]) as handle:
        found = grid_of(eccodes.codes_get_message(handle))
        latitudes, longitudes = (eccodes.codes_get_array(handle, axis) for axis in ("latitudes", "longitudes"))
    assert found.bbox is not None
    assert found.shape is not None
    west, south, east, north = found.bbox
    assert west > east or "antimeridian" not in name
    width = (east - west) % 360
    offsets = (longitudes - west) % 360
    assert offsets.max() <= width  # every point is inside, counted eastwards from the west edge
    assert south <= latitudes.min()
    assert latitudes.max() <= north
    cell = cell_of(latitudes, longitudes, found.shape[1])
    assert offsets.min() <= cell[0]
    assert width - offsets.max() <= cell[0]
    assert latitudes.min() - south <= cell[1]
    assert north - latitudes.max() <= cell[1]


def cell_of(latitudes: Any, longitudes: Any, columns: int) -> tuple[float, float]:
    """Return the largest distance between neighbours on the border, in degrees."""
    border = [*range(columns), *range(0, len(latitudes), columns), *range(columns - 1, len(latitudes), columns)]
    border += range(len(latitudes) - columns, len(latitudes))
    steps = [(one, other) for one, other in pairwise(border) if other - one in (1, columns)]
    wide = max(abs((longitudes[one] - longitudes[other] + 180) % 360 - 180) for one, other in steps)
    high = max(abs(latitudes[one] - latitudes[other]) for one, other in steps)
    return float(wide), float(high)


def test_a_grid_around_the_pole_has_all_longitudes() -> None:
    around = {
        "gridType": "polar_stereographic", **NCEP_EARTH, "Nx": 101, "Ny": 101, "latitudeOfFirstGridPoint": 57_000_000,
        "longitudeOfFirstGridPoint": 315_000_000, "LaD": 60_000_000, "orientationOfTheGrid": 0, "Dx": 50_000_000,
        "Dy": 50_000_000, "jScansPositively": 1,
    }  # fmt: skip
    with message_of(around) as handle:
        found = grid_of(eccodes.codes_get_message(handle))
    assert found.bbox is not None
    assert (found.bbox[0], found.bbox[2], found.bbox[3]) == (-180.0, 180.0, 90.0)


@pytest.mark.parametrize("byte, value", [(12, 0x7F), (14, 99)], ids=["template", "shape of the Earth"])
def test_a_grid_that_is_not_known_has_no_area(byte: int, value: int) -> None:
    with message_of(GRIDS["lambert, 40 km"]) as handle:
        data = bytearray(eccodes.codes_get_message(handle))
    at = 16 + int.from_bytes(data[16:20], "big")
    assert data[at + 4] == 3
    data[at + byte] = value
    assert grid_of(bytes(data)).bbox is None


def test_a_geometry_is_cut_at_the_antimeridian() -> None:
    with message_of(GRIDS["polar, over the antimeridian"]) as handle:
        found = grid_of(eccodes.codes_get_message(handle))
    assert found.outline is not None
    geometry = area.polygon(found.outline)
    assert geometry["type"] == "MultiPolygon"
    longitudes = [lon for part in geometry["coordinates"] for ring in part for lon, _ in ring]
    assert (min(longitudes), max(longitudes)) == (-180.0, 180.0)
    for [ring] in geometry["coordinates"]:
        assert ring[0] == ring[-1]
        assert all(abs(one[0] - other[0]) < 180 for one, other in pairwise(ring))


@pytest.mark.parametrize(
    "one, other, share",
    [
        ((-10.0, 0.0, 10.0, 10.0), (0.0, 0.0, 10.0, 10.0), 1.0),
        ((-10.0, 0.0, 0.0, 10.0), (5.0, 0.0, 10.0, 10.0), 0.0),
        ((170.0, 0.0, -170.0, 10.0), (-180.0, 0.0, -160.0, 10.0), 0.5),
    ],
)
def test_the_overlap_of_two_boxes(one: tuple[float, ...], other: tuple[float, ...], share: float) -> None:
    assert area.overlap(one, other) == pytest.approx(share)  # type: ignore[arg-type]
