"""The application's tables: they are made once and whole, and another version of them is refused."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import SchemaVersionError, StoreDamagedError
from holdfast.nodd import tables
from holdfast.nodd.admission import FeedMessage, admit
from holdfast.nodd.dataset import shipped
from holdfast.nodd.statements import schema
from holdfast.nodd.tables import BEFORE, SETTING, VERSION, is_prepared, prepare
from holdfast.store import Store, connect, open_store
from tests.enforcement.schema import everything_in
from tests.nodd.messages import event, record
from tests.support.forkserver import ForkServer, shared_server


@pytest.fixture(scope="module")
def children() -> Iterator[ForkServer]:
    with shared_server("tests.nodd.processes") as server:
        yield server


def version_of(store: Store[Any]) -> str | None:
    with store.reading() as reading:
        return reading.settings.read().get(SETTING)


def test_tables_are_made_once(bare_url: str) -> None:
    with open_store(bare_url) as store:
        assert not is_prepared(store)
        assert prepare(store)
        before = everything_in(bare_url)
        assert not prepare(store)
        assert is_prepared(store)
    assert everything_in(bare_url) == before


@pytest.mark.parametrize("version", ["0", "1", "4", "x"])
def test_another_version_is_refused(store: Store[Any], ledger_url: str, version: str) -> None:
    with store.transaction() as transaction:
        transaction.settings.set(SETTING, version)
    before = everything_in(ledger_url)
    for look in (prepare, is_prepared):
        with pytest.raises(SchemaVersionError) as raised:
            look(store)
        assert raised.value.context == {"found": version, "expected": "3"}
    assert everything_in(ledger_url) == before


def test_the_version_before_is_upgraded_and_keeps_its_rows(store: Store[Any], ledger_url: str) -> None:
    admit(store, [FeedMessage(event(record()))], shipped())
    whole = everything_in(ledger_url)
    with store.transaction() as transaction:
        transaction.execute("DROP TABLE nodd_ignored")
        transaction.execute("DROP VIEW nodd_wal_records")
        transaction.execute("CREATE VIEW nodd_wal_records AS SELECT wal_id FROM nodd_units")
        transaction.settings.set(SETTING, BEFORE)
    assert is_prepared(store)
    assert not prepare(store)
    assert version_of(store) == VERSION
    assert everything_in(ledger_url) == whole
    with store.reading() as reading:
        _, rows = reading.query("SELECT status, integrity_status FROM nodd_wal_records", {})
    assert list(rows) == [("pending", "unknown")]


def test_lost_tables_are_not_created_again(bare_url: str) -> None:
    with open_store(bare_url) as store:
        with store.transaction() as transaction:
            transaction.settings.set(SETTING, VERSION)
        before = everything_in(bare_url)
        for look in (prepare, is_prepared):
            with pytest.raises(StoreDamagedError):
                look(store)
    assert everything_in(bare_url) == before


def test_tables_whose_creation_fails_do_not_exist(bare_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = everything_in(bare_url)
    with connect(bare_url) as store:
        with monkeypatch.context() as patch:
            broken = [*schema(store.dialect)[:-1], "SELECT no_such_column FROM nodd_units"]
            patch.setattr(tables, "schema", lambda _dialect: broken)
            with pytest.raises(Exception, match="no_such_column"):
                prepare(store)
        assert everything_in(bare_url) == before
        assert prepare(store)


@pytest.mark.parametrize("die_at", ["before the view", "before it is durable"])
def test_a_process_that_is_killed_while_it_makes_them_leaves_nothing(
    bare_url: str, children: ForkServer, die_at: str
) -> None:
    before = everything_in(bare_url)
    child = children.spawn("tests.nodd.processes:table_maker", url=bare_url, die_at=die_at)
    assert child.wait(30) == -signal.SIGKILL, children.log
    assert everything_in(bare_url) == before
    with connect(bare_url) as store:
        assert prepare(store)


def test_processes_that_make_them_at_the_same_moment_make_them_once(
    bare_url: str, children: ForkServer, tmp_path: Path
) -> None:
    meet = tmp_path / "meet"
    meet.mkdir()
    options = {"url": bare_url, "meet": str(meet), "of": 4}
    many = [children.spawn("tests.nodd.processes:preparer", **options) for _ in range(4)]
    assert [child.wait(60) for child in many] == [0] * 4, children.log
    assert sorted(path.read_text() for path in meet.iterdir()) == ["False"] * 3 + ["True"]
    with connect(bare_url) as store:
        assert version_of(store) == VERSION
        assert is_prepared(store)
