"""The feed against a real server of S3, SNS and SQS: nothing is lost, and nothing done twice."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from holdfast import Ledger, Worker
from holdfast.engine.worker.retry import RetryPolicy, Strategy
from holdfast.engine.world import Crash
from holdfast.nodd import rejected, samples
from holdfast.nodd.dataset import shipped
from holdfast.nodd.feed import Feed, PollResult
from holdfast.nodd.ingest import IngestSettings, declare
from holdfast.nodd.objects import ObjectHead, ObjectUnavailableError
from holdfast.nodd.queues import Queue
from holdfast.store import Store
from tests.nodd.aws import Cloud
from tests.nodd.ingesting import queried
from tests.nodd.messages import GFS, event, record
from tests.nodd.objects import MemorySource
from tests.support.forkserver import ForkServer, shared_server
from tests.support.roles import wait_until

BUCKET = "noaa-gfs-bdp-pds"
VISIBLE_S = 4  # long enough that a busy machine has looked before the message is visible again
GRIB = samples.grib2(datetime(2026, 7, 26, tzinfo=UTC), 3)


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")


@pytest.fixture(scope="module")
def processes() -> Iterator[ForkServer]:
    with shared_server("tests.nodd.processes") as server:
        yield server


def queue_of(cloud: Cloud, **how: Any) -> Queue:
    url, _ = cloud.queue(**how)
    return Queue(url, endpoint=cloud.endpoint)


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
    assert queried(store, "SELECT dataset, status FROM nodd_wal_records") == [("gfs", "pending")]
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
    assert queried(store, "SELECT count(*) FROM nodd_units") == [(1,)]
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
    assert queried(store, "SELECT count(*) FROM nodd_units") == [(25,)]


# ---------------------------------------------------------------------------------------------------------------------
# Work before the message is deleted


class Gate(MemorySource):
    """A source whose reads wait until it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.opened = threading.Event(), threading.Event()

    def head(self, bucket: str, key: str) -> ObjectHead | None:
        """Wait, then answer."""
        self.reached.set()
        assert self.opened.wait(30)
        return super().head(bucket, key)


class HalfDown(MemorySource):
    """A source that is down for one of its objects."""

    def head(self, bucket: str, key: str) -> ObjectHead | None:
        """Answer, or fail."""
        if key == GFS:
            raise ObjectUnavailableError("down")
        return super().head(bucket, key)


@contextmanager
def working(url: str, source: MemorySource) -> Iterator[Ledger]:
    """Run a ledger and a worker of it, in threads."""
    with Ledger(url) as ledger:
        declare(
            ledger, IngestSettings(datasets=shipped(), source=source, retry=RetryPolicy(strategy=Strategy.IMMEDIATE))
        )
        worker = Worker(ledger, queues=["gfs"], concurrency=2, poll_s=0.05)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            yield ledger
        finally:
            if isinstance(source, Gate):
                source.opened.set()
            worker.stop()
            thread.join(30)


def held(queue: Queue) -> tuple[int, int]:
    """Return how many messages of a queue are visible, and how many are in flight."""
    attributes = queue.attributes()
    return int(attributes["ApproximateNumberOfMessages"]), int(attributes["ApproximateNumberOfMessagesNotVisible"])


def announced(source: MemorySource, *leads: int) -> list[str]:
    """Write objects, and return the messages that announce them."""
    bodies = []
    for lead in leads:
        key, data = GFS.replace("f003", f"f{lead:03}"), samples.grib2(datetime(2026, 7, 26, tzinfo=UTC), lead)
        bodies.append(event(record(key=key, size=len(data), eTag=source.put(BUCKET, key, data))))
    return bodies


def statuses(store: Store[Any]) -> list[str]:
    return [status for [status] in queried(store, "SELECT status FROM nodd_wal_records ORDER BY object_uri")]


@pytest.mark.req("K-13", "K-31", "K-35")
def test_a_message_is_deleted_only_when_its_work_has_ended(store: Store[Any], ledger_url: str, cloud: Cloud) -> None:
    queue, source = queue_of(cloud), Gate()
    queue.send(announced(source, 3))
    with working(ledger_url, source) as ledger, ThreadPoolExecutor(1) as pool:
        polled = pool.submit(Feed(ledger.store, queue, shipped()).poll_and_process, wait_s=0)
        assert source.reached.wait(30)
        assert (statuses(store), held(queue), polled.done()) == (["in_progress"], (0, 1), False)
        source.opened.set()
        done = polled.result(30)
    assert (done.received, dict(done.fates), done.left) == (1, {"admitted": 1}, 0)
    assert (statuses(store), held(queue)) == (["succeeded"], (0, 0))


