"""What is done beside the requests and before them: the groups of many failures, and the fold of many deltas."""

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


@pytest.mark.parametrize("read_only", [False, True])
def test_many_deltas_of_an_earlier_version_are_folded_before_the_first_request(
    new_sqlite_ledger: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, read_only: bool
) -> None:
    monkeypatch.setattr(live, "UNFOLDED_MAX", 2)
    site = Site(new_sqlite_ledger, tmp_path, read_only=read_only)
    site.ledger.submit("noop")
    Live(site.app.state.console).begin()
    assert unfolded(site) == 1  # few: nothing is written
    site.ledger.submit("noop")
    Live(site.app.state.console).begin()
    assert unfolded(site) == (2 if read_only else 0)
    assert sum(count.n for count in site.ledger.counts()) == 2
    site.close()
