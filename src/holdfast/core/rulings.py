"""The guards of what no worker does: retry, replay, quarantine, cancel, and ending the attempt of another worker.

`decide` imports this module at the first such command.

Invariants: only an expired lease is reclaimed, and a valid one only by `Revoke`, which has a reason; an attempt that
has committed is left alone.
"""

from datetime import datetime

import msgspec

from holdfast.core.commands import Cancel, Expire, Quarantine, Replay, Retry
from holdfast.core.decide import (
    CANCELLED,
    DEADLINE_PASSED,
    LEASE_EXPIRED,
    REPLAY_REASONS,
    Answer,
    Move,
    Refused,
    aborted,
    guards,
    job_step,
    wrong_state,
)
from holdfast.core.machines import EXECUTION, JOB, JobState
from holdfast.core.records import LOSSES_EXCUSED, Attempt, Job

LEASE_REVOKED = "lease_revoked"


class Revoke(msgspec.Struct, frozen=True):
    """End an attempt although its lease is valid; the job is due again at `retry_at` if it has attempts left."""

    retry_at: datetime
    reason: str


class Lapse(msgspec.Struct, frozen=True):
    """Quarantine a pending job because its deadline has passed: its work is not needed any more."""

    deadline_at: datetime


# ---------------------------------------------------------------------------------------------------------------------
# Guards of a job that is not running


@guards(Retry)
def _retry(job: Job, command: Retry, _now: datetime) -> Answer:
    return _put_back(job, "retry", command.run_at)


@guards(Replay)
def _replay(job: Job, command: Replay, _now: datetime) -> Answer:
    if command.replay_reason not in REPLAY_REASONS:
        known = ", ".join(sorted(REPLAY_REASONS))
        return Refused("replay_reason_unknown", f"{command.replay_reason!r} is not a replay reason; known: {known}")
    return _put_back(job, "replay", command.run_at)


def _put_back(job: Job, event: str, run_at: datetime | None) -> Answer:
    if job.state == JobState.PENDING:
        return Move()
    if job.state != JobState.FAILED:
        return wrong_state(JOB, job.job_id, event, job.state)
    if not job.may_replay:
        budget = f"{job.max_attempts} automatic and {job.replay_attempts} replays"
        return Refused(
            "attempts_exhausted", f"job {job.job_id} has no attempts left: {job.spent} used; its limit is {budget}"
        )
    return Move(steps=(job_step(job, event),), run_at=run_at)


@guards(Quarantine)
def _quarantine(job: Job, command: Quarantine, _now: datetime) -> Answer:
    return _take_out(job, "quarantine", command.code, command.message)


@guards(Cancel)
def _cancel(job: Job, _command: Cancel, _now: datetime) -> Answer:
    return _take_out(job, "cancel", CANCELLED, None)


@guards(Lapse)
def _lapse(job: Job, command: Lapse, _now: datetime) -> Answer:
    # The store chooses the jobs: a deadline is written once, so what has passed stays so.
    if job.state not in (JobState.PENDING, JobState.QUARANTINED):
        return wrong_state(JOB, job.job_id, "lapse", job.state)
    return _take_out(job, "lapse", DEADLINE_PASSED, f"no attempt began before {command.deadline_at.isoformat()}")


def _take_out(job: Job, event: str, code: str, message: str | None) -> Answer:
    if job.state == JobState.QUARANTINED:
        return Move()
    if job.state not in (JobState.PENDING, JobState.FAILED):
        return Refused(
            "wrong_state", f"job {job.job_id} is {job.state}; {event} is possible only while it is pending or failed"
        )
    # A job that failed before keeps its last error; a job that never failed gets the reason of its quarantine.
    first = job.last_error_code is None
    return Move(
        steps=(job_step(job, event),),
        error_code=code if first else None,
        error_message=message if first else None,
        quarantine_code=code,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Guards of an attempt of another worker


@guards(Expire)
def _expire(attempt: Attempt, command: Expire, now: datetime) -> Answer:
    execution, job = attempt.execution, attempt.job
    if not EXECUTION.allows("abort", execution.status):
        return wrong_state(EXECUTION, execution.exec_id, "abort", execution.status)
    if execution.lease_expires_at > now:
        until = execution.lease_expires_at.isoformat()
        return Refused("lease_live", f"the lease of execution {execution.exec_id} is valid until {until}")
    excused = (job.lost or 0) < LOSSES_EXCUSED
    event = "expire" if excused or job.may_retry else "fail" if job.may_replay else "quarantine"
    return aborted(
        attempt,
        event,
        token=execution.lease_token,
        lease_live=False,
        run_at=command.retry_at if event == "expire" else None,
        error_code=LEASE_EXPIRED,
        error_message=f"the lease of {execution.lease_owner} expired during attempt {execution.attempt}",
        quarantine_code=LEASE_EXPIRED if event == "quarantine" else None,
        excused=excused,
        lost=True,
    )


@guards(Revoke)
def _revoke(attempt: Attempt, command: Revoke, _now: datetime) -> Answer:
    execution, job = attempt.execution, attempt.job
    if not EXECUTION.allows("abort", execution.status):
        return wrong_state(EXECUTION, execution.exec_id, "abort", execution.status)
    event = "revoke" if job.may_retry else "fail" if job.may_replay else "quarantine"
    return aborted(
        attempt,
        event,
        token=execution.lease_token,
        run_at=command.retry_at if event == "revoke" else None,
        error_code=LEASE_REVOKED,
        error_message=f"the lease of {execution.lease_owner} was revoked: {command.reason}",
        quarantine_code=LEASE_REVOKED if event == "quarantine" else None,
    )
