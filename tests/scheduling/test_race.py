"""Processes that race for the ticks of one schedule, and are killed: each tick has one job."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Ledger
from holdfast.core.records import time_text
from holdfast.scheduling import Firer, Missed, Schedule, Schedules
from holdfast.scheduling.firer import TICKS_KEPT
from holdfast.testing import VirtualClock, virtual_world
from tests.support.forkserver import ForkServer, shared_server
from tests.support.roles import wait_until

TICKS = 1000
FIRERS = 3
KILLS = 6


@pytest.fixture
def server() -> Iterator[ForkServer]:
    with shared_server("tests.scheduling.test_race", "psycopg") as server:
        yield server


def fire(url: str) -> None:
    """Fire ticks until killed."""
    ledger = Ledger(url)
    firer = Firer(ledger)
    while True:
        firer.turn()
        time.sleep(0.001)


def test_processes_that_race_and_are_killed_fire_each_tick_once(server: ForkServer, ledger_url: str) -> None:
    past = datetime.now(UTC).replace(microsecond=500_000) - timedelta(seconds=TICKS)
    with Ledger(ledger_url, world=virtual_world(VirtualClock(past))) as before:
        before.submit("noop")
        schedule = Schedule(when="every 1s", operation="noop", missed=Missed.ALL)
        Schedules(before).add("every second", schedule, actor="test", reason="race")
    first = past.replace(microsecond=0) + timedelta(seconds=1)
    with Ledger(ledger_url) as ledger:

        def fired() -> int:
            return sum(count.n for count in ledger.counts()) - 1

        children = [server.spawn("tests.scheduling.test_race:fire", url=ledger_url) for _ in range(FIRERS)]
        for kill in range(KILLS):
            wanted = (kill + 1) * TICKS // (KILLS + 1)
            wait_until(lambda wanted=wanted: fired() >= wanted, 60, f"{wanted} ticks were fired")
            children[kill % FIRERS].kill()
            children[kill % FIRERS] = server.spawn("tests.scheduling.test_race:fire", url=ledger_url)
        wait_until(lambda: fired() >= TICKS, 60, f"{TICKS} ticks were fired")
        for child in children:
            child.kill()
        with ledger.store.reading() as reading:
            ticks = reading.schedules.ticks("every second", limit=10_000)
            keys = Counter(job.key for job in reading.lists.jobs(limit=10_000) if job.key is not None)
    found = sorted(tick.tick_at for tick in ticks)
    assert found == [found[0] + timedelta(seconds=n) for n in range(len(found))]  # none is missing
    assert len(found) == TICKS_KEPT or found[0] == first
    assert len(keys) >= TICKS
    assert set(keys.values()) == {1}
    assert min(keys) == f"every second/{time_text(first)}"
