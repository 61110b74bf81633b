"""The operators by themselves: what each finds about an object, and with which code."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from holdfast.core.records import time_from, time_text
from holdfast.nodd import integrity, metadata, samples
from holdfast.nodd.dataset import Dataset, shipped
from holdfast.nodd.integrity import Sidecar
from holdfast.nodd.notices import listed_notice
from holdfast.nodd.units import OperatorVerdict, Unit, unit_of
from tests.nodd.objects import MemorySource

NOW = datetime(2026, 7, 26, 4, tzinfo=UTC)
REFERENCE = datetime(2026, 7, 26, tzinfo=UTC)
GFS = "gfs.20260726/00/atmos/gfs.t00z.pgrb2.0p25.f003"
GRIB = samples.grib2(REFERENCE, 3)
VOLUME = "2026/07/26/KTLX/KTLX20260726_030000_V06"
AT = datetime(2026, 7, 26, 3, tzinfo=UTC)


def unit_for(source: MemorySource, bucket: str, key: str, data: bytes | None, **said: Any) -> Unit:
    etag = source.put(bucket, key, data) if data is not None else "0" * 32
    size = len(data or b"")
    notice = listed_notice(shipped(), bucket, key, size=size, etag=etag, written_at=AT)
    assert notice is not None
    return unit_of(msgspec.structs.replace(notice, **said))


def checked(
    data: bytes | None, *, at: datetime = NOW, sidecars: list[Sidecar] | None = None, **said: Any
) -> OperatorVerdict:
    source = MemorySource()
    if sidecars:
        source.put("noaa-gfs-bdp-pds", f"{GFS}.idx", said.pop("index"))
    unit = unit_for(source, "noaa-gfs-bdp-pds", GFS, data, **said)
    return integrity.check(unit, shipped()["gfs"], source, sidecars or [], at)


@pytest.mark.req("K-42")
@pytest.mark.parametrize(
    "data, said, at, status, issues",
    [
        pytest.param(GRIB, {}, NOW, "ok", (), id="whole"),
        pytest.param(None, {}, AT + timedelta(minutes=5), "failed", ("not_published_yet",), id="not yet"),
        pytest.param(None, {}, NOW + timedelta(days=1), "failed", ("missing_object",), id="missing"),
        pytest.param(None, {}, NOW + timedelta(days=30), "failed", ("expired",), id="expired"),
        pytest.param(b"", {}, NOW, "failed", ("size_zero",), id="empty"),
        pytest.param(b"x" * 9, {}, NOW, "failed", ("size_too_small",), id="small"),
        pytest.param(GRIB[:-1] + b"x", {}, NOW, "failed", ("missing_required_header",), id="no end marker"),
        pytest.param(b"y" * 500, {}, NOW, "failed", ("missing_required_header",), id="not GRIB"),
        pytest.param(GRIB, {"content_etag": "1" * 32}, NOW, "failed", ("etag_mismatch",), id="another write"),
        pytest.param(GRIB, {"size": 7}, NOW, "suspect", ("size_mismatch",), id="another size"),
        pytest.param(
            GRIB, {"content_etag": None, "size": 2 * len(GRIB)}, NOW, "failed", ("size_mismatch",),
            id="cut between two messages",
        ),
        pytest.param(GRIB, {"content_etag": None, "size": None}, NOW, "ok", (), id="no etag and size"),
    ],
)  # fmt: skip
def test_integrity_has_a_code_for_everything(
    data: bytes | None, said: dict[str, Any], at: datetime, status: str, issues: tuple[str, ...]
) -> None:
    verdict = checked(data, at=at, **said)
    assert (verdict.status, verdict.issues) == (status, issues)


@pytest.mark.req("K-42")
def test_integrity_runs_these_checks_and_reads_little() -> None:
    assert checked(GRIB).checks_run == ("exists", "size", "etag_match", "md5", "headers_minimal")
    source = MemorySource()
    large = GRIB + bytes(3 << 20) + GRIB
    unit = unit_for(source, "noaa-gfs-bdp-pds", GFS, large)
    assert integrity.check(unit, shipped()["gfs"], source, [], NOW).status == "ok"
    assert source.read_bytes < 4096


@pytest.mark.req("K-42")
def test_a_format_that_is_not_known_fails_closed() -> None:
    source = MemorySource()
    unit = unit_for(source, "noaa-gfs-bdp-pds", GFS, GRIB)
    gfs = shipped()["gfs"]
    odd = Dataset("gfs", msgspec.structs.replace(gfs.spec, format="papyrus"))
    assert integrity.check(unit, odd, source, [], NOW).issues == ("missing_required_header",)


@pytest.mark.parametrize(
    "index, issues",
    [
        (samples.grib2_index([GRIB], REFERENCE), ()),
        (b"1:0:x:\n2:100:y:\n", ("index_stale",)),
        (b"1:99999:x:\n", ("index_stale",)),
        (samples.grib2_index([GRIB, GRIB], REFERENCE), ("index_stale",)),  # the file is cut between the two messages
        (b"nothing", ("index_unreadable",)),
    ],
)
def test_an_index_is_compared_with_its_file(index: bytes, issues: tuple[str, ...]) -> None:
    sidecars = [Sidecar(f"s3://noaa-gfs-bdp-pds/{GFS}.idx", None, len(index))]
    assert checked(GRIB, sidecars=sidecars, index=index).issues == issues


def learned(bucket: str, key: str, data: bytes, dataset: str) -> OperatorVerdict:
    source = MemorySource()
    unit = unit_for(source, bucket, key, data)
    found = integrity.check(unit, shipped()[dataset], source, [], NOW)
    assert found.status == "ok", found
    return metadata.extract(unit, shipped()[dataset], source, found)


@pytest.mark.req("K-43")
def test_metadata_of_a_forecast() -> None:
    verdict = learned("noaa-gfs-bdp-pds", GFS, GRIB, "gfs")
    assert (verdict.status, verdict.issues, verdict.checks_run) == (
        "ok",
        (),
        ("temporal", "spatial", "product", "platform"),
    )
    assert verdict.data["bbox"] == [-180.0, -90.0, 180.0, 90.0]
    assert verdict.data["properties"]["forecast:reference_datetime"] == "2026-07-26T00:00:00.000000Z"
    assert verdict.data["time_range"]["start"] == time_text(AT)


@pytest.mark.req("K-43")
@pytest.mark.parametrize(
    "bucket, key, data, dataset, issues",
    [
        pytest.param(
            "noaa-gfs-bdp-pds", GFS, samples.grib2(REFERENCE + timedelta(hours=6), 3), "gfs", ("time_mismatch",),
            id="another run",
        ),
        pytest.param(
            "unidata-nexrad-level2", VOLUME, samples.nexrad_volume("KDMX", AT), "nexrad-l2", ("station_mismatch",),
            id="another station",
        ),
        pytest.param(
            "unidata-nexrad-level2", VOLUME, samples.nexrad_volume("KTLX", AT + timedelta(hours=1)), "nexrad-l2",
            ("time_mismatch",), id="another hour",
        ),
        pytest.param(
            "unidata-nexrad-level2", VOLUME.replace("KTLX", "KZZZ"), samples.nexrad_volume("KZZZ", AT), "nexrad-l2",
            ("missing_geolocation",), id="an unknown station",
        ),
    ],
)  # fmt: skip
def test_a_header_that_differs_from_its_key_is_suspect(
    bucket: str, key: str, data: bytes, dataset: str, issues: tuple[str, ...]
) -> None:
    verdict = learned(bucket, key, data, dataset)
    assert (verdict.status, verdict.issues) == ("suspect", issues)


@pytest.mark.req("K-43")
def test_the_areas_of_radar_and_satellite_files() -> None:
    volume = learned("unidata-nexrad-level2", VOLUME, samples.nexrad_volume("KTLX", AT), "nexrad-l2")
    assert volume.data["bbox"] == pytest.approx([-102.4, 31.2, -92.2, 39.5], abs=0.1)
    start, end = AT + timedelta(seconds=20), AT + timedelta(minutes=9)
    stamps = f"s{start:%Y%j%H%M%S}0_e{end:%Y%j%H%M%S}0_c{end:%Y%j%H%M%S}0"
    key = f"ABI-L2-CMIPF/2026/207/03/OR_ABI-L2-CMIPF-M6C13_G19_{stamps}.nc"
    west = samples.goes_file(start, end, bbox=(140.0, -80.0, -60.0, 80.0))
    disk = learned("noaa-goes19", key, west, "goes-abi")
    assert (disk.status, disk.data["bbox"]) == ("ok", [140.0, -80.0, -60.0, 80.0])
    assert disk.data["geometry"]["type"] == "MultiPolygon"  # it crosses the antimeridian
    assert time_from(disk.data["time_range"]["end"]) == end
