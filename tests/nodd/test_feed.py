"""The feed against a real server of S3, SNS and SQS: nothing is lost, and nothing done twice."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.engine.world import Crash
from holdfast.nodd import rejected, specimens
from holdfast.nodd.dataset import shipped
from holdfast.nodd.feed import Feed
from holdfast.nodd.queues import Queue
from holdfast.store import Store
from tests.nodd.aws import Cloud
from tests.nodd.messages import GFS, event, record

BUCKET = "noaa-gfs-bdp-pds"
GRIB = specimens.grib2(datetime(2026, 7, 26, tzinfo=UTC), 3)


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")


def queue_of(cloud: Cloud, **how: Any) -> Queue:
    url, _ = cloud.queue(**how)
    return Queue(url, endpoint=cloud.endpoint)


def asked(store: Store[Any], sql: str) -> list[tuple[Any, ...]]:
    with store.reading() as reading:
        return reading.ask(sql, {})[1]


@pytest.mark.parametrize("raw", [False, True], ids=["enveloped", "raw"])
def test_an_object_that_is_written_is_admitted_once(store: Store[Any], cloud: Cloud, raw: bool) -> None:
    queue = queue_of(cloud)
    cloud.bucket(BUCKET)
    cloud.announce_to(BUCKET, queue.url, raw=raw)
    cloud.s3.put_object(Bucket=BUCKET, Key=GFS, Body=GRIB)
    feed = Feed(store, queue, shipped())
    fates: dict[str, int] = {}
    for _ in range(4):
        for fate, n in feed.poll(wait_s=0).fates.items():
            fates[fate] = fates.get(fate, 0) + n
    # The first message of a new configuration is a test event.
    assert {name: n for name, n in fates.items() if name != "ignored"} == {"admitted": 1}
    assert asked(store, "SELECT dataset, status FROM nodd_wal_records") == [("gfs", "pending")]
    assert int(queue.attributes()["ApproximateNumberOfMessages"]) == 0


@pytest.mark.req("K-30")
def test_a_crash_between_commit_and_delete_is_a_duplicate(store: Store[Any], cloud: Cloud) -> None:
    queue = queue_of(cloud, visibility_s=0)
    queue.send([event(record())])

    def crash(point: str) -> None:
        if point == "after_admission":
            raise Crash(point)

    with pytest.raises(Crash):
        Feed(store, queue, shipped(), reach=crash).poll(wait_s=0)
    again = Feed(store, queue, shipped()).poll(wait_s=0)
    assert (again.received, dict(again.fates), again.left) == (1, {"duplicate": 1}, 0)
    assert asked(store, "SELECT count(*) FROM nodd_units") == [(1,)]
    assert Feed(store, queue, shipped()).poll(wait_s=0).received == 0


def test_a_body_that_is_rejected_is_kept_and_leaves_the_queue(store: Store[Any], cloud: Cloud) -> None:
    queue = queue_of(cloud)
    queue.send(["garbage", event(record())])
    fates: dict[str, int] = {}
    for _ in range(3):
        fates |= Feed(store, queue, shipped()).poll(wait_s=0).fates
    assert fates == {"admitted": 1, "rejected": 1}
    [kept] = rejected.listed(store)
    assert (kept.body, kept.code, kept.times, kept.replayed_at) == ("garbage", "not_json", 1, None)
    # Still not understood: it stays, and nothing is lost.
    assert [str(found.fate) for found in rejected.replay(store, shipped(), actor="ann")] == ["rejected"]


def test_twenty_five_messages_are_taken_in_batches_of_ten(store: Store[Any], cloud: Cloud) -> None:
    queue = queue_of(cloud)
    keys = [GFS.replace("f003", f"f{n:03}") for n in range(25)]
    queue.send([event(record(key=key)) for key in keys])
    feed = Feed(store, queue, shipped())
    received = []
    while (polled := feed.poll(wait_s=0)).received:
        received.append(polled.received)
    assert (sum(received), max(received) <= 10) == (25, True)
    assert asked(store, "SELECT count(*) FROM nodd_units") == [(25,)]
