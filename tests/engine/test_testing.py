"""What the package gives its users for their own tests: clock, drain, planned crashes, and the pytest plugin."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast import Execution, Ledger, Operation, RetryPolicy, Strategy
from holdfast.core.errors import InputError
from holdfast.core.machines import JobState
from holdfast.engine.world import BETWEEN, World
from holdfast.testing import POINTS, Crash, VirtualClock, begin, crash_at, drain, virtual_world
from tests.engine.database import Database

NOON = datetime(2031, 5, 6, 12, tzinfo=UTC)


def counting(ledger: Ledger, *, fails: int = 0) -> Operation[..., int]:
    """Declare an operation with one effect, whose first attempts fail."""

    @ledger.operation("count", lease_s=30, retry=RetryPolicy(strategy=Strategy.FIXED_DELAY, base_s=10, jitter=0))
    def count(run: Execution, name: str) -> int:
        if run.attempt <= fails:
            raise ConnectionError(f"attempt {run.attempt}")
        run.effect("INSERT INTO counted (name) VALUES (:name)", {"name": name})
        return run.attempt

    return count


@pytest.fixture
def count(ledger: Ledger, database: Database) -> Operation[..., int]:
    database.run("CREATE TABLE counted (name text NOT NULL)")
    return counting(ledger)


# ---------------------------------------------------------------------------------------------------------------------
# The clock and drain


def test_a_virtual_clock_moves_only_when_advanced() -> None:
    clock = VirtualClock(NOON)
    assert (clock(), clock(), clock.monotonic()) == (NOON, NOON, 0)
    assert clock.after(90) == NOON.replace(minute=1, second=30)
    assert clock.advance(90) == clock() == NOON.replace(minute=1, second=30)
    assert clock.monotonic() == 90
    with pytest.raises(InputError):
        clock.advance(-1)
    assert clock.jump_to(NOON) == clock() == NOON
    assert clock.monotonic() == 90
    clock.jump_to(NOON.replace(minute=1, second=30))
    with pytest.raises(InputError):
        VirtualClock(NOON.replace(tzinfo=None))
    assert repr(clock) == "VirtualClock(2031-05-06T12:01:30+00:00)"


def test_drain_does_what_is_due_and_nothing_else(
    ledger: Ledger, clock: VirtualClock, count: Operation[..., int]
) -> None:
    due = ledger.submit(count.call(name="now"))
    later = ledger.submit(count.call(name="later"), run_at=clock.after(60))
    elsewhere = ledger.submit(count.call(name="elsewhere"), queue="a queue that nobody declares")
    before = set(threading.enumerate())
    assert drain(ledger) == 2
    assert set(threading.enumerate()) <= before  # a thread of an earlier test may end in between
    states = [ledger.receipt(receipt.job_id).state.value for receipt in (due, later, elsewhere)]
    assert states == ["succeeded", "pending", "succeeded"]
    assert clock.monotonic() == 0


def test_drain_follows_work_to_other_queues(ledger: Ledger) -> None:
    @ledger.operation("lead")
    def lead(run: Execution, n: int) -> None:
        if n:
            ledger.submit(lead.call(n=n - 1), queue=f"queue-{n}")

    ledger.submit(lead.call(n=3))
    assert drain(ledger) == 4
    assert [job.state for job in jobs(ledger)] == [JobState.SUCCEEDED] * 4


def test_drain_until_goes_from_moment_to_moment(ledger: Ledger, clock: VirtualClock, database: Database) -> None:
    database.run("CREATE TABLE counted (name text NOT NULL)")
    count = counting(ledger, fails=2)
    receipt = ledger.submit(count.call(name="x"), run_at=clock.after(100))
    assert drain(ledger, until=clock.after(119)) == 2
    assert clock.monotonic() == 119
    assert drain(ledger, until=clock.after(3600)) == 1
    assert clock.monotonic() == 119 + 3600
    assert ledger.receipt(receipt.job_id).result == 3
    with ledger.store.reading() as reading:
        begun = [e.created_at for e in reading.lists.executions(receipt.job_id)]
    assert [(at - VirtualClock()()).total_seconds() for at in begun] == [100, 110, 120]


def test_drain_until_sees_a_dead_workers_lease_run_out(
    ledger: Ledger, clock: VirtualClock, count: Operation[..., int]
) -> None:
    receipt = ledger.submit(count.call(name="x"))
    with crash_at("after_claim"):
        drain(ledger)
    assert drain(ledger, until=clock.after(29)) == 0
    assert drain(ledger, until=clock.after(2)) == 1
    assert ledger.receipt(receipt.job_id).result == 2
    assert ledger.job(receipt.job_id).last_attempt_at == VirtualClock().after(30)


def test_drain_needs_a_virtual_clock(sqlite_url: str) -> None:
    with Ledger(sqlite_url) as ledger, pytest.raises(InputError) as refused:
        drain(ledger)
    assert refused.value.context == {"clock": "NoneType"}


def test_one_job_at_a_time_the_highest_priority_first(ledger: Ledger) -> None:
    order: list[str] = []

    @ledger.operation("note")
    def note(run: Execution, name: str) -> None:
        order.append(name)
        if name == "first":
            ledger.submit(note.call(name="urgent"), priority=9)

    for name, priority in [("second", 1), ("first", 2), ("last", 0)]:
        ledger.submit(note.call(name=name), priority=priority)
    assert drain(ledger) == 4
    assert order == ["first", "urgent", "second", "last"]


def test_two_runs_with_one_seed_write_the_same_journal(tmp_path: Path) -> None:
    def journal(path: Path) -> list[tuple[Any, ...]]:
        clock = VirtualClock()
        with Ledger(path, world=virtual_world(clock, seed=7)) as ledger:

            @ledger.operation("flaky", retry=RetryPolicy(base_s=10, jitter=0.5))
            def flaky(run: Execution, n: int) -> None:
                if run.attempt < 3:
                    raise ConnectionError("try again")

            ledger.submit_many([flaky.call(n=n) for n in range(5)])
            assert drain(ledger, until=clock.after(600)) == 15
            with ledger.store.reading() as reading:
                return ledger.store.execute(
                    reading.connection,
                    "SELECT machine, subject, version, source, target, event, actor, at FROM holdfast_journal",
                )

    first, second = journal(tmp_path / "first.db"), journal(tmp_path / "second.db")
    assert first == second
    assert len({row[-1] for row in first}) > 5  # the jitter spreads them


# ---------------------------------------------------------------------------------------------------------------------
# Planned crashes

WORK_POINTS = [
    "during_submit", "after_submit", "during_claim", "after_claim", "before_commit", "after_commit", BETWEEN,
    "during_failure", "after_failure",
]  # fmt: skip


@pytest.mark.req("M-08", "M-09", "W-15")
def test_a_crash_at_any_point_costs_no_job_and_no_second_effect(
    ledger: Ledger, clock: VirtualClock, database: Database
) -> None:
    database.run("CREATE TABLE counted (name text NOT NULL)")
    count = counting(ledger, fails=1)
    for point in WORK_POINTS:

        def submit_and_drain(point: str = point) -> None:
            ledger.submit(count.call(name=point), client="c", key=point)
            drain(ledger, until=clock.after(10))

        with crash_at(point):
            submit_and_drain()
        submit_and_drain()  # what a client does that got no answer
        drain(ledger, until=clock.after(60))
        assert database.run("SELECT count(*) FROM counted WHERE name = ?", point) == [(1,)], point
    assert [job.state for job in jobs(ledger)] == [JobState.SUCCEEDED] * len(WORK_POINTS)


@pytest.mark.req("W-15", "M-13")
@pytest.mark.parametrize("point", ["during_recovery", "after_recovery"])
def test_a_crash_of_the_recovery_is_recovered_too(
    ledger: Ledger, clock: VirtualClock, database: Database, count: Operation[..., int], point: str
) -> None:
    receipt = ledger.submit(count.call(name="x"))
    with crash_at("before_commit"):
        drain(ledger)
    clock.advance(30)
    with crash_at(point):
        drain(ledger)
    assert drain(ledger) == 1
    assert ledger.receipt(receipt.job_id).result == 2
    assert database.run("SELECT name FROM counted") == [("x",)]


@pytest.mark.parametrize("point, left", [("during_ruling", "pending"), ("after_ruling", "quarantined")])
def test_a_crash_of_a_ruling_leaves_all_of_it_or_nothing(
    ledger: Ledger, count: Operation[..., int], point: str, left: str
) -> None:
    receipt = ledger.submit(count.call(name="x"))
    with crash_at(point):
        ledger.cancel(receipt.job_id)
    assert ledger.receipt(receipt.job_id).state.value == left


def test_every_crash_point_is_tested() -> None:
    tried = {*WORK_POINTS, "during_recovery", "after_recovery", "during_ruling", "after_ruling"}
    assert set(POINTS) == tried


@pytest.mark.parametrize("point, written", [("during_submit", 0), ("after_submit", 1)])
def test_a_crashed_submit_is_there_or_not_at_all(
    ledger: Ledger, count: Operation[..., int], point: str, written: int
) -> None:
    with crash_at(point):
        ledger.submit_many([count.call(name="x"), count.call(name="y")])
    assert len(jobs(ledger)) == 2 * written


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_crash_inside_a_handler_is_not_the_handlers_failure(
    ledger: Ledger, clock: VirtualClock, asynchronous: bool
) -> None:
    def submit() -> None:
        try:
            ledger.submit("noop", key="inner", client="c")
        except Exception:  # noqa: BLE001 - a handler that swallows what it can
            pytest.fail("a crash is no error")

    def plain(run: Execution) -> None:
        submit()

    async def awaited(run: Execution) -> None:
        submit()

    nested = ledger.operation("nested")(awaited) if asynchronous else ledger.operation("nested")(plain)
    receipt = ledger.submit(nested.call())
    with crash_at("during_submit"):
        drain(ledger)
    assert ledger.receipt(receipt.job_id).state is JobState.RUNNING
    assert [worker.stopped_at for worker in workers(ledger)] == [None]  # a crashed worker does not deregister
    drain(ledger, until=clock.after(31))
    assert ledger.receipt(receipt.job_id).state is JobState.SUCCEEDED


def test_a_planned_crash_that_is_not_reached_fails_the_test(ledger: Ledger, count: Operation[..., int]) -> None:
    with pytest.raises(AssertionError, match="during_claim"), crash_at("during_claim"):
        ledger.submit(count.call(name="x"))
    assert drain(ledger) == 1  # and the plan is gone


def test_only_the_planned_crash_is_suppressed() -> None:
    with pytest.raises(Crash) as crash, crash_at("before_commit"):
        raise Crash("after_commit")
    assert crash.value.point == "after_commit"
    with pytest.raises(InputError) as refused, crash_at("somewhere"):
        pass
    assert refused.value.context == {"point": "somewhere"}


@pytest.mark.req("M-09", "X-08")
def test_commit_and_finish_can_be_run_apart_without_a_fault(
    ledger_url: str, clock: VirtualClock, database: Database
) -> None:
    reached: list[str] = []
    world = World(clock=clock, planned=lambda point: point == BETWEEN, reach=reached.append)
    database.run("CREATE TABLE counted (name text NOT NULL)")
    with Ledger(ledger_url, world=world) as ledger:
        receipt = ledger.submit(counting(ledger).call(name="x"))
        assert drain(ledger) == 1
        assert ledger.receipt(receipt.job_id).result == 1
        with ledger.store.reading() as reading:
            rows = reading.journal.of_executions(receipt.job_id)
        moves = {row.target: row.move_id for row in rows}
    assert [row.target for row in rows] == ["LEASED", "IN_PROGRESS", "COMMITTED", "DONE"]
    assert moves["COMMITTED"] != moves["DONE"]
    submit, claim = ["during_submit", "after_submit"], ["during_claim", "after_claim"]
    assert reached == [*submit, *claim, "before_commit", "after_commit", BETWEEN, *claim]
    assert database.run("SELECT name FROM counted") == [("x",)]


# ---------------------------------------------------------------------------------------------------------------------
# A plain call of a handler


def test_a_handler_can_be_called_plainly(ledger: Ledger, count: Operation[..., int]) -> None:
    run = begin(ledger, count.call(name="x"))
    assert count.fn(run, name="y") == 1
    [effect] = run.staged.effects
    assert (effect.sql, effect.params) == ("INSERT INTO counted (name) VALUES (:name)", {"name": "y"})
    with pytest.raises(InputError) as refused:
        begin(ledger, count.call(name="x").at(VirtualClock().after(60)))
    assert refused.value.context == {"job_id": run.job.job_id + 1}


# ---------------------------------------------------------------------------------------------------------------------
# The plugin

APP = """
from holdfast import Execution, Ledger

