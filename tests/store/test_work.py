"""The verbs of a worker and of recovery: the exact rows each leaves behind, and what each refuses."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from holdfast.core.commands import Commit, Complete, Expire, Fail, Finish, GiveBack, Replay, Start
from holdfast.core.decide import Move, Refused
from holdfast.core.errors import BrokenError
from holdfast.core.machines import ExecutionStatus, JobState
from holdfast.core.records import LOSSES_EXCUSED, Attempt
from tests.store.verbs import REAPER, WORKER, Verbs, changed, fail, refusal, steps

LATE = 30  # seconds after which the lease that `claim` gives has run out


def token(attempt: Attempt) -> int:
    return attempt.execution.lease_token


def shown_with(attempt: Attempt, **fields: object) -> Attempt:
    """Return an attempt whose holder shows another token or owner."""
    return Attempt(attempt.job, changed(attempt.execution, **fields))


def new_steps(verbs: Verbs, before: Attempt) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    """Return the journal rows of the job and of the execution that came after the attempt was read."""
    job = [row for row in verbs.journal(before.job.job_id) if row.version > before.job.version]
    execution = [
        row
        for row in verbs.journal_of_executions(before.job.job_id)
        if row.subject == before.execution.exec_id and row.version > before.execution.version
    ]
    return steps(job), steps(execution)


# ---------------------------------------------------------------------------------------------------------------------
# What each verb writes


@pytest.mark.req("M-03")
def test_start_begins_a_leased_execution(verbs: Verbs) -> None:
    verbs.submit()
    before = verbs.claim_one(begin=False)
    now = verbs.clock.advance(1)
    assert isinstance(verbs.work(before, Start(token(before)), "warmed up"), Move)
    after = verbs.attempt(before.execution.exec_id)
    assert after.job == changed(before.job, updated_at=now)
    assert after.execution == changed(
        before.execution, status=ExecutionStatus.IN_PROGRESS, version=2, started_at=now, updated_at=now
    )
    assert new_steps(verbs, before) == (
        [],
        [(2, "LEASED", "IN_PROGRESS", "start", WORKER, "warmed up", 1, None, now)],
    )


@pytest.mark.req("M-03", "X-04")
def test_commit_keeps_the_result_and_leaves_the_job_running(verbs: Verbs) -> None:
    verbs.submit()
    before = verbs.claim_one()
    now = verbs.clock.advance(1)
    assert isinstance(verbs.work(before, Commit(token(before), '{"bytes":7}')), Move)
    after = verbs.attempt(before.execution.exec_id)
    assert after.job == changed(before.job, result='{"bytes":7}', updated_at=now)
    assert after.execution == changed(before.execution, status=ExecutionStatus.COMMITTED, version=3, updated_at=now)
    assert new_steps(verbs, before) == ([], [(3, "IN_PROGRESS", "COMMITTED", "commit", WORKER, None, 1, None, now)])


@pytest.mark.req("M-03", "M-04", "M-09")
@pytest.mark.parametrize("wait_s", [1, 10 * LATE], ids=["in time", "long after the lease"])
def test_finish_ends_a_committed_execution_however_late(verbs: Verbs, wait_s: int) -> None:
    verbs.submit()
    begun = verbs.claim_one()
    verbs.work(begun, Commit(token(begun), '"r"'))
    before = verbs.attempt(begun.execution.exec_id)
    now = verbs.clock.advance(wait_s)
    assert isinstance(verbs.work(before, Finish(token(before))), Move)
    after = verbs.attempt(before.execution.exec_id)
    assert after.job == changed(before.job, state=JobState.SUCCEEDED, version=3, updated_at=now)
    assert after.job.result == '"r"'
    assert after.execution == changed(
        before.execution,
        status=ExecutionStatus.DONE,
        version=4,
        lease_expires_at=now,  # the lease ends with the attempt
        finished_at=now,
        updated_at=now,
    )
    assert new_steps(verbs, before) == (
        [(3, "running", "succeeded", "succeed", WORKER, None, 1, None, now)],
        [(4, "COMMITTED", "DONE", "finish", WORKER, None, 1, None, now)],
    )


@pytest.mark.req("M-03", "M-04", "X-04", "K-20")
def test_complete_is_commit_and_finish_in_one_write(verbs: Verbs) -> None:
    verbs.submit()
    before = verbs.claim_one()
    now = verbs.clock.advance(1)
    assert isinstance(verbs.work(before, Complete(token(before), '{"bytes":7}'), "all good"), Move)
    after = verbs.attempt(before.execution.exec_id)
    assert after.job == changed(before.job, state=JobState.SUCCEEDED, version=3, result='{"bytes":7}', updated_at=now)
    assert after.execution == changed(
        before.execution,
        status=ExecutionStatus.DONE,
        version=4,
        lease_expires_at=now,  # the lease ends with the attempt
        finished_at=now,
        updated_at=now,
    )
    assert new_steps(verbs, before) == (
        [(3, "running", "succeeded", "succeed", WORKER, "all good", 1, None, now)],
        [
            (3, "IN_PROGRESS", "COMMITTED", "complete", WORKER, "all good", 1, None, now),
            (4, "COMMITTED", "DONE", "complete", WORKER, "all good", 1, None, now),
        ],
    )


@pytest.mark.req("M-06", "M-18")
def test_a_completion_shows_the_owner_of_the_lease(verbs: Verbs) -> None:
    """After a failover a token may be given out again; the name of the worker is not."""
    verbs.submit()
    held = verbs.claim_one()
    before = verbs.everything()
    stranger = shown_with(held, lease_owner="another")
    with verbs.store.transaction() as transaction:
        [answer] = transaction.executions.move([(stranger, Complete(token(held)))], actor="another")
    assert isinstance(answer, Refused)
    assert answer.code == "lease_lost"
    assert verbs.everything() == before


def test_finishing_again_is_a_no_op(verbs: Verbs) -> None:
    verbs.submit()
    begun = verbs.claim_one()
    verbs.work(begun, Complete(token(begun)))
    before = verbs.everything()
    done = verbs.attempt(begun.execution.exec_id)
    assert verbs.work(done, Finish(token(done))) == Move()
    assert verbs.everything() == before


@pytest.mark.req("K-13", "K-19", "M-05")
def test_fail_with_a_retry_goes_through_failed_back_to_pending(verbs: Verbs) -> None:
    verbs.submit(max_attempts=2)
    before = verbs.claim_one()
    now = verbs.clock.advance(1)
    retry_at = verbs.clock.after(60)
    assert isinstance(verbs.work(before, fail(before, retry_at=retry_at)), Move)
    after = verbs.attempt(before.execution.exec_id)
    assert after.job == changed(
        before.job,
        state=JobState.PENDING,
        version=4,
        run_at=retry_at,
        last_error_code="boom",
        last_error_message="it broke",
        updated_at=now,
    )
    assert after.execution == changed(
        before.execution,
        status=ExecutionStatus.ABORTED,
        version=3,
        error_code="boom",
        error_message="it broke",
        finished_at=now,
        updated_at=now,
    )
    assert new_steps(verbs, before) == (
        [
            (3, "running", "failed", "retry", WORKER, None, 1, None, now),
            (4, "failed", "pending", "retry", WORKER, None, 1, None, now),
        ],
        [(3, "IN_PROGRESS", "ABORTED", "abort", WORKER, None, 1, None, now)],
    )
    assert verbs.claim() == []
    verbs.clock.advance(60)
    assert verbs.claim_one().job.attempts == 2


@pytest.mark.req("K-13", "M-05", "X-06")
@pytest.mark.parametrize("asks", [True, False], ids=["no retries left", "no retry requested"])
def test_fail_without_a_retry_rests_in_failed(verbs: Verbs, asks: bool) -> None:
    verbs.submit(max_attempts=1 if asks else 5)
    before = verbs.claim_one()
    now = verbs.clock.advance(1)
    verbs.work(before, fail(before, retry_at=verbs.clock.after(60) if asks else None))
    after = verbs.attempt(before.execution.exec_id)
    assert after.job == changed(
        before.job,
        state=JobState.FAILED,
        version=3,
        last_error_code="boom",
        last_error_message="it broke",
        updated_at=now,
    )
    assert after.job.run_at == before.job.run_at
    assert new_steps(verbs, before) == (
        [(3, "running", "failed", "fail", WORKER, None, 1, None, now)],
        [(3, "IN_PROGRESS", "ABORTED", "abort", WORKER, None, 1, None, now)],
    )


@pytest.mark.req("K-18", "K-15")
@pytest.mark.parametrize(
    "fields, event, code",
    [
        ({"permanent": True}, "quarantine", "boom"),
        ({"permanent": True, "quarantine_code": "governance_hard_fail"}, "quarantine", "governance_hard_fail"),
        ({"quarantine_code": "cancelled"}, "cancel", "cancelled"),
    ],
    ids=["permanent", "with a code of its own", "cancelled"],
)
def test_a_permanent_failure_goes_through_failed_to_quarantined(
    verbs: Verbs, fields: dict[str, object], event: str, code: str
) -> None:
    verbs.submit()
    before = verbs.claim_one()
    now = verbs.clock.advance(1)
    verbs.work(before, fail(before, retry_at=verbs.clock.after(1), **fields))
    after = verbs.attempt(before.execution.exec_id)
    assert after.job == changed(
        before.job,
        state=JobState.QUARANTINED,
        version=4,
        last_error_code="boom",
        last_error_message="it broke",
        quarantine_code=code,
        updated_at=now,
    )
    assert new_steps(verbs, before) == (
        [
            (3, "running", "failed", event, WORKER, None, 1, None, now),
            (4, "failed", "quarantined", event, WORKER, None, 1, None, now),
        ],
        [(3, "IN_PROGRESS", "ABORTED", "abort", WORKER, None, 1, None, now)],
    )


@pytest.mark.req("M-03")
def test_a_leased_execution_can_fail_before_it_starts(verbs: Verbs) -> None:
    verbs.submit()
    before = verbs.claim_one(begin=False)
    assert isinstance(verbs.work(before, fail(before)), Move)
    after = verbs.attempt(before.execution.exec_id)
    assert (after.execution.status, after.execution.version) == (ExecutionStatus.ABORTED, 2)
    assert (after.execution.started_at, after.execution.finished_at) == (None, verbs.clock())
    assert after.job.state == JobState.FAILED


@pytest.mark.req("K-14", "X-06")
def test_the_two_budgets_end_in_failed_and_then_in_quarantine(verbs: Verbs) -> None:
    """Two automatic attempts, then one replay; the job at the sum is quarantined."""
    job_id = verbs.submit(max_attempts=2, replay_attempts=1)
    states = []
    for _ in range(2):
        attempt = verbs.claim_one()
        verbs.work(attempt, fail(attempt, retry_at=verbs.clock()))
        states.append(verbs.job(job_id).state)
    assert isinstance(verbs.rule(verbs.job(job_id), Replay("incident")), Move)
    attempt = verbs.claim_one()
    verbs.work(attempt, fail(attempt, retry_at=verbs.clock()))
    states.append(verbs.job(job_id).state)
    assert states == [JobState.PENDING, JobState.FAILED, JobState.QUARANTINED]
    assert (verbs.job(job_id).attempts, verbs.job(job_id).quarantine_code) == (3, "boom")


@pytest.mark.req("X-06")
def test_a_returned_attempt_is_excused(verbs: Verbs) -> None:
    job_id = verbs.submit(max_attempts=1, replay_attempts=0)
    before = verbs.claim_one()
    now = verbs.clock.advance(1)
    again_at = verbs.clock.after(5)
    assert isinstance(verbs.work(before, GiveBack(token(before), again_at), "shutting down"), Move)
    after = verbs.attempt(before.execution.exec_id)
    assert after.job == changed(
        before.job, state=JobState.PENDING, version=4, excused=1, run_at=again_at, updated_at=now
    )
    assert (after.job.last_error_code, after.job.spent) == (None, 0)
    assert after.execution == changed(
        before.execution,
        status=ExecutionStatus.ABORTED,
        version=3,
        excused=True,
        finished_at=now,
        updated_at=now,
    )
    assert new_steps(verbs, before) == (
        [
            (3, "running", "failed", "give_back", WORKER, "shutting down", 1, None, now),
            (4, "failed", "pending", "give_back", WORKER, "shutting down", 1, None, now),
        ],
        [(3, "IN_PROGRESS", "ABORTED", "abort", WORKER, "shutting down", 1, None, now)],
    )
    verbs.clock.advance(5)
    attempt = verbs.claim_one()
    assert (attempt.job.attempts, attempt.job.excused, attempt.job.spent) == (2, 1, 1)
    verbs.work(attempt, Complete(token(attempt)))
    assert verbs.job(job_id).state == JobState.SUCCEEDED


@pytest.mark.req("K-19", "M-04", "M-09")
@pytest.mark.parametrize("begin", [True, False], ids=["after it started", "before it started"])
def test_expire_ends_the_execution_and_reopens_the_job(verbs: Verbs, begin: bool) -> None:
    verbs.submit()
    before = verbs.claim_one(begin=begin)
    now = verbs.clock.advance(LATE)
    retry_at = verbs.clock.after(7)
    assert isinstance(verbs.work(before, Expire(retry_at)), Move)
    after = verbs.attempt(before.execution.exec_id)
    message = f"the lease of {WORKER} expired during attempt 1"
    assert after.job == changed(
        before.job,
        state=JobState.PENDING,
        version=4,
        run_at=retry_at,
        excused=1,
        updated_at=now,
        lost=1,
    )
    version = before.execution.version + 1
    assert after.execution == changed(
        before.execution,
        status=ExecutionStatus.ABORTED,
        version=version,
        excused=True,
        error_code="lease_expired",
        error_message=message,
        finished_at=now,
        updated_at=now,
    )
    assert new_steps(verbs, before) == (
        [
            (3, "running", "failed", "expire", WORKER, None, 1, None, now),
            (4, "failed", "pending", "expire", WORKER, None, 1, None, now),
        ],
        [(version, str(before.execution.status), "ABORTED", "abort", WORKER, None, 1, None, now)],
    )


@pytest.mark.req("M-05", "X-06")
@pytest.mark.parametrize(
    "budget, state, event",
    [((1, 1), JobState.FAILED, "fail"), ((1, 0), JobState.QUARANTINED, "quarantine")],
    ids=["a replay is left", "nothing is left"],
)
def test_an_expired_lease_spends_the_budget_too(
    verbs: Verbs, budget: tuple[int, int], state: JobState, event: str
) -> None:
    verbs.submit(max_attempts=budget[0], replay_attempts=budget[1])
    for lost in range(LOSSES_EXCUSED):
        assert (verbs.claim_one().job.lost or 0) == lost
        verbs.clock.advance(LATE)
        verbs.recover()
    before = verbs.claim_one()
    verbs.clock.advance(LATE)
    [(_, answer)] = verbs.recover()
    assert isinstance(answer, Move)
    job = verbs.job(before.job.job_id)
    assert (job.state, job.last_error_code, job.run_at) == (state, "lease_expired", before.job.run_at)
    assert job.quarantine_code == ("lease_expired" if state is JobState.QUARANTINED else None)
    assert {row[3] for row in new_steps(verbs, before)[0]} == {event}


# ---------------------------------------------------------------------------------------------------------------------
# Recovery


@pytest.mark.req("M-09", "M-13")
def test_recovery_finishes_what_committed_and_expires_the_rest(verbs: Verbs) -> None:
    """A crash between commit and finish: nothing is repeated, and the result is kept."""
    for _ in range(3):
        verbs.submit()
    crashed, committed, living = verbs.claim(3, seconds=10)
    verbs.work(committed, Commit(token(committed), '"kept"'))
    verbs.beat(living, 1000)
    now = verbs.clock.advance(10)
    answers = verbs.recover(retry_at=verbs.clock.after(5))
    assert [attempt.execution.exec_id for attempt, _ in answers] == [
        committed.execution.exec_id,
        crashed.execution.exec_id,
    ]
    assert all(isinstance(answer, Move) for _, answer in answers)
    done = verbs.attempt(committed.execution.exec_id)
    assert (done.job.state, done.job.result) == (JobState.SUCCEEDED, '"kept"')
    assert (done.execution.status, done.execution.finished_at) == (ExecutionStatus.DONE, now)
    assert new_steps(verbs, committed) == (
        [(3, "running", "succeeded", "succeed", REAPER, None, 1, None, now)],
        [
            (3, "IN_PROGRESS", "COMMITTED", "commit", WORKER, None, 1, None, now - timedelta(seconds=10)),
            (4, "COMMITTED", "DONE", "finish", REAPER, None, 1, None, now),
        ],
    )
    assert verbs.job(crashed.job.job_id).state == JobState.PENDING
    assert verbs.job(crashed.job.job_id).run_at == verbs.clock.after(5)
    assert verbs.attempt(living.execution.exec_id).execution.status == ExecutionStatus.IN_PROGRESS
    assert verbs.recover() == []


@pytest.mark.req("M-09")
def test_a_crash_after_commit_is_never_run_again(verbs: Verbs) -> None:
    verbs.submit()
    attempt = verbs.claim_one()
    verbs.work(attempt, Commit(token(attempt), '"r"'))
    verbs.clock.advance(LATE)
    assert verbs.claim() == []
    verbs.recover()
    assert verbs.claim() == []
    assert [e.status for e in verbs.executions(attempt.job.job_id)] == [ExecutionStatus.DONE]


def test_recovery_takes_at_most_n_and_the_oldest_first(verbs: Verbs) -> None:
    exec_ids = []
    for seconds in (30, 10, 20):
        verbs.submit()
        exec_ids.append(verbs.claim_one(seconds=seconds).execution.exec_id)
    verbs.clock.advance(1000)
    assert [attempt.execution.exec_id for attempt, _ in verbs.recover(n=2)] == [exec_ids[1], exec_ids[2]]
    assert [attempt.execution.exec_id for attempt, _ in verbs.recover(n=2)] == [exec_ids[0]]


def test_a_lease_ends_at_its_exact_microsecond(verbs: Verbs) -> None:
    verbs.submit()
    attempt = verbs.claim_one(seconds=10)
    verbs.clock.advance(9.999999)
    assert verbs.recover() == []
    assert verbs.beat(attempt, 10)
    verbs.clock.advance(10)
    assert not verbs.beat(attempt, 10)
    assert len(verbs.recover()) == 1


# ---------------------------------------------------------------------------------------------------------------------
# Refusals

Make = Callable[[Attempt, int], object]
WORKERS_COMMANDS: dict[str, Make] = {
    "start": lambda _, shown: Start(shown),
    "commit": lambda _, shown: Commit(shown, '"late"'),
    "complete": lambda _, shown: Complete(shown, '"late"'),
    "fail": lambda _, shown: Fail(shown, "late", "too late"),
    "fail with a retry": lambda a, shown: Fail(shown, "late", "too late", retry_at=a.job.run_at),
    "give back": lambda a, shown: GiveBack(shown, a.job.run_at),
}


def leased_for(verbs: Verbs, name: str) -> Attempt:
    verbs.submit()
    return verbs.claim_one(begin=name != "start")


@pytest.mark.req("M-06", "X-05", "G-13")
@pytest.mark.parametrize("name", WORKERS_COMMANDS)
def test_another_token_is_refused(verbs: Verbs, name: str) -> None:
    attempt = leased_for(verbs, name)
    before = verbs.everything()
    for wrong in (-1, 1, 1000):
        answer = verbs.work(attempt, WORKERS_COMMANDS[name](attempt, token(attempt) + wrong))
        assert refusal(answer) == "lease_lost"
    assert verbs.everything() == before


@pytest.mark.req("M-06", "X-05")
@pytest.mark.parametrize("name", WORKERS_COMMANDS)
def test_an_expired_lease_is_refused_even_if_it_was_not_recovered(verbs: Verbs, name: str) -> None:
    attempt = leased_for(verbs, name)
    verbs.clock.advance(LATE)
    before = verbs.everything()
    assert refusal(verbs.work(attempt, WORKERS_COMMANDS[name](attempt, token(attempt)))) == "lease_expired"
    assert verbs.everything() == before


ENDS: dict[str, Make] = {
    "done": lambda _, shown: Complete(shown),
    "failed": lambda _, shown: Fail(shown, "boom", "it broke"),
    "given back": lambda a, shown: GiveBack(shown, a.job.run_at),
}


@pytest.mark.req("W-18", "G-13", "M-03")
@pytest.mark.parametrize("end", ENDS)
def test_an_ended_execution_is_refused(verbs: Verbs, end: str) -> None:
    verbs.submit()
    attempt = verbs.claim_one()
    verbs.work(attempt, ENDS[end](attempt, token(attempt)))
    before = verbs.everything()
    ended = verbs.attempt(attempt.execution.exec_id)
    for name, make in WORKERS_COMMANDS.items():
        assert refusal(verbs.work(ended, make(ended, token(ended)))) == "wrong_state", name
    assert verbs.everything() == before


@pytest.mark.req("G-10", "G-11", "G-12")
@pytest.mark.parametrize("end", ENDS)
def test_a_record_that_moved_on_since_it_was_read_is_refused_by_the_row_count(verbs: Verbs, end: str) -> None:
    """The caller still believes that it holds a running execution; the WHERE refuses, and no row is journalled."""
    verbs.submit()
    stale = verbs.claim_one()
    verbs.work(stale, ENDS[end](stale, token(stale)))
    before = verbs.everything()
    for name, make in WORKERS_COMMANDS.items():
        if name != "start":
            assert refusal(verbs.work(stale, make(stale, token(stale)))) == "lease_lost", name
    assert verbs.everything() == before


@pytest.mark.req("M-06")
@pytest.mark.parametrize("status", [ExecutionStatus.LEASED, ExecutionStatus.IN_PROGRESS, ExecutionStatus.COMMITTED])
def test_a_live_lease_is_never_reclaimed(verbs: Verbs, status: ExecutionStatus) -> None:
    verbs.submit()
    attempt = verbs.claim_one(begin=status is not ExecutionStatus.LEASED)
    if status is ExecutionStatus.COMMITTED:
        verbs.work(attempt, Commit(token(attempt)))
    attempt = verbs.attempt(attempt.execution.exec_id)
    verbs.clock.advance(LATE - 0.000001)
    before = verbs.everything()
    assert verbs.recover() == []
    command = Finish() if status is ExecutionStatus.COMMITTED else Expire(verbs.clock())
    assert refusal(verbs.work(attempt, command)) == "lease_live"
    assert verbs.everything() == before


@pytest.mark.req("M-03")
def test_a_committed_attempt_can_neither_fail_nor_expire(verbs: Verbs) -> None:
    verbs.submit()
    attempt = verbs.claim_one()
    verbs.work(attempt, Commit(token(attempt)))
    committed = verbs.attempt(attempt.execution.exec_id)
    before = verbs.everything()
    for command in (fail(committed), GiveBack(token(committed), verbs.clock()), Commit(token(committed), '"again"')):
        assert refusal(verbs.work(committed, command)) == "wrong_state"
    verbs.clock.advance(LATE)
    assert refusal(verbs.work(committed, Expire(verbs.clock()))) == "wrong_state"
    assert verbs.everything() == before


BATCH_ENDS: list[Callable[[Attempt], object]] = [
    lambda attempt: Complete(token(attempt), '"done"'),
    lambda attempt: Fail(token(attempt), "bad", "it broke", permanent=True),
]


@pytest.mark.req("M-06", "M-08", "M-18")
@pytest.mark.parametrize("of_the_second", BATCH_ENDS, ids=["completes", "fails"])
@pytest.mark.parametrize("of_the_first", BATCH_ENDS, ids=["completes", "fails"])
@pytest.mark.parametrize("late_clock", [False, True])
def test_of_two_attempts_of_one_worker_at_one_job_in_one_batch_the_second_ends_it(
    verbs: Verbs,
    of_the_first: Callable[[Attempt], object],
    of_the_second: Callable[[Attempt], object],
    late_clock: bool,
) -> None:
    """A worker that lost its lease has claimed the job again, and ends both attempts in one write."""
    job_id = verbs.submit()
    first = verbs.claim_one(owner="A", seconds=10)
    verbs.clock.advance(10)
    verbs.recover()
    second = verbs.claim_one(owner="A", seconds=10)
    now = verbs.clock.after(-5) if late_clock else None
    moves = [(first, of_the_first(first)), (second, of_the_second(second))]
    with verbs.store.transaction() as transaction:
        answers = transaction.executions.move(moves, actor="A", now=now)
    assert refusal(answers[0]) in ("lease_expired", "lease_lost")
    assert isinstance(answers[1], Move)
    assert verbs.executions(job_id)[0].status is ExecutionStatus.ABORTED


@pytest.mark.req("M-18", "M-06", "M-07", "M-10", "G-13")
def test_a_late_holder_loses_to_the_second_execution(verbs: Verbs) -> None:
    """Lease of 1 s, work of 2 s: A is refused, whichever of the two comes to its commit first."""
    job_id = verbs.submit()
    a = verbs.claim_one(owner="A", seconds=1)
    verbs.clock.advance(1)
    verbs.recover()
    b = verbs.claim_one(owner="B", seconds=10)
    assert (a.job.job_id, b.job.job_id, b.execution.attempt) == (job_id, job_id, 2)
    verbs.clock.advance(1)
    assert refusal(verbs.work(a, Complete(token(a), '"A"'))) == "lease_expired"
    # A's own clock may stand still: `decide` would then accept, and the WHERE refuses.
    verbs.clock.jump_to(verbs.clock.after(-2))
    assert refusal(verbs.work(a, Complete(token(a), '"A"'))) == "lease_lost"
    verbs.clock.advance(2)
    # B's token does not open A's execution, nor A's token B's.
    assert refusal(verbs.work(verbs.attempt(a.execution.exec_id), Complete(token(b), '"A"'))) == "lease_lost"
    assert refusal(verbs.work(b, Complete(token(a), '"A"'))) == "lease_lost"
    assert isinstance(verbs.work(b, Complete(token(b), '"B"')), Move)
    assert refusal(verbs.work(verbs.attempt(a.execution.exec_id), Complete(token(a), '"A"'))) == "wrong_state"
    assert [(e.lease_owner, e.status) for e in verbs.executions(job_id)] == [
        ("A", ExecutionStatus.ABORTED),
        ("B", ExecutionStatus.DONE),
    ]
    assert (verbs.job(job_id).state, verbs.job(job_id).result) == (JobState.SUCCEEDED, '"B"')
    events = [(row.source, row.target) for row in verbs.journal_of_executions(job_id)]
    assert events.count(("IN_PROGRESS", "COMMITTED")) == events.count(("COMMITTED", "DONE")) == 1


@pytest.mark.req("M-18", "M-10")
def test_a_late_failure_does_not_hurt_the_second_execution(verbs: Verbs) -> None:
    job_id = verbs.submit()
    a = verbs.claim_one(owner="A", seconds=1)
    verbs.clock.advance(1)
    verbs.recover()
    b = verbs.claim_one(owner="B")
    before = verbs.everything()
    verbs.clock.jump_to(verbs.clock.after(-1))
    for name, make in WORKERS_COMMANDS.items():
        if name != "start":
            assert refusal(verbs.work(a, make(a, token(a)))) == "lease_lost", name
    assert verbs.everything() == before
    assert verbs.job(job_id) == b.job


# ---------------------------------------------------------------------------------------------------------------------
# Batches


def test_one_refused_member_lets_the_others_through(verbs: Verbs) -> None:
    for _ in range(5):
        verbs.submit()
    done, wrong, failed, given, stale = verbs.claim(5)
    verbs.work(stale, fail(stale))
    answers = verbs.work_all(
        [
            (stale, Complete(token(stale), '"no"')),
            (done, Complete(token(done), '"yes"')),
            (wrong, Complete(token(wrong) + 1000, '"no"')),
            (failed, fail(failed, code="late")),
            (given, GiveBack(token(given), verbs.clock.after(9))),
        ]
    )
    assert [answer.code if isinstance(answer, Refused) else "ok" for answer in answers] == [
        "lease_lost", "ok", "lease_lost", "ok", "ok",
    ]  # fmt: skip
    jobs = [verbs.job(attempt.job.job_id) for attempt in (stale, done, wrong, failed, given)]
    assert [(job.state, job.result, job.last_error_code) for job in jobs] == [
        (JobState.FAILED, None, "boom"),
        (JobState.SUCCEEDED, '"yes"', None),
        (JobState.RUNNING, None, None),
        (JobState.FAILED, None, "late"),
        (JobState.PENDING, None, None),
    ]
    assert verbs.attempt(wrong.execution.exec_id) == wrong


def test_results_of_a_batch_stay_with_their_jobs(verbs: Verbs) -> None:
    for _ in range(20):
        verbs.submit()
    attempts = verbs.claim(20)
    half = len(attempts) // 2
    verbs.work_all(
        [(a, Commit(token(a), f'"{a.job.job_id}"')) for a in attempts[:half]]
        + [(a, Complete(token(a), f'"{a.job.job_id}"')) for a in attempts[half:]]
    )
    assert all(verbs.job(a.job.job_id).result == f'"{a.job.job_id}"' for a in attempts)


def test_one_execution_twice_in_a_batch_is_refused_as_a_defect(verbs: Verbs) -> None:
    """One row cannot take two moves of one statement: an error is better than two answers of which one is wrong."""
    verbs.submit()
    attempt = verbs.claim_one()
    before = verbs.everything()
    with pytest.raises(BrokenError):
        verbs.work_all([(attempt, Commit(token(attempt), '"a"')), (attempt, Commit(token(attempt), '"b"'))])
    with pytest.raises(BrokenError):
        verbs.work_all([(attempt, Complete(token(attempt))), (attempt, fail(attempt))])
    assert verbs.everything() == before


def test_an_empty_batch_writes_nothing(verbs: Verbs) -> None:
    before = verbs.everything()
    assert verbs.work_all([]) == []
    assert verbs.everything() == before


# ---------------------------------------------------------------------------------------------------------------------
# Heartbeats and progress


@pytest.mark.req("M-06")
def test_a_heartbeat_moves_the_lease_and_nothing_else(verbs: Verbs) -> None:
    verbs.submit()
    attempt = verbs.claim_one(seconds=10)
    journal = verbs.query("SELECT count(*) FROM holdfast_journal")
    verbs.clock.advance(9)
    assert verbs.beat(attempt, 10)
    after = verbs.attempt(attempt.execution.exec_id)
    assert after.job == attempt.job
    assert after.execution == changed(attempt.execution, lease_expires_at=verbs.clock.after(10))
    assert verbs.query("SELECT count(*) FROM holdfast_journal") == journal


def test_progress_is_noted_under_the_lease_alone(verbs: Verbs) -> None:
    verbs.submit()
    attempt = verbs.claim_one(seconds=10)
    exec_id = attempt.execution.exec_id
    assert verbs.progress(attempt, 0.5, "halfway")
    after = verbs.attempt(exec_id)
    assert after.execution == changed(attempt.execution, progress=0.5, progress_note="halfway")
    assert not verbs.progress(shown_with(attempt, lease_token=token(attempt) + 1), 0.9)
    assert not verbs.progress(shown_with(attempt, lease_owner="another"), 0.9)
    verbs.clock.advance(10)
    assert not verbs.progress(attempt, 0.9)
    assert verbs.attempt(exec_id) == after


def test_heartbeats_of_a_set_are_answered_one_by_one(verbs: Verbs) -> None:
    for _ in range(3):
        verbs.submit()
    alive, ended, wrong = verbs.claim(3)
    verbs.work(ended, Complete(token(ended)))
    with verbs.store.transaction() as transaction:
        held = transaction.executions.extend_leases(
            [(a.execution, 60) for a in (alive, ended, shown_with(wrong, lease_token=0))]
        )
    assert set(held) == {alive.execution.exec_id}
