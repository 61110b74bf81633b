"""FM_001: a worker outlives its lease, another takes the job over, and the first comes back.

With the guards off the effect happens twice; each guard alone prevents it; with all of them the late worker is refused
and ends ABORTED. First on a virtual clock, then with processes that are really stopped.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import pytest

from holdfast import Execution, Ledger, Operation, RetryPolicy, Strategy
from holdfast.core.decide import Move, Refused
from holdfast.core.machines import ExecutionStatus, JobState
from holdfast.core.records import Attempt
from holdfast.store import Lease
from holdfast.store.verbs.executions import ExecutionWrites
from holdfast.store.verbs.recovery import RecoveryWrites
from holdfast.testing import VirtualClock, crash_at, drain, virtual_world
from tests.engine.database import Database

pytestmark = pytest.mark.attack("faults")

ROOT = Path(__file__).resolve().parents[2]
CHILD_S = 30

LEASE_AND_WORK = [(1, 2), (1, 3), (2, 3)]


def nothing() -> None:
    """Take no time."""


class Process:
    """One process with its own ledger object, store and committer; `meanwhile` is what happens during its work."""

    def __init__(self, url: str, clock: VirtualClock, lease_s: float, seed: int) -> None:
        self.ledger = Ledger(url, world=virtual_world(clock, seed=seed))
        self.meanwhile: Callable[[], object] = nothing

        @self.ledger.operation("charge", lease_s=lease_s, retry=RetryPolicy(strategy=Strategy.IMMEDIATE))
        def charge(run: Execution, order: int) -> dict[str, int]:
            run.effect(
                "INSERT INTO effects (job_id, exec_id) VALUES (:job_id, :exec_id)",
                {"job_id": run.job.job_id, "exec_id": run.job.job_id * 1_000_000 + run.attempt},
                rows=1,
            )
            self.meanwhile()
            return {"order": order, "exec_id": run.job.job_id * 1_000_000 + run.attempt}

        self.charge: Operation[..., dict[str, int]] = charge


class Scene:
    """Processes on one ledger. The table of effects has no constraint that could hide a second one."""

    def __init__(self, database: Database, clock: VirtualClock) -> None:
        self.database = database
        self.clock = clock
        self.processes: list[Process] = []
        database.run("CREATE TABLE effects (job_id bigint NOT NULL, exec_id bigint NOT NULL)")

    def start(self, lease_s: float = 1, clock: VirtualClock | None = None) -> Process:
        self.processes.append(Process(self.database.url, clock or self.clock, lease_s, seed=len(self.processes)))
        return self.processes[-1]

    def effects(self) -> list[tuple[int, int]]:
        """Return (job_id, exec_id) of every effect."""
        rows = self.database.run("SELECT job_id, exec_id FROM effects ORDER BY exec_id")
        return [(job_id, exec_id) for job_id, exec_id in rows]


@pytest.fixture
def scene(database: Database, clock: VirtualClock) -> Iterator[Scene]:
    scene = Scene(database, clock)
    yield scene
    for process in scene.processes:
        process.ledger.close()


def executions(ledger: Ledger, job_id: int) -> list[tuple[int, str, str | None]]:
    with ledger.store.reading() as reading:
        return [(e.attempt, e.status.value, e.error_code) for e in reading.lists.executions(job_id)]


def committed(ledger: Ledger, job_id: int) -> list[int]:
    """Return the executions past the commit boundary."""
    with ledger.store.reading() as reading:
        found = reading.lists.executions(job_id)
    return [e.exec_id for e in found if e.status in (ExecutionStatus.COMMITTED, ExecutionStatus.DONE)]


def targets(ledger: Ledger, exec_id: int) -> list[str]:
    with ledger.store.reading() as reading:
        return [row.target for row in reading.journal.of(exec_id, "EXECUTION")]


# ---------------------------------------------------------------------------------------------------------------------
# The baseline: the guards taken off, one by one


class Guard(StrEnum):
    FENCE = "fence"  # a worker's write matches its token, its name and an unexpired lease
    STATUS = "status"  # a worker's write matches the status that it read
    TRIGGERS = "triggers"  # the database refuses to write an ended attempt again


def _careless_work(self: ExecutionWrites, moves: Sequence[tuple[Attempt, object]], **rest: Any) -> list[Move | Refused]:
    """Judge a lease as it was when the work began: what a worker does that looked before it stalled."""
    return _WORK(self, moves, **{**rest, "now": min(attempt.execution.created_at for attempt, _ in moves)})


def _naive_recover(self: RecoveryWrites, **_: Any) -> list[tuple[Attempt, Move | Refused]]:
    """Put every running job back, whatever its lease says: as a usual cron job does."""
    self._session.execute(
        "UPDATE holdfast_jobs SET state = 'pending', status = NULL, lease_expires_at = NULL, due_at = run_at,"
        " version = version + 2, event = 'expire', actor = 'cron', move_id = 'naive' WHERE state = 'running'",
    )
    return []


_WORK = ExecutionWrites.move
_FENCE = re.compile(
    r"\s+AND (?:j\.)?(?:lease_token = \S+(?: ->> \d)?|lease_owner = \S+|lease_expires_at > \S+?)(?=\s|;|$)"
)
_STATUS = re.compile(r"\s+AND (?:j\.)?status = \S+")
_LIVE = re.compile(r"\s+AND \(\w\.lease_live IS NULL OR [^\n]*\)\)")


def take_off_guards(monkeypatch: pytest.MonkeyPatch, scene: Scene, keep: Guard | None) -> None:
    """Leave the ledger with one guard or none, and with a recovery that looks at no lease."""
    stores: list[Any] = [process.ledger.store for process in scene.processes]  # opened before anything is missing
    monkeypatch.setattr(RecoveryWrites, "recover", _naive_recover)
    monkeypatch.setattr(RecoveryWrites, "expire", lambda _self, **_: [])  # nothing is left for it
    monkeypatch.setattr(ExecutionWrites, "move", _careless_work)
    if keep is not Guard.TRIGGERS:
        trigger = "holdfast_jobs_moved ON holdfast_jobs" if scene.database.is_postgres else "holdfast_jobs_move"
        scene.database.run(f"DROP TRIGGER {trigger}")
    for store in stores:
        bare = {name: store._statements[name][0] for name in ("complete_jobs", "move_attempts")}
        for guard, patterns in ((Guard.FENCE, (_FENCE, _LIVE)), (Guard.STATUS, (_STATUS,))):
            if keep is not guard:
                for pattern in patterns:
                    bare = {name: pattern.sub("", text) for name, text in bare.items()}
        assert keep is Guard.FENCE or all("lease_token" not in text.split("WHERE")[-1] for text in bare.values())
        assert keep is Guard.STATUS or all("status =" not in text.split("WHERE")[-1] for text in bare.values())
        taken = {name: (text,) for name, text in bare.items()}
        monkeypatch.setattr(store, "_statements", {**store._statements, **taken})


def prepare(scene: Scene, a: Process, b: Process, work_s: float) -> int:
    """Submit a job that A works on for so long that B takes it over and completes it; return the job."""

    def taken_over() -> None:
        a.meanwhile = nothing
        scene.clock.advance(work_s)
        assert drain(b.ledger) == 1

    a.meanwhile = taken_over
    return a.ledger.submit(a.charge.call(order=7), client="shop", key="order-7").job_id


@pytest.mark.req("M-07", "M-10", "M-12", "M-16", "M-17", "M-19", "M-21", "G-13")
@pytest.mark.parametrize("lease_s, work_s", LEASE_AND_WORK)
def test_without_any_guard_the_effect_happens_twice(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, lease_s: float, work_s: float
) -> None:
    a, b = scene.start(lease_s), scene.start(lease_s)
    job_id = prepare(scene, a, b, work_s)
    take_off_guards(monkeypatch, scene, keep=None)
    assert drain(a.ledger) == 1
    assert [job for job, _ in scene.effects()] == [job_id, job_id]


@pytest.mark.req("M-07", "M-16", "M-17", "G-13")
@pytest.mark.parametrize("keep", Guard)
def test_each_guard_alone_prevents_the_second_effect(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, keep: Guard
) -> None:
    a, b = scene.start(), scene.start()
    job_id = prepare(scene, a, b, work_s=2)
    take_off_guards(monkeypatch, scene, keep=keep)
    assert drain(a.ledger) == 1
    assert [job for job, _ in scene.effects()] == [job_id]


# ---------------------------------------------------------------------------------------------------------------------
# With the guards


@pytest.mark.req("M-06", "M-07", "M-10", "M-16", "M-17", "M-18", "M-21", "G-13", "X-05")
@pytest.mark.parametrize("lease_s, work_s", LEASE_AND_WORK)
def test_the_late_holder_is_refused_and_the_effect_happens_once(
    scene: Scene, caplog: pytest.LogCaptureFixture, lease_s: float, work_s: float
) -> None:
    a, b = scene.start(lease_s), scene.start(lease_s)
    job_id = prepare(scene, a, b, work_s)
    assert drain(a.ledger) == 1
    assert "the ledger refused the end of attempt 1" in caplog.text
    assert executions(a.ledger, job_id) == [(1, "ABORTED", "lease_expired"), (2, "DONE", None)]
    [second] = committed(a.ledger, job_id)
    assert scene.effects() == [(job_id, second)]
    job = a.ledger.receipt(job_id)
    assert (job.state, job.result) == (JobState.SUCCEEDED, {"order": 7, "exec_id": second})
    with a.ledger.store.reading() as reading:
        first = reading.lists.executions(job_id)[0].exec_id
    assert targets(a.ledger, first) == ["LEASED", "IN_PROGRESS", "ABORTED"]
    assert targets(a.ledger, second) == ["LEASED", "IN_PROGRESS", "COMMITTED", "DONE"]


@pytest.mark.req("M-06", "M-18", "G-13")
def test_a_late_holder_whose_clock_stands_still_is_refused_too(scene: Scene) -> None:
    a = scene.start(clock=VirtualClock(scene.clock()))  # the clock of A stands still, so to A its lease never ends
    b = scene.start()
    job_id = prepare(scene, a, b, work_s=2)
    assert drain(a.ledger) == 1
    assert executions(b.ledger, job_id) == [(1, "ABORTED", "lease_expired"), (2, "DONE", None)]
    assert scene.effects() == [(job_id, *committed(b.ledger, job_id))]


@pytest.mark.req("M-06", "M-18")
def test_the_late_holder_can_not_hold_on_keep_a_checkpoint_or_note_progress(scene: Scene) -> None:
    a, b = scene.start(), scene.start()
    a.ledger.submit(a.charge.call(order=7))
    with a.ledger.store.transaction() as transaction:
        [late] = transaction.executions.claim(Lease(owner="late", seconds=1))
    scene.clock.advance(2)
    assert drain(b.ledger) == 1
    with a.ledger.store.transaction() as transaction:
        assert not transaction.notes.save_checkpoints(late, {"x": "1"})
        assert not transaction.executions.extend_leases([(late.execution, 60)])
        assert not transaction.notes.save_progress([(late.execution, 0.5, None)])


@pytest.mark.req("M-09", "M-13", "M-14", "M-16", "M-17", "X-08")
def test_a_crash_between_commit_and_finish_recovers_to_done_with_one_effect(scene: Scene) -> None:
    a, b = scene.start(), scene.start()
    receipt = a.ledger.submit(a.charge.call(order=7))
    with crash_at("after_commit_before_done"):
        drain(a.ledger)
    [first] = committed(b.ledger, receipt.job_id)
    assert executions(b.ledger, receipt.job_id) == [(1, "COMMITTED", None)]
    assert scene.effects() == [(receipt.job_id, first)]

    assert drain(b.ledger) == 0  # the lease is still live
    assert b.ledger.receipt(receipt.job_id).state is JobState.RUNNING
    scene.clock.advance(1)
    assert drain(b.ledger) == 0  # finished, and not worked on again
    done = b.ledger.receipt(receipt.job_id)
    assert (done.state, done.result) == (JobState.SUCCEEDED, {"order": 7, "exec_id": first})
    assert executions(b.ledger, receipt.job_id) == [(1, "DONE", None)]
    assert targets(b.ledger, first) == ["LEASED", "IN_PROGRESS", "COMMITTED", "DONE"]
    assert scene.effects() == [(receipt.job_id, first)]
    assert b.ledger.job(receipt.job_id).attempts == 1


@pytest.mark.req("M-08", "M-09", "M-16", "M-17")
def test_a_crash_before_the_commit_leaves_no_effect_and_is_tried_again(scene: Scene) -> None:
    a, b = scene.start(), scene.start()
    receipt = a.ledger.submit(a.charge.call(order=7))
    with crash_at("before_commit"):
        drain(a.ledger)
    assert executions(b.ledger, receipt.job_id) == [(1, "IN_PROGRESS", None)]
    assert scene.effects() == []
    scene.clock.advance(1)
    assert drain(b.ledger) == 1
    assert executions(b.ledger, receipt.job_id) == [(1, "ABORTED", "lease_expired"), (2, "DONE", None)]
    assert scene.effects() == [(receipt.job_id, *committed(b.ledger, receipt.job_id))]


@pytest.mark.req("M-15")
def test_without_a_fault_there_is_one_effect_one_commit_and_no_retry(scene: Scene) -> None:
    a = scene.start()
    receipt = a.ledger.submit(a.charge.call(order=7))
    assert drain(a.ledger) == 1
    assert executions(a.ledger, receipt.job_id) == [(1, "DONE", None)]
    [exec_id] = committed(a.ledger, receipt.job_id)
    assert scene.effects() == [(receipt.job_id, exec_id)]
    assert targets(a.ledger, exec_id) == ["LEASED", "IN_PROGRESS", "COMMITTED", "DONE"]
    with a.ledger.store.reading() as reading:
        assert [row.target for row in reading.journal.of(receipt.job_id)] == ["pending", "running", "succeeded"]
    job = a.ledger.job(receipt.job_id)
    assert (job.state, job.attempts, job.excused) == (JobState.SUCCEEDED, 1, 0)
    sql = f"SELECT lease_expires_at, due_at FROM holdfast_jobs WHERE job_id = {receipt.job_id}"
    assert scene.database.run(sql) == [(None, None)]
    assert drain(a.ledger, until=scene.clock.after(60)) == 0


@pytest.mark.req("M-17")
def test_the_virtual_clock_is_the_only_clock(scene: Scene) -> None:
    a = scene.start()
    receipt = a.ledger.submit(a.charge.call(order=7))
    drain(a.ledger)
    with a.ledger.store.reading() as reading:
        rows = [*reading.journal.of(receipt.job_id), *reading.journal.of_executions(receipt.job_id)]
    assert {row.at for row in rows} == {scene.clock()}


# ---------------------------------------------------------------------------------------------------------------------
# With real processes


class Child:
    """A worker process; see `tests.engine.stalling_child`."""

    def __init__(self, url: str, name: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.engine.stalling_child", url, name],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def until(self, words: str) -> str:
        """Return the next line that holds these words."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if words in line:
                return line.strip()
        pytest.fail(f"the process ended without saying {words!r}")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(CHILD_S)


