"""One fixed run through everything that is written on the way of a job, which can be killed at any statement of it.

Invariants: one thread, a clock that only the run moves, so every run issues the same statements in the same order;
what has been answered is noted before the next step, by one write that outlives the process.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import Execution, Ledger
from holdfast.core.commands import Commit, Finish
from holdfast.core.decide import Move, Refused
from holdfast.core.records import Attempt
from holdfast.engine.tasks import ClaimTask, EndTask
from holdfast.engine.worker.attempt import HeldAttempt
from holdfast.engine.worker.reaper import recover
from holdfast.engine.worker.turn import Turn
from holdfast.engine.world import World
from holdfast.store import Lease
from holdfast.testing import VirtualClock
from tests.support.roles import CLIENT, NO_DELAY, note, stage_effect
from tests.support.trap import Trap

KEYS = ("alone", "both", "committed", "dropped", "flaky", "returned")  # in order: a batch is recorded by key
LEASE_S = 10.0


def reference_ledger(url: str, clock: VirtualClock) -> Ledger:
    ledger = Ledger(url, world=World(clock=clock))

    @ledger.operation("step", lease_s=LEASE_S, retry=NO_DELAY)
    def step(run: Execution, key: str) -> str:
        if key == "flaky" and run.attempt == 1:
            raise ConnectionError("not this time")
        stage_effect(run)
        return key

    return ledger


def submit_all(ledger: Ledger, notes: str | None = None) -> None:
    """Submit every key: the first alone, the others together."""
    calls = [{"operation": "step", "payload": {"key": key}, "client": CLIENT, "key": key} for key in KEYS]
    ledger.submit("step", {"key": KEYS[0]}, client=CLIENT, key=KEYS[0])
    _note(notes, f"submitted {KEYS[0]}")
    ledger.submit_many(calls[1:])
    _note(notes, f"submitted {' '.join(KEYS[1:])}")


def run(url: str, *, notes: str, counted: str, by: str = "statement", kill_at: int | None = None) -> None:
    """Make the whole run, or be killed at the statement, trigger's statement or opcode numbered `kill_at`."""
    trap = Trap(kill_at)
    trap.watch_sqlite(by)
    clock = VirtualClock()
    with reference_ledger(url, clock) as ledger:
        ledger.store  # noqa: B018 - opens it
        trap.armed = True
        submit_all(ledger, notes)
        [alone] = _write(ledger, claim=1)
        [both] = _write(ledger, ended=[alone], claim=1)
        _note(notes, "completed alone")
        [committed] = _write(ledger, ended=[both], claim=1)
        _note(notes, "completed both")
        _commit_without_finishing(ledger, committed.record)
        _note(notes, "committed committed")
        [dropped, flaky, returned] = _write(ledger, claim=3)
        _heartbeat(ledger, [flaky, returned])
        returned.give_back("worker_stopped")
        _write(ledger, ended=[flaky, returned])
        _note(notes, "ended flaky")
        clock.advance(LEASE_S + 1)
        report = recover(ledger, actor="reaper")
        assert (report.finished, report.reopened) == (1, 1), report
        _note(notes, "completed committed")
        again = _write(ledger, claim=3)
        assert dropped.job.job_id in report.job_ids
        assert {running.job.key for running in again} == {"dropped", "flaky", "returned"}
        _write(ledger, ended=again)
        _note(notes, "completed dropped flaky returned")
        _note(counted, str(trap.count))


def create(url: str, *, notes: str, counted: str, by: str = "statement", kill_at: int | None = None) -> None:
    """Make a new ledger and submit to it, or be killed on the way."""
    trap = Trap(kill_at, armed=True)
    trap.watch_sqlite(by)
    with reference_ledger(url, VirtualClock()) as ledger:
        submit_all(ledger, notes)
    _note(counted, str(trap.count))


def _write(ledger: Ledger, *, ended: Sequence[HeldAttempt] = (), claim: int = 0) -> list[HeldAttempt]:
    """Run what was claimed before, then end it and claim more in one transaction, as a worker does."""
    for running in ended:
        if not running.ended:
            running.run()
    turn = Turn(ended, Lease(owner="worker", seconds=LEASE_S, n=claim, durable=bool(ended)) if claim else None)
    ledger.perform_tasks(turn.tasks)
    assert all(isinstance(task.result(), Move) for task in turn.tasks if not isinstance(task, ClaimTask))
    return turn.settled(ledger)


def _commit_without_finishing(ledger: Ledger, attempt: Attempt) -> None:
    """Cross the commit boundary and stop there: the crash that recovery must finish without repeating."""
    running = HeldAttempt(ledger, attempt)
    running.run()
    assert running.task is not None
    commit = EndTask(attempt, Commit(attempt.execution.lease_token, '"committed"'), running.task.effects)
    ledger.perform_tasks([commit])
    assert isinstance(commit.result(), Move)
    early = EndTask(attempt, Finish(attempt.execution.lease_token + 1))
    ledger.perform_tasks([early])
    assert isinstance(early.result(), Refused)


def _heartbeat(ledger: Ledger, held: Sequence[HeldAttempt]) -> None:
    leases = [(r.record.execution, LEASE_S) for r in held]
    with ledger.store.transaction() as transaction:
        assert len(transaction.executions.extend_leases(leases)) == len(held)


def _note(path: str | None, line: str) -> None:
    if path is not None:
        note(path, line)
