"""Who holds the locks of a SQLite ledger: the writer is named by its process id, and a log that grows is warned of."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from holdfast import Ledger
from holdfast.core.errors import StoreBusyError
from holdfast.store.sqlite import holders
from holdfast.store.sqlite import store as sqlite_store
from holdfast.store.sqlite.store import SqliteStore
from tests.support.children import Child

pytestmark = pytest.mark.attack("files")


@pytest.fixture
def path(new_sqlite_ledger: str) -> Path:
    return Path(new_sqlite_ledger.removeprefix("sqlite:///"))


@pytest.fixture
def ledger(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    monkeypatch.setattr(sqlite_store, "BUSY_S", 0.2)
    with Ledger(path) as ledger:
        ledger.submit("noop", {}, client="test", key="first")
        yield ledger


def refused(ledger: Ledger) -> StoreBusyError:
    with pytest.raises(StoreBusyError) as caught:
        ledger.submit("noop", {}, client="test", key="second")
    return caught.value


@pytest.mark.parametrize("lock", ["turn", "sqlite"])
def test_the_process_that_holds_the_write_lock_is_named(ledger: Ledger, path: Path, lock: str) -> None:
    with Child("tests.support.lock_child", str(path), lock) as child:
        pid = int(child.says())
        error = refused(ledger)
    assert error.code == "store_busy"
    assert error.context == {"path": str(path), "pid": pid}
    assert str(pid) in error.message
    assert str(pid) in error.hint


def test_another_thread_of_this_process_is_named_as_such(ledger: Ledger) -> None:
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with ledger.store.transaction():
            inside.set()
            leave.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait(30)
    error = refused(ledger)
    leave.set()
    holder.join()
    assert error.context["pid"] == os.getpid()


def test_where_the_system_lists_no_locks_the_holder_is_unknown(
    ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(holders, "LOCKS", tmp_path / "none")
    with Child("tests.support.lock_child", str(path), "turn") as child:
        child.says()
        assert refused(ledger).context == {"path": str(path), "pid": None}


def test_a_log_that_grows_while_a_reader_stays_open_is_warned_of(
    ledger: Ledger, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = cast("SqliteStore", ledger.store)._files
    files.log_bytes_max = Path(f"{path}-wal").stat().st_size + 100_000
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM holdfast_jobs").fetchall()
        with caplog.at_level(logging.WARNING, "holdfast"):
            for number in range(40):
                ledger.submit("noop", {"text": "x" * 5000}, client="test", key=f"long {number}")
    warnings = [record.getMessage() for record in caplog.records if record.name == "holdfast"]
    assert 1 <= len(warnings) < 6  # of 40 commits: the next warning comes after the log has doubled
    assert all(str(os.getpid()) in warning for warning in warnings)