@pytest.mark.req("M-06", "M-18", "M-21", "G-13", "X-05")
def test_a_worker_that_is_stopped_past_its_lease_is_refused_when_it_continues(
    ledger_url: str, database: Database
) -> None:
    with Ledger(ledger_url) as ledger:

        @ledger.operation("charge")
        def charge(run: Execution, order: int) -> dict[str, int]:
            raise NotImplementedError  # the children have the handler

        database.run("CREATE TABLE effects (job_id bigint NOT NULL, exec_id bigint NOT NULL)")
        with Child(ledger_url, "A") as a:
            a.until("ready")
            receipt = ledger.submit(charge.call(order=7))
            a.until("working on attempt 1")
            _, status = os.waitpid(a.process.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            with Child(ledger_url, "B") as b:
                b.until("working on attempt 2")
                done = receipt.wait(CHILD_S)
                before = (done.state, done.result, executions(ledger, receipt.job_id))

                a.process.send_signal(signal.SIGCONT)
                said = a.until("the ledger refused the end of attempt 1")
                assert said.startswith(f"job {receipt.job_id}:")
                assert a.stop() == 0
                assert b.stop() == 0
        [second] = committed(ledger, receipt.job_id)
        assert before == (
            JobState.SUCCEEDED,
            {"order": 7, "exec_id": second},
            [(1, "ABORTED", "lease_expired"), (2, "DONE", None)],
        )
        assert executions(ledger, receipt.job_id) == before[2]
        assert ledger.receipt(receipt.job_id).result == before[1]
        assert database.run("SELECT job_id, exec_id FROM effects") == [(receipt.job_id, second)]
