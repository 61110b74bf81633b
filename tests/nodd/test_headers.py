"""Headers compared with keys: places, times, products and platforms, in files made like real ones of NOAA."""

from __future__ import annotations

import gzip
import io
import struct
import sys
import zlib
from datetime import UTC, datetime, timedelta

import h5py
import pytest

from holdfast.nodd import integrity, metadata, samples
from holdfast.nodd.dataset import shipped
from holdfast.nodd.formats import Damaged, hdf5, nids, wmo
from holdfast.nodd.notices import listed_notice
from holdfast.nodd.stations import STATIONS
from holdfast.nodd.units import OperatorVerdict, unit_of
from tests.nodd.objects import MemorySource

NOW = datetime(2026, 11, 16, tzinfo=UTC)
AT = datetime(2023, 1, 26, 19, tzinfo=UTC)
GLM = "GLM-L2-LCFA/2023/026/19/OR_GLM-L2-LCFA_G18_s20230261900000_e20230261900200_c20230261900213.nc"
OLD = "1999/05/03/KTLX/KTLX19990503_235621.gz"
OLD_AT = datetime(1999, 5, 3, 23, 56, 21, tzinfo=UTC)
TDWR = "MCI_TR0_2016_05_26_21_54_00"
TDWR_AT = datetime(2016, 5, 26, 21, 54, tzinfo=UTC)


def verdicts(dataset: str, key: str, data: bytes) -> tuple[OperatorVerdict, OperatorVerdict | None]:
    """Return the verdicts of integrity-check and metadata-extract; the second is None after a refusal."""
    source, spec = MemorySource(), shipped()[dataset].spec
    buckets = [*spec.buckets, *spec.archives]
    bucket = next((one for one in buckets if "_G" in key and one.endswith(key.partition("_G")[2][:2])), buckets[0])
    etag = source.put(bucket, key, data)
    notice = listed_notice(shipped(), bucket, key, size=len(data), etag=etag, written_at=NOW)
    assert notice is not None
    unit = unit_of(notice)
    checked = integrity.check(unit, shipped()[dataset], source, [], NOW)
    if checked.status == "failed":
        return checked, None
    return checked, metadata.extract(unit, shipped()[dataset], source, checked)


def learned(dataset: str, key: str, data: bytes) -> OperatorVerdict:
    checked, found = verdicts(dataset, key, data)
    assert checked.status == "ok", checked
    assert found is not None
    return found


# ---------------------------------------------------------------------------------------------------------------------
# National Water Model

LCC = "+proj=lcc +units=m +a=6370000.0 +b=6370000.0 +lat_1=30.0 +lat_2=60.0 +lat_0=40.0 +lon_0=-97.0 +x_0=0 +y_0=0"
RIVERS = "nwm.20200824/medium_range_mem1/nwm.t00z.medium_range.channel_rt_1.f049.conus.nc"
LAND = "nwm.20200824/medium_range_mem1/nwm.t00z.medium_range.land_1.f049.conus.nc"


def water_file(kind: str | None, *, proj4: str = LCC, grid: bool = False, mapping: str | None = None) -> bytes:
    """Return a file of WRF-Hydro: its attributes are those of a file of t-route's tests, its grid that of the model."""
    held = io.BytesIO()
    with h5py.File(held, "w") as file:
        file.attrs["model_initialization_time"] = "2020-08-24_00:00:00"
        file.attrs["model_output_valid_time"] = "2020-08-26_01:00:00"
        if kind is not None:  # files of forcing, and those of the first versions, do not name it
            file.attrs["model_output_type"] = kind
        (file.create_dataset(mapping, data=b"") if mapping else file).attrs["proj4"] = (
            proj4 + " +nadgrids=@null +wktext"
        )
        if grid:
            file.create_dataset("x", data=[-2303499.25 + 1000 * n for n in range(4608)])
            file.create_dataset("y", data=[-1919500.375 + 1000 * n for n in range(3840)])
    return held.getvalue()


