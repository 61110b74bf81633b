"""A turn of a worker: the ends of its attempts and the next claim, written together and fenced one by one."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from holdfast import Execution, Ledger
from holdfast.core.commands import Complete
from holdfast.core.decide import Move, Refused
from holdfast.core.machines import JobState
from holdfast.core.records import Attempt
from holdfast.engine.tasks import ClaimTask, EndTask, Task
from holdfast.engine.worker.reaper import recover
from holdfast.engine.world import World
from holdfast.store import Lease
from holdfast.store.postgres.watch import ListenWatch
from holdfast.testing import VirtualClock
from tests.engine.working import PATIENCE_S, eventually, working

OWNER = "worker-of-the-test"


@pytest.fixture
def ledger(ledger_url: str, clock: VirtualClock) -> Iterator[Ledger]:
    """A ledger on a virtual clock in which no crash is planned."""
    with Ledger(ledger_url, world=World(clock=clock)) as ledger:
        yield ledger


def claim(ledger: Ledger, n: int, **fields: Any) -> list[Attempt]:
    task = ClaimTask(Lease(n=n, **{"owner": OWNER, "seconds": 60, **fields}))
    ledger.perform_tasks([task])
    return task.result()


def turn(ledger: Ledger, ended: Sequence[Attempt], room: int) -> tuple[list[Move | Refused], list[Attempt]]:
    """Complete attempts and claim more; return the answers and what was claimed."""
    ends = [EndTask(attempt, Complete(attempt.token, "null")) for attempt in ended]
    next_claim = ClaimTask(Lease(n=room, owner=OWNER, seconds=60))
    tasks: list[Task[Any]] = [*ends, next_claim] if room else [*ends]
    ledger.perform_tasks(tasks)
    return [end.result() for end in ends], next_claim.result() if room else []


class Spied:
    """Notes the statements and the transactions of a store."""

    def __init__(self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements: list[str] = []
        self.transactions = 0
        store: Any = ledger.store
        run, commit = store.run, store._commit

        def running(connection: Any, name: str, params: Any) -> Any:
            self.statements.append(name)
            return run(connection, name, params)

        def committing(connection: Any) -> None:
            self.transactions += 1
            commit(connection)

        monkeypatch.setattr(store, "run", running)
        if not store.one_writer:
            sent = store._sent

            def sending(connection: Any, name: str, params: Any) -> Any:
                self.statements.append(name)
                return sent(connection, name, params)

            monkeypatch.setattr(store, "_sent", sending)
        monkeypatch.setattr(store, "_commit", committing)


@pytest.mark.parametrize("room", [0, 2])
def test_ends_and_the_next_claim_are_one_round_trip_or_one_transaction(
    ledger: Ledger, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.submit_many([{"operation": "noop"}] * 5)
    first = claim(ledger, 3)
    spied = Spied(ledger, monkeypatch)
    answers, claimed = turn(ledger, first, room)
    assert all(isinstance(answer, Move) for answer in answers)
    assert [attempt.job_id for attempt in claimed] == [4, 5][:room]
    if ledger.store.one_writer:
        assert spied.transactions == 1
    else:
        assert spied.statements == (["complete_jobs", "claim_jobs"] if room else ["complete_jobs"])
        assert spied.transactions == 0
    assert [ledger.job(job_id).state for job_id in (1, 2, 3)] == [JobState.SUCCEEDED] * 3


def test_an_end_whose_lease_was_lost_is_refused_and_the_rest_of_its_turn_is_written(
    ledger: Ledger, clock: VirtualClock
) -> None:
    ledger.submit_many([{"operation": "noop"}] * 5)
    first, *others = claim(ledger, 3)
    clock.advance(61)
    recover(ledger, actor="reaper")
    held = {attempt.job_id: attempt for attempt in claim(ledger, 5)}
    answers, claimed = turn(ledger, [held[2], first, held[3]], 1)
    assert [getattr(answer, "code", None) for answer in answers] == [None, "lease_expired", None]
    assert claimed == []
    assert [ledger.job(job_id).state for job_id in (1, 2, 3)] == [
        JobState.RUNNING, JobState.SUCCEEDED, JobState.SUCCEEDED,
    ]  # fmt: skip
    answers, _ = turn(ledger, others, 1)
    assert [getattr(answer, "code", None) for answer in answers] == ["lease_expired"] * 2


def test_a_claim_follows_the_ends_also_when_nothing_is_due(ledger: Ledger) -> None:
    ledger.submit_many([{"operation": "noop"}] * 2)
    ends, claimed = turn(ledger, claim(ledger, 2), 10)
    assert (len(ends), claimed) == (2, [])


def test_the_journal_of_a_turn_has_one_move_of_each_job(ledger: Ledger) -> None:
    ledger.submit_many([{"operation": "noop"}] * 2)
    [first] = claim(ledger, 1)
    turn(ledger, [first], 1)
    with ledger.store.reading() as reading:
        events = [[row.event for row in reading.journal.of(job_id)] for job_id in (1, 2)]
        moves = [row.move_id for job_id in (1, 2) for row in reading.journal.of(job_id)]
    assert events == [["submit", "claim", "succeed"], ["submit", "claim"]]
    assert len(set(moves[-3:])) == 3


def test_a_ledger_with_limits_claims_by_a_statement_of_its_own(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.submit_many([{"operation": "noop"}] * 3)
    first = claim(ledger, 2)
    ledger.store.limited = True
    spied = Spied(ledger, monkeypatch)
    answers, claimed = turn(ledger, first, 1)
    assert (len(answers), len(claimed), spied.transactions) == (2, 1, 1)
    assert "claim_jobs" not in spied.statements


@contextmanager
def blocked_turn(ledger: Ledger, ended: Sequence[Attempt], other: Any) -> Iterator[list[Any]]:
    """Begin a turn that claims one job, and whose end waits for `other` until the block ends; yield its answers."""
    answered: list[Any] = []
    thread = threading.Thread(target=lambda: answered.append(turn(ledger, ended, 1)))
    with other.transaction():
        other.execute("SELECT FROM holdfast_jobs WHERE job_id = 1 FOR UPDATE")
        thread.start()
        eventually(lambda: other.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchall())
        yield answered
    thread.join(PATIENCE_S)


def test_nothing_is_claimed_while_an_end_waits_for_a_lock(new_postgres_ledger: str) -> None:
    with Ledger(new_postgres_ledger) as ledger, psycopg.connect(new_postgres_ledger, autocommit=True) as other:
        ledger.submit_many([{"operation": "noop"}] * 2)
        first = claim(ledger, 1)
        with blocked_turn(ledger, first, other) as answered:
            free = other.execute("SELECT job_id FROM holdfast_jobs WHERE job_id = 2 FOR UPDATE SKIP LOCKED").fetchall()
        assert free == [(2,)]
        [(answers, _)] = answered
        assert isinstance(answers[0], Move)


def test_a_turn_does_not_lock_what_another_worker_has_claimed_since_it_began(new_postgres_ledger: str) -> None:
    with (
        Ledger(new_postgres_ledger) as ledger,
        Ledger(new_postgres_ledger) as elsewhere,
        psycopg.connect(new_postgres_ledger, autocommit=True) as other,
    ):
        ledger.submit_many([{"operation": "noop"}] * 3)
        first = claim(ledger, 1)
        with blocked_turn(ledger, first, other) as answered:
            [taken] = claim(elsewhere, 1, owner="another-worker")
        [(answers, [claimed])] = answered
        assert isinstance(answers[0], Move)
        assert (taken.job_id, claimed.job_id) == (2, 3)
        # A row keeps the transaction that has locked it last: here that is the one that has claimed it.
        assert other.execute("SELECT xmax = xmin FROM holdfast_jobs WHERE job_id = 2").fetchall() == [(True,)]


def test_a_worker_that_never_sleeps_reads_announcements(
    new_postgres_ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server keeps what a listener does not read, and refuses every NOTIFY once its queue is full."""
    done, read_after = 0, []

    class Reading(ListenWatch):
        def changed(self) -> bool:
            read_after.append(done)
            return super().changed()

    with Ledger(new_postgres_ledger) as ledger:

        @ledger.operation("count")
        def count(run: Execution) -> None:
            nonlocal done
            done += 1

        monkeypatch.setattr("holdfast.store.postgres.store.ListenWatch", Reading)
        ledger.submit_many([count.call()] * 50)
        with working(ledger, batch_max=1):
            eventually(lambda: done == 50)
    assert len({n for n in read_after if 0 < n < 50}) > 10


