"""Counts without counting: every move writes a delta, a fold adds them up, and reading is exact at every moment."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast.core.commands import Complete
from holdfast.core.machines import JobState
from holdfast.store import Submission, open_store
from holdfast.store.joint import FOLD_EVERY
from holdfast.store.verbs.watch import recent_moves
from holdfast.testing import VirtualClock
from tests.store.verbs import Verbs, fail, together


def counts(verbs: Verbs) -> dict[tuple[str, str, str], int]:
    with verbs.store.reading() as reading:
        return {(c.operation, c.queue, str(c.state)): c.n for c in reading.counts.current()}


def deltas(verbs: Verbs) -> Counter[tuple[str, str, str | None, str]]:
    rows = verbs.query("SELECT operation, queue, source, target, n FROM holdfast_count_deltas")
    found: Counter[tuple[str, str, str | None, str]] = Counter()
    for operation, queue, source, target, n in rows:
        found[operation, queue, source, target] += n
    return found


def test_each_move_leaves_one_delta_from_end_to_end(verbs: Verbs) -> None:
    """A path of two edges is one delta: the state in between is not counted."""
    for _ in range(3):
        verbs.submit()
    verbs.submit(operation="echo", queue="red")
    first, second = verbs.claim(2)
    verbs.work(first, Complete(first.execution.lease_token))
    verbs.work(second, fail(second, retry_at=verbs.clock.after(9)))
    assert deltas(verbs) == {
        ("noop", "default", None, "pending"): 3,
        ("echo", "red", None, "pending"): 1,
        ("noop", "default", "pending", "running"): 2,
        ("noop", "default", "running", "succeeded"): 1,
        ("noop", "default", "running", "pending"): 1,
    }


def minutes(verbs: Verbs) -> Counter[tuple[str, str, str, str]]:
    found: Counter[tuple[str, str, str, str]] = Counter()
    for source, target, event, code, n in verbs.query("SELECT source, target, event, code, n FROM holdfast_minutes"):
        found[source, target, event, code] += n
    return found


def test_a_fold_adds_the_moves_of_a_minute_with_their_events_and_error_codes(verbs: Verbs) -> None:
    """Trends are read from minutes, so they cost no row a job and no walk through the journal."""
    for _ in range(3):
        verbs.submit()
    first, second, third = verbs.claim(3)
    verbs.fold()
    verbs.work(first, Complete(first.execution.lease_token))
    verbs.work(second, fail(second, retry_at=verbs.clock.after(9)))
    verbs.work(third, fail(third))
    with verbs.store.reading() as reading:
        unfolded = recent_moves(reading, verbs.store.now() - timedelta(minutes=5)).moves
    verbs.fold()
    code = verbs.job(third.job.job_id).last_error_code or ""
    assert code
    assert minutes(verbs) == {
        ("", "pending", "submit", ""): 3,
        ("pending", "running", "claim", ""): 3,
        ("running", "succeeded", "succeed", ""): 1,
        ("running", "pending", "retry", code): 1,
        ("running", "failed", "fail", code): 1,
    }
    with verbs.store.reading() as reading:
        found = recent_moves(reading, verbs.store.now() - timedelta(minutes=5))
    assert found.since is None
    assert deltas(verbs) == {}
    assert sorted(unfolded, key=repr) == sorted(found.moves, key=repr)
    assert sum(move.n for move in found.moves) == 9


def test_minutes_are_kept_for_two_days_before_the_last_move(verbs: Verbs) -> None:
    verbs.submit()
    verbs.fold()
    verbs.clock.advance(47 * 3600)
    verbs.submit(operation="echo")
    verbs.fold()
    assert len(verbs.query("SELECT 1 FROM holdfast_minutes")) == 2
    verbs.clock.advance(2 * 3600)
    verbs.submit()
    verbs.fold()
    assert verbs.query("SELECT operation FROM holdfast_minutes ORDER BY minute") == [("echo",), ("noop",)]


def test_reading_is_the_same_before_and_after_a_fold(verbs: Verbs) -> None:
    for state in JobState:
        for _ in range(2):
            verbs.job_in(state, queue=state)
    expected = {("noop", str(state), str(state)): 2 for state in JobState}
    assert counts(verbs) == expected
    verbs.fold()
    assert deltas(verbs) == {}
    assert counts(verbs) == expected
    assert verbs.query("SELECT count(*) FROM holdfast_counts WHERE n < 0") == [(0,)]
    moved = verbs.job_in(JobState.FAILED, queue="failed")
    expected["noop", "failed", "failed"] = 3
    assert counts(verbs) == expected
    verbs.fold()
    verbs.fold()
    assert counts(verbs) == expected
    assert moved.state == JobState.FAILED


def test_a_state_without_jobs_is_not_listed(verbs: Verbs) -> None:
    verbs.submit()
    verbs.fold()
    attempt = verbs.claim_one()
    assert counts(verbs) == {("noop", "default", "running"): 1}
    verbs.fold()
    verbs.work(attempt, Complete(attempt.execution.lease_token))
    verbs.fold()
    assert counts(verbs) == {("noop", "default", "succeeded"): 1}


def test_a_refused_or_undone_move_leaves_no_delta(verbs: Verbs) -> None:
    verbs.submit()
    attempt = verbs.claim_one()
    before = deltas(verbs)
    verbs.work(attempt, Complete(attempt.execution.lease_token + 1))
    verbs.beat(attempt, 60)
    verbs.progress(attempt, 0.5)
    with verbs.undone() as transaction:
        transaction.jobs.submit([Submission(operation="noop", payload="{}")], actor="client-1")
    assert deltas(verbs) == before


def moved(connection: Any, n: int) -> None:
    """Write the deltas that this many submits leave, each of one statement."""
    rows = ", ".join(
        f"('noop', 'q{i % 3}', NULL, 'pending', 1, 'submit', '2026-11-01T00:00:00.000000Z')" for i in range(n)
    )
    connection.execute(
        f"INSERT INTO holdfast_count_deltas (operation, queue, source, target, n, event, at) VALUES {rows}"
    )


def unfolded(verbs: Verbs) -> int:
    [[n]] = verbs.query("SELECT count(*) FROM holdfast_count_deltas")
    return int(n)


def test_many_moves_without_a_worker_leave_few_deltas(verbs: Verbs) -> None:
    """Every read of the counts adds up the deltas: a trigger folds them, so there are few although no keeper runs."""
    for _ in range(3):
        with verbs.store.transaction() as transaction:
            moved(transaction.connection, FOLD_EVERY - 1)
        assert unfolded(verbs) < FOLD_EVERY
    assert sum(counts(verbs).values()) == 3 * (FOLD_EVERY - 1)
    [[n]] = verbs.query("SELECT sum(n) FROM holdfast_minutes")
    assert n + unfolded(verbs) == 3 * (FOLD_EVERY - 1)


def test_a_submit_of_many_jobs_leaves_few_deltas(verbs: Verbs) -> None:
    verbs.submit_all([Submission(operation="noop", payload="{}")] * (FOLD_EVERY + 10))
    assert unfolded(verbs) <= 10
    assert counts(verbs) == {("noop", "default", "pending"): FOLD_EVERY + 10}


def test_a_fold_that_is_undone_changes_no_count(verbs: Verbs) -> None:
    verbs.submit()
    with verbs.undone() as transaction:
        moved(transaction.connection, FOLD_EVERY)
    assert counts(verbs) == {("noop", "default", "pending"): 1}


@pytest.mark.pg
def test_no_transaction_waits_for_one_that_folds(pg_ledger: str) -> None:
    """It may be a user's that submits and stays open for long: all others submit and fold nothing meanwhile."""
    with open_store(pg_ledger) as store, psycopg.connect(pg_ledger) as first, psycopg.connect(pg_ledger) as second:
        verbs = Verbs(store, VirtualClock())
        for connection in (first, second):
            connection.execute("SET lock_timeout = '5s'")
            moved(connection, FOLD_EVERY)
        verbs.fold()
        second.commit()
        assert counts(verbs) == {("noop", f"q{i}", "pending"): FOLD_EVERY // 3 + (i < FOLD_EVERY % 3) for i in range(3)}
        first.commit()
        verbs.fold()
        assert unfolded(verbs) == 0
        assert sum(counts(verbs).values()) == 2 * FOLD_EVERY


@pytest.mark.pg
@pytest.mark.parametrize("setting", ["TRANSACTION ISOLATION LEVEL REPEATABLE READ", "LOCAL ROLE pg_monitor"])
def test_a_transaction_that_may_not_fold_submits(pg_ledger: str, setting: str) -> None:
    """Under REPEATABLE READ a fold could fail for another one's; the role of an operator writes deltas alone."""
    with open_store(pg_ledger) as store, psycopg.connect(pg_ledger) as other:
        verbs = Verbs(store, VirtualClock())
        other.execute("GRANT INSERT ON holdfast_count_deltas TO pg_monitor")
        other.execute("GRANT USAGE ON SCHEMA public TO pg_monitor")
        other.commit()
        other.execute(f"SET {setting}")
        moved(other, FOLD_EVERY)
        other.commit()
        assert unfolded(verbs) == FOLD_EVERY
        assert sum(counts(verbs).values()) == FOLD_EVERY


def test_counts_stay_exact_while_others_write_and_fold(verbs: Verbs) -> None:
    """Two keepers fold while two clients submit and a worker works; every reading agrees with its own snapshot."""
    stop = threading.Event()

    def submit() -> None:
        for _ in range(15):
            verbs.submit_all([Submission(operation="noop", payload="{}"), Submission(operation="echo", payload="{}")])

    def work() -> None:
        for _ in range(15):
            for attempt in verbs.claim(3):
                verbs.work(attempt, Complete(attempt.execution.lease_token))

    def write() -> int:
        try:
            together(submit, submit, work)
        finally:
            stop.set()
        return 0

    def keep() -> int:
        folds = 0
        while not stop.is_set():
            verbs.fold()
            folds += 1
        return folds

    def read() -> int:
        while not stop.is_set():
            with verbs.store.reading() as reading:
                seen = {(c.operation, c.queue, str(c.state)): c.n for c in reading.counts.current()}
                sql = "SELECT operation, queue, state, count(*) FROM holdfast_jobs GROUP BY 1, 2, 3"
                real = {tuple(row[:3]): row[3] for row in verbs.store.execute(reading.connection, sql)}
                assert seen == real
        return 0

    assert sum(together(write, keep, keep, read)) > 0
    verbs.fold()
    assert deltas(verbs) == {}
    states = verbs.query("SELECT operation, queue, state, count(*) FROM holdfast_jobs GROUP BY 1, 2, 3")
    assert counts(verbs) == {(operation, queue, state): n for operation, queue, state, n in states}
    assert sum(counts(verbs).values()) == 60
