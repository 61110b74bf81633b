"""What is done beside the requests: the groups of many failures, and the fold of deltas that no worker has folded."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.console.pages import live
from holdfast.console.pages.live import Live
from holdfast.console.views import failures
from tests.console.sites import Site
from tests.console.test_many import failed

PATIENCE_S = 30.0


def wait_for(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.02)


def unfolded(site: Site) -> int:
    with site.ledger.store.reading() as reading:
        [[n]] = reading.execute("SELECT count(*) FROM holdfast_count_deltas")
    return int(n)


def test_many_failures_are_grouped_beside_the_request(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    failed(site, 3, "live-a")
    monkeypatch.setattr(failures, "FEW", 2)
    made = Live(site.app.state.console)
    first = made.groups()
    assert first.awaited or first.jobs == 3
    wait_for(lambda: made.groups().jobs >= 3)
    assert not made.groups().awaited


def test_deltas_that_no_worker_folds_are_folded_once_they_are_many(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.ledger.submit("noop", queue="live-b")
    before = site.ledger.counts()
    Live(site.app.state.console).overview()
    assert unfolded(site) > 0  # few: nothing is written
    monkeypatch.setattr(live, "FOLD_FROM", 1)
    Live(site.app.state.console).overview()
    wait_for(lambda: unfolded(site) == 0)
    assert sorted(site.ledger.counts(), key=repr) == sorted(before, key=repr)


def test_a_console_that_only_reads_folds_nothing(
    new_sqlite_ledger: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "FOLD_FROM", 1)
    site = Site(new_sqlite_ledger, tmp_path, read_only=True)
    site.ledger.submit("noop")
    made = Live(site.app.state.console)
    made.overview()
    assert made.beside == set()
    assert unfolded(site) == 1
    site.close()
