"""Rulings: what moves a job from outside, by id, state and version, and what is refused or a no-op."""

from __future__ import annotations

import pytest

from holdfast.core.commands import Cancel, Quarantine, Replay, Retry
from holdfast.core.decide import Move, Refused
from holdfast.core.errors import BrokenError, RefusedByDatabaseError
from holdfast.core.governed import GrantEvent, Release
from holdfast.core.machines import GrantState, JobState
from tests.store.verbs import OPERATOR, Verbs, changed, fail, refusal, steps

RULINGS = {
    "retry": Retry(),
    "replay": Replay("incident"),
    "quarantine": Quarantine("poison", "it cannot be read"),
    "cancel": Cancel(),
}


@pytest.mark.req("K-14", "X-06")
@pytest.mark.parametrize("later", [True, False], ids=["at a time", "at once"])
def test_retry_makes_a_failed_job_pending(verbs: Verbs, later: bool) -> None:
    before = verbs.job_in(JobState.FAILED)
    now = verbs.clock.advance(3)
    run_at = verbs.clock.after(60) if later else None
    assert isinstance(verbs.rule(before, Retry(run_at), "mended"), Move)
    assert verbs.job(before.job_id) == changed(
        before, state=JobState.PENDING, version=4, run_at=run_at or before.run_at, updated_at=now
    )
    # What went wrong stays on record.
    assert verbs.job(before.job_id).last_error_code == "boom"
    assert steps(verbs.journal(before.job_id))[3:] == [
        (4, "failed", "pending", "retry", OPERATOR, "mended", 1, None, now),
    ]


@pytest.mark.req("K-14")
@pytest.mark.parametrize("reason", ["dlq-drain", "incident", "backfill", "test"])
def test_replay_makes_a_failed_job_pending_with_a_known_reason(verbs: Verbs, reason: str) -> None:
    before = verbs.job_in(JobState.FAILED)
    now = verbs.clock.advance(3)
    assert isinstance(verbs.rule(before, Replay(reason)), Move)
    assert verbs.job(before.job_id) == changed(
        before, state=JobState.PENDING, version=4, replay_reason=reason, updated_at=now
    )
    assert steps(verbs.journal(before.job_id))[3:] == [
        (4, "failed", "pending", "replay", OPERATOR, None, 1, None, now),
    ]


@pytest.mark.req("K-14")
def test_the_reason_of_a_replay_stays_until_the_next_one(verbs: Verbs) -> None:
    job = verbs.job_in(JobState.FAILED)
    verbs.rule(job, Replay("backfill"))
    attempt = verbs.claim_one()
    verbs.work(attempt, fail(attempt))
    failed = verbs.job(job.job_id)
    assert (failed.state, failed.replay_reason) == (JobState.FAILED, "backfill")
    verbs.rule(failed, Replay("incident"))
    assert verbs.job(job.job_id).replay_reason == "incident"


@pytest.mark.req("K-14")
def test_an_unknown_replay_reason_is_refused(verbs: Verbs) -> None:
    job = verbs.job_in(JobState.FAILED)
    before = verbs.everything()
    for reason in ("", "because", "none"):
        assert refusal(verbs.rule(job, Replay(reason))) == "replay_reason_unknown"
    assert verbs.everything() == before


@pytest.mark.req("K-14", "X-06")
def test_a_job_without_attempts_left_is_not_retried(verbs: Verbs) -> None:
    """By its verbs a job at the sum of its budgets is quarantined at once; the guard is tested too."""
    job = verbs.job_in(JobState.FAILED, max_attempts=1, replay_attempts=1)
    assert isinstance(verbs.rule(job, Retry()), Move)
    attempt = verbs.claim_one()
    verbs.work(attempt, fail(attempt))
    job = verbs.job(job.job_id)
    assert (job.state, job.attempts) == (JobState.QUARANTINED, 2)
    before = verbs.everything()
    for command in (Retry(), Replay("incident")):
        assert refusal(verbs.rule(changed(job, state=JobState.FAILED), command)) == "attempts_exhausted"
    assert verbs.everything() == before


