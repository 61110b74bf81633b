"""Items: every shipped dataset makes valid ones from its own examples, and what is not valid is found."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from urllib.parse import unquote

import pyproj
import pytest

from holdfast.nodd import integrity, metadata, samples, stac, validity
from holdfast.nodd.dataset import Dataset, Example, shipped
from holdfast.nodd.notices import listed_notice
from holdfast.nodd.units import unit_of
from tests.nodd.objects import MemorySource

STAMP = "2026-07-26T04:00:00.000000Z"
EXAMPLES = [(dataset, example) for dataset in shipped() for example in dataset.spec.examples]


def specimen(dataset: Dataset, example: Example) -> bytes:
    """Return a small object as a dataset has them, of the time in an example's key."""
    start = datetime.fromisoformat(example.start)
    match dataset.spec.format:
        case "grib2" | "grib2-wmo":
            return samples.grib2(start, 0)
        case "grib2-gzip":
            return samples.gzipped(samples.grib2(start, 0, grid=samples.conus_box()))
        case "netcdf4":
            end = datetime.fromisoformat(example.end) if example.end else start + timedelta(minutes=5)
            return samples.goes_file(start, end, bbox=(-156.3, -81.3, 6.3, 81.3))
        case "nexrad-l2" if not example.key.endswith("-I"):
            station = "KTLX" if "KTLX" in example.key else "KDMX"
            volume = samples.nexrad_volume(station, start)
            return samples.gzipped(volume) if example.key.endswith(".gz") else volume
        case "nexrad-l3":
            station, product = example.fields["station"], example.fields["product"]
            return samples.nexrad_product(station, product, start, place=(25.611, -80.413))
        case "nexrad-chunk" if example.key.endswith("-S"):
            return samples.nexrad_volume("KDMX", start, records=1)
        case _:
            return samples.nexrad_records(2)


def item_of(
    dataset: Dataset, example: Example, data: bytes | None = None, index: bytes | None = None
) -> dict[str, Any]:
    """Return the item of an example, whose object is a specimen or `data`, with an index if there is one."""
    source, bucket = MemorySource(), example.bucket or next(iter(dataset.spec.buckets))
    data = specimen(dataset, example) if data is None else data
    etag = source.put(bucket, example.key, data)
    written = datetime.fromisoformat(example.start)
    notice = listed_notice(shipped(), bucket, example.key, size=len(data), etag=etag, written_at=written)
    assert notice is not None
    unit = unit_of(notice)
    sidecars = []
    if index is not None:
        source.put(bucket, f"{example.key}.idx", index)
        sidecars = [integrity.Sidecar(f"s3://{bucket}/{example.key}.idx", None, len(index))]
    checked = integrity.check(unit, dataset, source, sidecars, written)
    learned = metadata.extract(unit, dataset, source, checked)
    return stac.item_of(unit, dataset, checked, learned, created=STAMP, updated=STAMP)


@pytest.mark.parametrize("dataset, example", EXAMPLES, ids=[f"{dataset.name}:{one.key}" for dataset, one in EXAMPLES])
def test_every_example_makes_a_valid_item(dataset: Dataset, example: Example) -> None:
    item = item_of(dataset, example)
    assert validity.problems(item) == []
    fields = {*item["properties"], *item["assets"]["data"]}
    named = {name for name, url in stac.EXTENSIONS.items() if url in item["stac_extensions"]}
    assert {name for name in stac.EXTENSIONS if any(field.startswith(f"{name}:") for field in fields)} <= named
    assert len(item["stac_extensions"]) == len(set(item["stac_extensions"]))


def test_an_analysis_of_the_hours_before_has_no_horizon() -> None:
    dataset = shipped()["nwm"]
    [example] = [one for one in dataset.spec.examples if ".tm02." in one.key]
    properties = item_of(dataset, example)["properties"]
    assert properties["forecast:reference_datetime"] > properties["datetime"]
    assert "forecast:horizon" not in properties


def test_an_item_has_a_title_for_people() -> None:
    titles = {example.key: item_of(dataset, example)["properties"]["title"] for dataset, example in EXAMPLES}
    assert titles["gfs.20260726/06/atmos/gfs.t06z.pgrb2b.0p25.f120"] == (
        "Global Forecast System gfs pgrb2b.0p25, run of 2026-07-26 06:00 UTC, +120 h"
    )
    assert titles["2022/03/05/KDMX/KDMX20220305_233003_V06"] == "NEXRAD Level II KDMX, 2022-03-05 23:30:03 UTC"


def test_every_asset_has_an_address_over_https() -> None:
    for dataset, example in EXAMPLES:
        asset = item_of(dataset, example)["assets"]["data"]
        bucket, _, key = asset["href"].removeprefix("s3://").partition("/")
        assert unquote(asset["alternate"]["https"]["href"]) == f"https://{bucket}.s3.amazonaws.com/{key}"


