"""A signal handler that raises or uses the ledger, at any moment of a write: nothing stays held, no call hangs."""

from __future__ import annotations

import gc
import json

import pytest

from holdfast import Ledger
from holdfast.store.sqlite import identity
from tests.engine.interrupting import interrupted
from tests.support.children import Child

ROUNDS = 60


@pytest.mark.attack("faults")
@pytest.mark.req("W-18")
@pytest.mark.parametrize("kind", ["keyboard", "error"])
def test_later_writes_go_through_after_the_main_thread_was_interrupted(ledger_url: str, kind: str) -> None:
    with Child("tests.engine.interrupted_child", ledger_url, kind, str(ROUNDS), "1") as child:
        said = json.loads(child.output(120))
    assert said["interrupted"] == ROUNDS
    assert said["alive"] == 0
    assert set(said["unknown"]) <= {"commit_unknown"}
    with Ledger(ledger_url) as ledger, ledger.store.reading() as reading:
        stored = {job.job_id for job in reading.lists.jobs(limit=1_000_000)}
    assert len(said["acknowledged"]) == len(set(said["acknowledged"]))
    assert set(said["acknowledged"]) <= stored


@pytest.mark.attack("faults")
@pytest.mark.req("W-18")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of connections that were lost
@pytest.mark.usefixtures("_few_to_collect")
def test_later_reads_go_through_after_one_was_interrupted_at_any_point(new_sqlite_ledger: str) -> None:
    with Ledger(new_sqlite_ledger) as ledger:
        job_id = ledger.submit("noop").job_id
        close_idle(ledger)
        points, others = 0, len(identity._guarded)
        while interrupted(lambda: ledger.job(job_id), after=points):
            close_idle(ledger)
            assert len(identity._guarded) == others, "a lost connection has left what would refuse the next log"
            assert not any(use() for use in ledger.store.pool._out), (
                "a lost connection is in use: each fork would wait for it"
            )
            assert ledger.job(job_id).job_id == job_id
            points += 1
        assert points > 20


@pytest.mark.attack("faults")
@pytest.mark.req("W-18")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of connections that were lost
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_no_fork_waits_for_a_connection_that_was_lost_in_a_transaction(ledger_url: str) -> None:
    with Ledger(ledger_url) as ledger:
        store, points = ledger.store, 0

        def write() -> None:
            with store.transaction() as transaction:
                transaction.queues.paused()

        while interrupted(write, after=points):
            assert not any(use() for use in store.pool._out)
            points += 1
        gc.collect()
        assert points > 20


@pytest.fixture
def _few_to_collect() -> None:
    """Take what there is away from the collector, which then takes 1 ms instead of 50."""
    gc.collect()
    gc.freeze()


def close_idle(ledger: Ledger) -> None:
    """Close the idle connections, as for a fork or after an error: with the last one SQLite deletes the log."""
    ledger.store.pool.hold(0.0)
    ledger.store.pool.release()
    gc.collect()  # a lost one is closed with the last reference to it


@pytest.mark.attack("faults")
@pytest.mark.req("W-18")
def test_a_signal_handler_that_uses_the_ledger_while_the_main_thread_writes_does_not_hang(
    ledger_url: str,
) -> None:
    with Child("tests.engine.interrupted_child", ledger_url, "use", str(ROUNDS), "2") as child:
        said = json.loads(child.output(120))
    assert said["alive"] == 0
    assert said["unknown"] == []
    assert said["outcomes"].pop("read") == {"ok": ROUNDS // 4}
    for outcomes in said["outcomes"].values():
        assert set(outcomes) <= {"ok", "store_busy"}
        assert sum(outcomes.values()) == ROUNDS // 4
    with Ledger(ledger_url) as ledger, ledger.store.reading() as reading:
        stored = sorted(job.job_id for job in reading.lists.jobs(limit=1_000_000))
    assert stored == said["acknowledged"]