ledger = Ledger("production.db")

@ledger.operation("greet", lease_s=5)
def greet(run: Execution, name: str) -> str:
    return f"hello {name}"
"""

TESTS = """
from app import greet, ledger
from holdfast.testing import crash_at, drain

def test_own(holdfast_ledger, holdfast_clock):
    OWN
    receipt = holdfast_ledger.submit(greet.call(name="you"))
    with crash_at("before_commit"):
        drain(holdfast_ledger)
    assert drain(holdfast_ledger) == 0
    holdfast_clock.advance(5)
    assert drain(holdfast_ledger) == 1
    assert holdfast_ledger.receipt(receipt.job_id).result == "hello you"

def test_each_has_its_own(holdfast_ledger):
    assert holdfast_ledger.counts() == []
    drain(holdfast_ledger)
"""


@pytest.mark.parametrize("named", [True, False])
def test_the_plugin_gives_every_test_a_ledger_of_its_own(tmp_path: Path, named: bool) -> None:
    own = "assert holdfast_ledger is ledger" if named else "holdfast_ledger.operations.add(greet)"
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "test_app.py").write_text(TESTS.replace("OWN", own))
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\npythonpath = .\n" + ("holdfast_ledger = app:ledger\n" if named else "")
    )
    done = run_pytest(tmp_path)
    assert "2 passed" in done.stdout, done.stdout
    assert not (tmp_path / "production.db").exists()


def test_the_plugin_says_what_is_wrong_with_a_name(tmp_path: Path) -> None:
    (tmp_path / "test_app.py").write_text("def test_it(holdfast_ledger): pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nholdfast_ledger = sys:path\n")
    assert "holdfast_ledger = sys:path is not a Ledger" in run_pytest(tmp_path).stdout


def run_pytest(directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "holdfast.pytest_plugin", "-p", "no:cacheprovider", "-q"],
        cwd=directory,
        env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )


def jobs(ledger: Ledger) -> list[Any]:
    with ledger.store.reading() as reading:
        return list(reading.lists.jobs())


def workers(ledger: Ledger) -> list[Any]:
    with ledger.store.reading() as reading:
        return list(reading.lists.workers())
