"""The file of a SQLite ledger is renamed, replaced, deleted or linked while it is open: each is noticed and refused."""

from __future__ import annotations

import os
import shutil
import sqlite3
import timeit
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import Ledger
from holdfast.core.errors import LedgerFileError
from tests.support.ledgers import new_ledger

pytestmark = pytest.mark.attack("files")


@pytest.fixture
def path(new_sqlite_ledger: str) -> Path:
    return Path(new_sqlite_ledger.removeprefix("sqlite:///"))


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with Ledger(path) as ledger:
        ledger.submit("noop", {}, client="test", key="first")
        yield ledger


def log(path: Path) -> Path:
    return Path(f"{path}-wal")


def replaced(path: Path) -> None:
    """Put another ledger in the place of this one, as a restored backup is."""
    other = path.with_name("other.db")
    new_ledger().to_file(f"sqlite:///{other}")
    other.rename(path)


def linked(path: Path) -> None:
    os.link(path, path.with_name("link.db"))


CHANGES: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "deleted": ("deleted", Path.unlink),
    "renamed": ("deleted", lambda path: path.rename(path.with_name("elsewhere.db"))),
    "replaced": ("replaced", replaced),
    "linked": ("hard_linked", linked),
    "log deleted": ("log_deleted", lambda path: log(path).unlink()),
    "log renamed": ("log_deleted", lambda path: log(path).rename(path.with_name("elsewhere"))),
    "log replaced": ("log_replaced", lambda path: Path(shutil.copy(log(path), path.with_name("c"))).replace(log(path))),
    "log linked": ("hard_linked", lambda path: linked(log(path))),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_file_is_noticed_by_writes_and_by_reads(ledger: Ledger, path: Path, change: str) -> None:
    expected, act = CHANGES[change]
    act(path)
    for write in (True, False, True):
        with pytest.raises(LedgerFileError) as refused:
            ledger.submit("noop", {}, client="test", key="second") if write else ledger.counts()
        assert refused.value.code == "ledger_file_changed"
        assert refused.value.context == {"path": str(path), "change": expected}


@pytest.mark.parametrize("change", CHANGES)
def test_the_commit_during_which_a_file_changes_is_not_acknowledged(ledger: Ledger, path: Path, change: str) -> None:
    expected, act = CHANGES[change]
    with pytest.raises(LedgerFileError) as refused, ledger.store.transaction():
        act(path)
    assert refused.value.context["change"] == expected


def test_a_hard_link_is_refused_at_open_and_forgiven_when_it_is_gone(ledger: Ledger, path: Path) -> None:
    linked(path)
    for name in (path, path.with_name("link.db")):
        with pytest.raises(LedgerFileError) as refused, Ledger(name, create=False) as other:
            other.counts()
        assert refused.value.context["change"] == "hard_linked"
    with pytest.raises(LedgerFileError):
        ledger.submit("noop", {}, client="test", key="second")
    path.with_name("link.db").unlink()
    ledger.submit("noop", {}, client="test", key="third")
    ledger.close()
    assert not log(path).exists()  # the last connection that closes writes the log back and removes it


def test_a_file_that_was_replaced_is_not_the_same_ledger_when_it_is_opened_again(ledger: Ledger, path: Path) -> None:
    ledger.store.pool.hold(5)  # closes all connections, as a fork does
    ledger.store.pool.release()
    replaced(path)
    with pytest.raises(LedgerFileError) as refused:
        ledger.submit("noop", {}, client="test", key="second")
    assert refused.value.context["change"] == "replaced"


def test_a_connection_of_the_caller_to_a_file_with_a_second_name_is_refused(ledger: Ledger, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as own:
        own.execute("PRAGMA synchronous = FULL")
        own.execute("BEGIN IMMEDIATE")
        linked(path)
        with pytest.raises(LedgerFileError) as refused:
            ledger.submit("noop", {}, client="test", key="second", connection=own)
    assert refused.value.context["change"] == "hard_linked"


def test_a_new_log_after_all_connections_were_closed_is_no_change(ledger: Ledger, path: Path) -> None:
    before = log(path).stat().st_ino
    ledger.store.pool.hold(5)
    ledger.store.pool.release()
    assert not log(path).exists()
    log(path).with_name("keeps the inode number").touch()
    ledger.submit("noop", {}, client="test", key="second")
    assert log(path).stat().st_ino != before


def test_another_ledger_object_of_the_process_keeps_its_guard(ledger: Ledger, path: Path) -> None:
    with Ledger(path) as second:
        second.submit("noop", {}, client="test", key="second")
    with closing(sqlite3.connect(path)) as own:  # as another process would: its locks are dropped by the next line
        path.read_bytes()
        own.execute("SELECT count(*) FROM holdfast_jobs").fetchall()
    assert log(path).exists()
    ledger.submit("noop", {}, client="test", key="third")


def test_the_comparison_costs_microseconds(ledger: Ledger) -> None:
    files = ledger.store._files  # type: ignore[attr-defined]
    times = timeit.repeat(files.require_same, number=100, repeat=200)
    assert min(times) / 100 < 50e-6  # about 4 µs on a quiet machine
