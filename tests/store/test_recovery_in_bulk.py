"""Expired leases, ended many at once: the rows are those that `decide` makes for each; special cases are left to it."""

from __future__ import annotations

from typing import Any

from holdfast.core.commands import Commit, Complete
from holdfast.core.machines import JobState
from tests.store.verbs import REAPER, WORKER, Verbs

JOB_COLUMNS = (
    "state, version, attempts, excused, lost, run_at, due_at, resting, status, lease_owner, lease_expires_at,"
    " started_at, last_attempt_at, result, last_error_code, last_error_message, excuse_code, excuse_message,"
    " quarantine_code, progress, progress_note, updated_at, event, actor, reason, grant_id"
)
ABORTED_COLUMNS = (
    "attempt, version, lease_owner, lease_expires_at, excused, error_code, error_message, event, actor, reason,"
    " progress, progress_note, started_at, created_at, finished_at"
)
JOURNAL_COLUMNS = "machine, version, source, target, status_from, status_to, event, actor, reason, attempt, at"


def expire(verbs: Verbs, n: int = 100, **fields: Any) -> list[int]:
    with verbs.store.transaction() as transaction:
        return transaction.recovery.expire(actor=REAPER, n=n, at=verbs.clock(), **fields)


def rows(verbs: Verbs, job_id: int) -> list[Any]:
    """Return what the ledger has of a job, without its numbers and names."""
    jobs = verbs.query(f"SELECT {JOB_COLUMNS} FROM holdfast_jobs WHERE job_id = {job_id}")
    aborted = verbs.query(f"SELECT {ABORTED_COLUMNS} FROM holdfast_aborted WHERE job_id = {job_id} ORDER BY attempt")
    journal = verbs.query(f"SELECT {JOURNAL_COLUMNS} FROM holdfast_journal WHERE subject = {job_id} ORDER BY seq")
    return [jobs, aborted, journal]


def test_a_recovery_in_bulk_writes_the_same_rows_as_single_recoveries(verbs: Verbs) -> None:
    for begin in (True, False):
        verbs.submit()
        verbs.submit()
        pair = [attempt.job_id for attempt in verbs.claim(2, begin=begin)]
        verbs.clock.advance(31)
        [(first, _)] = verbs.recover(n=1)
        [second] = expire(verbs)
        assert {first.job_id, second} == set(pair)
        assert rows(verbs, first.job_id) == rows(verbs, second)
        held = verbs.claim(2)  # the second time, and at another time
        verbs.progress(held[0], 0.5, "half")
        verbs.progress(held[1], 0.5, "half")
        verbs.clock.advance(31)
        verbs.recover(n=1, retry_at=verbs.clock.after(5))
        expire(verbs, retry_at=verbs.clock.after(5))
        assert rows(verbs, pair[0]) == rows(verbs, pair[1])
        verbs.clock.advance(6)
        verbs.work_all([(attempt, Complete(attempt.token, "1")) for attempt in verbs.claim(2)])


def test_a_live_lease_is_left_alone(verbs: Verbs) -> None:
    verbs.submit()
    held = verbs.claim_one()
    verbs.clock.advance(29)
    assert expire(verbs) == []
    assert verbs.job(held.job_id).state is JobState.RUNNING


def test_committed_cancelled_and_often_lost_attempts_are_not_recovered_in_bulk(verbs: Verbs) -> None:
    ids = [verbs.submit() for _ in range(4)]
    for _ in range(2):
        verbs.claim(4)
        verbs.clock.advance(31)
        assert len(expire(verbs)) == 4
    assert [verbs.job(job_id).lost for job_id in ids] == [2] * 4
    verbs.claim(4)  # suspects from now on
    fresh = [verbs.submit() for _ in range(3)]
    [done, wanted, plain] = verbs.claim(3)
    assert [done.job_id, wanted.job_id, plain.job_id] == fresh
    verbs.work(done, Commit(done.token, "1"))
    with verbs.store.transaction() as transaction:
        transaction.execute(
            "UPDATE holdfast_jobs SET cancel_requested_at = lease_expires_at, cancel_by = 'ann', cancel_reason = 'why',"
            f" cancel_move_id = 'requested' WHERE job_id = {wanted.job_id}"
        )
    verbs.clock.advance(31)
    assert expire(verbs) == [plain.job_id]
    with verbs.store.transaction() as transaction:
        ended = transaction.recovery.recover(actor=REAPER, at=verbs.clock(), rare=True)
    assert {attempt.job_id for attempt, _ in ended} == {*ids, done.job_id, wanted.job_id}
    assert verbs.job(done.job_id).state is JobState.SUCCEEDED
    assert verbs.job(plain.job_id).lost == 1


def test_a_recovery_in_bulk_takes_at_most_n_and_the_oldest_first(verbs: Verbs) -> None:
    for _ in range(5):
        verbs.submit()
    first = [attempt.job_id for attempt in verbs.claim(3, owner=WORKER)]
    verbs.clock.advance(1)
    verbs.claim(2)
    verbs.clock.advance(40)
    assert sorted(expire(verbs, n=3)) == first
    assert len(expire(verbs, n=3)) == 2
    assert expire(verbs) == []