@pytest.mark.req("K-43")
@pytest.mark.parametrize("mapping", [None, "crs", "ProjectionCoordinateSystem"])
def test_the_grid_of_the_water_model_is_read_from_its_axes(mapping: str | None) -> None:
    found = learned("nwm", LAND, water_file("land", grid=True, mapping=mapping))
    assert (found.status, found.issues) == ("ok", ())
    assert found.data["bbox"] == pytest.approx(shipped()["nwm"].spec.geometry.bboxes["conus"], abs=0.02)
    assert (found.data["projection"]["shape"], found.data["geometry"]["type"]) == ([3840, 4608], "Polygon")
    assert found.checks_run == ("temporal", "spatial", "product", "coverage")


@pytest.mark.req("K-43")
def test_rivers_without_places_have_the_domain_that_their_header_names() -> None:
    found = learned("nwm", RIVERS, water_file("channel_rt"))
    assert (found.status, found.data["properties"]["nodd:area"]) == ("ok", "domain")
    assert found.data["bbox"] == list(shipped()["nwm"].spec.geometry.bboxes["conus"])
    assert found.checks_run == ("temporal", "product", "coverage")


@pytest.mark.req("K-43")
@pytest.mark.parametrize(
    "key, data, issues",
    [
        (RIVERS.replace("conus", "hawaii"), water_file("channel_rt"), {"region_mismatch", "missing_geolocation"}),
        (RIVERS, water_file("channel_rt", proj4="+proj=pipeline +step"), {"missing_geolocation"}),
        (RIVERS, water_file("land"), {"product_mismatch"}),
        (RIVERS.replace("f049", "f050"), water_file("channel_rt"), {"time_mismatch"}),
        (RIVERS.replace("t00z", "t01z").replace("f049", "f048"), water_file("channel_rt"), {"time_mismatch"}),
        (LAND.replace("conus", "alaska"), water_file("land", grid=True), {"region_mismatch"}),
        (RIVERS, water_file(None, grid=True), {"product_mismatch"}),
        (LAND, water_file("land"), {"missing_geolocation"}),
        (LAND, water_file(None), {"missing_geolocation"}),
    ],
    ids=["region", "projection", "product", "lead", "cycle", "grid", "rivers with a grid", "land without", "no type"],
)
def test_the_water_model_under_another_key_is_suspect(key: str, data: bytes, issues: set[str]) -> None:
    found = learned("nwm", key, data)
    assert (found.status, set(found.issues)) == ("suspect", issues)


# ---------------------------------------------------------------------------------------------------------------------
# GOES


def glm_file(sat: str = "G18", *, lon: tuple[float, float] = (-203.56, -70.44), name: str = GLM) -> bytes:
    """Return a file of the lightning mapper: bounds of its field of view in place of an extent."""
    held = io.BytesIO()
    with h5py.File(held, "w") as file:
        file.attrs["platform_ID"] = sat
        file.attrs["dataset_name"] = name.rpartition("/")[2]
        file.attrs["time_coverage_start"], file.attrs["time_coverage_end"] = (
            "2023-01-26T19:00:00.0Z",
            "2023-01-26T19:00:20.0Z",
        )
        file.create_dataset("lat_field_of_view_bounds", data=[66.56, -66.56])
        file.create_dataset("lon_field_of_view_bounds", data=lon)
    return held.getvalue()


@pytest.mark.req("K-43")
def test_the_area_of_the_lightning_mapper_is_its_field_of_view() -> None:
    found = learned("goes-glm", GLM, glm_file())
    assert (found.status, found.issues) == ("ok", ())
    assert found.data["bbox"] == [156.44, -66.56, -70.44, 66.56]
    assert found.data["geometry"]["type"] == "MultiPolygon"
    assert found.checks_run == ("temporal", "spatial", "product", "platform")