@pytest.mark.req("K-31")
def test_a_message_is_kept_invisible_for_as_long_as_the_work_takes(
    store: Store[Any], ledger_url: str, cloud: Cloud
) -> None:
    queue, source = queue_of(cloud), Gate()
    queue.send(announced(source, 3))
    seen = 0
    with working(ledger_url, source) as ledger, ThreadPoolExecutor(1) as pool:
        polled = pool.submit(Feed(ledger.store, queue, shipped()).poll_and_process, wait_s=0, visibility_s=3)
        assert source.reached.wait(30)
        until = time.monotonic() + 3.6  # longer than it would be invisible by itself
        while time.monotonic() < until:
            seen += len(queue.receive(wait_s=0, visibility_s=0))
            time.sleep(0.1)
        source.opened.set()
        assert polled.result(30).left == 0
    assert (seen, statuses(store), held(queue)) == (0, ["succeeded"], (0, 0))


def test_without_a_heartbeat_the_same_message_is_seen_again(cloud: Cloud) -> None:
    """Show that the test before this one can fail."""
    queue = queue_of(cloud)
    queue.send(["x"])
    assert len(queue.receive(wait_s=0, visibility_s=3)) == 1
    assert queue.receive(wait_s=0) == []
    wait_until(lambda: len(queue.receive(wait_s=0)) == 1, 30, "the message is visible again")


@pytest.mark.req("K-13", "K-30", "K-33", "K-36")
def test_a_message_whose_work_fails_reaches_the_dead_letter_queue_and_its_record_names_the_error(
    store: Store[Any], ledger_url: str, cloud: Cloud
) -> None:
    url, dead_url = cloud.queue(dead_after=2)
    assert dead_url is not None
    queue, dead = Queue(url, endpoint=cloud.endpoint), Queue(dead_url, endpoint=cloud.endpoint)
    source = HalfDown()
    bad, good = announced(source, 3, 6)
    queue.send([bad, good, "garbage"])
    with working(ledger_url, source) as ledger:
        feed = Feed(ledger.store, queue, shipped())
        polls: list[PollResult] = []
        while sum(one.received for one in polls) < 3:
            polls.append(feed.poll_and_process(wait_s=0, visibility_s=VISIBLE_S))
        assert sum(one.left for one in polls) == 1
        assert (statuses(store), held(queue)) == (["failed", "succeeded"], (0, 1))
        # It comes again, and its record is tried again within its budget; then it is a dead letter.
        wait_until(lambda: held(queue) == (1, 0), 30, "the message is visible again")
        again = feed.poll_and_process(wait_s=0, visibility_s=1)
        [found] = again.admitted
        assert (str(found.fate), again.left) == ("duplicate", 1)
        assert "retried" in (found.reason or "")
        wait_until(lambda: held(queue) != (0, 1), 30, "the message is visible again")
        assert feed.poll_and_process(wait_s=0, visibility_s=1).received == 0
    assert (held(queue), held(dead)) == ((0, 0), (1, 0))
    assert [one.body for one in dead.receive(wait_s=0)] == [bad]
    assert statuses(store) == ["failed", "succeeded"]


@pytest.mark.req("K-30")
def test_a_message_whose_work_is_quarantined_is_deleted(store: Store[Any], ledger_url: str, cloud: Cloud) -> None:
    queue, source = queue_of(cloud), MemorySource()
    etag = source.put(BUCKET, GFS, GRIB[:-1])
    queue.send([event(record(size=len(GRIB) - 1, eTag=etag))])
    with working(ledger_url, source) as ledger:
        done = Feed(ledger.store, queue, shipped()).poll_and_process(wait_s=0)
    assert (done.left, statuses(store), held(queue)) == (0, ["quarantined"], (0, 0))


def test_a_poll_that_is_stopped_or_times_out_leaves_the_message(store: Store[Any], cloud: Cloud) -> None:
    queue = queue_of(cloud)
    queue.send([event(record())])
    stop = threading.Event()
    feed = Feed(store, queue, shipped(), reach=lambda _point: stop.set())  # and no worker runs
    assert feed.poll_and_process(wait_s=0, visibility_s=0, stop=stop).left == 1
    assert feed.poll_and_process(wait_s=0, visibility_s=0, timeout_s=0).left == 1
    assert (statuses(store), held(queue)) == (["pending"], (1, 0))
    # A poll that was stopped before the message came returns it at once, whatever the visibility timeout.
    for poll in (feed.poll, partial(feed.poll_and_process, visibility_s=300)):
        assert (poll(wait_s=0, stop=stop), held(queue)) == (PollResult(0, {}), (1, 0))
    assert not feed.waiting