def test_a_grid_has_its_projection() -> None:
    dataset = shipped()["hrrr"]
    example = dataset.spec.examples[0]
    data = samples.grib2(datetime.fromisoformat(example.start), 0, grid=samples.lambert())
    properties = item_of(dataset, example, data)["properties"]
    assert (properties["proj:code"], properties["proj:shape"]) == (None, [1059, 1799])
    crs = pyproj.CRS.from_wkt(properties["proj:wkt2"])
    a, b, c, d, e, f = properties["proj:transform"]
    assert (abs(a), b, d, abs(e)) == (3000.0, 0.0, 0.0, 3000.0)
    to_degrees = pyproj.Transformer.from_crs(crs, crs.geodetic_crs, always_xy=True)
    # The centre of the first cell, which is the south-western one: the rows go north.
    lon, lat = to_degrees.transform(c + a / 2, f + e / 2)
    assert (round(lon, 3), round(lat, 3)) == (-122.720, 21.138)


def test_a_band_of_a_satellite_is_named() -> None:
    dataset = shipped()["goes-abi"]
    [example] = [one for one in dataset.spec.examples if "CMIPF-M6C13" in one.key]
    assert item_of(dataset, example)["assets"]["data"]["bands"] == [{"name": "C13", "description": "10.3 µm"}]


def test_an_index_is_an_asset_with_the_ranges_of_its_messages() -> None:
    dataset, reference = shipped()["gfs"], datetime.fromisoformat("2026-07-26T00:00:00Z")
    messages = [samples.grib2(reference, 0), samples.grib2(reference, 0, parameter=1), samples.grib2(reference, 0)]
    item = item_of(dataset, dataset.spec.examples[0], b"".join(messages), samples.grib2_index(messages, reference))
    asset, length = item["assets"]["index"], len(messages[0])
    assert asset["href"] == item["assets"]["data"]["href"] + ".idx"
    assert asset["alternate"]["https"]["href"].endswith("/gfs.t00z.pgrb2.0p25.f000.idx")
    what = ["TMP", "2 m above ground", "anl"]
    assert asset["nodd:messages"] == [[number * length, length, *what] for number in range(3)]
    assert (asset["roles"], validity.problems(item)) == (["index"], [])


def test_an_index_that_does_not_fit_gives_no_ranges() -> None:
    dataset = shipped()["gfs"]
    item = item_of(dataset, dataset.spec.examples[0], None, b"1:7:d=2026072600:TMP:2 m above ground:anl:\n")
    assert "nodd:messages" not in item["assets"]["index"]
    assert "index_stale" in item["properties"]["nodd:issues"]


WRONG: list[tuple[str, str, Any]] = [
    ("asset", "file:size", -1),
    ("asset", "file:size", "12"),
    ("asset", "file:checksum", "zz"),
    ("asset", "file:checksum", "1220" + "A" * 64),
    ("asset", "file:colour", "blue"),
    ("asset", "storage:refs", []),
    ("asset", "storage:refs", [""]),
    ("asset", "storage:schemes", {}),
    ("property", "storage:schemes", {}),
    ("property", "storage:schemes", {"aws": {"type": "aws-s3"}}),
    ("property", "storage:schemes", {"aws": {"type": "aws-s3", "platform": "https://example.org"}}),
    ("property", "storage:refs", ["aws"]),
    ("property", "forecast:reference_datetime", "soon"),
    ("property", "forecast:reference_datetime", "2026-07-26T00:00:00+02:00"),
    ("property", "forecast:horizon", "PT-2H"),
    ("property", "forecast:horizon", "-PT2H"),
    ("property", "forecast:horizon", "P"),
    ("property", "forecast:reference_time", "2026-07-26T00:00:00Z"),
    ("property", "processing:software", {}),
    ("property", "processing:software", {"holdfast": 1}),
    ("property", "processing:magic", "yes"),
    ("property", "published", "junkZ"),
    ("property", "published", None),
    ("property", "datetime", None),
    ("property", "proj:shape", [1]),
    ("property", "proj:colour", "blue"),
    ("property", "proj:transform", [1, 2, 3]),
    ("asset", "alternate", {}),
    ("asset", "alternate", {"https": {"title": "without an address"}}),
]


@pytest.mark.parametrize("where, field, value", WRONG)
def test_a_field_that_an_extension_forbids_is_found(where: str, field: str, value: Any) -> None:
    dataset = shipped()["gfs"]
    item = item_of(dataset, dataset.spec.examples[0])
    place = item["assets"]["data"] if where == "asset" else item["properties"]
    place[field] = value
    assert validity.problems(item) != []
