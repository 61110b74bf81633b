"""`nodd-replay` by mode, and the drain of dead letters: the same items, one record, and provenance that is linked."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Ledger
from holdfast.nodd import ingest, provenance, samples
from holdfast.nodd.admission import DECLARED, FeedMessage, admit
from holdfast.nodd.dataset import shipped
from holdfast.nodd.drain import Drain
from holdfast.nodd.ingest import IngestSettings, declare
from holdfast.nodd.queues import Queue
from holdfast.nodd.records import broken_rules
from holdfast.store import Store
from tests.cli.commands import holdfast
from tests.nodd.aws import Cloud
from tests.nodd.ingesting import BUCKET, REFERENCE, records
from tests.nodd.messages import event, record
from tests.nodd.objects import MemorySource
from tests.nodd.replaying import (
    ONCE,
    REPAIR,
    SINCE,
    appear,
    contents_of_application,
    data_of,
    failed,
    items,
    key_of,
    kinds,
    lineage,
    notice,
    replay,
    texts,
    tried_once,
    undisturbed,
    yesterday,
)
from tests.nodd.replaying import no_variables as no_variables  # noqa: PLC0414 - a fixture


@pytest.fixture
def ledger(ledger_url: str, source: MemorySource) -> Iterator[Ledger]:
    with tried_once(ledger_url, source) as ledger:
        yield ledger


# ---------------------------------------------------------------------------------------------------------------------
# Modes


@pytest.mark.req("K-51")
def test_a_backfill_is_on_record_as_one_and_ends_in_the_same_items(
    ledger: Ledger, source: MemorySource, tmp_path: Path
) -> None:
    failed(ledger, range(3, 5))
    appear(source, range(3, 5))
    done = replay(ledger, "run", "--dataset", "gfs", *SINCE, "--mode", "backfill", "--confirm").json
    assert (done["replayed"], done["mode"]) == (2, "backfill")
    first, last = sorted(ledger.job(row["ext_job_id"]).run_at for row in records(ledger))
    assert last - first == timedelta(milliseconds=10)  # one by one, at the rate of backfills in dev
    time.sleep(max(0.0, (last - ledger.store.now()).total_seconds()))
    ledger.run_until_idle()
    assert [(row["status"], row["replay_reason"]) for row in records(ledger)] == [("succeeded", "backfill")] * 2
    assert items(ledger.store) == undisturbed(ledger, tmp_path, range(3, 5))[0]


@pytest.mark.req("K-51", "K-58")
def test_a_unit_done_by_the_same_version_is_a_replay_hit(ledger: Ledger, source: MemorySource) -> None:
    appear(source, range(3, 5))
    admit(ledger.store, [notice(ledger.store, hour) for hour in range(3, 5)], shipped())
    ledger.run_until_idle()
    before = contents_of_application(ledger.store)
    for mode in ((), ("--mode", "repair-and-replace")):
        status = ("--status", "failed,succeeded") if not mode else ("--status", "succeeded")
        answer = replay(ledger, "run", "--dataset", "gfs", *SINCE, *status, *mode, "--confirm").json
        assert (answer["replayed"], answer["state"]) == (0, "done")
        seen = replay(ledger, "select", "--dataset", "gfs", *SINCE, *status[:2]) if not mode else None
        assert seen is None or seen.json["skipped"] == {"replay_hit": 2}
    assert ledger.run_until_idle() == 0
    assert contents_of_application(ledger.store) == before


@pytest.mark.req("K-02", "K-17", "K-44", "K-45", "K-51", "K-57", "K-64")
def test_a_succeeded_unit_is_replaced_by_a_later_version_in_the_same_item_and_record(
    ledger: Ledger, source: MemorySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    appear(source, range(3, 5))
    admit(ledger.store, [notice(ledger.store, hour) for hour in range(3, 5)], shipped())
    ledger.run_until_idle()
    first, items_before, before = records(ledger), items(ledger.store), kinds(ledger.store)

    monkeypatch.setattr(ingest, "DECLARED", msgspec.structs.replace(DECLARED, version="1.1.0"))
    with Ledger(ledger.store.url) as later:
        declare(later, IngestSettings(datasets=shipped(), source=source, retry=ONCE))
        later.run_until_idle()  # declares what it does
        done = replay(ledger, "run", *REPAIR, "--status", "succeeded").json
        assert (done["replayed"], done["state"]) == (2, "done")
        # Until it is done, the record is unchanged.
        assert records(ledger) == first
        assert later.run_until_idle() == 2
        again = replay(ledger, "run", *REPAIR, "--status", "succeeded").json
        assert (again["replayed"], again["passed_over"]) == (0, {"already_replaced": 2, "replay_hit": 2})

    ended = records(ledger)
    assert items(ledger.store) == items_before
    assert [row["stac_status"] for row in ended] == ["no-op"] * 2
    for old, new in zip(first, ended, strict=True):
        assert (new["wal_id"], new["created_at"], new["stac_item_id"]) == (
            old["wal_id"], old["created_at"], old["stac_item_id"],
        )  # fmt: skip
        assert (new["attempts"], new["version"] > old["version"]) == (old["attempts"] + 1, True)
        assert new["ingest_run_id"] == f"{new['wal_id']}/{new['ext_job_id']}.1"
        assert list(broken_rules(texts(new), shipped())) == []
        shown = replay(ledger, "inspect", new["wal_id"], "--show-fields", "replaces").json
        assert (shown["job_id"], shown["replaces"]) == (new["ext_job_id"], old["ext_job_id"])

    # New provenance, linked to the existing one, and no edge twice.
    added = kinds(ledger.store) - before
    assert added == {"activity": 2, "wasInformedBy": 2, "used": 2, "openlineage": 2}
    assert before - kinds(ledger.store) == Counter()
    document = provenance.document(lineage(ledger.store))
    for new in ended:
        name = f"unit:{new['wal_id']}-{done['run_id']}"
        activity = document["activity"][name]
        assert (activity["nodd:replay_run_id"], activity["nodd:replay_mode"]) == (done["run_id"], "repair-and-replace")
        assert activity["nodd:original_run"] == f"{new['wal_id']}/1"
        links = {"prov:informed": name, "prov:informant": f"unit:{new['wal_id']}"}
        assert links in document["wasInformedBy"].values()
    assert holdfast("check", "--db", ledger.store.url, "--json").json["ok"] is True


@pytest.mark.req("K-36", "K-51")
def test_a_quarantined_unit_is_replaced_once_its_object_is_corrected(
    ledger: Ledger, source: MemorySource, tmp_path: Path
) -> None:
    source.put(BUCKET, key_of(3), b"x" * 50)
    admit(ledger.store, [notice(ledger.store, 3)], shipped())
    ledger.run_until_idle()
    [old] = records(ledger)
    assert old["status"] == "quarantined"
    assert replay(ledger, "select", "--dataset", "gfs", *SINCE, "--status", "failed,quarantined").json["skipped"] == {
        "quarantined": 1
    }
    appear(source, range(3, 4))
    done = replay(ledger, "run", *REPAIR, "--status", "quarantined").json
    assert done["replayed"] == 1
    assert ledger.run_until_idle() == 1

    [new] = records(ledger)
    assert (new["wal_id"], new["status"], new["attempts"], new["stac_status"]) == (
        old["wal_id"], "succeeded", 2, "created",
    )  # fmt: skip
    assert items(ledger.store) == undisturbed(ledger, tmp_path, range(3, 4))[0]
    # The former error stays in the record.
    kept = ("last_error_code", "last_error_message")
    assert [new[name] for name in kept] == [old[name] for name in kept] == [
        "integrity_size_too_small", "Quarantine: size too small",
    ]  # fmt: skip


@pytest.mark.req("K-02", "K-50")
def test_a_superseded_record_is_not_replayed(ledger: Ledger, source: MemorySource) -> None:
    first, second = data_of(3), data_of(3) + samples.grib2(REFERENCE, 3, parameter=1)
    for sequencer, data in (("0A", first), ("0B", second)):
        etag = source.put(BUCKET, key_of(3), data)
        body = event(record(sequencer=sequencer, eTag=etag, size=len(data)))
        admit(ledger.store, [FeedMessage(body)], shipped())
    ledger.run_until_idle()
    before, items_before = records(ledger), items(ledger.store)
    assert [(row["status"], row["last_error_code"]) for row in before] == [
        ("quarantined", "superseded"),
        ("succeeded", None),
    ]
    assert replay(ledger, "run", *REPAIR, "--status", "quarantined").json["replayed"] == 1
    assert ledger.run_until_idle() == 1
    assert (records(ledger), items(ledger.store)) == (before, items_before)


# ---------------------------------------------------------------------------------------------------------------------
# Dead letters


@pytest.fixture
def dead(cloud: Cloud) -> Queue:
    return Queue(cloud.queue()[0], endpoint=cloud.endpoint)


def write(store: Store[Any], sequencer: str, etag: str) -> str:
    at = yesterday(store).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return event(record(sequencer=sequencer, eTag=etag, eventTime=at))


@pytest.mark.req("K-33", "K-56")
def test_a_dead_letter_is_about_the_last_write_of_its_object(ledger: Ledger, dead: Queue) -> None:
    for sequencer, etag in (("0A", "a" * 32), ("0B", "b" * 32)):
        admit(ledger.store, [FeedMessage(write(ledger.store, sequencer, etag))], shipped())
        ledger.run_until_idle()
    assert [(row["ext_generation"], row["status"]) for row in records(ledger)] == [(1, "quarantined"), (2, "failed")]
    both = (
        json.loads(write(ledger.store, "0A", "a" * 32))["Records"]
        + json.loads(write(ledger.store, "0B", "b" * 32))["Records"]
    )
    dead.send([event(*both)])
    done = Drain(ledger.store, dead, shipped(), actor="ann", reason="INC-7", wait_s=0).run()
    assert (done.fates, done.deleted) == ({"replayed": 1}, 1)
    assert [(row["status"], row["replay_reason"]) for row in records(ledger)] == [
        ("quarantined", None),
        ("pending", "dlq-drain"),
    ]


@pytest.mark.req("K-56")
def test_a_dead_letter_of_an_unknown_write_is_not_matched_with_the_write_before(
    ledger: Ledger, source: MemorySource, dead: Queue
) -> None:
    data = data_of(3)
    source.put(BUCKET, key_of(3), data)
    admit(ledger.store, [FeedMessage(write(ledger.store, "0A", hashlib.md5(data, usedforsecurity=False).hexdigest()))],
          shipped())  # fmt: skip
    ledger.run_until_idle()
    assert [row["status"] for row in records(ledger)] == ["succeeded"]
    later, known = (
        json.loads(write(ledger.store, *values))["Records"] for values in (("0B", "b" * 32), ("0A", "a" * 32))
    )
    dead.send([event(*later, *known)])
    drain = Drain(ledger.store, dead, shipped(), actor="ann", reason="INC-7", wait_s=0)
    done = drain.run(limit=1)
    assert (done.fates, done.deleted) == ({"uncorrelated": 1}, 0)
    assert [row["ext_generation"] for row in records(ledger)] == [1]


@pytest.mark.req("K-45", "K-56", "K-57")
def test_a_drain_records_provenance_whatever_its_reason_is(ledger: Ledger, source: MemorySource, dead: Queue) -> None:
    failed(ledger, range(3, 4))
    appear(source, range(3, 4))
    dead.send([notice(ledger.store, 3).body])
    done = Drain(ledger.store, dead, shipped(), actor="ann", reason="replay replay-0: INC-7", wait_s=0).run()
    assert done.fates == {"replayed": 1}
    assert ledger.run_until_idle() == 1
    [row] = records(ledger)
    assert row["status"] == "succeeded"
    document = provenance.document(lineage(ledger.store))
    activity = document["activity"][f"unit:{row['wal_id']}-{done.run_id}"]
    assert activity == {
        "prov:type": "nodd:Replay",
        "nodd:wal_id": row["wal_id"],
        "nodd:replay_mode": "dlq",
        "nodd:replay_reason": "dlq-drain",
        "nodd:replay_run_id": done.run_id,
        "nodd:original_run": f"{row['wal_id']}/1",
    }
