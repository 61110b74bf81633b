"""Admission: each notice is a unit once, whatever is delivered twice, late, together or garbled."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from holdfast.core.commands import Fail
from holdfast.core.machines import JobState
from holdfast.nodd.admission import Admitted, FeedMessage, admit, admit_notices
from holdfast.nodd.dataset import shipped
from holdfast.nodd.notices import listed_notice
from holdfast.nodd.units import Fate
from holdfast.store import Lease, Store
from tests.nodd.ingesting import queried
from tests.nodd.messages import CHUNK, GFS, chunk, enveloped, event, record

pytestmark = pytest.mark.attack("input")

URI = f"s3://noaa-gfs-bdp-pds/{GFS}"


def taken(store: Store[Any], *bodies: str) -> list[Admitted]:
    return admit(store, [FeedMessage(body, f"m{n}") for n, body in enumerate(bodies)], shipped())


def fates(store: Store[Any], *bodies: str) -> list[str]:
    return [str(found.fate) for found in taken(store, *bodies)]


def states(store: Store[Any]) -> list[tuple[str, str, int]]:
    sql = "SELECT object_uri, status, ext_generation FROM nodd_wal_records ORDER BY ext_generation, object_uri"
    return [(uri, status, generation) for uri, status, generation in queried(store, sql)]


@pytest.mark.req("K-01", "K-02", "K-10")
def test_a_repeated_notice_is_one_unit(store: Store[Any]) -> None:
    body = enveloped(event(record()))
    [first] = taken(store, body)
    assert first == Admitted(
        fate=Fate.ADMITTED, dataset="gfs", object_uri=URI, wal_id="d1e6671d-0363-5ed1-9595-12646b8bdf50",
        message_id="m0",
    )  # fmt: skip
    assert fates(store, body, event(record())) == ["duplicate", "duplicate"]
    assert states(store) == [(URI, "pending", 1)]
    [[job_id, queue]] = queried(store, "SELECT job_id, queue FROM holdfast_jobs")
    [[key]] = queried(store, "SELECT key FROM holdfast_calls")
    assert (queue, key) == ("gfs", first.wal_id)
    assert queried(store, "SELECT fate, n FROM nodd_counts ORDER BY fate") == [("admitted", 1), ("duplicate", 2)]
    with store.reading() as reading:
        assert [row.event for row in reading.journal.of(job_id)] == ["submit"]


def test_duplicates_within_a_batch_are_one_unit(store: Store[Any]) -> None:
    assert fates(store, event(record(), record()), event(record())) == ["admitted", "duplicate", "duplicate"]
    assert len(states(store)) == 1


@pytest.mark.req("K-02", "X-10")
def test_a_later_write_is_a_generation_of_its_own_and_fences_the_earlier(store: Store[Any]) -> None:
    [first] = taken(store, event(record(sequencer="0A", eTag="one")))
    [second] = taken(store, event(record(sequencer="0B", eTag="two")))
    assert (second.fate, second.wal_id != first.wal_id) == (Fate.ADMITTED, True)
    assert states(store) == [(URI, "quarantined", 1), (f"{URI}#etag=two", "pending", 2)]
    assert queried(store, "SELECT generation, supersedes, superseded_by FROM nodd_units ORDER BY generation") == [
        (1, None, second.wal_id),
        (2, first.wal_id, None),
    ]
    assert queried(store, "SELECT quarantine_code FROM holdfast_jobs ORDER BY job_id") == [("superseded",), (None,)]


def test_an_earlier_write_that_comes_late_is_superseded(store: Store[Any]) -> None:
    assert fates(store, event(record(sequencer="0B", eTag="two"))) == ["admitted"]
    assert fates(store, event(record(sequencer="0A", eTag="one"))) == ["superseded"]
    assert states(store) == [(URI, "pending", 1)]


@pytest.mark.parametrize("order", [("0A", "0B"), ("0B", "0A")])
def test_two_writes_in_one_batch_are_one_unit_of_the_later(store: Store[Any], order: tuple[str, str]) -> None:
    found = fates(store, *(event(record(sequencer=sequencer, eTag=sequencer)) for sequencer in order))
    assert dict(zip(order, found, strict=True)) == {"0A": "superseded", "0B": "admitted"}
    assert queried(store, "SELECT fate, n FROM nodd_counts ORDER BY fate") == [("admitted", 1), ("superseded", 1)]
    assert states(store) == [(URI, "pending", 1)]
    assert queried(store, "SELECT etag FROM nodd_units") == [("0B",)]


@pytest.mark.req("K-30")
def test_a_notice_of_a_failed_unit_makes_it_pending_again(store: Store[Any]) -> None:
    taken(store, event(record()))
    with store.transaction() as transaction:
        [attempt] = transaction.executions.claim(Lease(owner="w", queues=("gfs",), n=1, seconds=30))
        failure = Fail(token=attempt.execution.lease_token, code="io_error", message="down")
        transaction.executions.move([(attempt, failure)], actor="w")
    assert states(store) == [(URI, "failed", 1)]
    [again] = taken(store, event(record()))
    assert (again.fate, "retried" in (again.reason or "")) == (Fate.DUPLICATE, True)
    assert states(store) == [(URI, "pending", 1)]


@pytest.mark.req("K-30")
@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.QUARANTINED])
def test_a_notice_of_an_ended_unit_changes_nothing(store: Store[Any], state: JobState) -> None:
    from holdfast.core.commands import Complete, Quarantine

    [first] = taken(store, event(record()))
    with store.transaction() as transaction:
        if state == JobState.SUCCEEDED:
            [attempt] = transaction.executions.claim(Lease(owner="w", queues=("gfs",), n=1, seconds=30))
            transaction.executions.move([(attempt, Complete(attempt.execution.lease_token))], actor="w")
        else:
            [job] = transaction.jobs.get_many([1])
            transaction.rulings.rule([(job, Quarantine("governance_hard_fail"))], actor="w")
    versions = queried(store, "SELECT version FROM holdfast_jobs")
    [again] = taken(store, event(record()))
    assert (again.fate, again.wal_id, str(state) in (again.reason or "")) == (Fate.DUPLICATE, first.wal_id, True)
    assert queried(store, "SELECT version FROM holdfast_jobs") == versions


def test_a_sidecar_is_kept_beside_its_object(store: Store[Any]) -> None:
    index = f"{GFS}.idx"
    assert fates(store, event(record(key=index, sequencer="0FF", eTag="new"))) == ["sidecar"]
    assert fates(store, event(record(key=index, sequencer="FE", eTag="old"))) == ["sidecar"]
    assert queried(store, "SELECT sidecar_uri, object_uri, etag, sequencer FROM nodd_sidecars") == [
        (f"{URI}.idx", URI, "new", "FF")
    ]
    assert states(store) == []


def test_a_rejected_body_is_kept_once_and_counted(store: Store[Any]) -> None:
    garbled = "not json \x00 \ud800"
    assert fates(store, garbled, garbled, event(record(), record(size=-1))) == [
        "rejected", "rejected", "admitted", "rejected",
    ]  # fmt: skip
    assert queried(store, "SELECT code, times FROM nodd_rejected ORDER BY code") == [
        ("missing_required_field", 1),
        ("not_json", 2),
    ]
    assert queried(store, "SELECT body FROM nodd_rejected WHERE code = 'not_json'") == [("not json \\x00 \\ud800",)]


def test_ignored_records_are_counted_by_reason(store: Store[Any]) -> None:
    assert fates(store, event(record(key="nobody/knows")), event(record(bucket="elsewhere"))) == ["ignored", "ignored"]
    assert queried(store, "SELECT fate, reason, n FROM nodd_counts ORDER BY reason") == [
        ("ignored", "missing_dataset", 1),
        ("ignored", "unknown_bucket", 1),
    ]


def test_a_chunk_is_a_unit(store: Store[Any]) -> None:
    [found] = taken(store, chunk())
    assert (found.fate, found.dataset) == (Fate.ADMITTED, "nexrad-chunks")
    assert states(store) == [(f"s3://unidata-nexrad-level2-chunks/{CHUNK}", "pending", 1)]


def test_pollers_at_once_admit_each_object_once(store: Store[Any]) -> None:
    keys = [GFS.replace("f003", f"f{n:03}") for n in range(40)]
    found: list[list[str]] = []
    gate = threading.Barrier(4)

    def poll(n: int) -> None:
        gate.wait()
        mine: list[str] = []
        for at in range(0, 40, 10):
            batch = keys[at : at + 10]
            # Each poller got the notices in deliveries of its own: another time, another message.
            mine += fates(store, *(event(record(key=key, eventTime=f"2026-07-26T03:34:4{n}Z")) for key in batch))
        found.append(mine)

    threads = [threading.Thread(target=poll, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(fate for mine in found for fate in mine) == ["admitted"] * 40 + ["duplicate"] * 120
    assert len(states(store)) == 40


@pytest.mark.parametrize("together", [True, False])
def test_without_a_sequencer_a_known_etag_is_not_a_later_write(store: Store[Any], together: bool) -> None:
    etags = ("0" * 32, "1" * 32, "0" * 32, "1" * 32)
    bodies = [event(record(eTag=etag, sequencer=None)) for etag in etags]
    batches = [bodies] if together else [[body] for body in bodies]
    found = [fate for batch in batches for fate in fates(store, *batch)]
    assert found == ["superseded" if together else "admitted", "admitted", "duplicate", "duplicate"]
    last = states(store)[-1]
    assert last == ((URI, "pending", 1) if together else (f"{URI}#etag={'1' * 32}", "pending", 2))


@pytest.mark.req("K-10")
def test_a_listing_admits_the_current_objects(store: Store[Any]) -> None:
    """It has no sequencer either; but it never comes late, so content that returns is a later write."""
    for etag in ("0" * 32, "1" * 32):
        assert fates(store, event(record(eTag=etag, sequencer=None))) == ["admitted"]
    bucket = "noaa-gfs-bdp-pds"
    notice = listed_notice(shipped(), bucket, GFS, size=7, etag="0" * 32, written_at=None)
    assert notice is not None
    assert [str(one.fate) for one in admit_notices(store, [notice], shipped())] == ["admitted"]
    assert [str(one.fate) for one in admit_notices(store, [notice], shipped())] == ["duplicate"]
    assert [generation for _, _, generation in states(store)] == [1, 2, 3]


def test_a_body_is_kept_as_it_came(store: Store[Any]) -> None:
    body = "e\u0301 is not JSON, and not in NFC"
    assert fates(store, body) == ["rejected"]
    assert queried(store, "SELECT body FROM nodd_rejected") == [(body,)]