def test_a_worker_on_sqlite_is_not_woken_by_its_own_turns(
    new_sqlite_ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = 10
    with Ledger(new_sqlite_ledger) as ledger, Ledger(new_sqlite_ledger) as other:
        ledger.submit("noop")
        begins: list[int] = []
        store: Any = ledger.store
        begin = store._begin

        def beginning(connection: Any, *how: str) -> None:
            begins.append(threading.get_ident())
            begin(connection, *how)

        monkeypatch.setattr(store, "_begin", beginning)
        with working(ledger, poll_s=60.0, concurrency=2):
            eventually(lambda: other.counts()[0].state is JobState.SUCCEEDED)
            begins.clear()
            for _ in range(jobs):
                other.submit("noop").wait(PATIENCE_S)
            eventually(lambda: len(begins) >= 2 * jobs)
            own = max(begins.count(thread) for thread in set(begins))
            beside = len(begins) - own  # of the threads beside the loop: each may wake it
    assert own <= 2 * jobs + beside + 1


def test_a_worker_on_sqlite_misses_no_submit_that_comes_beside_its_own_turns(new_sqlite_ledger: str) -> None:
    with Ledger(new_sqlite_ledger) as ledger, Ledger(new_sqlite_ledger) as other, working(ledger, poll_s=60.0):

        def submit() -> None:
            for _ in range(40):
                other.submit("noop").wait(PATIENCE_S)

        threads = [threading.Thread(target=submit) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        done = [count.n for count in other.counts() if count.state is JobState.SUCCEEDED]
    assert done == [120]


CLAIMS = """
import resource, sys
from holdfast import Ledger
from holdfast.engine.tasks import ClaimTask
from holdfast.store import Lease

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

with Ledger(sys.argv[1]) as ledger:
    def claim():
        ledger.perform_tasks([ClaimTask(Lease(n=1, owner="test", seconds=60))])
    for _ in range(20):
        claim()
    before = faults()
    for _ in range(100):
        claim()
    print((faults() - before) / 100)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="about the allocator of glibc")
def test_a_claim_on_sqlite_faults_in_no_memory_that_the_last_one_gave_back(new_sqlite_ledger: str) -> None:
    # Dask, which other tests start in this process, sets a threshold of the allocator for all children.
    env = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", CLAIMS, new_sqlite_ledger]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert float(done.stdout) < 10