@pytest.mark.req("K-30", "K-35")
@pytest.mark.parametrize("die_at", ["after_admission", "after_work", "after_delete"])
def test_a_process_that_is_killed_between_its_work_and_the_delete_has_done_it_once(
    store: Store[Any], ledger_url: str, cloud: Cloud, processes: ForkServer, die_at: str
) -> None:
    queue = queue_of(cloud, visibility_s=1)
    cloud.bucket(BUCKET)
    put = cloud.s3.put_object(Bucket=BUCKET, Key=GFS, Body=GRIB, ACL="public-read")
    queue.send([event(record(size=len(GRIB), eTag=put["ETag"].strip('"')))])
    child = processes.spawn(
        "tests.nodd.processes:acker", url=ledger_url, endpoint=cloud.endpoint, queue=queue.url, die_at=die_at
    )
    assert child.wait(30) == -signal.SIGKILL, processes.log
    everything = (
        "SELECT version, state, attempts FROM holdfast_jobs", "SELECT * FROM nodd_items",
        "SELECT * FROM nodd_provenance ORDER BY record_id",
    )  # fmt: skip
    before = [queried(store, sql) for sql in everything]
    if die_at != "after_admission":  # there its worker may have begun, or not
        assert (statuses(store), sum(held(queue))) == (["succeeded"], 0 if die_at == "after_delete" else 1)
    until = time.monotonic() + 60
    again: Counter[str] = Counter()
    while sum(held(queue)) and time.monotonic() < until:
        again.update(Feed(store, queue, shipped()).poll(wait_s=1).fates)
    assert dict(again) == ({} if die_at == "after_delete" else {"duplicate": 1})
    if die_at != "after_admission":
        assert [queried(store, sql) for sql in everything] == before
        assert [len(rows) for rows in before] == [1, 1, 10]


# ---------------------------------------------------------------------------------------------------------------------
# Failed deletes


def failing(queue: Queue, verb: str, times: int, *, sender_fault: bool) -> list[int]:
    """Let the server refuse the first entry of a batch, so many times; return the sizes of the batches."""
    sizes: list[int] = []
    hidden: list[str] = []

    def hide(params: dict[str, Any], **_: Any) -> None:
        sizes.append(len(params["Entries"]))
        hidden.clear()
        if len(sizes) <= times:
            params["Entries"][0]["ReceiptHandle"] = "nobody's"
            hidden.append(params["Entries"][0]["Id"])

    def tell(parsed: dict[str, Any], **_: Any) -> None:
        successful = [
            one for name in ("Successful", "Failed") for one in parsed.get(name, ()) if one["Id"] not in hidden
        ]
        parsed["Successful"] = successful
        parsed["Failed"] = [{"Id": name, "SenderFault": sender_fault, "Code": "InternalError"} for name in hidden]

    events = queue._client.meta.events
    events.register(f"provide-client-params.sqs.{verb}", hide)
    events.register(f"after-call.sqs.{verb}", tell)
    return sizes


def test_a_failed_delete_is_retried(store: Store[Any], cloud: Cloud) -> None:
    queue = queue_of(cloud)
    queue.send([event(record(key=GFS.replace("f003", f"f{n:03}"))) for n in range(4)])
    sizes = failing(queue, "DeleteMessageBatch", 1, sender_fault=False)
    received = []
    while (polled := Feed(store, queue, shipped()).poll(wait_s=0)).received:
        received.append(polled.received)
        assert polled.left == 0
    # The first batch again for the one that failed; every other batch once.
    assert sizes == [received[0], 1, *received[1:]]
    assert (sum(received), held(queue)) == (4, (0, 0))


@pytest.mark.parametrize("sender_fault, tries", [(False, 3), (True, 1)])
def test_a_message_that_cannot_be_deleted_is_reported_and_delivered_again(
    store: Store[Any], cloud: Cloud, sender_fault: bool, tries: int
) -> None:
    queue = queue_of(cloud, visibility_s=0)
    queue.send([event(record())])
    [message] = queue.receive(wait_s=0)
    sizes = failing(queue, "DeleteMessageBatch", 9, sender_fault=sender_fault)
    assert queue.delete([message]) == [message]
    assert (len(sizes), held(queue)) == (tries, (1, 0))
    assert Feed(store, Queue(queue.url, endpoint=cloud.endpoint), shipped()).poll(wait_s=0).received == 1