@pytest.mark.req("K-43")
@pytest.mark.parametrize(
    "key, west, east",
    [
        (GLM, 156.44, -70.44),
        (GLM.replace("_G18", "_G17"), 156.44, -70.44),
        (GLM.replace("_G18", "_G16"), -141.56, -8.44),
        (GLM.replace("_G18", "_G19"), -139.4, -11.0),
    ],
)
def test_without_h5py_a_file_gets_the_view_of_its_own_satellite_and_is_suspect(
    key: str, west: float, east: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = glm_file()
    monkeypatch.setitem(sys.modules, "h5py", None)
    found = learned("goes-glm", key, data)
    assert (found.status, found.checks_run) == ("suspect", ())
    assert "missing_geolocation" in found.issues
    assert (found.data["bbox"][0], found.data["bbox"][2]) == (west, east)


def test_a_western_image_whose_attributes_are_too_far_apart_gets_the_western_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hdf5, "RANGES_MAX", 0)
    key = "ABI-L2-CMIPF/2023/026/19/OR_ABI-L2-CMIPF-M6C13_G18_s20230261900000_e20230261900200_c20230261900213.nc"
    found = learned("goes-abi", key, samples.goes_file(AT, AT + timedelta(seconds=20), bbox=(0.0, 0.0, 1.0, 1.0)))
    assert found.status == "suspect"
    assert found.data["bbox"] == [141.7, -81.33, -55.7, 81.33]


@pytest.mark.req("K-43")
@pytest.mark.parametrize(
    "data, issue",
    [
        (glm_file("G16"), "platform_mismatch"),
        (glm_file(name=GLM.replace("LCFA_G18", "LCFX_G18")), "product_mismatch"),
    ],
)
def test_a_file_of_another_satellite_or_product_is_suspect(data: bytes, issue: str) -> None:
    found = learned("goes-glm", GLM, data)
    assert (found.status, found.issues) == ("suspect", (issue,))


# ---------------------------------------------------------------------------------------------------------------------
# NEXRAD


def old_volume(statuses: list[int], station: bytes = bytes(4)) -> bytes:
    """Return a volume of 1991 to 2005: messages that are not compressed, and no station in the header."""
    days = (OLD_AT - datetime(1969, 12, 31, tzinfo=UTC)).days
    head = b"ARCHIVE2.031" + struct.pack(">II", days, 86_181_000) + station
    return head + b"".join(
        (bytes(15) + b"\x01" + bytes(24) + struct.pack(">H", status)).ljust(2432, b"\0") for status in statuses
    )


@pytest.mark.req("K-42", "K-43")
def test_a_volume_without_a_station_takes_it_from_the_key() -> None:
    found = learned("nexrad-l2", OLD, gzip.compress(old_volume([3, 1, 1, 4])))
    assert (found.status, found.checks_run) == ("ok", ("temporal",))
    lat, lon = STATIONS["KTLX"]
    west, south, east, north = found.data["bbox"]
    assert south < lat < north
    assert west < lon < east


@pytest.mark.req("K-42")
@pytest.mark.parametrize(
    "data, status, issues",
    [
        (gzip.compress(old_volume([3, 1, 1])), "suspect", ("volume_incomplete",)),
        (gzip.compress(old_volume([3, 1, 1, 4])[:-1]), "failed", ("missing_required_header",)),
        (gzip.compress(old_volume([])), "failed", ("missing_required_header",)),
        (gzip.compress(old_volume([3, 4], b"?!?!")), "failed", ("missing_required_header",)),
        (samples.nexrad_volume("KTLX", OLD_AT, records=1), "suspect", ("volume_incomplete",)),
        (samples.nexrad_volume("KTLX", OLD_AT)[:24], "failed", ("missing_required_header",)),
        (samples.nexrad_volume("KTLX", OLD_AT) + b"\0", "failed", ("missing_required_header",)),
    ],
    ids=["no end", "cut message", "no messages", "odd station", "one record", "no records", "more"],
)
def test_a_volume_that_is_not_whole_is_not_ok(data: bytes, status: str, issues: tuple[str, ...]) -> None:
    checked, _ = verdicts("nexrad-l2", OLD, data)
    assert (checked.status, checked.issues) == (status, issues)


