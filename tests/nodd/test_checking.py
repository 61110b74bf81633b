"""`nodd check` finds every listed corruption of the application's tables, and nothing in a sound ledger."""

from __future__ import annotations

import hashlib
import re
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from holdfast import Ledger
from holdfast.audit.check.findings import CheckReport, Severity, Violation
from holdfast.audit.check.runner import check as check_ledger
from holdfast.core.errors import InputError, NotALedgerError, StoreDamagedError
from holdfast.engine.worker.retry import RetryPolicy, Strategy
from holdfast.nodd import samples
from holdfast.nodd.admission import FeedMessage, admit
from holdfast.nodd.check.catalogue import BY_NAME, INVARIANTS
from holdfast.nodd.check.runner import check
from holdfast.nodd.dataset import Datasets, shipped
from holdfast.nodd.ingest import IngestSettings, declare
from holdfast.nodd.tables import SETTING, VERSION
from holdfast.store import Store, connect, open_store
from tests.enforcement.raw import Client
from tests.enforcement.schema import everything_in
from tests.nodd.busy import Busy, checked, pairs
from tests.nodd.corruptions import CORRUPTIONS, Hand, by_hand, corrupt
from tests.nodd.ingesting import BUCKET, REFERENCE
from tests.nodd.messages import GFS, event, record
from tests.nodd.objects import MemorySource

pytest.importorskip("h5py")

CHECKED = {"units": 21, "provenance": 122, "items": 12, "observations": 2, "rejected": 2}
GUIDE = Path(__file__).parents[2] / "docs" / "nodd.md"


# ---------------------------------------------------------------------------------------------------------------------
# What is wrong


def test_every_promise_has_a_corruption_that_breaks_it(busy_sqlite: tuple[str, Busy]) -> None:
    broken: set[str] = set()
    url, busy = busy_sqlite
    client = Client(url)
    client.rollback()
    client.run("PRAGMA foreign_keys = OFF")
    client.run("PRAGMA ignore_check_constraints = ON")
    triggers = client.run("SELECT name FROM sqlite_master WHERE type = 'trigger'")
    client.begin()
    for (trigger,) in triggers:
        client.run(f"DROP TRIGGER {trigger}")
    hand = Hand(client, busy)
    for plant in CORRUPTIONS.values():
        with client.undone():
            broken |= {invariant for invariant, _ in plant(hand)}
    client.close()
    assert broken == BY_NAME.keys()


def test_a_violation_names_its_subject_and_its_evidence(busy_ledger: tuple[str, Busy], busy_datasets: Datasets) -> None:
    url, busy = busy_ledger
    with by_hand(url, busy) as hand:
        hand.run("DELETE FROM nodd_items WHERE wal_id = ?", busy.carried)
        job_id, uri = hand.job(busy.carried), hand.get("nodd_units", "wal_id", busy.carried, "object_uri")
    report = checked(url, busy_datasets)
    item_id = "48f8fac4-8756-5173-a3d3-69e88476fbf6"
    assert item_id in report.violations[0].detail
    assert report.violations == (
        Violation(
            "succeeded_is_catalogued",
            f"UNIT {busy.carried}",
            report.violations[0].detail,
            Severity.ERROR,
            None,
            None,
            {"kind": "item", "job_id": job_id, "object_uri": uri, "item_id": item_id},
        ),
    )
    assert (report.ok, report.more, report.checked) == (False, False, {**CHECKED, "items": 11})


@pytest.mark.req("K-21", "K-45")
def test_missing_provenance_is_a_violation_unless_the_dataset_allows_it(
    busy_ledger: tuple[str, Busy], busy_datasets: Datasets
) -> None:
    url, busy = busy_ledger
    report = checked(url, shipped())
    assert [(found.invariant, found.subject, found.evidence["kind"]) for found in report.violations] == [
        ("succeeded_has_provenance", f"UNIT {busy.waived}", "not_allowed")
    ]
    # If a row has lost its provenance status, the dataset decides whether provenance is required.
    with by_hand(url, busy) as hand:
        hand.run("DELETE FROM nodd_provenance WHERE wal_id = ?", busy.slimmed)
        hand.unit(busy.slimmed, provenance_status=None)
    lost = ("outcomes_kept", f"UNIT {busy.slimmed}")
    assert pairs(checked(url, busy_datasets).violations) == {lost}
    owed = {("succeeded_has_provenance", f"UNIT {one}") for one in (busy.waived, busy.slimmed)}
    assert pairs(checked(url, shipped()).violations) == {lost, *owed}


def test_many_corruptions_are_found_together(busy_ledger: tuple[str, Busy], busy_datasets: Datasets) -> None:
    url, busy = busy_ledger
    names = ("attempts_without_an_execution", "two_current_generations", "an_event_that_is_gone", "a_link_that_is_gone")
    expected = set().union(*(corrupt(url, busy, name) for name in names))
    assert pairs(checked(url, busy_datasets).violations) == expected
    assert len(expected) == 4


def test_a_rule_that_fails_is_a_violation(busy_ledger: tuple[str, Busy], busy_datasets: Datasets) -> None:
    url, busy = busy_ledger
    corrupt(url, busy, "an_item_without_its_parts")
    reported = [(found.detail, found.evidence) for found in checked(url, busy_datasets).violations]
    assert reported == [("Invariant check failed: KeyError", {"kind": "failed"})] * 2


# ---------------------------------------------------------------------------------------------------------------------
# What is not wrong


@pytest.mark.req("K-01", "K-02", "K-05", "K-44", "K-45")
def test_a_busy_ledger_has_no_violation(busy_ledger: tuple[str, Busy], busy_datasets: Datasets) -> None:
    url, _ = busy_ledger
    before = everything_in(url)
    assert checked(url, busy_datasets) == CheckReport(ok=True, violations=(), checked=CHECKED)
    assert everything_in(url) == before
    with connect(url) as store:
        assert check_ledger(store).violations == ()


