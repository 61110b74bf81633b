"""Datasets: their files are checked, their examples hold, and a user adds one by adding a file."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

import pytest

from holdfast.core.errors import SpecInvalidError
from holdfast.nodd.dataset import Dataset, Datasets, Example, load, shipped, with_own

NAMES = [
    "gefs", "gfs", "goes-abi", "goes-glm", "hrrr", "mrms", "nbm", "ndfd", "nexrad-chunks", "nexrad-l2", "nexrad-l3",
    "nwm", "rrfs", "rtma",
]  # fmt: skip
EXAMPLES = [(dataset, example) for dataset in shipped() for example in dataset.spec.examples]


def text_of(name: str) -> str:
    return files("holdfast.nodd").joinpath("datasets", f"{name}.toml").read_text(encoding="utf-8")


def test_the_shipped_datasets() -> None:
    assert [dataset.name for dataset in shipped()] == NAMES


@pytest.mark.parametrize("dataset, example", EXAMPLES, ids=[example.key for _, example in EXAMPLES])
def test_an_example_belongs_to_one_dataset_and_has_its_time(dataset: Dataset, example: Example) -> None:
    key, start = example.key, example.start
    assert [other.name for other in shipped() if other.match(key)] == [dataset.name]
    match = dataset.match(key)
    assert match is not None
    assert match.time_range.start == datetime.fromisoformat(start)
    for suffix in dataset.spec.sidecars:
        beside = dataset.match(key + suffix)
        assert beside is not None
        assert beside.sidecar_of == key


def test_every_dataset_has_an_example_that_was_seen_somewhere() -> None:
    """The source names it; examples without one are made up, or built from a template."""
    assert not [dataset.name for dataset in shipped() if not any(example.source for example in dataset.spec.examples)]


def test_a_topic_is_known_by_its_whole_arn() -> None:
    topics = shipped().topics()
    assert topics["arn:aws:sns:us-east-1:123901341784:NewRRFSObject"] == "noaa-rrfs-ops-pds"
    assert "arn:aws:sns:us-east-1:709902155096:NewRRFSObject" not in topics  # the frozen prototype's
    assert not any("GOES16" in arn or "GOES17" in arn or "811054952067" in arn for arn in topics)


def test_a_user_adds_a_dataset_by_adding_a_file(tmp_path: Path) -> None:
    own = text_of("nexrad-l3").replace("unidata-nexrad-level3", "my-bucket").replace("NewNEXRADLevel3Object", "Mine")
    (tmp_path / "my-radar.toml").write_text(own, encoding="utf-8")
    datasets = with_own(tmp_path)
    match = datasets.match("my-bucket", "AMX_N0B_2026_07_06_15_45_17")
    assert match is not None
    assert match.dataset.name == "my-radar"
    assert match.time_range.start == datetime(2026, 7, 6, 15, 45, 17, tzinfo=UTC)
    assert [dataset.name for dataset in datasets] == sorted([*NAMES, "my-radar"])


@pytest.mark.parametrize(
    "old, new, path",
    [
        ('envelope = "s3-event"', 'envelope = "fax"', "envelope"),
        ('format = "grib2"', 'format = "papyrus"', "format"),
        ("key = '", "key = '(", "key"),
        ("NewGFSObject", "New GFS", "buckets.noaa-gfs-bdp-pds"),
        ('rule = "reference-and-lead"', 'rule = "guess"', "time.rule"),
        ('kind = "static"', 'kind = "round"', "geometry.kind"),
        ("min_size = 100", 'min_size = "small"', "policy.min_size"),
        ('max_age = "10d"', 'max_age = "long"', "policy.max_age"),
        ('title = "', 'unheard = 1\ntitle = "', ""),
        ('extensions = ["file"', 'extensions = ["files"', "collection.extensions"),
        ("min_size = 100", 'min_size = 100\nsame_observation = ["fhr"]', "collection.extensions"),
        ("2026-07-26T00:00:00Z", "2026-07-26T01:00:00Z", "examples[0]"),
        ('product = "pgrb2.0p25", fhr = "000"', 'product = "pgrb2.0p25", fhr = "999"', "examples[0]"),
        ("title = ", "title == ", ""),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_field(old: str, new: str, path: str) -> None:
    text = text_of("gfs")
    assert old in text
    with pytest.raises(SpecInvalidError) as refused:
        Datasets({"gfs": load("gfs", text.replace(old, new, 1))})
    assert refused.value.context == {"dataset": "gfs", "path": path}


def test_two_datasets_may_not_share_an_example() -> None:
    with pytest.raises(SpecInvalidError) as refused:
        Datasets({"gfs": load("gfs", text_of("gfs")), "other": load("other", text_of("gfs"))})
    assert refused.value.context == {"dataset": "gfs", "path": "examples[0]"}