@pytest.mark.req("K-15", "X-01")
@pytest.mark.parametrize(
    "state, code, message",
    [(JobState.PENDING, "poison", "it cannot be read"), (JobState.FAILED, "boom", "it broke")],
    ids=["never failed", "failed before"],
)
def test_quarantine_names_an_error_where_there_was_none(verbs: Verbs, state: JobState, code: str, message: str) -> None:
    before = verbs.job_in(state)
    now = verbs.clock.advance(3)
    assert isinstance(verbs.rule(before, Quarantine("poison", "it cannot be read"), "ticket 7"), Move)
    assert verbs.job(before.job_id) == changed(
        before,
        state=JobState.QUARANTINED,
        version=before.version + 1,
        last_error_code=code,
        last_error_message=message,
        quarantine_code="poison",
        updated_at=now,
    )
    assert steps(verbs.journal(before.job_id))[before.version :] == [
        (before.version + 1, str(state), "quarantined", "quarantine", OPERATOR, "ticket 7", before.attempts, None, now),
    ]


@pytest.mark.req("K-15", "G-19")
@pytest.mark.parametrize("state", [JobState.PENDING, JobState.FAILED])
def test_cancelling_is_quarantine_with_a_code(verbs: Verbs, state: JobState) -> None:
    before = verbs.job_in(state)
    now = verbs.clock.advance(3)
    assert isinstance(verbs.rule(before, Cancel()), Move)
    after = verbs.job(before.job_id)
    assert (after.state, after.quarantine_code, after.updated_at) == (JobState.QUARANTINED, "cancelled", now)
    assert after.last_error_code == ("boom" if state is JobState.FAILED else "cancelled")
    assert verbs.journal(before.job_id)[-1].event == "cancel"
    assert verbs.claim() == []


@pytest.mark.req("K-17", "X-01", "G-02")
def test_release_needs_a_grant_and_consumes_it(verbs: Verbs) -> None:
    before = verbs.job_in(JobState.QUARANTINED)
    grant = verbs.active_grant(before.job_id)
    now = verbs.clock.advance(3)
    run_at = verbs.clock.after(9)
    assert isinstance(verbs.release(before, grant, run_at=run_at), Move)
    assert verbs.job(before.job_id) == changed(
        before, state=JobState.PENDING, version=3, run_at=run_at, quarantine_code=None, updated_at=now
    )
    assert steps(verbs.journal(before.job_id))[2:] == [
        (3, "quarantined", "pending", "release", OPERATOR, "it was mended", 0, grant.grant_id, now),
    ]
    with verbs.store.reading() as reading:
        used = reading.grants.get(grant.grant_id)
        history = reading.journal.of(grant.grant_id, "GRANT")
    assert used is not None
    assert (used.state, used.version, used.consumed_by) == (GrantState.CONSUMED, 3, OPERATOR)
    assert [(row.event, row.actor) for row in history] == [
        ("request", OPERATOR),
        ("approve", "approver-1"),
        ("consume", OPERATOR),
    ]
    assert history[-1].move_id == verbs.journal(before.job_id)[-1].move_id


@pytest.mark.req("K-17", "X-01")
def test_release_without_operator_reason_or_grant_is_refused(verbs: Verbs) -> None:
    job = verbs.job_in(JobState.QUARANTINED)
    before = verbs.everything()
    for command, code in (
        (Release(" ", "mended", None), "operator_required"),
        (Release(OPERATOR, "", None), "operator_required"),
        (Release(OPERATOR, "mended", None), "grant_required"),
    ):
        assert refusal(verbs.rule(job, command)) == code
    assert verbs.everything() == before


@pytest.mark.req("K-17", "X-01")
def test_a_grant_that_this_move_did_not_consume_releases_nothing(verbs: Verbs) -> None:
    """Active, or consumed by another move: the database itself refuses, and the transaction leaves nothing."""
    first, second = verbs.job_in(JobState.QUARANTINED), verbs.job_in(JobState.QUARANTINED)
    active, used = verbs.active_grant(second.job_id), verbs.active_grant(first.job_id)
    verbs.release(first, used)
    before = verbs.everything()
    for grant in (active, used):
        command = Release(OPERATOR, "mended", grant.grant_id)
        with pytest.raises(RefusedByDatabaseError) as caught, verbs.store.transaction() as transaction:
            transaction.rulings.rule([(second, command)], actor=OPERATOR, grant_id=grant.grant_id)
        assert caught.value.context == {"refusal": "HF009"}
        assert verbs.everything() == before


