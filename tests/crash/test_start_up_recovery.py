"""What a worker finds at its start, does about it, and reports."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from holdfast import Ledger, Worker
from holdfast.core.commands import Commit
from holdfast.core.decide import Move
from holdfast.core.records import LOSSES_EXCUSED, Attempt
from holdfast.engine.worker.reaper import RecoveryReport, recover
from holdfast.engine.worker.recovery import BATCH
from holdfast.engine.world import World
from holdfast.store import Lease
from holdfast.testing import VirtualClock
from tests.support.promises import Facts, require_promises

pytestmark = pytest.mark.attack("faults")

LEASE_S = 10


def claim(ledger: Ledger, n: int) -> list[Attempt]:
    with ledger.store.transaction() as transaction:
        return transaction.executions.claim(Lease(owner="dead", seconds=LEASE_S, n=n))


def commit(ledger: Ledger, attempts: Sequence[Attempt]) -> None:
    """Cross the commit boundary without finishing."""
    with ledger.store.transaction() as transaction:
        moves = [(attempt, Commit(attempt.execution.lease_token, '"kept"')) for attempt in attempts]
        assert all(isinstance(answer, Move) for answer in transaction.executions.move(moves, actor="dead"))


@pytest.mark.req("G-22", "M-09", "M-13", "M-05")
def test_the_report_lists_the_end_of_every_interrupted_attempt(ledger_url: str) -> None:
    clock = VirtualClock()
    with Ledger(ledger_url, world=World(clock=clock)) as ledger:
        ledger.operation("plain")(lambda run: "done")
        ledger.operation("last_try", max_attempts=1)(lambda run: "done")
        ledger.operation("no_try", max_attempts=1, replay_attempts=0)(lambda run: "done")
        plan = {"finished": "plain", "reopened": "plain", "failed": "last_try", "quarantined": "no_try"}
        ids = {fate: ledger.submit(operation, {}).job_id for fate, operation in plan.items()}
        for _ in range(LOSSES_EXCUSED):  # lost leases that cost a job nothing
            with ledger.store.transaction() as transaction:
                lease = Lease(owner="dead", seconds=LEASE_S)
                assert len(transaction.executions.claim_these([ids["failed"], ids["quarantined"]], lease)) == 2
            clock.advance(3600)
            assert recover(ledger, actor="reaper").reopened == 2
            clock.advance(3600)
        attempts = {attempt.job.job_id: attempt for attempt in claim(ledger, len(plan))}
        commit(ledger, [attempts[ids["finished"]]])
        clock.advance(LEASE_S + 1)
        alive = ledger.submit("plain", {}).job_id
        [held] = claim(ledger, 1)
        assert held.job.job_id == alive

        worker = Worker(ledger, executor="inline")
        assert worker.run(until_idle=True) == 1
        assert worker.report is not None
        assert set(worker.report.job_ids) == set(ids.values())
        reported = {name: getattr(worker.report, name) for name in ("finished", "reopened", "failed", "quarantined")}
        assert reported == dict.fromkeys(plan, 1)
        assert (worker.report.recovered, worker.report.refused) == (4, 0)

        facts = Facts(ledger, effects=False)
        require_promises(facts, effects=False)
        states = {fate: facts.jobs[job_id].state.value for fate, job_id in ids.items()}
        assert states == {
            "finished": "succeeded", "reopened": "succeeded", "failed": "failed", "quarantined": "quarantined",
        }  # fmt: skip
        assert facts.jobs[ids["finished"]].result == '"kept"'
        assert facts.jobs[ids["finished"]].attempts == 1
        assert facts.jobs[ids["reopened"]].attempts == 2
        assert facts.jobs[alive].state == "running"


@pytest.mark.req("G-22")
def test_a_worker_that_finds_nothing_reports_nothing(ledger_url: str) -> None:
    with Ledger(ledger_url) as ledger:
        worker = Worker(ledger)
        assert worker.run(until_idle=True) == 0
        assert worker.report == RecoveryReport()


@pytest.mark.req("G-22", "M-09")
@pytest.mark.parametrize("many", [2 * BATCH, pytest.param(10 * BATCH, marks=pytest.mark.slow)])
def test_thousands_of_interrupted_jobs_are_recovered_in_bounded_batches(ledger_url: str, many: int) -> None:
    clock = VirtualClock()
    with Ledger(ledger_url, world=World(clock=clock)) as ledger:
        ledger.submit_many([{"operation": "noop"} for _ in range(many)])
        attempts = claim(ledger, many)
        commit(ledger, attempts[: many // 10])
        clock.advance(LEASE_S + 1)
        # Of another queue: the worker recovers everything, and has nothing to run.
        worker = Worker(ledger, queues=["other"])
        assert worker.run(until_idle=True) == 0
        assert worker.report is not None
        assert (worker.report.finished, worker.report.reopened) == (many // 10, many - many // 10)
        assert worker.report.recovered == many == len(set(worker.report.job_ids))
        assert {count.state.value: count.n for count in ledger.counts()} == {
            "pending": many - many // 10,
            "succeeded": many // 10,
        }
        with ledger.store.reading() as reading:
            rows = ledger.store.execute(
                reading.connection,
                "SELECT move_id, count(DISTINCT subject) FROM holdfast_edges"
                " WHERE machine = 'EXECUTION' AND event IN ('abort', 'finish') GROUP BY move_id",
            )
        # No write lock is held for more than a batch, however many there are.
        sizes = [n for _, n in rows]
        assert (sum(sizes), max(sizes)) == (many, BATCH)
        assert len(sizes) == many // BATCH + 1  # what has committed is finished in batches of its own
