"""Files of one observation: each has an item, the later supersedes the earlier, in whatever order they come.

Invariants: the objects are NetCDF-4 files in memory, under keys as GOES has them; only the time of creation differs.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast import Ledger
from holdfast.audit.check.runner import check as check_ledger
from holdfast.engine.worker.retry import RetryPolicy, Strategy
from holdfast.nodd import observations, samples, stac, validity
from holdfast.nodd.admission import FeedMessage, admit
from holdfast.nodd.catalog_targets import DirectoryTarget
from holdfast.nodd.check.runner import check
from holdfast.nodd.dataset import shipped
from holdfast.nodd.ingest import IngestSettings, declare
from holdfast.store import Submission
from tests.nodd.ingesting import records
from tests.nodd.messages import event, record
from tests.nodd.objects import MemorySource
from tests.support.forkserver import ForkServer, shared_server

pytest.importorskip("h5py")

BUCKET = "noaa-goes19"
START, END = datetime(2026, 11, 14, 0, 0, 21, tzinfo=UTC), datetime(2026, 11, 14, 0, 9, 52, 900_000, tzinfo=UTC)
DATA = samples.goes_file(START, END, bbox=(-156.3, -81.33, 6.3, 81.33))
KEY = "ABI-L2-CMIPF/2026/318/00/OR_ABI-L2-CMIPF-M6C{channel}_G19_s20263180000210_e20263180009529_c{created}.nc"
CREATED = ("20263180009597", "20263180109597", "20263190009597")
ORDERS = list(itertools.permutations(CREATED))
AT_ONCE = RetryPolicy(strategy=Strategy.IMMEDIATE, max_attempts=5)


def announce(
    ledger: Ledger, source: MemorySource, created: str, *, channel: str = "13", data: bytes = DATA, **fields: Any
) -> None:
    key = KEY.format(channel=channel, created=created)
    etag = source.put(BUCKET, key, data)
    body = event(record(key=key, bucket=BUCKET, size=len(data), **{"eTag": etag, **fields}))
    assert [one.fate for one in admit(ledger.store, [FeedMessage(body)], shipped())] == ["admitted"]


def items(ledger: Ledger) -> dict[str, dict[str, Any]]:
    """Return the items by the time of creation that their keys name."""
    with ledger.store.reading() as reading:
        rows = reading.query("SELECT item, content FROM nodd_items", {})[1]
    found = [json.loads(item) for item, _ in rows]
    assert [stac.content_digest(item) for item in found] == [content for _, content in rows]
    assert [problem for item in found for problem in validity.problems(item)] == []
    return {item["assets"]["data"]["title"][-17:-3]: item for item in found}


def marks(ledger: Ledger) -> dict[str, tuple[bool, str | None, str | None]]:
    """Return for each file whether it is deprecated, and which came before and after it."""
    found = items(ledger)
    names = {f"./{item['id']}.json": created for created, item in found.items()}

    def linked(item: dict[str, Any], relation: str) -> str | None:
        hrefs = [link["href"] for link in item["links"] if link["rel"] == relation]
        assert len(hrefs) <= 1
        return names[hrefs[0]] if hrefs else None

    return {
        created: (
            item["properties"].get("deprecated", False),
            linked(item, "predecessor-version"),
            linked(item, "successor-version"),
        )
        for created, item in sorted(found.items())
    }


ONE, TWO, THREE = CREATED
MARKS = {ONE: (True, None, TWO), TWO: (True, ONE, THREE), THREE: (False, TWO, None)}


@pytest.mark.req("K-44")
@pytest.mark.parametrize("order", ORDERS, ids=["-".join(str(CREATED.index(one)) for one in order) for order in ORDERS])
def test_the_later_file_supersedes_in_whatever_order_they_come(
    ledger: Ledger, source: MemorySource, order: tuple[str, ...]
) -> None:
    for created in order:
        announce(ledger, source, created)
        assert ledger.run_until_idle() == 1
    assert marks(ledger) == MARKS
    rows = {row["object_uri"][-17:-3]: row for row in records(ledger)}
    assert [rows[created]["status"] for created in CREATED] == ["succeeded"] * 3
    assert [rows[created]["ext_supersedes"] for created in CREATED] == [
        None, rows[ONE]["wal_id"], rows[TWO]["wal_id"],
    ]  # fmt: skip
    # None of them is fenced: each is an object of its own, and can be replayed.
    assert [rows[created]["ext_superseded_by"] for created in CREATED] == [None] * 3


def test_files_of_different_observations_do_not_affect_each_other(ledger: Ledger, source: MemorySource) -> None:
    announce(ledger, source, ONE, channel="13")
    announce(ledger, source, TWO, channel="14")
    ledger.run_until_idle()
    assert marks(ledger) == {ONE: (False, None, None), TWO: (False, None, None)}


@pytest.mark.req("K-44")
def test_a_mark_is_a_change_of_the_earlier_item_and_of_no_other(ledger: Ledger, source: MemorySource) -> None:
    announce(ledger, source, ONE)
    ledger.run_until_idle()
    first = items(ledger)[ONE]["properties"]
    announce(ledger, source, TWO)
    ledger.run_until_idle()
    second = items(ledger)
    assert second[ONE]["properties"]["created"] == first["created"]
    assert second[ONE]["properties"]["updated"] == second[TWO]["properties"]["updated"] > first["updated"]
    announce(ledger, source, THREE)
    ledger.run_until_idle()
    assert items(ledger)[ONE] == second[ONE]


def test_an_overwritten_file_keeps_its_place(ledger: Ledger, source: MemorySource) -> None:
    for created in CREATED:
        announce(ledger, source, created, sequencer="0A")
        ledger.run_until_idle()
    other = samples.goes_file(START, END, bbox=(-150.0, -80.0, 0.0, 80.0))
    key = KEY.format(channel="13", created=TWO)
    etag = source.put(BUCKET, key, other)
    body = event(record(key=key, bucket=BUCKET, size=len(other), eTag=etag, sequencer="0B"))
    admit(ledger.store, [FeedMessage(body)], shipped())
    ledger.run_until_idle()
    assert marks(ledger) == MARKS
    assert items(ledger)[TWO]["bbox"] == [-150.0, -80.0, 0.0, 80.0]


@pytest.mark.req("K-44", "K-50")
def test_a_superseded_file_that_is_processed_again_is_a_no_op(ledger: Ledger, source: MemorySource) -> None:
    for created in (TWO, ONE):
        announce(ledger, source, created)
        ledger.run_until_idle()
    before = items(ledger)
    with ledger.store.transaction() as transaction:
        jobs = transaction.lists.jobs(limit=10)
        transaction.jobs.submit([
            Submission(operation=job.operation, payload=job.payload or "", client="nodd", key=f"{job.key}#again",
                       queue=job.queue, replaces=job.job_id)
            for job in jobs
        ])  # fmt: skip
    assert ledger.run_until_idle() == 2
    assert items(ledger) == before
    assert [row["stac_status"] for row in records(ledger)] == ["no-op"] * 2


@pytest.mark.req("K-44")
def test_files_catalogued_at_the_same_moment_are_linked(
    ledger: Ledger, source: MemorySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    meet, read = threading.Barrier(3, timeout=20), observations.files_of
    first, reads = iter(range(3)), []

    def together(*args: Any) -> observations.ObservationFiles | None:
        found = read(*args)
        reads.append(args)
        if next(first, None) is not None:
            meet.wait()  # none of the three has seen another
        return found

    monkeypatch.setattr(observations, "files_of", together)
    with Ledger(ledger.store.url) as crowd:
        declare(crowd, IngestSettings(datasets=shipped(), source=source, retry=AT_ONCE))
        for created in CREATED:
            announce(crowd, source, created)
        crowd.run_until_idle(concurrency=3)
    found = records(ledger)
    assert [row["status"] for row in found] == ["succeeded"] * 3
    # Two were refused, and one of them twice: that costs no attempt.
    assert [row["attempts"] for row in found] == [1, 1, 1]
    assert [row["last_error_code"] for row in found] == [None, None, None]
    assert next(first, None) is None
    assert len(reads) >= 5
    assert marks(ledger) == MARKS
    assert check(ledger.store, shipped()).violations == ()
    assert check_ledger(ledger.store).violations == ()


@pytest.fixture(scope="module")
def children() -> Iterator[ForkServer]:
    with shared_server("tests.nodd.processes") as server:
        yield server


@pytest.mark.req("K-44")
@pytest.mark.parametrize("known", [(), (TWO,)], ids=["both are new", "one is overwritten"])
def test_files_that_two_processes_catalogue_at_the_same_moment_cost_one_attempt_each(
    ledger: Ledger, source: MemorySource, children: ForkServer, tmp_path: Path, known: tuple[str, ...]
) -> None:
    for created in known:
        announce(ledger, source, created, sequencer="0A")
        ledger.run_until_idle()
    other = samples.goes_file(START, END, bbox=(-150.0, -80.0, 0.0, 80.0))
    for created in (ONE, TWO):
        announce(ledger, source, created, data=other, sequencer="0B")
    objects, meet = tmp_path / "objects", tmp_path / "meet"
    meet.mkdir()
    for (bucket, key), data in source.held.items():
        path = objects / bucket / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    given = {"url": ledger.store.url, "objects": str(objects), "meet": str(meet)}
    pair = [children.spawn("tests.nodd.processes:observer", **given) for _ in range(2)]
    assert [child.wait(30) for child in pair] == [0, 0], children.log
    # Each process has read the family before either wrote, and one of them once more.
    assert sorted(int(path.read_text()) for path in meet.iterdir()) == [1, 2]
    found = records(ledger)
    assert [(row["status"], row["attempts"]) for row in found] == [("succeeded", 1)] * (2 + len(known))
    assert marks(ledger) == {ONE: (True, None, TWO), TWO: (False, ONE, None)}
    assert [item["bbox"] for item in items(ledger).values()] == [[-150.0, -80.0, 0.0, 80.0]] * 2
    assert check(ledger.store, shipped()).violations == ()
    assert check_ledger(ledger.store).violations == ()


def test_a_write_overtaken_by_a_later_generation_is_refused(
    ledger: Ledger, source: MemorySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a change by another file of the observation is staged again in the same attempt."""
    announce(ledger, source, ONE, sequencer="0A")
    read = observations.files_of

    def overtaken(*args: Any) -> observations.ObservationFiles | None:
        found = read(*args)
        monkeypatch.setattr(observations, "files_of", read)
        announce(ledger, source, ONE, sequencer="0B")
        return found

    monkeypatch.setattr(observations, "files_of", overtaken)
    ledger.run_until_idle(concurrency=1)
    first, second = records(ledger)
    assert (first["attempts"], first["last_error_code"], first["stac_item_id"]) == (1, "effect_failed", None)
    assert (second["status"], second["attempts"]) == ("succeeded", 1)
    assert check(ledger.store, shipped()).violations == ()


def test_the_file_of_the_earlier_item_is_published_again(ledger: Ledger, source: MemorySource, tmp_path: Path) -> None:
    with Ledger(ledger.store.url) as publishing:
        declare(publishing, IngestSettings(datasets=shipped(), source=source, catalog=DirectoryTarget(tmp_path)))
        for created in (ONE, TWO):
            announce(publishing, source, created)
            publishing.run_until_idle()
    for created, item in items(ledger).items():
        path = tmp_path / stac.href_of(item)
        assert json.loads(path.read_text(encoding="utf-8")) == item
        other = next(link["href"] for link in item["links"] if link["rel"].endswith("-version"))
        assert (path.parent / other).is_file(), created
