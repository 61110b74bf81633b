"""Items: every shipped dataset makes valid ones from its own examples, and what is not valid is found."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast.nodd import integrity, metadata, samples, stac, validity
from holdfast.nodd.dataset import Dataset, Example, shipped
from holdfast.nodd.notices import listed_notice
from holdfast.nodd.units import unit_of
from tests.nodd.objects import MemorySource

STAMP = "2026-07-26T04:00:00.000000Z"
EXAMPLES = [(dataset, example) for dataset in shipped() for example in dataset.spec.examples]


def specimen(dataset: Dataset, example: Example) -> bytes:
    """Return a small object as a dataset has them, of the time that an example's key tells."""
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


def item_of(dataset: Dataset, example: Example) -> dict[str, Any]:
    source, bucket = MemorySource(), example.bucket or next(iter(dataset.spec.buckets))
    data = specimen(dataset, example)
    etag = source.put(bucket, example.key, data)
    written = datetime.fromisoformat(example.start)
    notice = listed_notice(shipped(), bucket, example.key, size=len(data), etag=etag, written_at=written)
    assert notice is not None
    unit = unit_of(notice)
    checked = integrity.check(unit, dataset, source, [], written)
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
]


@pytest.mark.parametrize("where, field, value", WRONG)
def test_what_an_extension_forbids_is_found(where: str, field: str, value: Any) -> None:
    dataset = shipped()["gfs"]
    item = item_of(dataset, dataset.spec.examples[0])
    place = item["assets"]["data"] if where == "asset" else item["properties"]
    place[field] = value
    assert validity.problems(item) != []
