"""Many processes on one ledger: every job once, a share for each, no lock error, and a kill leaves nothing."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest

from holdfast.core.commands import Quarantine, Retry
from holdfast.core.decide import Move
from holdfast.store import Lease, Submission, create_store, open_store
from tests.store.verbs import Answer, Verbs, fail, together
from tests.support.store_child import Child

JOBS = 2000
PROCESSES = 4


@contextmanager
def children(mode: str, url: str, options: list[dict[str, Any]]) -> Iterator[list[Child]]:
    """Yield processes that have the ledger open and wait for the start."""
    with ExitStack() as stack:
        started = [stack.enter_context(Child(mode, url, **each)) for each in options]
        assert [child.says() for child in started] == ["ready"] * len(started)
        yield started


def claimers(url: str) -> Any:
    return children("claim", url, [{"owner": f"worker-{n}", "n": 10} for n in range(PROCESSES)])


def submit(url: str, n: int) -> None:
    with create_store(url) as store, store.transaction() as transaction:
        transaction.jobs.submit([Submission(operation="noop", payload=f"[{at}]") for at in range(n)], actor="client-1")


def rows(url: str, sql: str) -> list[tuple[Any, ...]]:
    with open_store(url) as store, store.reading() as reading:
        return store.execute(reading.connection, sql)


@pytest.mark.req("K-32", "M-07", "G-29")
def test_four_processes_claim_each_job_once_and_share_the_work(ledger_url: str) -> None:
    submit(ledger_url, JOBS)
    with claimers(ledger_url) as started:
        for child in started:
            child.go()
        answers = [child.answer() for child in started]
    assert [answer.get("error") for answer in answers] == [None] * PROCESSES
    shares = [answer["claimed"] for answer in answers]
    assert sum(shares) == JOBS
    assert min(shares) >= JOBS // 10
    assert rows(ledger_url, "SELECT state, attempts, version, count(*) FROM holdfast_jobs GROUP BY 1, 2, 3") == [
        ("succeeded", 1, 3, JOBS)
    ]
    assert rows(
        ledger_url, "SELECT status, attempt, count(*), count(DISTINCT job_id) FROM holdfast_executions GROUP BY 1, 2"
    ) == [("DONE", 1, JOBS, JOBS)]
    assert rows(ledger_url, "SELECT machine, count(*) FROM holdfast_edges GROUP BY 1 ORDER BY 1") == [
        ("EXECUTION", 4 * JOBS),
        ("JOB", 3 * JOBS),
    ]
    assert rows(ledger_url, "SELECT count(*) FROM holdfast_journal") == [(3 * JOBS,)]
    owned = rows(ledger_url, "SELECT lease_owner, count(*) FROM holdfast_executions GROUP BY 1 ORDER BY 1")
    assert owned == [(f"worker-{n}", share) for n, share in enumerate(shares)]


@pytest.mark.req("G-17", "K-63")
def test_a_ledgers_file_has_a_write_ahead_log(sqlite_url: str) -> None:
    create_store(sqlite_url).close()
    plain = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    assert plain.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    plain.close()


@pytest.mark.req("G-17")
def test_a_foreign_writer_only_delays(sqlite_url: str) -> None:
    """A foreign client holds SQLite's own lock: the ledger's processes wait for it, and none fails."""
    submit(sqlite_url, 200)
    path = sqlite_url.removeprefix("sqlite:///")
    with claimers(sqlite_url) as started:
        shell = sqlite3.connect(path, isolation_level=None)
        shell.execute("BEGIN IMMEDIATE")
        for child in started:
            child.go()
        time.sleep(0.3)
        assert shell.execute("SELECT count(*) FROM holdfast_executions").fetchone() == (0,)
        shell.execute("COMMIT")
        answers = [child.answer() for child in started]
        shell.close()
    assert [answer.get("error") for answer in answers] == [None] * PROCESSES
    assert sum(answer["claimed"] for answer in answers) == 200


def test_a_process_killed_in_a_transaction_leaves_no_lock_and_no_row(ledger_url: str) -> None:
    submit(ledger_url, 5)
    before = rows(ledger_url, "SELECT * FROM holdfast_jobs ORDER BY job_id")
    with children("hold", ledger_url, [{"n": 5}]) as [doomed]:
        doomed.go()
        assert doomed.says() == "holding 5"
        doomed.kill()
    assert rows(ledger_url, "SELECT * FROM holdfast_jobs ORDER BY job_id") == before
    assert rows(ledger_url, "SELECT count(*) FROM holdfast_executions") == [(0,)]
    assert rows(ledger_url, "SELECT count(*) FROM holdfast_journal") == [(5,)]
    with open_store(ledger_url) as store:
        claimed = 0
        deadline = time.monotonic() + 30
        # A server notices the end of its client a moment later.
        while claimed < 5 and time.monotonic() < deadline:
            with store.transaction() as transaction:
                claimed += len(transaction.executions.claim(Lease(owner="heir", seconds=60, n=5)))
    assert claimed == 5
    assert rows(ledger_url, "SELECT lease_owner, attempt, count(*) FROM holdfast_executions GROUP BY 1, 2") == [
        ("heir", 1, 5)
    ]


def test_processes_that_make_the_same_ledger_at_once_make_one(ledger_url: str) -> None:
    with children("open", ledger_url, [{}] * PROCESSES) as started:
        for child in started:
            child.go()
        answers = [child.answer() for child in started]
    assert answers == [{"opened": True}] * PROCESSES
    assert rows(ledger_url, "SELECT number FROM holdfast_migrations ORDER BY number")[0] == (1,)


@pytest.mark.req("G-10", "G-11")
def test_of_many_rulings_on_the_same_jobs_one_wins_each(verbs: Verbs) -> None:
    """Batches in opposite orders: no deadlock."""
    if verbs.store.dialect == "postgres":
        # The plan of a large table, which locks rows in the order that the batch names them.
        with verbs.store.transaction() as transaction:
            name = verbs.store.url.rpartition("/")[2]
            for setting in ("enable_seqscan", "enable_hashjoin", "enable_mergejoin"):
                verbs.store.execute(transaction.connection, f"ALTER DATABASE {name} SET {setting} = off")
        with open_store(verbs.store.url, verbs.clock) as store:
            _rule_in_opposite_orders(Verbs(store, verbs.clock))
    else:
        _rule_in_opposite_orders(verbs)


def _rule_in_opposite_orders(verbs: Verbs) -> None:
    verbs.submit_all([Submission(operation="noop", payload="{}")] * 300)
    attempts = verbs.claim(300)
    verbs.work_all([(attempt, fail(attempt)) for attempt in attempts])
    with verbs.store.reading() as reading:
        jobs = reading.jobs.get_many(attempt.job.job_id for attempt in attempts)

    def ruling(n: int) -> list[Answer]:
        order = slice(None, None, 1 if n % 2 else -1)
        command = Retry() if n < 2 else Quarantine("poison")
        return verbs.rule_all([(job, command) for job in jobs[order]])[order]

    answers = together(*(partial(ruling, n) for n in range(4)))
    with verbs.store.reading() as reading:
        for at, job in enumerate(jobs):
            [winner] = [n for n in range(4) if isinstance(answers[n][at], Move)]
            assert reading.jobs.get(job.job_id).version == job.version + 1
            assert reading.journal.of(job.job_id)[-1].event == ("retry" if winner < 2 else "quarantine")


def test_threads_of_one_store_claim_each_job_once(verbs: Verbs) -> None:
    verbs.submit_all([Submission(operation="noop", payload="{}")] * 200)

    def claiming() -> list[int]:
        return [attempt.job.job_id for _ in range(60) for attempt in verbs.claim(2)]

    won = [job_id for each in together(*[claiming] * 4) for job_id in each]
    assert sorted(won) == sorted(job_id for (job_id,) in verbs.query("SELECT job_id FROM holdfast_jobs"))
