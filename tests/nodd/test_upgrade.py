"""Tables of version 1 become those of version 2: every record keeps its rules, and nothing is made up."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import Ledger
from holdfast.core.errors import SchemaVersionError, StoreDamagedError
from holdfast.engine.upkeep.retention import gc
from holdfast.nodd import tables, upgrade
from holdfast.nodd.admission import FeedMessage, admit
from holdfast.nodd.check.runner import check
from holdfast.nodd.dataset import Datasets, shipped
from holdfast.nodd.ingest import IngestSettings, declare
from holdfast.nodd.statements import schema
from holdfast.nodd.tables import SETTING, VERSION, is_prepared, prepare
from holdfast.store import Store, connect, create_store
from tests.enforcement.raw import Client
from tests.enforcement.schema import everything_in
from tests.nodd.busy import Busy, make_busy, pairs
from tests.nodd.corruptions import by_hand
from tests.nodd.earlier import as_version_1
from tests.nodd.ingesting import BUCKET, GRIB, announce
from tests.nodd.messages import GFS, event, record
from tests.nodd.objects import MemorySource
from tests.nodd.test_records_always import ALL_AGES, Records, kept, said
from tests.support.forkserver import ForkServer

SAID_BY_VERSION_1 = "SELECT wal_id, stac_status, integrity_status, stac_item_id FROM nodd_wal_records"


@pytest.fixture
def earlier(ledger_url: str, tmp_path: Path) -> tuple[str, Busy]:
    """The URL of a busy ledger that version 1 has made, and which unit is which."""
    pytest.importorskip("h5py")
    with as_version_1():
        return ledger_url, make_busy(ledger_url, tmp_path)


@contextmanager
def at_work(ledger_url: str, source: MemorySource) -> Iterator[Ledger]:
    """Open a ledger to which the version that is in force writes."""
    create_store(ledger_url).close()
    with Ledger(ledger_url) as ledger:
        prepare(ledger.store)
        declare(ledger, IngestSettings(datasets=shipped(), source=source))
        yield ledger


@pytest.fixture(scope="module")
def children() -> Iterator[ForkServer]:
    with ForkServer("tests.nodd.processes") as server:
        yield server


def version_of(store: Store[Any]) -> str | None:
    with store.reading() as reading:
        return reading.settings.read().get(SETTING)


def upgraded(url: str, datasets: Datasets) -> Records:
    """Upgrade a ledger, and return its records."""
    with connect(url) as store:
        assert version_of(store) == "1"
        assert not prepare(store)
        assert version_of(store) == VERSION == "2"
        return kept(store, datasets)


def in_order(found: Records) -> list[dict[str, Any]]:
    return sorted(found.values(), key=lambda one: (one["object_uri"].partition("#")[0], one["ext_generation"]))


def shape_of(url: str) -> dict[str, Any]:
    """Return the columns of the units, in their order, and the text of the view."""
    client = Client(url)
    try:
        if client.dialect == "sqlite":
            columns = client.run("SELECT name, type, \"notnull\" FROM pragma_table_info('nodd_units') ORDER BY cid")
            view = client.run("SELECT sql FROM sqlite_master WHERE name = 'nodd_wal_records'")
        else:
            columns = client.run(
                "SELECT column_name, data_type, is_nullable FROM information_schema.columns"
                " WHERE table_name = 'nodd_units' ORDER BY ordinal_position"
            )
            view = client.run("SELECT pg_get_viewdef('nodd_wal_records'::regclass)")
        return {"columns": columns, "view": view}
    finally:
        client.close()


# ---------------------------------------------------------------------------------------------------------------------
# What is filled in


@pytest.mark.req("K-05", "K-12")
def test_an_upgraded_ledger_is_as_if_it_had_been_made_so(
    earlier: tuple[str, Busy],
    busy_sqlite: tuple[Path, Busy],
    busy_datasets: Datasets,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, busy = earlier
    monkeypatch.setattr(upgrade, "PAGE", 4)
    with connect(f"sqlite:///{busy_sqlite[0]}") as store:
        native = kept(store, busy_datasets)
    assert busy_sqlite[1] == busy
    found = upgraded(url, busy_datasets)
    expected = {wal_id: said(one) for wal_id, one in native.items()}
    assert {wal_id: said(one) for wal_id, one in found.items()} == {
        **expected,
        busy.slimmed: [*expected[busy.slimmed][:-1], None],  # the run alone is not known any more
    }
    with connect(url) as store:
        assert check(store, busy_datasets).violations == ()


def test_an_upgraded_ledger_has_the_tables_of_a_new_one(
    ledger_url: str, source: MemorySource, request: pytest.FixtureRequest
) -> None:
    with as_version_1(), at_work(ledger_url, source) as ledger:
        announce(ledger, GRIB, source)
    upgraded(ledger_url, shipped())
    if ledger_url.startswith("sqlite"):
        new = f"sqlite:///{request.getfixturevalue('busy_sqlite')[0]}"
    else:
        new = request.getfixturevalue("busy_postgres_url")
    assert shape_of(ledger_url) == shape_of(new)
    before = everything_in(ledger_url)
    with connect(ledger_url) as store:
        assert not prepare(store)
        assert is_prepared(store)
    assert everything_in(ledger_url) == before


def test_work_goes_on_in_an_upgraded_ledger(ledger_url: str, source: MemorySource) -> None:
    with as_version_1(), at_work(ledger_url, source) as ledger:
        announce(ledger, GRIB, source, sequencer="0A")
        ledger.run_until_idle()
        announce(ledger, GRIB * 2, source, sequencer="0B")
    [first, waiting] = in_order(upgraded(ledger_url, shipped()))
    assert (first["stac_status"], waiting["status"], waiting["stac_status"]) == ("created", "pending", "unknown")
    with at_work(ledger_url, source) as ledger:
        assert ledger.run_until_idle() == 1
        [before, second] = in_order(kept(ledger.store, shipped()))
        gc(ledger.store, ALL_AGES, who="tests")
        assert [said(one) for one in in_order(kept(ledger.store, shipped()))] == [said(first), said(second)]
    assert before == first
    assert (second["status"], second["stac_status"]) == ("succeeded", "updated")


@pytest.mark.req("K-06", "K-12")
def test_what_was_slimmed_before_is_read_from_what_is_left(
    earlier: tuple[str, Busy], busy_sqlite: tuple[Path, Busy], busy_datasets: Datasets
) -> None:
    url, busy = earlier
    with connect(f"sqlite:///{busy_sqlite[0]}") as store:
        native = kept(store, busy_datasets)
    with connect(url) as store:
        gc(store, ALL_AGES, who="tests")
    found = upgraded(url, busy_datasets)
    succeeded = {wal_id for wal_id, one in native.items() if one["status"] == "succeeded"}
    # How the object was judged is known by the item, unless a later generation has written that anew.
    overwritten = {wal_id for wal_id in succeeded if native[wal_id]["ext_superseded_by"] and wal_id != busy.second}
    [repeated] = [wal_id for wal_id in overwritten if native[busy.same]["ext_supersedes"] == wal_id]
    overwritten -= {repeated}
    assert busy.first in overwritten
    for wal_id in succeeded:
        told = said(native[wal_id])
        told = ["suspect", "suspect", *told[2:]] if wal_id in overwritten else told
        assert said(found[wal_id]) == [*told[:-1], None], native[wal_id]["object_uri"]
    # Retention had not touched this one: it is not done yet.
    assert said(found[busy.committed]) == said(native[busy.committed])
    for wal_id in (busy.broken, busy.overtaken, busy.failed, busy.third, busy.held):
        assert said(found[wal_id])[4:7] == [None] * 3
    with connect(url) as store:
        assert check(store, busy_datasets).violations == ()


STATUSES = ("integrity_status", "metadata_status", "stac_status", "provenance_status")


@pytest.mark.req("K-06", "K-12")
def test_what_nothing_tells_any_more_is_given_the_word_that_promises_least(
    ledger_url: str, source: MemorySource
) -> None:
    with as_version_1(), at_work(ledger_url, source) as ledger:
        for number, data in enumerate((GRIB, GRIB * 2, GRIB * 2, GRIB * 3)):
            announce(ledger, data, source, sequencer=f"{number:02X}A")
            ledger.run_until_idle()
        with ledger.store.reading() as reading:
            _, rows = reading.query("SELECT stac_status FROM nodd_wal_records ORDER BY ext_generation", {})
        gc(ledger.store, ALL_AGES, who="tests")
    assert rows == [("created",), ("updated",), ("no-op",), ("updated",)]
    assert [[one[name] for name in STATUSES] for one in in_order(upgraded(ledger_url, shipped()))] == [
        ["suspect", "suspect", "created", "ok"],
        ["suspect", "suspect", "updated", "ok"],
        ["suspect", "suspect", "updated", "ok"],  # it was a no-op: nothing tells
        ["ok", "ok", "updated", "ok"],
    ]


@pytest.mark.req("K-06", "K-12")
def test_a_no_op_is_told_as_one_though_another_file_has_marked_its_item_since(
    ledger_url: str, source: MemorySource
) -> None:
    pytest.importorskip("h5py")
    from tests.nodd.test_observations import CREATED, announce  # it needs h5py

    with as_version_1(), at_work(ledger_url, source) as ledger:
        for created, sequencer in ((CREATED[0], "0A"), (CREATED[0], "0B"), (CREATED[1], "0A")):
            announce(ledger, source, created, sequencer=sequencer)
            ledger.run_until_idle()
        gc(ledger.store, ALL_AGES, who="tests")
    assert [[one[name] for name in STATUSES] for one in in_order(upgraded(ledger_url, shipped()))] == [
        ["ok", "ok", "created", "ok"],
        ["ok", "ok", "no-op", "ok"],
        ["ok", "ok", "created", "ok"],
    ]


@pytest.mark.req("K-06", "K-12")
def test_what_is_left_is_told_as_it_is(ledger_url: str, source: MemorySource) -> None:
    keys = [GFS.replace("f003", f"f{lead:03}") for lead in (6, 9, 12)]
    with as_version_1(), at_work(ledger_url, source) as ledger:
        # Of another size than was announced: it is suspect.
        body = event(record(key=keys[0], size=7, eTag=source.put(BUCKET, keys[0], GRIB)))
        admit(ledger.store, [FeedMessage(body)], shipped())
        for key in (GFS, *keys[1:]):
            announce(ledger, GRIB, source, key=key)
        ledger.run_until_idle()
        gc(ledger.store, ALL_AGES, who="tests")
    partial, damaged, lost = (f"s3://{BUCKET}/{key}" for key in keys)
    with by_hand(ledger_url, Busy()) as hand:
        units = "(SELECT wal_id FROM nodd_units WHERE object_uri = ?)"
        hand.run(f"DELETE FROM nodd_provenance WHERE kind = 'openlineage' AND wal_id IN {units}", partial)
        hand.run(f"UPDATE nodd_items SET item = '[' WHERE wal_id IN {units}", damaged)
        hand.run(f"DELETE FROM nodd_items WHERE wal_id IN {units}", lost)
    with connect(ledger_url) as store:
        assert not prepare(store)
        with store.reading() as reading:
            _, rows = reading.query(
                f"SELECT {', '.join(STATUSES)}, wal_id FROM nodd_wal_records ORDER BY object_uri", {}
            )
        found = pairs(check(store, shipped()).violations)
    assert [row[:4] for row in rows] == [
        ("ok", "ok", "created", "ok"),
        ("suspect", "ok", "created", "partial"),
        ("suspect", "suspect", "created", "ok"),
        ("unknown", "unknown", "unknown", "unknown"),  # nothing is said of what is not there
    ]
    gone = f"UNIT {rows[3][4]}"
    assert {one for one in found if one[1] == gone} == {("outcomes_kept", gone), ("succeeded_is_catalogued", gone)}


# ---------------------------------------------------------------------------------------------------------------------
# How it is done


def test_whoever_only_looks_is_told_what_to_do(ledger_url: str, source: MemorySource) -> None:
    with as_version_1(), at_work(ledger_url, source) as ledger:
        announce(ledger, GRIB, source)
    before = everything_in(ledger_url)
    with connect(ledger_url) as store:
        for look in (is_prepared, lambda store: check(store, shipped())):
            with pytest.raises(SchemaVersionError) as raised:
                look(store)
            assert raised.value.context == {"found": "1", "expected": "2"}
            assert "holdfast nodd records" in raised.value.hint
    assert everything_in(ledger_url) == before


@pytest.mark.parametrize("version", ["0", "3", "x"])
def test_a_version_that_is_not_known_is_refused(store: Store[Any], ledger_url: str, version: str) -> None:
    with store.transaction() as transaction:
        transaction.settings.set(SETTING, version)
    before = everything_in(ledger_url)
    for look in (prepare, is_prepared):
        with pytest.raises(SchemaVersionError) as raised:
            look(store)
        assert raised.value.context == {"found": version, "expected": "2"}
    assert everything_in(ledger_url) == before


def test_tables_that_were_lost_are_not_upgraded(ledger_url: str) -> None:
    with create_store(ledger_url) as store:
        with store.transaction() as transaction:
            transaction.settings.set(SETTING, "1")
        with pytest.raises(StoreDamagedError):
            prepare(store)
        assert version_of(store) == "1"


def test_an_upgrade_that_breaks_off_has_done_nothing(
    ledger_url: str, source: MemorySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    with as_version_1(), at_work(ledger_url, source) as ledger:
        announce(ledger, GRIB, source)
        ledger.run_until_idle()
    before = everything_in(ledger_url)
    with monkeypatch.context() as patch, connect(ledger_url) as store:
        patch.setattr(upgrade, "records_view", lambda _dialect: ["SELECT no_such_column FROM nodd_units"])
        with pytest.raises(Exception, match="no_such_column"):
            prepare(store)
    assert everything_in(ledger_url) == before
    assert [one["stac_status"] for one in upgraded(ledger_url, shipped()).values()] == ["created"]


@pytest.mark.parametrize("die_at", ["before the view", "before it is durable"])
def test_an_upgrade_that_is_killed_has_done_nothing(
    ledger_url: str, source: MemorySource, children: ForkServer, die_at: str
) -> None:
    with as_version_1(), at_work(ledger_url, source) as ledger:
        announce(ledger, GRIB, source)
        ledger.run_until_idle()
    before = everything_in(ledger_url)
    child = children.spawn("tests.nodd.processes:upgrader", url=ledger_url, die_at=die_at)
    assert child.wait(30) == -signal.SIGKILL, children.log
    assert everything_in(ledger_url) == before
    assert [one["stac_status"] for one in upgraded(ledger_url, shipped()).values()] == ["created"]


@pytest.mark.parametrize("were_there", [False, True], ids=["made", "upgraded"])
def test_processes_that_do_it_at_the_same_moment_do_it_once(
    ledger_url: str, source: MemorySource, children: ForkServer, tmp_path: Path, were_there: bool
) -> None:
    create_store(ledger_url).close()
    if were_there:
        with as_version_1(), at_work(ledger_url, source) as ledger:
            announce(ledger, GRIB, source)
            ledger.run_until_idle()
    meet = tmp_path / "meet"
    meet.mkdir()
    told = {"url": ledger_url, "meet": str(meet), "of": 4}
    many = [children.spawn("tests.nodd.processes:preparer", **told) for _ in range(4)]
    assert [child.wait(60) for child in many] == [0] * 4, children.log
    answers = sorted(path.read_text() for path in meet.iterdir())
    assert answers == ["False"] * 3 + ["False" if were_there else "True"]
    with connect(ledger_url) as store:
        assert version_of(store) == "2"
        assert [one["stac_status"] for one in kept(store, shipped()).values()] == ["created"] * were_there


def test_what_was_built_on_the_view_stays(ledger_url: str) -> None:
    create_store(ledger_url).close()
    with as_version_1(), connect(ledger_url) as store:
        assert prepare(store)
    client = Client(ledger_url)
    client.run(f"CREATE VIEW mine AS {SAID_BY_VERSION_1}")
    client.commit()
    client.close()
    assert upgraded(ledger_url, shipped()) == {}
    with connect(ledger_url) as store, store.reading() as reading:
        names, rows = reading.query("SELECT * FROM mine", {})
    assert (names, rows) == (["wal_id", "stac_status", "integrity_status", "stac_item_id"], [])


def test_every_version_before_this_one_can_be_upgraded() -> None:
    assert list(tables.UPGRADES) == [str(number) for number in range(1, int(VERSION))]
    assert len([part for part in schema("sqlite") if part.startswith("CREATE VIEW")]) == 1
