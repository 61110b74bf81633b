"""Ingest end to end on each database: from a notice to an item, its provenance and its record, exactly once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from holdfast import Ledger
from holdfast.nodd import catalog, samples, stac, validity
from holdfast.nodd.catalog_targets import DirectoryTarget
from holdfast.nodd.dataset import shipped
from holdfast.nodd.governance import GovernanceRule, GovernanceRules
from holdfast.nodd.ingest import IngestSettings, declare
from tests.nodd.ingesting import GRIB, REFERENCE, announce, queried, records
from tests.nodd.objects import MemorySource


@pytest.mark.req("K-12", "K-35", "K-40", "K-44", "K-45")
def test_a_notice_becomes_an_item_with_its_provenance(ledger: Ledger, source: MemorySource) -> None:
    announce(ledger, GRIB, source)
    assert ledger.run_until_idle() == 1
    [found] = records(ledger)
    statuses = ("status", "integrity_status", "metadata_status", "stac_status", "provenance_status", "attempts")
    assert [found[name] for name in statuses] == ["succeeded", "ok", "ok", "created", "ok", 1]
    [[item_text, content]] = queried(ledger.store, "SELECT item, content FROM nodd_items")
    item = json.loads(item_text)
    assert validity.problems(item) == []
    assert content == stac.content_digest(item)
    assert (found["stac_item_id"], found["stac_collection_id"]) == (item["id"], "nodd-gfs")
    assert found["stac_item_href"] == f"data/stac/nodd/gfs/2026/207/{item['id']}.json"
    assert item["properties"]["datetime"] == "2026-07-26T03:00:00.000000Z"
    assert item["properties"]["forecast:horizon"] == "PT3H"
    assert item["bbox"] == [-180.0, -90.0, 180.0, 90.0]
    assert item["assets"]["data"]["file:size"] == len(GRIB)
    assert queried(ledger.store, "SELECT kind, count(*) FROM nodd_provenance GROUP BY kind ORDER BY kind") == [
        ("openlineage", 1),
        ("prov", 9),
    ]


@pytest.mark.req("K-44")
def test_an_equal_item_is_a_no_op(ledger: Ledger, source: MemorySource) -> None:
    announce(ledger, GRIB, source)
    ledger.run_until_idle()
    before = (
        queried(ledger.store, "SELECT * FROM nodd_items"),
        queried(ledger.store, "SELECT record_id FROM nodd_provenance"),
    )
    announce(ledger, GRIB, source)
    assert ledger.run_until_idle() == 0
    assert before == (
        queried(ledger.store, "SELECT * FROM nodd_items"),
        queried(ledger.store, "SELECT record_id FROM nodd_provenance"),
    )


@pytest.mark.req("K-02", "X-10")
def test_an_overwritten_object_updates_its_item_and_keeps_when_it_was_created(
    ledger: Ledger, source: MemorySource
) -> None:
    announce(ledger, GRIB, source, sequencer="0A")
    ledger.run_until_idle()
    [[created, updated]] = queried(ledger.store, "SELECT created, updated FROM nodd_items")
    announce(ledger, GRIB + samples.grib2(REFERENCE, 3, parameter=1), source, sequencer="0B")
    ledger.run_until_idle()
    assert [(found["status"], found["stac_status"]) for found in records(ledger)] == [
        ("succeeded", "created"),
        ("succeeded", "updated"),
    ]
    [[created_now, updated_now, generation]] = queried(
        ledger.store, "SELECT created, updated, generation FROM nodd_items"
    )
    assert (created_now, generation) == (created, 2)
    assert updated_now > updated


@pytest.mark.req("K-13", "K-36")
@pytest.mark.parametrize(
    "data, code",
    [
        (GRIB[:-1], "integrity_missing_required_header"),
        (b"", "integrity_size_zero"),
        (b"x" * 50, "integrity_size_too_small"),
    ],
)
def test_a_broken_object_is_quarantined_at_once(ledger: Ledger, source: MemorySource, data: bytes, code: str) -> None:
    announce(ledger, data, source)
    ledger.run_until_idle()
    [found] = records(ledger)
    assert (found["status"], found["last_error_code"], found["attempts"]) == ("quarantined", code, 1)
    assert queried(ledger.store, "SELECT count(*) FROM nodd_items") == [(0,)]


@pytest.mark.req("K-37")
def test_a_governance_hard_fail_is_quarantined_and_never_retried(ledger: Ledger, source: MemorySource) -> None:
    rules = GovernanceRules(rules=(GovernanceRule(id="none-of-it", asks="allowed", datasets=("gfs",), why="a test"),))
    with Ledger(ledger.store.url) as strict:
        declare(strict, IngestSettings(datasets=shipped(), source=source, rules=rules))
        announce(strict, GRIB, source)
        strict.run_until_idle()
        [found] = records(strict)
    assert (found["status"], found["last_error_code"]) == ("quarantined", "governance_hard_fail")
    assert (
        found["last_error_message"] == "Quarantine: none-of-it: a test" or "none-of-it" in found["last_error_message"]
    )


def test_a_store_that_is_down_fails_the_attempt_and_it_is_tried_again(ledger: Ledger, source: MemorySource) -> None:
    announce(ledger, GRIB, source)
    source.down = True
    ledger.run_until_idle()
    [found] = records(ledger)
    assert (found["status"], found["last_error_code"], found["attempts"]) == ("pending", "io_error_upstream", 1)


def test_items_are_published_as_files_and_can_be_rebuilt(ledger: Ledger, source: MemorySource, tmp_path: Path) -> None:
    target = DirectoryTarget(tmp_path)
    with Ledger(ledger.store.url) as publishing:
        declare(publishing, IngestSettings(datasets=shipped(), source=source, catalog=target))
        announce(publishing, GRIB, source)
        assert publishing.run_until_idle() == 2
        [[href, item]] = queried(publishing.store, "SELECT href, item FROM nodd_items")
        assert json.loads((tmp_path / href).read_text(encoding="utf-8")) == json.loads(item)
        collection = json.loads((tmp_path / "data/stac/nodd/gfs/collection.json").read_text(encoding="utf-8"))
        assert validity.collection_problems(collection) == []
        before = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
        shutil.rmtree(tmp_path / "data")
        assert catalog.rebuild(publishing.store, target, shipped()) == catalog.PublishResult(1, 1, 1, 1)
    assert all(path.read_bytes() == data for path, data in before.items())
    with Ledger(ledger.store.url) as again:
        assert catalog.rebuild(again.store, target, shipped()) == catalog.PublishResult(1, 0, 0, 0)
