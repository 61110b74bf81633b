"""Requests to cancel and revoked leases: they hold however the attempt ends, kill -9 included."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import Execution, Ledger, Operations
from holdfast.audit.check.runner import check
from holdfast.core.commands import Complete, Fail, GiveBack
from holdfast.core.decide import Move, Refused
from holdfast.core.errors import InputError, InvalidStateTransitionError
from holdfast.core.machines import JobState
from holdfast.core.records import Attempt
from holdfast.engine.worker.reaper import recover
from holdfast.explain.explain import explain
from holdfast.store import Lease
from tests.engine.database import Database
from tests.engine.rulings_worker import alone, operations
from tests.engine.working import eventually, working
from tests.support.children import ROOT

OWNER = Lease(owner="worker-a", seconds=60)


@contextmanager
def worker_process(url: str) -> Iterator[subprocess.Popen[str]]:
    """Run a worker in a process of its own; it is killed at the end."""
    command = [sys.executable, "-m", "tests.engine.rulings_worker", url]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def claimed(ledger: Ledger) -> Attempt:
    """Submit a job and claim it by hand."""
    ledger.submit("noop", {}, key="k", client="c")
    [attempt] = ledger.perform(lambda tx: tx.executions.claim(OWNER))
    return attempt


def ended(ledger: Ledger, attempt: Attempt, command: object) -> Move | Refused:
    [answer] = ledger.perform(lambda tx: tx.executions.move([(attempt, command)], actor=attempt.owner))
    return answer


def sound(ledger: Ledger) -> bool:
    report = check(ledger.store)
    assert report.ok, report.violations
    return True


def findings(ledger: Ledger, job_id: int) -> dict[str, dict[str, object]]:
    with ledger.store.reading() as reading:
        found = explain(reading, job_id, ledger.store.now()).findings
    return {finding.code.value: finding.evidence for finding in found}


ENDS: dict[str, Callable[[Attempt, Ledger], object]] = {
    "failure": lambda a, ledger: Fail(a.token, "io_error", "no disk", retry_at=ledger.store.now()),
    "last failure": lambda a, _: Fail(a.token, "io_error", "no disk"),
    "give back": lambda a, ledger: GiveBack(a.token, ledger.store.now(), "worker_stopped"),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_job_is_cancelled_however_its_attempt_ends(ledger_url: str, how: str) -> None:
    with Ledger(ledger_url) as ledger:
        attempt = claimed(ledger)
        # The worker has read the attempt before the request was made.
        assert ledger.cancel(attempt.job_id, actor="ann", reason="not wanted") is JobState.RUNNING
        assert ledger.cancel(attempt.job_id, actor="bob", reason="me too") is JobState.RUNNING
        assert isinstance(ended(ledger, attempt, ENDS[how](attempt, ledger)), Move)
        job = ledger.job(attempt.job_id)
        assert (job.state, job.quarantine_code) == (JobState.QUARANTINED, "cancelled")
        with ledger.store.reading() as reading:
            [row] = reading.journal.of(attempt.job_id, "REQUEST")
        assert (row.actor, row.reason, row.attempt) == ("ann", "not wanted", 1)
        evidence = findings(ledger, attempt.job_id)["cancelled"]
        assert (evidence["by"], evidence["reason"]) == ("ann", "not wanted")
        assert sound(ledger)


def test_a_request_after_the_commit_is_too_late(ledger_url: str) -> None:
    with Ledger(ledger_url) as ledger:
        attempt = claimed(ledger)
        ledger.cancel(attempt.job_id, actor="ann", reason="not wanted")
        assert isinstance(ended(ledger, attempt, Complete(attempt.token)), Move)
        assert ledger.job(attempt.job_id).state is JobState.SUCCEEDED
        evidence = findings(ledger, attempt.job_id)["cancel_too_late"]
        assert (evidence["by"], evidence["reason"], evidence["attempt"]) == ("ann", "not wanted", 1)
        assert sound(ledger)


@pytest.mark.attack("faults")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["kill -9", "worker stop"])
def test_a_cancelled_job_does_not_run_again(ledger_url: str, tmp_path: Path, how: signal.Signals) -> None:
    until = tmp_path / "until"
    with Ledger(ledger_url, operations) as ledger:
        with worker_process(ledger_url) as process:
            receipt = ledger.submit("hang", {"until": str(until)}, client="c", key="k")
            eventually(lambda: ledger.job(receipt.job_id).state is JobState.RUNNING, "the job runs")
            assert ledger.cancel(receipt.job_id, actor="ann", reason="not wanted") is JobState.RUNNING
            os.kill(process.pid, how)
            process.wait(30)
        with worker_process(ledger_url):
            eventually(lambda: ledger.job(receipt.job_id).state is JobState.QUARANTINED, "the job is cancelled")
            time.sleep(0.3)
        job = ledger.job(receipt.job_id)
        assert (job.state, job.quarantine_code, job.attempts) == (JobState.QUARANTINED, "cancelled", 1)
        assert sound(ledger)


@pytest.mark.attack("faults")
def test_a_poison_job_does_not_take_its_neighbours(ledger_url: str, tmp_path: Path) -> None:
    """Its first two deaths take the worker with it, and cost no job an attempt; then it dies alone."""
    died = tmp_path / "pid"
    with Ledger(ledger_url, operations) as ledger:
        neighbours = [ledger.submit("neighbour", {"n": n}, client="c", key=f"n{n}") for n in range(3)]
        poison = ledger.submit("poison", {"before": str(died)}, client="c", key="poison")
        for lost in (1, 2):
            with worker_process(ledger_url) as process:
                assert process.wait(60) == 3, "the poison ended its worker"
            eventually(lambda: recovered(ledger, poison.job_id), "its lease expired")
            job = ledger.job(poison.job_id)
            assert (job.state, job.lost, job.spent, job.attempts) == (JobState.PENDING, lost, 0, lost)
        assert findings(ledger, poison.job_id)["suspect"]["lost"] == 2
        with worker_process(ledger_url) as process:
            eventually(lambda: ledger.job(poison.job_id).state is JobState.FAILED, "the poison is failed")
            eventually(
                lambda: all(ledger.job(n.job_id).state is JobState.SUCCEEDED for n in neighbours), "neighbours succeed"
            )
            assert process.poll() is None, "the worker lives"
            assert int(died.read_text()) != process.pid
        job = ledger.job(poison.job_id)
        assert (job.last_error_code, job.lost, job.spent, job.max_attempts) == ("process_died", 2, 3, 3)
        for receipt in neighbours:
            assert ledger.job(receipt.job_id).last_error_code is None
        assert sound(ledger)


@pytest.mark.attack("faults")
def test_an_async_handler_of_a_suspect_runs_alone_in_a_child_process(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[float] = []
    monkeypatch.setattr(Ledger, "note_progress", lambda *given: noted.append(given[2]))
    database = Database(ledger_url)
    database.run("CREATE TABLE things (n integer)")
    with Ledger(ledger_url, operations) as ledger:
        dying, living = ledger.submit_many([alone.call(dies=dies) for dies in (True, False)])
        lease = Lease(owner="worker-that-died", seconds=0.001, n=2)
        for _ in range(2):
            assert len(ledger.perform(lambda tx: tx.executions.claim(lease))) == 2
            eventually(lambda: all(recovered(ledger, one.job_id) for one in (dying, living)), "their leases expired")
        with working(ledger):
            assert (dying.wait(60).error_code, living.wait(60).state) == ("process_died", JobState.SUCCEEDED)
            result = ledger.receipt(living.job_id).result
            eventually(lambda: sum(c.n for c in ledger.counts() if c.state is JobState.PENDING) == 0, "it is followed")
    assert result != os.getpid()
    assert noted == [0.5]
    assert database.run("SELECT n FROM things") == [(7,)]
    database.close()


def recovered(ledger: Ledger, job_id: int) -> bool:
    recover(ledger, actor="reaper")
    return ledger.job(job_id).state is JobState.PENDING


def test_a_revoked_lease_ends_a_live_attempt_and_refuses_its_holder(ledger_url: str) -> None:
    with Ledger(ledger_url) as ledger:
        attempt = claimed(ledger)
        assert ledger.revoke(attempt.job_id, actor="ann", reason="it hangs") is JobState.PENDING
        job = ledger.job(attempt.job_id)
        assert (job.attempts, job.spent, job.last_error_code, job.lost) == (1, 1, "lease_revoked", None)
        with ledger.store.reading() as reading:
            rows = reading.journal.of(attempt.job_id)[-2:]
        assert [(row.source, row.target, row.event, row.actor, row.reason) for row in rows] == [
            ("running", "failed", "revoke", "ann", "it hangs"),
            ("failed", "pending", "revoke", "ann", "it hangs"),
        ]
        answer = ended(ledger, attempt, Complete(attempt.token))
        assert isinstance(answer, Refused)
        assert answer.code == "lease_lost"
        [again] = ledger.perform(lambda tx: tx.executions.claim(OWNER))
        assert isinstance(ended(ledger, attempt, Complete(attempt.token)), Refused)
        assert isinstance(ended(ledger, again, Complete(again.token)), Move)
        assert sound(ledger)


@pytest.mark.pg
@pytest.mark.parametrize("ledger_url", ["postgres"], indirect=True)
@pytest.mark.parametrize("act", ["revoke", "retry"])
def test_a_job_is_due_at_once_although_the_time_of_this_process_leads(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    with Ledger(ledger_url) as ledger:
        now = ledger.store.now
        monkeypatch.setattr(ledger.store, "now", lambda: now() + timedelta(milliseconds=90))  # a late first answer
        attempt = claimed(ledger)
        if act == "revoke":
            ledger.revoke(attempt.job_id, actor="ann", reason="it hangs")
        else:
            ended(ledger, attempt, Fail(attempt.token, "broken", "it is broken"))
            ledger.retry(attempt.job_id, actor="ann", reason="it was mended")
        [again] = ledger.perform(lambda tx: tx.executions.claim(OWNER))
        assert again.job_id == attempt.job_id


def test_only_a_running_job_is_revoked_and_only_with_a_reason(ledger_url: str) -> None:
    with Ledger(ledger_url) as ledger:
        attempt = claimed(ledger)
        with pytest.raises(InputError):
            ledger.revoke(attempt.job_id, reason=" ")
        ended(ledger, attempt, Complete(attempt.token))
        with pytest.raises(InvalidStateTransitionError) as caught:
            ledger.revoke(attempt.job_id, reason="it hangs")
        assert caught.value.context == {"job_id": attempt.job_id, "refusal": "wrong_state"}


@pytest.mark.parametrize("executor", ["threads", "async"])
def test_the_slot_of_a_revoked_attempt_whose_handler_does_not_stop_is_free_again(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch, executor: str
) -> None:
    monkeypatch.setattr("holdfast.engine.worker.worker.UNLEASED_S", 0.3)
    own = Operations()
    release, runs = threading.Event(), list[int]()

    def hangs(run: Execution) -> int:
        runs.append(run.attempt)
        if run.attempt == 1:
            release.wait(30)
        return run.attempt

    async def hangs_its_loop(run: Execution) -> int:
        return hangs(run)

    own.operation("hangs", lease_s=3.0)(hangs if executor == "threads" else hangs_its_loop)
    with Ledger(ledger_url, own) as ledger:
        hung = ledger.submit("hangs")
        with working(ledger, concurrency=1):
            eventually(lambda: runs == [1], "it hangs")
            others = [ledger.submit("noop") for _ in range(3)]
            ledger.revoke(hung.job_id, actor="ann", reason="it hangs")
            assert hung.wait(30).result == 2
            assert {other.wait(30).state for other in others} == {JobState.SUCCEEDED}
            release.set()
        assert (runs, ledger.job(hung.job_id).attempts) == ([1, 2], 2)
        assert sound(ledger)


def test_the_handler_of_a_revoked_attempt_is_stopped(ledger_url: str) -> None:
    own = Operations()
    runs: list[int] = []

    @own.operation("slow", lease_s=3.0)
    def slow(run: Execution) -> int:
        runs.append(run.attempt)
        deadline = time.monotonic() + 30
        while run.attempt == 1 and not run.cancelled and time.monotonic() < deadline:
            time.sleep(0.01)
        return run.attempt

    with Ledger(ledger_url, own) as ledger, working(ledger):
        receipt = ledger.submit("slow", {})
        eventually(lambda: runs == [1], "the first attempt runs")
        ledger.revoke(receipt.job_id, reason="it hangs")
        assert receipt.wait(30).result == 2
