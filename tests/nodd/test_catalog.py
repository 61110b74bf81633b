"""The static catalogue: a client walks it to every item, in a directory and in S3, however it was written."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pystac
import pytest

from holdfast import Ledger
from holdfast.core.errors import InputError, StoreUnavailableError
from holdfast.nodd import catalog, samples, validity
from holdfast.nodd.admission import FeedMessage, admit
from holdfast.nodd.catalog_targets import CatalogTarget, DirectoryTarget, S3Target, target_of
from holdfast.nodd.dataset import Datasets, shipped
from holdfast.nodd.ingest import IngestSettings, declare
from holdfast.nodd.stac_catalog import Extent
from tests.nodd.aws import Cloud
from tests.nodd.messages import event, record
from tests.nodd.objects import MemorySource

ROOT = "data/stac/nodd"
FIRST, SECOND = datetime.fromisoformat("2026-07-26T00:00Z"), datetime.fromisoformat("2026-11-14T12:00Z")
OBJECTS = [
    *(("noaa-gfs-bdp-pds", f"gfs.20260726/00/atmos/gfs.t00z.pgrb2.0p25.f{lead:03}", samples.grib2(FIRST, lead))
      for lead in (0, 3, 30)),
    ("noaa-mrms-pds", "CONUS/PrecipRate_00.00/20261114/MRMS_PrecipRate_00.00_20261114-120000.grib2.gz",
     samples.gzipped(samples.grib2(SECOND, 0, grid=samples.conus_box()))),
]  # fmt: skip


def announce(ledger: Ledger, source: MemorySource, objects: list[tuple[str, str, bytes]]) -> None:
    for bucket, key, data in objects:
        body = event(record(bucket=bucket, key=key, size=len(data), eTag=source.put(bucket, key, data)))
        assert [one.fate for one in admit(ledger.store, [FeedMessage(body)], shipped())] == ["admitted"]


@pytest.fixture
def catalogued(ledger: Ledger, source: MemorySource) -> Ledger:
    """A ledger with items of two collections, on three days, that are published nowhere."""
    announce(ledger, source, OBJECTS)
    ledger.run_until_idle()
    return ledger


def items_of(ledger: Ledger) -> dict[str, dict[str, Any]]:
    with ledger.store.reading() as reading:
        return {item_id: json.loads(item) for item_id, item in reading.execute("SELECT item_id, item FROM nodd_items")}


def files_in(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*.json")}


def require_crawlable(directory: Path, items: dict[str, dict[str, Any]]) -> pystac.Catalog:
    """Walk a catalogue by its links, and return its root; every item must be reached once, in its collection."""
    root = pystac.Catalog.from_file(str(directory / ROOT / "catalog.json"))
    reached = list(root.get_items(recursive=True))
    assert sorted(item.id for item in reached) == sorted(items)
    for item in reached:
        parent, collection = item.get_parent(), item.get_collection()
        assert parent is not None
        assert collection is not None
        assert (collection.id, parent.get_parent()) == (items[item.id]["collection"], collection)
        assert item.properties["nodd:wal_id"] == items[item.id]["properties"]["nodd:wal_id"]
        assert item.assets["data"].href == items[item.id]["assets"]["data"]["href"]
        [[start, end]] = collection.extent.temporal.intervals
        assert start is not None
        assert end is not None
        assert item.datetime is not None
        assert start <= item.datetime <= end
        west, south, east, north = collection.extent.spatial.bboxes[0]
        assert item.bbox is not None
        assert west <= item.bbox[0] <= item.bbox[2] <= east
        assert south <= item.bbox[1] <= item.bbox[3] <= north
        assert set(item.assets) <= set(collection.item_assets)
    for collection in root.get_collections():
        assert validity.collection_problems(collection.to_dict(include_self_link=False)) == []
    return root


def test_pystac_walks_from_the_root_to_every_item(catalogued: Ledger, tmp_path: Path) -> None:
    items = items_of(catalogued)
    done = catalog.rebuild(catalogued.store, DirectoryTarget(tmp_path), shipped())
    assert done == catalog.PublishResult(4, 4, 3, 2)
    root = require_crawlable(tmp_path, items)
    assert {one.id: sorted(day.title or "" for day in one.get_children()) for one in root.get_collections()} == {
        "nodd-gfs": ["2026-07-26", "2026-07-27"], "nodd-mrms": ["2026-11-14"],
    }  # fmt: skip
    for links in (json.loads(data)["links"] for data in files_in(tmp_path).values()):
        assert all("title" in link for link in links if link["rel"] in ("child", "item"))
        assert not any(link["href"].startswith("/") for link in links)


def test_items_published_one_by_one_give_the_files_of_a_rebuild(
    catalogued: Ledger, source: MemorySource, tmp_path: Path
) -> None:
    one_by_one, rebuilt = tmp_path / "one", tmp_path / "all"
    with Ledger(catalogued.store.url) as publishing:
        declare(publishing, IngestSettings(datasets=shipped(), source=source, catalog=DirectoryTarget(one_by_one)))
        for item_id in items_of(publishing):
            publishing.submit(catalog.PUBLISH, {"item_id": item_id, "dataset": "gfs"}, queue=catalog.PUBLISH_QUEUE)
        publishing.run_until_idle()
    catalog.rebuild(catalogued.store, DirectoryTarget(rebuilt), shipped())
    assert files_in(one_by_one) == files_in(rebuilt)
    assert catalog.rebuild(catalogued.store, DirectoryTarget(one_by_one), shipped()).written == 0


def test_an_item_is_reachable_when_its_run_ends(ledger: Ledger, source: MemorySource, tmp_path: Path) -> None:
    with Ledger(ledger.store.url) as publishing:
        declare(publishing, IngestSettings(datasets=shipped(), source=source, catalog=DirectoryTarget(tmp_path)))
        for number, one in enumerate(OBJECTS, start=1):
            announce(publishing, source, [one])
            publishing.run_until_idle()
            require_crawlable(tmp_path, items_of(publishing))
            assert len(items_of(publishing)) == number


def test_a_lost_part_is_written_again(catalogued: Ledger, tmp_path: Path) -> None:
    target = DirectoryTarget(tmp_path)
    catalog.rebuild(catalogued.store, target, shipped())
    whole = files_in(tmp_path)
    for path in whole:
        (tmp_path / path).unlink()
        catalog.rebuild(catalogued.store, target, shipped())
        assert files_in(tmp_path) == whole


def test_a_rebuild_unlinks_a_day_without_items_and_shrinks_the_extent(catalogued: Ledger, tmp_path: Path) -> None:
    target = DirectoryTarget(tmp_path)
    catalog.rebuild(catalogued.store, target, shipped())
    before = json.loads((tmp_path / ROOT / "gfs/collection.json").read_text(encoding="utf-8"))
    with catalogued.store.transaction() as transaction:
        transaction.execute("DELETE FROM nodd_items WHERE href LIKE '%/gfs/2026/208/%'")
    catalog.rebuild(catalogued.store, target, shipped())
    after = json.loads((tmp_path / ROOT / "gfs/collection.json").read_text(encoding="utf-8"))
    days = [[link["href"] for link in one["links"] if link["rel"] == "child"] for one in (before, after)]
    assert days == [["./2026/207/catalog.json", "./2026/208/catalog.json"], ["./2026/207/catalog.json"]]
    assert after["extent"]["temporal"] != before["extent"]["temporal"]
    require_crawlable(tmp_path, items_of(catalogued))


def test_threads_that_publish_at_once_lose_no_link(catalogued: Ledger, tmp_path: Path) -> None:
    items = items_of(catalogued)
    several = [catalog.StaticCatalog(catalogued.store, DirectoryTarget(tmp_path), shipped()) for _ in range(2)]
    with ThreadPoolExecutor(8) as threads:
        jobs = [threads.submit(several[n % 2].publish, item_id) for n, item_id in enumerate([*items, *items, *items])]
        assert sum(job.result() for job in jobs) == len(items)
    require_crawlable(tmp_path, items)


class _Stumbling:
    """A target whose first writes of days fail."""

    def __init__(self, target: CatalogTarget, failures: int) -> None:
        self._target, self._left, self._guard = target, failures, threading.Lock()

    def change(self, path: str, edit: Callable[[bytes | None], bytes]) -> bool:
        with self._guard:
            fails = path.endswith("/207/catalog.json") and self._left > 0
            self._left -= fails
        if fails:
            raise StoreUnavailableError("stumbled")
        return self._target.change(path, edit)


def test_a_link_that_another_thread_failed_to_write_is_not_lost(catalogued: Ledger, tmp_path: Path) -> None:
    items = items_of(catalogued)
    publisher = catalog.StaticCatalog(catalogued.store, _Stumbling(DirectoryTarget(tmp_path), 2), shipped())

    def until_it_succeeds(item_id: str) -> int:
        for failures in range(5):
            try:
                publisher.publish(item_id)
            except StoreUnavailableError:
                continue
            return failures
        raise AssertionError

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(until_it_succeeds, items)) == 2
    require_crawlable(tmp_path, items)


def test_a_dataset_that_is_not_known_here_is_named(catalogued: Ledger, tmp_path: Path) -> None:
    others = Datasets({dataset.name: dataset for dataset in shipped() if dataset.name != "mrms"})
    with pytest.raises(InputError) as refused:
        catalog.rebuild(catalogued.store, DirectoryTarget(tmp_path), others)
    assert refused.value.context["dataset"] == "mrms"


# ---------------------------------------------------------------------------------------------------------------------
# S3


@pytest.fixture
def bucket(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> str:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    name = f"catalogue-{uuid4().hex[:8]}"
    cloud.bucket(name)
    return name


def downloaded(cloud: Cloud, bucket: str, prefix: str, directory: Path) -> Path:
    for entry in cloud.s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", ()):
        path = directory / str(entry["Key"]).removeprefix(prefix)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(cloud.s3.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read())
    return directory


def test_a_catalogue_in_s3_is_that_of_a_directory(
    catalogued: Ledger, cloud: Cloud, bucket: str, tmp_path: Path
) -> None:
    target = target_of(f"s3://{bucket}/some/where/", endpoint=cloud.endpoint)
    assert catalog.rebuild(catalogued.store, target, shipped()) == catalog.PublishResult(4, 4, 3, 2)
    assert catalog.rebuild(catalogued.store, target, shipped()) == catalog.PublishResult(4, 0, 0, 0)
    catalog.rebuild(catalogued.store, DirectoryTarget(tmp_path / "directory"), shipped())
    found = downloaded(cloud, bucket, "some/where/", tmp_path / "s3")
    assert files_in(found) == files_in(tmp_path / "directory")
    kinds = {
        path.rpartition("/")[2][:3]: cloud.s3.head_object(Bucket=bucket, Key=f"some/where/{path}")["ContentType"]
        for path in files_in(found)
    }
    assert (kinds.pop("cat"), kinds.pop("col"), set(kinds.values())) == (
        "application/json", "application/json", {"application/geo+json"},
    )  # fmt: skip


def test_writers_of_one_file_in_s3_lose_nothing(cloud: Cloud, bucket: str) -> None:
    def add(number: int) -> bool:
        target = S3Target(bucket, "", endpoint=cloud.endpoint)
        return target.change("numbers.json", lambda before: json.dumps([*json.loads(before or b"[]"), number]).encode())

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(add, range(12)))
    found = cloud.s3.get_object(Bucket=bucket, Key="numbers.json")["Body"].read()
    assert sorted(json.loads(found)) == list(range(12))


def test_a_bucket_that_does_not_exist_is_out_of_reach(cloud: Cloud, bucket: str) -> None:
    target = S3Target(f"no-{bucket}", "", endpoint=cloud.endpoint)
    with pytest.raises(StoreUnavailableError):
        target.change("a.json", lambda _before: b"{}")


def test_a_place_without_a_bucket_is_refused() -> None:
    with pytest.raises(InputError):
        target_of("s3://")


def test_an_extent_around_boxes_some_of_which_cross_the_antimeridian() -> None:
    def extent(bbox: list[float] | None, hour: int) -> Extent:
        item = {"properties": {"datetime": f"2026-07-26T{hour:02}:00:00Z"}, **({"bbox": bbox} if bbox else {})}
        return Extent.of(item, f"{ROOT}/gfs/2026/207")

    east, across, unknown = extent([100, -10, 150, 20], 3), extent([170, 50, -160, 70], 1), extent(None, 7)
    assert east.joined(across).bbox == (-180.0, -10, 180.0, 70)
    assert east.joined(unknown).bbox == (100, -10, 150, 20)
    assert unknown.joined(unknown).bbox is None
    whole = east.joined(across).joined(unknown)
    assert (whole.start, whole.end) == ("2026-07-26T01:00:00Z", "2026-07-26T07:00:00Z")
    assert whole.days == frozenset({"2026/207"})