def product(station: str = "MCI", letters: str = "TR0") -> bytes:
    return samples.nexrad_product(station, letters, TDWR_AT, place=(39.498, -94.742), code=181)


def packed(data: bytes) -> bytes:
    """Return a product as the satellite broadcast packs it: in blocks, after a control block."""
    heading, body = data[:30], data[30:]
    inner = b"\x40\x0c" + bytes(22) + heading + body
    blocks = b"".join(zlib.compress(inner[at : at + 40]) for at in range(0, len(inner), 40))
    return b"\x01\r\r\n123 \r\r\n" + heading + blocks + b"\r\r\n\x03"


@pytest.mark.req("K-43")
@pytest.mark.parametrize("data", [product(), packed(product())], ids=["plain", "packed"])
def test_the_place_of_an_airport_radar_product_comes_from_its_header(data: bytes) -> None:
    found = learned("nexrad-l3", TDWR, data)
    assert (found.status, found.checks_run) == ("ok", ("temporal", "spatial", "product", "platform"))
    west, south, east, north = found.data["bbox"]
    assert (south + north) / 2 == pytest.approx(39.498, abs=0.2)
    assert (west + east) / 2 == pytest.approx(-94.742, abs=0.01)
    assert found.data["properties"]["nodd:product_code"] == 181


@pytest.mark.req("K-42")
@pytest.mark.parametrize("data", [product(), packed(product())], ids=["plain", "packed"])
def test_every_cut_of_a_product_is_found(data: bytes) -> None:
    for length in range(len(data)):
        with pytest.raises(Damaged):
            nids.product(lambda start, n, whole=data[:length]: whole[start : start + n], length)  # type: ignore[misc]


@pytest.mark.req("K-42")
@pytest.mark.parametrize("data", [b"<?xml version='1.0'?><Error><Code>SlowDown</Code></Error>", bytes(range(256)) * 4])
def test_a_file_that_is_not_a_product_is_refused(data: bytes) -> None:
    checked, _ = verdicts("nexrad-l3", TDWR, data)
    assert (checked.status, checked.issues) == ("failed", ("missing_required_header",))


@pytest.mark.req("K-43")
@pytest.mark.parametrize(
    "data, issue",
    [
        (product("DEN"), "station_mismatch"),
        (product(letters="TV0"), "product_mismatch"),
        (samples.nexrad_product("MCI", "TR0", TDWR_AT + timedelta(hours=1), place=(39.498, -94.742)), "time_mismatch"),
    ],
)
def test_another_product_is_suspect(data: bytes, issue: str) -> None:
    found = learned("nexrad-l3", TDWR, data)
    assert (found.status, found.issues) == ("suspect", (issue,))


def test_the_table_of_radars_has_airports_and_places_overseas() -> None:
    assert {"TMCI", "TJFK", "TSJU", "RODN", "RKSG", "RKJK", "LPLA", "PGUA", "TJUA", "KHDC"} <= STATIONS.keys()
    assert sum(name[0] == "T" for name in STATIONS) > 45


# ---------------------------------------------------------------------------------------------------------------------
# NDFD

BULLETIN = "wmo/maxt/2020/01/01/YGUZ98_KWBN_202001010046"
REFERENCE = datetime(2020, 1, 1, tzinfo=UTC)


def bulletin(*leads: int, parameter: int = 4) -> bytes:
    """Return a file of bulletins: a line with the length and a heading before each message."""
    parts = []
    for lead in leads:
        body = b"YGUZ98 KWBN 010046\r\r\n" + samples.grib2(REFERENCE, lead, grid=samples.lambert(), parameter=parameter)
        parts.append(b"****%010d****\n" % len(body) + body)
    whole = b"YGUZ98 KWBN 010046\r\r\n" + b"".join(parts)
    return b"****%010d****\n" % len(whole) + whole


