"""The readers of headers agree with other libraries, and reject every truncation."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import eccodes
import h5py
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.nodd import samples
from holdfast.nodd.formats import Damaged, Read, grib2, gzipped, hdf5, nexrad, nids, wmo

pytestmark = pytest.mark.attack("input")

REFERENCE = datetime(2026, 7, 26, 6, tzinfo=UTC)
HEADING = b"SDUS54 KOUN 202016\r\r\nN0RTLX\r\r\n"
GRIDS = {
    "global": samples.latitudes_and_longitudes(),
    "coarse": samples.latitudes_and_longitudes(36, 19),
    "box": samples.conus_box(),
    "lambert": samples.lambert(),
}


def of(data: bytes) -> tuple[Read, int]:
    return (lambda start, length: data[start : start + length]), len(data)


def goes() -> bytes:
    end = datetime(2026, 11, 14, 0, 9, 52, 900_000, tzinfo=UTC)
    return samples.goes_file(datetime(2026, 11, 14, 0, 0, 21, tzinfo=UTC), end, bbox=(-156.3, -81.33, 6.3, 81.33))


@pytest.mark.parametrize("lead", [0, 3, 384])
@pytest.mark.parametrize("grid", GRIDS)
def test_a_grib_message_is_read_as_by_eccodes(grid: str, lead: int) -> None:
    data = samples.grib2(REFERENCE, lead, grid=GRIDS[grid])
    message = grib2.first_message(*of(data))
    handle = eccodes.codes_new_from_message(data)
    try:
        date, time = eccodes.codes_get(handle, "validityDate"), eccodes.codes_get(handle, "validityTime")
        latitudes = eccodes.codes_get_array(handle, "latitudes")
        longitudes = (eccodes.codes_get_array(handle, "longitudes") + 180) % 360 - 180
        columns = eccodes.codes_get(handle, "Nx" if grid == "lambert" else "Ni")
        shape = eccodes.codes_get(handle, "Ny" if grid == "lambert" else "Nj"), columns
        assert eccodes.codes_get(handle, "numberOfValues") == shape[0] * shape[1]
    finally:
        eccodes.codes_release(handle)
    assert message.valid == datetime.strptime(f"{date}{time:04}", "%Y%m%d%H%M").replace(tzinfo=UTC)
    assert message.grid is not None
    assert (message.reference, message.grid.shape) == (REFERENCE, shape)
    assert message.grid.bbox is not None
    west, south, east, north = message.grid.bbox
    cell = 0.05 if grid == "lambert" else {"global": 0.25, "coarse": 10.0, "box": 70 / 69}[grid]
    # The area reaches half a cell beyond the centres of the outer cells, and not beyond the poles.
    assert 0 <= latitudes.min() - south <= cell
    assert 0 <= north - latitudes.max() <= cell
    if grid in ("global", "coarse"):
        assert (west, east) == (-180.0, 180.0)
    else:
        assert 0 < longitudes.min() - west <= cell
        assert 0 < east - longitudes.max() <= cell


def test_the_grid_of_hrrr_has_the_bounds_that_are_published() -> None:
    found = grib2.first_message(*of(samples.grib2(REFERENCE, grid=samples.lambert()))).grid
    assert found is not None
    assert found.bbox == pytest.approx((-134.0955, 21.1381, -60.9172, 52.6156), abs=0.03)  # of the centres of cells


@pytest.mark.parametrize("template", [0, 1, 8, 11, 15, 40, 41, 42, 43, 45, 46, 47, 48, 49])
def test_the_times_of_a_product_are_where_eccodes_has_them(template: int) -> None:
    handle = eccodes.codes_grib_new_from_samples("GRIB2")
    try:
        eccodes.codes_set(handle, "dataDate", int(f"{REFERENCE:%Y%m%d}"))
        eccodes.codes_set(handle, "dataTime", int(f"{REFERENCE:%H%M}"))
        eccodes.codes_set(handle, "productDefinitionTemplateNumber", template)
        eccodes.codes_set(handle, "forecastTime", 6)
        interval = template in (8, 11, 42, 43, 46, 47)
        if interval:
            eccodes.codes_set(handle, "yearOfEndOfOverallTimeInterval", 2031)
        data = eccodes.codes_get_message(handle)
    finally:
        eccodes.codes_release(handle)
    message = grib2.first_message(*of(data))
    assert message.valid == REFERENCE + timedelta(hours=6)
    assert (message.ends is not None and message.ends.year == 2031) if interval else message.ends is None


def test_messages_follow_each_other_to_the_end() -> None:
    data = b"".join(samples.grib2(REFERENCE, lead) for lead in range(5))
    found = list(grib2.messages(*of(data)))
    assert [message.offset for message in found] == [n * 179 for n in range(5)]
    assert [message.valid.hour for message in found if message.valid] == [6, 7, 8, 9, 10]
    grib2.require_end(*of(data))
    with pytest.raises(Damaged) as damaged:
        list(grib2.messages(*of(data + b"?")))
    assert damaged.value.issue == "truncated"


def whole_grib(data: bytes) -> None:
    list(grib2.messages(*of(data)))
    grib2.require_end(*of(data))


def whole_volume(data: bytes) -> None:
    nexrad.volume(*of(data))


def whole_gzip(data: bytes) -> None:
    gzipped.unpacked(*of(data))


@pytest.mark.parametrize(
    "whole, data",
    [
        (whole_grib, samples.grib2(REFERENCE) + samples.grib2(REFERENCE, 1)),
        (whole_gzip, samples.gzipped(samples.grib2(REFERENCE))),
    ],
    ids=["grib2", "gzip"],
)
def test_every_truncation_is_found(whole: Callable[[bytes], None], data: bytes) -> None:
    whole(data)
    for length in range(len(data)):
        if length == len(data) // 2 and whole is whole_grib:
            continue  # between two messages: a file of one message is whole
        with pytest.raises(Damaged):
            whole(data[:length])


def test_every_truncation_of_a_volume_is_found() -> None:
    data = samples.nexrad_volume("KTLX", REFERENCE, records=3)
    found = nexrad.volume(*of(data))
    assert (found.version, found.station, found.start, found.records) == ("AR2V0006", "KTLX", REFERENCE, 3)
    assert found.ended
    edges = set()
    at = 24
    for _ in range(2):
        at += 4 + abs(int.from_bytes(data[at : at + 4], "big", signed=True))
        edges.add(at)
    for length in range(len(data)):
        if length in edges:  # between two records: the last one does not say that it is the last
            assert not nexrad.volume(*of(data[:length])).ended
            continue
        with pytest.raises(Damaged):
            whole_volume(data[:length])


def test_every_truncation_of_an_hdf5_file_is_found_from_its_first_bytes() -> None:
    data = goes()
    found = hdf5.superblock(*of(data))
    assert found.end == len(data)
    ends: list[int] = []

    def read(start: int, length: int) -> bytes:
        ends.append(start + length)
        return data[start : start + length]

    hdf5.superblock(read, len(data))
    assert max(ends) == 96
    for length in range(len(data)):
        with pytest.raises(Damaged):
            hdf5.superblock(*of(data[:length]))


def test_both_kinds_of_superblock_are_read() -> None:
    import io

    for version, latest in ((0, False), (3, True)):
        held = io.BytesIO()
        with h5py.File(held, "w", libver="latest" if latest else "earliest") as file:
            file.attrs["a"] = 1
        data = held.getvalue()
        assert hdf5.superblock(*of(data)) == hdf5.Superblock(version, len(data))


def test_the_attributes_of_a_goes_file_are_those_that_h5py_wrote() -> None:
    attributes = hdf5.attributes(*of(goes()))
    assert attributes is not None
    assert attributes["platform_ID"] == "G19"
    assert attributes["time_coverage_start"] == "2026-11-14T00:00:21.0Z"
    assert attributes["geospatial_lat_lon_extent"]["geospatial_westbound_longitude"] == -156.3


def test_chunks_are_judged_by_themselves() -> None:
    first = samples.nexrad_volume("KDMX", REFERENCE, records=1)
    found = nexrad.chunk(*of(first), kind="S")
    assert found is not None
    assert found.station == "KDMX"
    middle = samples.nexrad_records(2)
    assert nexrad.chunk(*of(middle), kind="I") is None
    with pytest.raises(Damaged):
        nexrad.chunk(*of(middle[:-1]), kind="I")
    with pytest.raises(Damaged):
        nexrad.chunk(*of(middle), kind="E")  # the last record of a volume says so
    assert nexrad.chunk(*of(samples.nexrad_records(2, last=True)), kind="E") is None


def test_a_compression_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gzipped, "UNPACKED_BYTES_MAX", 1 << 20)
    with pytest.raises(Damaged) as damaged:
        gzipped.unpacked(*of(gzip.compress(bytes(3 << 20))))
    assert damaged.value.issue == "size_too_large"


@given(
    st.binary(max_size=300),
    st.sampled_from([b"", b"GRIB\0\0\0\2", hdf5.SIGNATURE, b"AR2V0006.001", b"\x1f\x8b\x08", HEADING]),
)
def test_any_bytes_are_read_or_reported_as_damaged(data: bytes, start: bytes) -> None:
    for reader in (
        lambda read, size: list(grib2.messages(read, size)),
        grib2.require_end,
        hdf5.superblock,
        nexrad.volume,
        gzipped.unpacked,
        nids.product,
        lambda read, size: list(wmo.messages(read, size)),
    ):
        with suppress(Damaged):
            reader(*of(start + data))


@given(st.integers(0, 178), st.integers(0, 255))
def test_a_changed_byte_of_a_message_is_read_or_reported_as_damaged(at: int, value: int) -> None:
    data = bytearray(samples.grib2(REFERENCE))
    data[at] = value
    with suppress(Damaged):
        assert grib2.first_message(*of(bytes(data))).length == 179