def test_a_working_ledger_has_no_violation(store: Store[Any], ledger_url: str, source: MemorySource) -> None:
    objects, seen, stop = 24, [], threading.Event()

    def look() -> None:
        with connect(ledger_url) as other:
            while not stop.is_set():
                seen.append(check(other, shipped(), batch=5))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        retry = RetryPolicy(strategy=Strategy.IMMEDIATE)
        with Ledger(ledger_url) as ledger:
            declare(ledger, IngestSettings(datasets=shipped(), source=source, retry=retry))
            for lead in range(objects):
                for number in range(1 + lead % 3):
                    data = samples.grib2(REFERENCE, lead) * (number + 1)
                    key = GFS.replace("f003", f"f{lead:03}")
                    fields = {"eTag": source.put(BUCKET, key, data), "sequencer": f"{number:02X}A"}
                    admit(store, [FeedMessage(event(record(key=key, size=len(data), **fields)))], shipped())
                if lead % 4 == 3:
                    ledger.run_until_idle(concurrency=3)
    finally:
        stop.set()
        looking.join(60)
    assert [report.violations for report in seen if report.violations] == []
    assert len(seen) > 3
    last = check(store, shipped())
    assert (last.violations, last.checked["units"], last.checked["items"]) == ((), 2 * objects, objects)


def test_an_empty_ledger_has_no_violation(bare_url: str) -> None:
    with open_store(bare_url) as store:
        before = everything_in(bare_url)
        assert check(store, shipped()) == CheckReport(ok=True, violations=(), checked=dict.fromkeys(CHECKED, 0))
        assert everything_in(bare_url) == before  # no table was made


# ---------------------------------------------------------------------------------------------------------------------
# Options of a check


def test_only_the_named_invariants_are_checked(busy_ledger: tuple[str, Busy], busy_datasets: Datasets) -> None:
    url, busy = busy_ledger
    corrupt(url, busy, "a_generation_that_was_left_out")
    found = checked(url, busy_datasets, only=["units_as_announced"])
    assert pairs(found.violations) == {("units_as_announced", f"UNIT {busy.third}")}
    assert found.checked == {"units": 21, "provenance": 122, "items": 0, "observations": 0, "rejected": 0}
    assert checked(url, busy_datasets, only=["rejected_whole"]).ok
    with pytest.raises(InputError) as raised:
        checked(url, busy_datasets, only=["rejected_whole", "nothing_whole"])
    assert raised.value.context == {"unknown": ["nothing_whole"]}


def test_a_check_stops_at_its_limit_and_reports_that(busy_ledger: tuple[str, Busy], busy_datasets: Datasets) -> None:
    url, busy = busy_ledger
    corrupt(url, busy, "a_unit_that_is_gone")
    report = checked(url, busy_datasets, limit=3)
    assert (len(report.violations), report.more, report.ok) == (3, True, False)
    assert not checked(url, busy_datasets).more
    for limit, batch in ((0, 1), (1, 0)):
        with pytest.raises(InputError):
            checked(url, busy_datasets, limit=limit, batch=batch)


def test_a_database_without_a_ledger_is_a_typed_error(empty_url: str, busy_datasets: Datasets) -> None:
    client = Client(empty_url)
    client.run("CREATE TABLE mine (n integer)")
    client.commit()
    client.close()
    with pytest.raises(NotALedgerError):
        checked(empty_url, busy_datasets)


def test_a_ledger_that_lost_all_its_tables_is_refused_as_elsewhere(bare_url: str, busy_datasets: Datasets) -> None:
    with open_store(bare_url) as store, store.transaction() as transaction:
        transaction.settings.set(SETTING, VERSION)
    with pytest.raises(StoreDamagedError):
        checked(bare_url, busy_datasets)


def test_memory_does_not_grow_with_the_stored_records(busy_ledger: tuple[str, Busy], busy_datasets: Datasets) -> None:
    url, busy = busy_ledger
    bodies, size = 600, 100_000
    with by_hand(url, busy) as hand:
        for number in range(bodies):
            body = f"{number:06}" + "x" * size
            row = (hashlib.sha256(body.encode()).hexdigest(), body, "not_json", "m", 1, "2026", "2026")
            hand.run(
                "INSERT INTO nodd_rejected (sha256, body, code, message, times, first_at, last_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                *row,
            )
    tracemalloc.start()
    report = checked(url, busy_datasets)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (report.ok, report.checked["rejected"]) == (True, bodies + CHECKED["rejected"])
    assert peak < bodies * size / 3


# ---------------------------------------------------------------------------------------------------------------------
# The catalogue


def table() -> str:
    """Return the table of the guide as the catalogue has it."""
    lines = ["| name | must be true | severity | what helps |", "|---|---|---|---|"]
    lines += [f"| `{one.name}` | {one.meaning} | {one.severity} | {one.remedy} |" for one in INVARIANTS]
    return "\n".join(lines)


def test_the_guide_shows_the_catalogue() -> None:
    assert table() in GUIDE.read_text(encoding="utf-8"), f"the table should be\n\n{table()}"


def test_every_promise_has_a_name_a_meaning_and_a_rule() -> None:
    assert len(BY_NAME) == len(INVARIANTS) == 18
    for one in INVARIANTS:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", one.name)
        assert one.meaning.endswith(".")
        assert not one.remedy.endswith(".")
        assert one.of_unit or one.of_item or one.of_observation or one.of_body or one.of_whole
    assert [one.name for one in INVARIANTS if one.severity is Severity.WARNING] == [
        "observations_complete",
        "admitted_counted",
    ]
