"""A claim that is alone in its transaction is not synced: the database crashes right after it, and no promise breaks.

The conditions under which that is safe are those of `engine.worker.undurable`. SQLite's power cuts are in
`test_power_loss`, whose reference run claims in the same way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from holdfast import Execution, Ledger, RetryPolicy, Strategy
from holdfast.core.commands import Complete
from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.engine.tasks import CallTask, ClaimTask, EndTask
from holdfast.store import Lease, Transaction
from tests.engine.working import eventually, working
from tests.support.ledgers import new_ledger
from tests.support.postgres import Server

pytestmark = [pytest.mark.pg, pytest.mark.attack("faults")]

TRIES = 5
LEASE = Lease(owner="worker-of-the-test", seconds=60, durable=False)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that writes what is not synced as late as it can."""
    with Server(settings={"wal_writer_delay": "10s"}) as server:
        yield server


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    url, _ = new_ledger().to_database(server)
    yield url
    server.start()
    server.drop_database(url)


def crash(server: Server) -> None:
    server.kill()
    server.start()


class Program:
    """A ledger with an operation that stops in its handler until the test lets it go on."""

    def __init__(self, url: str, *, read_token: bool = False) -> None:
        self.ledger = Ledger(url)
        self.started: list[tuple[int, int | None]] = []  # of each start: the attempt, and its token if it was read
        self.go_on = threading.Event()
        self.returned = 0
        self.stopped: set[int] = set()  # the starts that were requested to stop

        @self.ledger.operation(
            "stop", lease_s=3, retry=RetryPolicy(strategy=Strategy.FIXED_DELAY, base_s=0.3, max_attempts=3)
        )
        def stop(run: Execution, fail: bool = False) -> int:
            if fail and run.attempt == 1:
                raise ConnectionError("not this time")
            nth = len(self.started)
            self.started.append((run.attempt, run.token if read_token else None))
            while not self.go_on.wait(0.02):
                self.stopped.update([nth] if run.cancelled else [])
            run.effect("INSERT INTO ended (job_id, nth) VALUES (:job, :nth)", {"job": run.job.job_id, "nth": nth})
            self.returned += 1
            return nth

        with self.ledger.store.transaction() as transaction:
            transaction.execute("CREATE TABLE ended (job_id bigint, nth integer)")
        self.call: Any = stop.call

    def close(self) -> None:
        self.go_on.set()
        self.ledger.close()

    def starts_twice(self) -> bool:
        """Return whether the handler starts again within the time that a worker needs to find its job."""
        until = time.monotonic() + 5
        while len(self.started) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        return len(self.started) == 2

    def ended(self, job_id: int) -> list[int]:
        """Return which starts have taken effect."""
        with self.ledger.store.reading() as reading:
            found = reading.execute("SELECT nth FROM ended WHERE job_id = %s", (job_id,))
        return [int(nth) for (nth,) in found]


def succeeded(program: Program, job_id: int) -> Job:
    job: Job = eventually(
        lambda: (found := program.ledger.job(job_id)).state is JobState.SUCCEEDED and found, "the job succeeds"
    )
    return job


@pytest.mark.req("K-11", "M-11")
def test_a_job_whose_claim_a_crash_took_back_is_claimed_again_and_takes_effect_once(server: Server, url: str) -> None:
    with closing(Program(url)) as program, working(program.ledger, concurrency=2, poll_s=0.2):
        job_id = 0
        for _ in range(TRIES):  # now and then the server has written the claim before it is killed
            job_id = program.ledger.submit(program.call()).job_id
            eventually(lambda: program.started, "the handler starts")
            crash(server)
            if program.starts_twice():
                break
            program.go_on.set()
            succeeded(program, job_id)
            program.started.clear()
            program.go_on.clear()
        assert program.started == [(1, None)] * 2
        eventually(lambda: program.stopped == {0}, "the first handler is requested to stop")
        program.go_on.set()
        assert succeeded(program, job_id).attempts == 1
        eventually(lambda: program.returned == 2, "both handlers return")
        assert program.ended(job_id) == [1]


@pytest.mark.req("M-11")
def test_a_token_reaches_a_handler_only_once_its_claim_is_durable(server: Server, url: str) -> None:
    with closing(Program(url, read_token=True)) as program, working(program.ledger, poll_s=0.2):
        job_id = program.ledger.submit(program.call()).job_id
        eventually(lambda: program.started, "the handler starts")
        crash(server)
        with psycopg.connect(url) as session:
            found = session.execute("SELECT state, attempts, lease_token FROM holdfast_jobs").fetchall()
        [(attempt, token)] = program.started
        assert found == [("running", attempt, token)]
        program.go_on.set()
        assert succeeded(program, job_id).attempts == 1
        assert program.ended(job_id) == [0]


@pytest.mark.req("K-14")
def test_an_attempt_that_is_not_the_first_starts_only_once_its_claim_is_durable(server: Server, url: str) -> None:
    with closing(Program(url)) as program, working(program.ledger, poll_s=0.2):
        job_id = program.ledger.submit(program.call(fail=True)).job_id
        eventually(lambda: program.started, "the handler starts again")
        crash(server)
        with psycopg.connect(url) as session:
            assert session.execute("SELECT state, attempts FROM holdfast_jobs").fetchall() == [("running", 2)]
        program.go_on.set()
        assert succeeded(program, job_id).attempts == 2


@pytest.mark.req("M-11")
@pytest.mark.parametrize("kind", ["end", "call"])
def test_what_is_written_in_one_transaction_with_a_claim_is_synced(server: Server, url: str, kind: str) -> None:
    with Ledger(url) as ledger:
        ledger.submit_many([{"operation": "noop"}] * 2)
        claim = ClaimTask(LEASE)
        ledger.perform_tasks([claim])
        [attempt] = claim.result()
        end = EndTask(attempt, Complete(attempt.token, "null"))
        ledger.perform_tasks([end if kind == "end" else CallTask(pause), ClaimTask(LEASE)])
        crash(server)
        with ledger.store.reading() as reading:
            assert reading.queues.paused() == (["other"] if kind == "call" else [])
        assert (ledger.job(1).state is JobState.SUCCEEDED) is (kind == "end")
        assert ledger.job(2).state is JobState.RUNNING


def pause(transaction: Transaction) -> None:
    transaction.queues.pause("other", actor="test", reason="test")
