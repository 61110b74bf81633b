"""The keeper: every duty once a period for a whole fleet, again after a failure, and ended with its worker."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Ledger, Worker
from holdfast.audit.files.archive import verify as verify_archive
from holdfast.core.errors import StoreUnavailableError
from holdfast.core.records import time_from
from holdfast.engine.events import InvariantViolated
from holdfast.engine.upkeep.duties import Duty, Periods
from holdfast.engine.upkeep.retention import Retention, set_policy
from holdfast.engine.worker.keeper import Keeper
from tests.engine.working import PATIENCE_S, eventually, working

LONG_S = 3600.0
NONE = Periods(
    look_s=0.01, fold_s=None, seal_s=None, extend_s=None, gc_s=None, check_s=None, forget_s=None, retry_s=0.05
)


@pytest.fixture
def real(ledger_url: str) -> Iterator[Ledger]:
    """A ledger on a real clock: a keeper is a thread of its own."""
    with Ledger(ledger_url) as ledger:
        yield ledger


def only(**periods: float) -> Periods:
    """Return periods with these duties and no others."""
    return Periods(**{**{name: getattr(NONE, name) for name in Periods.__struct_fields__}, **periods})


class Kept:
    """A keeper with duties of the test's own, stopped at the end of the block."""

    def __init__(self, ledger: Ledger, *duties: Duty, periods: Periods = NONE) -> None:
        self._make: Callable[[], Keeper] = lambda: Keeper(ledger, actor="keeper-1", periods=periods, also=duties)

    def __enter__(self) -> Keeper:
        self._keeper = self._make()
        return self._keeper

    def __exit__(self, *_: object) -> None:
        self._keeper.stop()
        assert not self._keeper._thread.is_alive()


def meta(ledger: Ledger) -> dict[str, str]:
    with ledger.store.reading() as reading:
        return reading.settings.read()


def query(ledger: Ledger, sql: str) -> list[tuple[Any, ...]]:
    with ledger.store.reading() as reading:
        return reading.execute(sql)


# ---------------------------------------------------------------------------------------------------------------------
# Taking turns


def test_a_fleet_does_each_duty_once_a_period(real: Ledger) -> None:
    done: list[str] = []
    ledgers = [real, *(Ledger(real.store.url) for _ in range(3))]
    keepers = [
        Kept(
            ledger,
            Duty("rare", LONG_S, partial(done.append, "rare")),
            Duty("other", LONG_S, partial(done.append, "other")),
            Duty(f"own-{n}", LONG_S, partial(done.append, "own")),
        )
        for n, ledger in enumerate(ledgers)
    ]
    for keeper in keepers:
        keeper.__enter__()
    eventually(lambda: len(done) >= 6, "all duties")
    time.sleep(0.1)  # ten more looks
    for keeper in keepers:
        keeper.__exit__()
    for ledger in ledgers[1:]:
        ledger.close()
    assert sorted(done) == ["other", "own", "own", "own", "own", "rare"]
    assert {name for name in meta(real) if name.startswith("duty:")} == {
        "duty:rare", "duty:other", *(f"duty:own-{n}" for n in range(4)),
    }  # fmt: skip


def test_a_duty_is_done_again_when_its_period_is_over(real: Ledger) -> None:
    taken: list[datetime] = []
    with Kept(real, Duty("often", 0.2, lambda: taken.append(time_from(meta(real)["duty:often"])))):
        eventually(lambda: len(taken) >= 3)
    assert all(later - earlier >= timedelta(seconds=0.2) for earlier, later in pairwise(taken))


def test_a_keeper_without_a_due_duty_writes_nothing(real: Ledger) -> None:
    with Kept(real, Duty("rare", LONG_S, lambda: None)):
        eventually(lambda: "duty:rare" in meta(real))
        before = meta(real)["duty:rare"]
        time.sleep(0.1)
        assert meta(real)["duty:rare"] == before


# ---------------------------------------------------------------------------------------------------------------------
# Failing


