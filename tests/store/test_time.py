"""Time: UTC in one format, compared as times; a clock that steps back breaks nothing; leases have one clock."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest

from holdfast.core.commands import Beat, Complete, Retry
from holdfast.core.decide import Move, decide
from holdfast.core.errors import BrokenError, RefusedByDatabaseError
from holdfast.core.machines import ExecutionStatus, JobState
from holdfast.core.records import time_from, time_text
from holdfast.store import Lease, Submission, create_store
from holdfast.store.postgres.store import PostgresStore
from tests.store.verbs import WORKER, Verbs, fail, refusal

FORMAT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
TIMES = {
    "holdfast_calls": ("created_at",),
    "holdfast_jobs": ("run_at", "due_at", "last_attempt_at", "started_at", "updated_at"),
    "holdfast_aborted": ("lease_expires_at", "started_at", "finished_at", "created_at"),
    "holdfast_executions": ("lease_expires_at", "started_at", "finished_at", "created_at", "updated_at"),
    "holdfast_grants": ("expires_at", "created_at", "updated_at"),
    "holdfast_journal": ("at",),
}
CHECKED = [
    ("holdfast_jobs", "run_at"),
    ("holdfast_jobs", "updated_at"),
    ("holdfast_jobs", "lease_expires_at"),
    ("holdfast_calls", "created_at"),
]
OTHER_FORMATS = (
    "2027-03-14 09:26:53",
    "2027-03-14T09:26:53Z",
    "2027-03-14T09:26:53.589Z",
    "2027-03-14T09:26:53.589793+00:00",
    "2027-03-14T09:26:53.589793",
    "1804999613",
)


def a_full_ledger(verbs: Verbs) -> None:
    """Bring about a value in every time column."""
    done = verbs.submit()
    attempt = verbs.claim_one()
    verbs.work(attempt, Complete(attempt.execution.lease_token))
    verbs.submit()
    failing = verbs.claim_one()
    verbs.work(failing, fail(failing))
    quarantined = verbs.job_in(JobState.QUARANTINED)
    verbs.release(quarantined, verbs.active_grant(done))


@pytest.mark.req("G-19")
def test_every_stored_time_has_the_one_format(verbs: Verbs) -> None:
    """Also a time that came in another zone, and one without a fraction of a second."""
    a_full_ledger(verbs)
    far = timezone(timedelta(hours=-7))
    verbs.submit(run_at=datetime(2027, 1, 1, 0, 0, 0, tzinfo=far))
    for table, columns in TIMES.items():
        for column in columns:
            rows = verbs.query(f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL")
            assert rows, (table, column)
            for (value,) in rows:
                if verbs.store.dialect == "sqlite":
                    assert FORMAT.fullmatch(value), (table, column, value)
                else:
                    assert value.utcoffset() == timedelta(0)
    assert verbs.query("SELECT count(*) FROM holdfast_jobs WHERE run_at = '2027-01-01T07:00:00.000000Z'") == [(1,)]


def test_every_time_that_is_read_is_aware_and_in_utc(verbs: Verbs) -> None:
    job = verbs.job_in(JobState.SUCCEEDED, run_at=datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=9))))
    [execution] = verbs.executions(job.job_id)
    times = [job.run_at, job.last_attempt_at, job.created_at, job.updated_at]
    times += [execution.lease_expires_at, execution.started_at, execution.finished_at]
    times += [row.at for row in verbs.journal(job.job_id)]
    assert all(time is not None and time.utcoffset() == timedelta(0) for time in times)
    assert job.run_at == datetime(2019, 12, 31, 15, tzinfo=UTC)


@pytest.mark.req("G-19")
def test_sqlite_refuses_a_time_in_any_other_format(sqlite_url: str) -> None:
    """Text order is time order only while there is one format, so a shell cannot write another."""
    with create_store(sqlite_url) as store:
        with store.transaction() as transaction:
            transaction.jobs.submit([Submission(operation="noop", payload="{}")], actor="client-1")
            transaction.executions.claim(Lease(owner=WORKER, seconds=30))
        for table, column in CHECKED:
            for text in OTHER_FORMATS:
                # Under the door, which suspends the triggers: the format is a CHECK of the table.
                with (
                    pytest.raises(RefusedByDatabaseError) as refused,
                    store.transaction() as transaction,
                    transaction.maintenance.open(who="ann", why="a test"),
                ):
                    store.execute(transaction.connection, f"UPDATE {table} SET {column} = ?", (text,))
                assert getattr(refused.value.__cause__, "sqlite_errorname", None) == "SQLITE_CONSTRAINT_CHECK"


@pytest.mark.parametrize("moment", [
    datetime(2026, 3, 14, 9, 26, 53, 589793, tzinfo=UTC),
    datetime(2026, 3, 14, 9, 26, 53, tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
])  # fmt: skip
def test_the_format_keeps_every_moment(moment: datetime) -> None:
    assert FORMAT.fullmatch(time_text(moment))
    assert time_from(time_text(moment)) == moment


def test_a_time_without_a_zone_is_never_written() -> None:
    with pytest.raises(BrokenError):
        time_text(datetime(2026, 3, 14))  # noqa: DTZ001 - that is the fault


@pytest.mark.req("G-19")
def test_a_backoff_within_the_day_is_kept(verbs: Verbs) -> None:
    job = verbs.job_in(JobState.FAILED)
    verbs.rule(job, Retry(verbs.clock.after(120)))
    verbs.clock.advance(119.999999)
    assert verbs.claim() == []
    verbs.clock.advance(0.000001)
    assert verbs.claim_one().job.job_id == job.job_id


def test_a_clock_that_steps_back_breaks_no_move(verbs: Verbs) -> None:
    """`updated_at` never shrinks, the journal's times do not run backwards, and every other time is the clock's."""
    start = verbs.clock()
    job_id = verbs.submit()
    back = verbs.clock.jump_to(verbs.clock.after(-3600))
    # Due an hour ago by its own clock, so not due now.
    assert verbs.claim() == []
    verbs.clock.advance(3600)
    attempt = verbs.claim_one()
    back = verbs.clock.jump_to(verbs.clock.after(-3600))
    assert isinstance(verbs.work(attempt, fail(attempt, retry_at=back)), Move)
    second = verbs.claim_one()
    assert second.job.updated_at == start
    assert (second.job.last_attempt_at, second.execution.created_at) == (back, back)
    assert second.execution.updated_at == start  # an attempt is a part of its job's row
    assert verbs.attempt(second.execution.exec_id) == second
    verbs.clock.jump_to(verbs.clock.after(-60))
    assert isinstance(verbs.work(second, Complete(second.execution.lease_token)), Move)
    job = verbs.job(job_id)
    assert (job.state, job.created_at, job.updated_at) == (JobState.SUCCEEDED, start, start)
    [_, done] = verbs.executions(job_id)
    assert (done.finished_at, done.updated_at) == (start, start)
    assert {row.at for row in verbs.journal(job_id)} == {start}
    ats = [row.at for row in verbs.journal_of_executions(job_id) if row.subject == done.exec_id]
    assert ats == sorted(ats)


@pytest.mark.req("M-06")
def test_without_a_clock_of_its_own_a_store_keeps_real_time(ledger_url: str) -> None:
    before = datetime.now(UTC) - timedelta(seconds=60)
    with create_store(ledger_url) as store:
        with store.transaction() as transaction:
            [admission] = transaction.jobs.submit([Submission(operation="noop", payload="{}")], actor="client-1")
            [attempt] = transaction.executions.claim(Lease(owner=WORKER, seconds=30))
        assert attempt.job.job_id == admission.job_id
        assert before < attempt.execution.created_at < store.now() + timedelta(seconds=60)
        assert attempt.execution.lease_expires_at > attempt.execution.created_at + timedelta(seconds=29)


@pytest.mark.req("M-06", "G-13")
def test_the_databases_clock_decides_about_leases_on_postgresql(new_postgres_ledger: str) -> None:
    """By the slow clock of a worker its lease is live; the statement uses the server's clock and refuses."""
    with create_store(new_postgres_ledger) as store:
        assert isinstance(store, PostgresStore)
        with store.transaction() as transaction:
            transaction.jobs.submit([Submission(operation="noop", payload="{}")], actor="client-1")
            [attempt] = transaction.executions.claim(Lease(owner=WORKER, seconds=0))
        token, exec_id = attempt.execution.lease_token, attempt.execution.exec_id
        store.now()
        assert store._server_time is not None
        at, since = store._server_time
        store._server_time = at - timedelta(hours=1), since
        assert isinstance(decide(attempt, Beat(token), store.now()), Move)
        with store.transaction() as transaction:
            [answer] = transaction.executions.move([(attempt, Complete(token))], actor=WORKER)
            assert refusal(answer) == "lease_lost"
            assert exec_id not in transaction.executions.extend_leases([(attempt.execution, 60)])
        with store.transaction() as transaction:
            [(found, answer)] = transaction.recovery.recover(actor="reaper")
            assert found.execution.exec_id == exec_id
            assert isinstance(answer, Move)
        with store.reading() as reading:
            [execution] = reading.lists.executions(attempt.job.job_id)
            assert execution.status == ExecutionStatus.ABORTED
