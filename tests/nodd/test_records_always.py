"""The rules of the write-ahead record hold in every row of the view, at every moment at which it can be read."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Ledger
from holdfast.engine.upkeep.retention import Retention, gc
from holdfast.engine.world import BETWEEN
from holdfast.governance.releases import release
from holdfast.nodd import ingest, validity
from holdfast.nodd.admission import DECLARED, admit
from holdfast.nodd.check.runner import check
from holdfast.nodd.dataset import Datasets, shipped
from holdfast.nodd.ingest import IngestSettings, declare
from holdfast.nodd.records import broken_rules
from holdfast.nodd.units import OUTCOME, RUN
from holdfast.store import Lease, Store, connect
from tests.nodd.busy import Busy, lenient, make_busy
from tests.nodd.ingesting import GRIB, announce
from tests.nodd.objects import MemorySource
from tests.nodd.replaying import ONCE, REPAIR, appear, notice, replay
from tests.nodd.replaying import no_variables as no_variables  # noqa: PLC0414 - a fixture
from tests.nodd.test_records import VALIDATOR, with_text_times

Records = dict[str, dict[str, Any]]
SAYS = (*OUTCOME, RUN)
ALL_AGES = Retention(finished_s=0, quarantined_s=0)


def kept(store: Store[Any], datasets: Datasets, before: Records | None = None) -> Records:
    """Return every record of a ledger by its id, none of which breaks a rule; `before` broke none."""
    with store.reading() as reading:
        names, rows = reading.query("SELECT * FROM nodd_wal_records", {})
    found = [with_text_times(dict(zip(names, row, strict=True))) for row in rows]
    broken = [
        (record["wal_id"], record["status"], *problems)
        for record in found
        if (before or {}).get(record["wal_id"]) != record
        if (problems := [*broken_rules(record, datasets), *(one.message for one in VALIDATOR.iter_errors(record))])
    ]
    assert broken == []
    return {record["wal_id"]: record for record in found}


def said(record: dict[str, Any]) -> list[Any]:
    return [record[name] for name in SAYS]


class Looking:
    """Reads all records again and again, and remembers each."""

    def __init__(self, url: str, datasets: Datasets) -> None:
        self._url, self._datasets = url, datasets
        self._lock = threading.Lock()
        self.before: Records = {}
        self.points: Counter[str] = Counter()
        self.seen: set[tuple[str, str, str]] = set()
        self.wrong: list[str] = []

    def __call__(self, point: str) -> None:
        # Violations are raised at the end: an error raised here would count as one of the work.
        with self._lock, connect(self._url) as store:
            try:
                found = kept(store, self._datasets, self.before)
            except AssertionError as error:
                self.wrong.append(f"{point}: {error}")
                return
            self.points[point] += 1
            self.seen |= {(one["status"], one["integrity_status"], one["stac_status"]) for one in found.values()}
            for wal_id, now in found.items():
                self.wrong += [f"{point}: {wrong}" for wrong in _gone_back(self.before.get(wal_id, now), now)]
            self.before |= found


def _gone_back(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    if before["created_at"] != now["created_at"]:
        yield f"{now['wal_id']} was created anew"
    for name in ("attempts", "version", "updated_at"):
        if now[name] < before[name]:
            yield f"the {name} of {now['wal_id']} went from {before[name]} back to {now[name]}"
    if before["status"] == "succeeded" and now["status"] not in ("in_progress", "succeeded"):
        yield f"{now['wal_id']} succeeded, and is {now['status']}"
    if before["stac_item_id"] is not None and now["stac_item_id"] != before["stac_item_id"]:
        yield f"{now['wal_id']} has lost its item"


@pytest.mark.req("K-01", "K-05", "K-06", "K-12")
def test_no_rule_is_broken_at_any_point_of_a_busy_life(ledger_url: str, tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    looking = Looking(ledger_url, lenient(tmp_path / "datasets"))
    busy = make_busy(ledger_url, tmp_path, looking)
    looking("the end")
    assert looking.wrong == []
    assert looking.points[BETWEEN] >= 15
    assert {"admitted", "slimmed", "claimed", "during_claim", "after_commit", "during_failure"} <= looking.points.keys()
    # The readings cover many states.
    assert looking.seen >= {
        ("pending", "unknown", "unknown"),
        ("in_progress", "unknown", "unknown"),
        ("in_progress", "ok", "created"),
        ("in_progress", "ok", "updated"),
        ("in_progress", "ok", "no-op"),
        ("succeeded", "ok", "created"),
        ("succeeded", "ok", "updated"),
        ("succeeded", "ok", "no-op"),
        ("failed", "unknown", "unknown"),
        ("quarantined", "unknown", "unknown"),
    }
    ends = {name: looking.before[getattr(busy, name)] for name in ("first", "second", "slimmed", "committed", "waived")}
    assert {name: (one["status"], one["stac_status"], one["provenance_status"]) for name, one in ends.items()} == {
        "first": ("succeeded", "created", "ok"),
        "second": ("succeeded", "updated", "ok"),
        "slimmed": ("succeeded", "created", "ok"),
        "committed": ("in_progress", "created", "ok"),
        "waived": ("succeeded", "created", "failed"),
    }
    assert ends["first"]["stac_item_id"] == ends["second"]["stac_item_id"]


@pytest.mark.req("K-05", "K-12")
def test_a_successful_record_is_unchanged_by_retention(busy_ledger: tuple[str, Busy], busy_datasets: Datasets) -> None:
    url, busy = busy_ledger
    with connect(url) as store:
        before = kept(store, busy_datasets)
        report = gc(store, ALL_AGES, who="tests")
        after = kept(store, busy_datasets)
        assert (report.finished > 10, report.quarantined > 1) == (True, True)
        assert check(store, busy_datasets).violations == ()
    assert after.keys() == before.keys()
    succeeded = {wal_id for wal_id, one in before.items() if one["status"] == "succeeded"}
    assert {busy.first, busy.second, busy.same, busy.carried, busy.waived, *busy.files} < succeeded
    assert {wal_id: said(after[wal_id]) for wal_id in succeeded} == {
        wal_id: said(before[wal_id]) for wal_id in succeeded
    }
    assert not any(None in said(before[wal_id]) for wal_id in succeeded)
    # A unit that never succeeded has no values to keep.
    broken = after[busy.broken]
    assert (broken["status"], *said(broken)) == ("quarantined", "failed", *["unknown"] * 3, *[None] * 4)


@pytest.mark.req("K-05", "K-12")
def test_a_later_generation_takes_the_item_and_leaves_the_record(ledger: Ledger, source: MemorySource) -> None:
    announce(ledger, GRIB, source, sequencer="0A")
    ledger.run_until_idle()
    [first] = kept(ledger.store, shipped()).values()
    gc(ledger.store, ALL_AGES, who="tests")
    announce(ledger, GRIB * 2, source, sequencer="0B")
    assert said(kept(ledger.store, shipped())[first["wal_id"]]) == said(first)
    ledger.run_until_idle()
    found = kept(ledger.store, shipped())
    [second] = [one for wal_id, one in found.items() if wal_id != first["wal_id"]]
    overtaken = found[first["wal_id"]]
    assert said(overtaken) == said(first)
    assert (overtaken["stac_status"], overtaken["ext_superseded_by"]) == ("created", second["wal_id"])
    assert (second["stac_status"], second["ext_supersedes"]) == ("updated", first["wal_id"])
    assert second["stac_item_id"] == first["stac_item_id"] is not None
    gc(ledger.store, ALL_AGES, who="tests")
    assert said(kept(ledger.store, shipped())[second["wal_id"]]) == said(second)


@pytest.mark.req("K-05", "K-12", "K-17")
def test_a_replacement_shows_its_own_outcome(
    ledger: Ledger, source: MemorySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    appear(source, range(3, 4))
    admit(ledger.store, [notice(ledger.store, 3)], shipped())
    ledger.run_until_idle()
    [first] = kept(ledger.store, shipped()).values()
    monkeypatch.setattr(ingest, "DECLARED", msgspec.structs.replace(DECLARED, version="1.1.0"))
    looking = Looking(ledger.store.url, shipped())
    with _later(ledger, source, looking) as later:
        later.run_until_idle()  # declares what it does
        assert replay(ledger, "run", *REPAIR, "--status", "succeeded").json["replayed"] == 1
        looking("replayed")
        assert looking.before[first["wal_id"]] == first
        assert later.run_until_idle() == 1
    looking("replaced")
    assert looking.wrong == []
    assert looking.points[BETWEEN] == 1
    second = looking.before[first["wal_id"]]
    assert (first["stac_status"], second["stac_status"]) == ("created", "no-op")
    assert second[RUN] == f"{first['wal_id']}/{second['ext_job_id']}.1"
    gc(ledger.store, ALL_AGES, who="tests")
    assert said(kept(ledger.store, shipped())[first["wal_id"]]) == said(second)


@contextmanager
def _later(ledger: Ledger, source: MemorySource, looking: Looking) -> Iterator[Ledger]:
    world = msgspec.structs.replace(ledger.world, reach=looking, planned=lambda point: point == BETWEEN)
    with Ledger(ledger.store.url, world=world) as later:
        declare(later, IngestSettings(datasets=shipped(), source=source, retry=ONCE))
        yield later


@pytest.mark.req("K-05", "K-12")
def test_the_refusal_of_an_item_is_cleared_while_it_is_made_again(
    ledger: Ledger, source: MemorySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce(ledger, GRIB, source)
    with monkeypatch.context() as patch:
        patch.setattr(validity, "problems", lambda _item: ["it is not valid"])
        ledger.run_until_idle()
    seen = []

    def look() -> None:
        [record] = kept(ledger.store, shipped()).values()
        seen.append((record["status"], record["last_error_code"], record["integrity_status"], record["stac_status"]))

    look()
    release(ledger.store, 1, operator="ann", reason="the reader was mended")
    look()
    with ledger.store.transaction() as transaction:
        [attempt] = transaction.executions.claim(Lease(owner="worker-1", seconds=3600, queues=("gfs",)))
    look()
    assert attempt.execution.attempt == 2
    code = "stac_validation_failed"
    assert seen == [
        ("quarantined", code, "ok", "failed"),
        ("pending", code, "ok", "failed"),
        ("in_progress", code, "ok", "unknown"),
    ]