@pytest.mark.parametrize("error", [StoreUnavailableError("gone for a moment"), ZeroDivisionError("a defect")])
def test_a_duty_that_fails_is_logged_and_done_again_soon(
    real: Ledger, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    tries: list[str] = []

    def fail_twice() -> None:
        tries.append("tried")
        if len(tries) < 3:
            raise error

    other = threading.Event()
    with (
        caplog.at_level(logging.WARNING, logger="holdfast"),
        Kept(real, Duty("fails", LONG_S, fail_twice), Duty("works", LONG_S, other.set)),
    ):
        eventually(lambda: len(tries) == 3)
        assert other.is_set()  # it did not wait for the one that failed
        time.sleep(0.1)
    assert len(tries) == 3
    said = [record.getMessage() for record in caplog.records if "fails" in record.getMessage()]
    assert len(said) == 2
    assert all(line.startswith("duty fails failed") for line in said)


def test_a_keeper_survives_an_unreadable_ledger(real: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    with real.store.transaction() as transaction:
        transaction.settings.set("duty:odd", "in the beginning")
    done = threading.Event()
    with caplog.at_level(logging.ERROR, logger="holdfast"), Kept(real, Duty("odd", LONG_S, done.set)):
        eventually(lambda: caplog.records)
        with real.store.transaction() as transaction:
            transaction.settings.set("duty:odd", "2020-01-01T00:00:00.000000Z")
        assert done.wait(PATIENCE_S)


# ---------------------------------------------------------------------------------------------------------------------
# With its worker


def keepers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "holdfast-keeper"]


def test_a_keeper_ends_with_its_worker_and_one_without_threads_has_none(real: Ledger) -> None:
    eventually(lambda: keepers() == [], "the end of the keepers of earlier tests")
    seen: list[int] = []

    @real.operation("look")
    def look(run: Any) -> None:
        seen.append(len(keepers()))

    real.submit("look")
    Worker(real).run(until_idle=True)
    real.submit("look")
    Worker(real, executor="inline").run(until_idle=True)
    assert (seen, keepers()) == ([1, 0], [])


def test_a_worker_stops_while_a_duty_is_long(real: Ledger) -> None:
    began, go_on = threading.Event(), threading.Event()

    def long() -> None:
        began.set()
        go_on.wait(PATIENCE_S)

    with working(real, periods=NONE, duties=[Duty("long", LONG_S, long)]) as worker:
        assert began.wait(PATIENCE_S)
        worker.stop()
        threading.Timer(0.2, go_on.set).start()
    assert eventually(lambda: keepers() == [])


def test_a_worker_folds_seals_and_checks(real: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    found: list[InvariantViolated] = []
    for n in range(5):
        real.submit("noop", {"n": n})
    real.run_until_idle()
    subscription = real.subscribe_to_violations(found.append)
    with real.store.transaction() as transaction:
        transaction.counts.fold()
        transaction.execute("UPDATE holdfast_counts SET n = n + 1 WHERE state = 'succeeded'")
    real.submit("noop", {})
    with working(real, periods=only(fold_s=0.05, seal_s=0.05, check_s=0.05)):
        eventually(lambda: query(real, "SELECT count(*) FROM holdfast_count_deltas") == [(0,)], "folding")
        eventually(lambda: query(real, "SELECT sum(rows) FROM holdfast_seals") == [(18,)], "sealing")
        eventually(lambda: found, "checking")
    subscription.close()
    assert found[0].invariant == "counts_true"


def test_a_worker_deletes_workers_not_seen_for_a_week(real: Ledger) -> None:
    for name in ("gone", "seen"):
        with real.store.transaction() as transaction:
            transaction.workers.seen(name, ["default"], ["noop"], 1)
    with real.store.transaction() as transaction:
        transaction.execute(
            "UPDATE holdfast_workers SET seen_at = '2020-01-01T00:00:00.000000Z' WHERE worker_id = 'gone'"
        )
    with working(real, periods=only(forget_s=0.05)) as worker:
        eventually(lambda: ("gone",) not in query(real, "SELECT worker_id FROM holdfast_workers"), "forgetting")
    left = {name for (name,) in query(real, "SELECT worker_id FROM holdfast_workers")}
    assert left == {"seen", worker.worker_id}


@pytest.mark.req("W-06")
def test_a_worker_collects_by_the_ledgers_policy_and_not_without_one(real: Ledger, tmp_path: Path) -> None:
    receipt = real.submit("noop", {}, client="c", key="a")
    real.run_until_idle()
    with working(real, periods=only(gc_s=0.05)) as worker:
        eventually(lambda: "duty:gc" in meta(real))
        time.sleep(0.2)
        assert not real.job(receipt.job_id).slimmed
        policy = Retention(finished_s=0, quarantined_s=0, history_s=0, archive_dir=str(tmp_path))
        set_policy(real.store, policy, who="ann", why="small disk")
        eventually(lambda: real.job(receipt.job_id).slimmed, "slimming")
        eventually(lambda: query(real, "SELECT file FROM holdfast_archives"), "archiving")
    [[file, sha256]] = query(real, "SELECT file, sha256 FROM holdfast_archives")
    verify_archive(tmp_path / file, sha256=sha256)
    doors = query(real, "SELECT DISTINCT actor, reason FROM holdfast_journal WHERE event IN ('slim', 'archive')")
    assert {who for who, _ in doors} == {worker.worker_id}


def test_a_worker_that_leaves_retention_to_others_does_not_collect(real: Ledger) -> None:
    receipt = real.submit("noop", {}, client="c", key="a")
    real.run_until_idle()
    set_policy(real.store, Retention(finished_s=0), who="ann", why="small disk")
    with working(real, periods=only(seal_s=0.02)):
        eventually(lambda: query(real, "SELECT count(*) FROM holdfast_seals") != [(0,)])
        time.sleep(0.1)
    assert "duty:gc" not in meta(real)
    assert not real.job(receipt.job_id).slimmed


def test_a_worker_adds_the_journals_next_partition(new_postgres_ledger: str) -> None:
    with Ledger(new_postgres_ledger) as ledger:
        ledger.store  # noqa: B018 - makes it
        with psycopg.connect(new_postgres_ledger) as shell:
            shell.execute("SELECT setval('holdfast_journal_seq', 19999995, false)")
        with working(ledger, periods=only(extend_s=0.05)):
            eventually(lambda: query(ledger, "SELECT to_regclass('holdfast_journal_p1')::text") != [(None,)])
            receipts = [ledger.submit("noop", {"n": n}) for n in range(3)]
            for receipt in receipts:
                assert receipt.wait(PATIENCE_S).state == "succeeded"
        assert query(ledger, "SELECT count(*) > 0 FROM holdfast_journal_p1") == [(True,)]