def test_a_release_that_loses_its_race_keeps_its_grant(verbs: Verbs) -> None:
    """The caller sees the refusal inside the transaction and can roll the whole act back."""
    stale = verbs.job_in(JobState.QUARANTINED)
    verbs.release(stale, verbs.active_grant(stale.job_id))
    grant = verbs.active_grant(stale.job_id)
    before = verbs.everything()
    with verbs.undone() as transaction:
        assert isinstance(transaction.grants.move(grant, GrantEvent("consume", OPERATOR), move_id="m"), Move)
        command = Release(OPERATOR, "mended", grant.grant_id)
        [answer] = transaction.rulings.rule([(stale, command)], actor=OPERATOR, move_id="m", grant_id=grant.grant_id)
        assert refusal(answer) == "race"
    assert verbs.everything() == before


@pytest.mark.req("X-03")
@pytest.mark.parametrize(
    "state, names",
    [(JobState.PENDING, ("retry", "replay")), (JobState.QUARANTINED, ("quarantine", "cancel"))],
    ids=["pending", "quarantined"],
)
def test_a_request_for_the_current_state_writes_nothing(verbs: Verbs, state: JobState, names: tuple[str, ...]) -> None:
    job = verbs.job_in(state)
    verbs.clock.advance(3)
    before = verbs.everything()
    for name in names:
        assert verbs.rule(job, RULINGS[name]) == Move()
    assert verbs.everything() == before


@pytest.mark.req("K-16", "K-18", "G-02", "G-03")
@pytest.mark.parametrize(
    "state, names",
    [
        (JobState.RUNNING, tuple(RULINGS)),
        (JobState.SUCCEEDED, tuple(RULINGS)),
        (JobState.QUARANTINED, ("retry", "replay")),
    ],
    ids=["running", "succeeded", "quarantined"],
)
def test_a_ruling_without_an_edge_is_refused(verbs: Verbs, state: JobState, names: tuple[str, ...]) -> None:
    job = verbs.job_in(state)
    before = verbs.everything()
    for name in names:
        assert refusal(verbs.rule(job, RULINGS[name])) == "wrong_state"
    release = Release(OPERATOR, "mended", None)
    if state is not JobState.QUARANTINED:
        assert refusal(verbs.rule(job, release)) == "wrong_state"
    assert verbs.everything() == before


@pytest.mark.req("G-10", "G-11", "G-12", "K-11")
@pytest.mark.parametrize("name", RULINGS)
def test_a_job_that_changed_since_it_was_read_is_a_race_and_leaves_no_trace(verbs: Verbs, name: str) -> None:
    """The state is the same again, but not the version: state alone would let an old decision through."""
    stale = verbs.job_in(JobState.FAILED)
    verbs.rule(stale, Retry())
    attempt = verbs.claim_one()
    verbs.work(attempt, fail(attempt))
    assert verbs.job(stale.job_id).state == JobState.FAILED
    before = verbs.everything()
    assert refusal(verbs.rule(stale, RULINGS[name])) == "race"
    assert verbs.everything() == before


@pytest.mark.req("G-10", "G-11")
def test_of_two_rulings_on_one_version_one_wins(verbs: Verbs) -> None:
    job = verbs.job_in(JobState.FAILED)
    assert isinstance(verbs.rule(job, Quarantine("poison")), Move)
    assert refusal(verbs.rule(job, Retry())) == "race"
    assert verbs.job(job.job_id).state == JobState.QUARANTINED


def test_one_refused_ruling_lets_the_others_through(verbs: Verbs) -> None:
    failed, pending, done = (
        verbs.job_in(state, queue=state) for state in (JobState.FAILED, JobState.PENDING, JobState.SUCCEEDED)
    )
    stale = changed(verbs.job_in(JobState.FAILED, queue="stale"), version=1)
    answers = verbs.rule_all([(stale, Retry()), (failed, Retry()), (done, Cancel()), (pending, Retry())])
    assert [answer.code if isinstance(answer, Refused) else len(answer.steps) for answer in answers] == [
        "race", 1, "wrong_state", 0,
    ]  # fmt: skip
    states = [verbs.job(job.job_id).state for job in (stale, failed, done, pending)]
    assert states == [JobState.FAILED, JobState.PENDING, JobState.SUCCEEDED, JobState.PENDING]


def test_one_job_twice_in_a_batch_is_refused_as_a_defect(verbs: Verbs) -> None:
    """One row cannot take two moves of one statement: an error is better than two answers of which one is wrong."""
    job = verbs.job_in(JobState.FAILED)
    before = verbs.everything()
    with pytest.raises(BrokenError):
        verbs.rule_all([(job, Retry()), (job, Quarantine("poison"))])
    assert verbs.everything() == before
