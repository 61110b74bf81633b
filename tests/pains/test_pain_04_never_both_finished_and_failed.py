"""Pain 4: a job is both finished and failed."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from datetime import timedelta

import pytest

from holdfast import Ledger
from holdfast.core.commands import Complete
from holdfast.core.decide import Move
from holdfast.core.errors import RefusedByDatabaseError
from holdfast.engine.tasks import EndTask
from holdfast.engine.worker.reaper import recover
from holdfast.engine.world import World
from holdfast.store import Lease
from holdfast.store.effects import staged
from holdfast.testing import START, VirtualClock
from tests.support.promises import Facts, require_promises
from tests.support.roles import EFFECT, create_effects

SEED = 20261115
ROUNDS = 100


@pytest.mark.req("G-13", "M-02", "M-06", "M-07", "M-18")
def test_completion_and_expiry_at_the_edge_of_a_lease_have_one_winner(ledger_url: str) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    # The worker's clock is behind the reaper's: in each round both believe that they may write.
    behind, ahead = VirtualClock(), VirtualClock()
    with (
        Ledger(ledger_url, world=World(clock=behind)) as holder,
        Ledger(ledger_url, world=World(clock=ahead)) as reaper,
    ):
        create_effects(holder)
        won: Counter[str] = Counter()
        for n in range(ROUNDS):
            at = START + timedelta(seconds=100 * n)
            behind.jump_to(at)
            ahead.jump_to(at)
            receipt = holder.submit("noop", {})
            with holder.store.transaction() as transaction:
                [attempt] = transaction.executions.claim_these([receipt.job_id], Lease(owner="holder", seconds=10))
            token = attempt.execution.lease_token
            values = {"job_id": receipt.job_id, "exec_id": attempt.execution.exec_id, "attempt": 1}
            task = EndTask(attempt, Complete(token, "1"), [staged(EFFECT, values, 1)])
            behind.advance(9.9)
            ahead.advance(10)
            line = threading.Barrier(2)

            # A head start for one side or the other, and often for none: they collide at every point.
            head_start_s = chance.uniform(-0.006, 0.006)

            def reap(line: threading.Barrier = line, pause_s: float = max(0, head_start_s)) -> None:
                line.wait()
                time.sleep(pause_s)
                recover(reaper, actor="reaper")

            thread = threading.Thread(target=reap)
            thread.start()
            line.wait()
            time.sleep(max(0, -head_start_s))
            holder.perform_tasks([task])
            thread.join()
            job = holder.job(receipt.job_id)
            completed = isinstance(task.result(), Move)
            assert (job.state == "succeeded") == completed
            assert (job.state == "pending") == (not completed)
            won["holder" if completed else "reaper"] += 1
            if not completed:
                holder.cancel(receipt.job_id)
        facts = Facts(holder)
        require_promises(facts)
        assert sum(won.values()) == ROUNDS
        assert set(won) == {"holder", "reaper"}, f"only one side ever won: {won}"
        assert sum(len(rows) for rows in facts.effects.values()) == won["holder"]


@pytest.mark.req("M-02", "M-07", "G-07")
def test_the_database_itself_refuses_to_fail_what_has_finished(ledger: Ledger) -> None:
    job_id = ledger.submit("noop", {}).job_id
    ledger.run_until_idle()
    for statement in (
        f"UPDATE holdfast_jobs SET state = 'failed', version = version + 1 WHERE job_id = {job_id}",
        f"UPDATE holdfast_jobs SET status = NULL, event = 'fail', version = version + 1 WHERE job_id = {job_id}",
    ):
        with pytest.raises(RefusedByDatabaseError), ledger.store.transaction() as transaction:
            ledger.store.execute(transaction.connection, statement)
    assert ledger.job(job_id).state == "succeeded"
