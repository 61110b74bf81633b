"""Checks while a ledger works: violations are published, and work in progress is never one."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Ledger, Worker
from holdfast.audit.check import ledger_rules
from holdfast.audit.check.runner import check, check_steps
from holdfast.core.errors import StoreDamagedError
from holdfast.core.steps import run_steps
from holdfast.engine.events import InvariantViolated, Transition
from holdfast.engine.upkeep import checks as checking
from holdfast.engine.upkeep.checks import AT_OPEN, check_and_publish
from holdfast.engine.upkeep.duties import Duty
from holdfast.engine.upkeep.retention import Retention, gc
from holdfast.engine.world import World
from holdfast.store import Store, open_store
from holdfast.testing import VirtualClock
from tests.audit.corruptions import corrupt
from tests.audit.rich import Rich
from tests.support.forkserver import Child, ForkServer, shared_server
from tests.support.roles import COUNT, counting_ledger, create_effects, succeeded, wait_until

JOBS = 150
KILLS = 4


# ---------------------------------------------------------------------------------------------------------------------
# Publishing


@pytest.mark.req("G-06", "G-27")
def test_a_violation_is_published_when_the_ledger_opens(
    rich_ledger: tuple[str, Rich], rich_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    url, rich = rich_ledger
    corrupt(url, rich, "a_last_seal_that_was_edited")
    ledger = Ledger(url, world=World(clock=rich_clock))
    heard: list[InvariantViolated] = []
    moved: list[Transition] = []
    subscription = ledger.subscribe_to_violations(heard.append)
    others = ledger.subscribe(moved.append)
    assert ledger.job(rich.done).state == "succeeded"  # opens it, and it still works
    assert subscription.flush()
    assert others.flush()
    ledger.close()
    [event] = heard
    assert (event.invariant, event.subject) == ("seals_chained", "SEAL 2")
    assert (event.severity, event.at) == ("error", rich_clock())
    assert moved == []
    said = f"SEAL 2 violates seals_chained: {event.detail}"
    assert (logging.WARNING, said) in {(record.levelno, record.getMessage()) for record in caplog.records}


def test_a_sound_ledger_opens_without_a_warning(
    rich_ledger: tuple[str, Rich], rich_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with Ledger(rich_ledger[0], world=World(clock=rich_clock)) as ledger:
        ledger.job(1)
    assert caplog.records == []


def test_a_check_that_fails_does_not_stop_the_ledger_from_opening(
    rich_ledger: tuple[str, Rich],
    rich_clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(_store: Store[object], **_how: object) -> None:
        raise StoreDamagedError("a page is gone")

    monkeypatch.setattr(checking, "check", fails)
    with Ledger(rich_ledger[0], world=World(clock=rich_clock)) as ledger:
        assert ledger.job(1).job_id == 1
    assert [record.getMessage() for record in caplog.records] == [
        "the ledger could not be checked when it opened: a page is gone"
    ]


def test_opening_checks_the_cheap_invariants_that_it_does_not_compare_itself() -> None:
    assert AT_OPEN == ("lease_overdue", "seals_chained")


@pytest.mark.req("G-06", "G-27")
def test_a_check_publishes_each_violation_that_it_finds(
    rich_ledger: tuple[str, Rich], rich_clock: VirtualClock
) -> None:
    url, rich = rich_ledger
    expected = corrupt(url, rich, "a_quarantined_job_let_out")
    with Ledger(url, world=World(clock=rich_clock)) as ledger:
        heard: list[InvariantViolated] = []
        subscription = ledger.subscribe_to_violations(heard.append)
        report = run_steps(check_and_publish(ledger))
        assert not report.ok
        assert subscription.flush()
        assert {(event.invariant, event.subject) for event in heard} == expected
        dropped = check_and_publish(ledger)
        next(dropped)
        dropped.close()
        assert subscription.flush()
        assert len(heard) == len(report.violations)


@pytest.mark.req("G-06", "G-27")
def test_a_worker_checks_now_and_then(ledger_url: str) -> None:
    with Ledger(ledger_url) as ledger:
        ledger.submit("noop", {})
        heard: list[InvariantViolated] = []
        subscription = ledger.subscribe_to_violations(heard.append)
        with ledger.store.transaction() as transaction:
            transaction.execute("INSERT INTO holdfast_counts VALUES ('ghost', 'attic', 'pending', 3)")
        worker = Worker(ledger, duties=[Duty("check-test", 0.1, lambda: check_and_publish(ledger))])
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            wait_until(lambda: len(heard) >= 2, 20, "two checks have reported it")
        finally:
            worker.stop()
            thread.join(20)
        assert subscription.flush()
    assert {(event.invariant, event.subject) for event in heard} == {("counts_true", "COUNTS ghost/attic/pending")}


def test_history_archived_between_two_steps_is_no_violation(
    rich_ledger: tuple[str, Rich], rich_clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pages of a check are of different moments: a gc moves rows to an archive after the first page."""
    monkeypatch.setattr(ledger_rules, "ROWS_A_PAGE", 2)
    policy = Retention(finished_s=60, quarantined_s=60, history_s=60, archive_dir=str(tmp_path))
    rich_clock.advance(3600)
    with open_store(rich_ledger[0], rich_clock) as store:
        steps = check_steps(store, only=["no_orphans"])
        for _ in range(2):
            next(steps)
        assert gc(store, policy, who="keeper").archives
        assert run_steps(steps).violations == ()
        assert check(store).ok


# ---------------------------------------------------------------------------------------------------------------------
# At work


@pytest.fixture
def server() -> Iterator[ForkServer]:
    with shared_server("tests.support.roles", "psycopg") as server:
        yield server


@pytest.mark.req("M-11", "M-19", "G-22")
def test_no_violation_while_workers_work_and_are_killed(server: ForkServer, ledger_url: str, tmp_path: Path) -> None:
    """Checks see each job and its history in one snapshot, so that moves in progress are never violations."""
    with counting_ledger(ledger_url, lease_s=0.5) as ledger:
        create_effects(ledger)
        ledger.submit_many(
            [{"operation": COUNT, "payload": {"key": str(n)}, "client": "live", "key": str(n)} for n in range(JOBS)]
        )

        def worker() -> Child:
            return server.spawn("tests.support.roles:work", url=ledger_url, lease_s=0.5, work_ms_max=40, concurrency=2)

        workers = [worker(), worker()]
        checks = 0
        for kill in range(KILLS):
            until = time.monotonic() + 0.3
            while time.monotonic() < until:
                report = check(ledger.store, batch=40)
                assert report.violations == ()
                checks += 1
            workers[kill % 2].kill()
            workers[kill % 2] = worker()
        wait_until(lambda: succeeded(ledger) == JOBS, 60, f"all {JOBS} jobs succeeded")
        for child in workers:
            child.kill()
        report = check(ledger.store)
        assert report.violations == ()
        assert report.checked["jobs"] == JOBS
        assert checks >= KILLS
        [[effects]] = ledger.perform(lambda transaction: transaction.execute("SELECT count(*) FROM effects"))
        assert effects == JOBS