@pytest.mark.req("K-43")
def test_a_bulletin_is_valid_when_its_messages_are_and_not_when_it_was_issued() -> None:
    found = learned("ndfd", BULLETIN, bulletin(12, 36, 60))
    assert (found.status, found.issues) == ("ok", ())
    assert found.data["time_range"] == {"start": "2020-01-01T12:00:00.000000Z", "end": "2020-01-03T12:00:00.000000Z"}
    assert found.data["properties"]["nodd:issued"] == "2020-01-01T00:46:00.000000Z"
    assert found.data["properties"]["forecast:reference_datetime"] == "2020-01-01T00:00:00.000000Z"


@pytest.mark.req("K-43")
def test_a_bulletin_of_another_element_or_day_is_suspect() -> None:
    assert learned("ndfd", BULLETIN, bulletin(12, parameter=5)).issues == ("product_mismatch",)
    later = BULLETIN.replace("202001010046", "202001050046")
    assert learned("ndfd", later, bulletin(12)).issues == ("time_mismatch",)


@pytest.mark.req("K-42")
def test_every_cut_of_a_bulletin_is_found_also_between_messages() -> None:
    data = bulletin(12, 36)
    plain = data[data.index(b"\n") + 1 :]  # without the length of the whole
    second = plain.index(b"7777") + 4
    for whole in (data, plain):
        for length in range(1, len(whole)):
            if whole is plain and length == second:
                continue  # a file of one bulletin is whole
            with pytest.raises(Damaged):
                assert list(wmo.messages(lambda start, n, held=whole[:length]: held[start : start + n], length))  # type: ignore[misc]


def test_a_large_file_of_bulletins_is_checked_by_the_length_in_its_first_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wmo, "WHOLE_BYTES_MAX", 64)
    key = "opnl/AR.conus/VP.001-003/ds.maxt.bin"
    data = bulletin(12, 36)
    found = learned("ndfd", key, data)
    assert (found.status, found.data["time_range"]["start"]) == ("ok", "2020-01-01T12:00:00.000000Z")
    cut = data[: data.index(b"****", 60)]
    assert verdicts("ndfd", key, cut)[0].status == "failed"


# ---------------------------------------------------------------------------------------------------------------------
# GRIB2

HRRR = "hrrr.20260817/conus/hrrr.t12z.wrfsfcf03.grib2"
CYCLE = datetime(2026, 8, 17, 12, tzinfo=UTC)


@pytest.mark.req("K-43")
@pytest.mark.parametrize(
    "key, data, issues",
    [
        (HRRR, samples.grib2(CYCLE, 3, grid=samples.lambert()), ()),
        (HRRR, samples.grib2(CYCLE, 2, grid=samples.lambert()), ("lead_mismatch",)),
        (HRRR, samples.grib2(CYCLE - timedelta(hours=6), 3, grid=samples.lambert()), ("time_mismatch",)),
        (
            HRRR.replace("conus", "alaska").replace(".grib2", ".ak.grib2"),
            samples.grib2(CYCLE, 3, grid=samples.lambert()), ("region_mismatch",),
        ),
        (
            "gfs.20260817/12/atmos/gfs.t12z.pgrb2.0p50.f003",
            samples.grib2(CYCLE, 3), ("product_mismatch",),
        ),
        (HRRR.replace("sfc", "subh"), samples.grib2(CYCLE, 3, grid=samples.lambert()), ()),
    ],
    ids=["agrees", "lead", "cycle", "region", "resolution", "minutes"],
)  # fmt: skip
def test_a_forecast_is_compared_with_its_key(key: str, data: bytes, issues: tuple[str, ...]) -> None:
    found = learned(key.partition(".")[0], key, data)
    assert found.issues == issues
    assert "temporal" in found.checks_run


@pytest.mark.req("K-43")
def test_a_grid_that_cannot_be_read_is_suspect_on_the_box_of_its_region() -> None:
    data = bytearray(samples.grib2(CYCLE, 3, grid=samples.lambert()))
    at = data.index(struct.pack(">H", 30), 16 + 21)
    data[at : at + 2] = struct.pack(">H", 204)
    found = learned("hrrr", HRRR, bytes(data))
    assert (found.status, found.issues) == ("suspect", ("missing_geolocation",))
    assert "spatial" not in found.checks_run
