"""Jobs and attempts as small as a model needs them, judged by `core.decide` and moved as the store moves them.

Invariants: no rule stands here: whether a command may happen, and what comes of it, is for `decide` to say. `matches` is
the guard of the store's move: what the move names (versions, token, whether the lease is live) must still be so, or
nothing is written. Time is a small number; only its order matters.
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from holdfast.core.decide import Answer, Move, decide
from holdfast.core.machines import EXECUTION, JOB, ExecutionStatus, JobState
from holdfast.core.records import Attempt, Execution, Job

_START = datetime(2026, 1, 1, tzinfo=UTC)


class Work(NamedTuple):
    """A job, as far as a rule looks at it."""

    state: JobState
    version: int
    attempts: int = 0
    excused: int = 0
    due: int = 0
    slimmed: bool = False


class Try(NamedTuple):
    """An execution, as far as a rule looks at it."""

    status: ExecutionStatus
    version: int
    token: int
    expires: int

    @property
    def attempt(self) -> int:
        """Return which attempt it was: the tokens of a job are given out in order, from 1."""
        return self.token


class Budget(NamedTuple):
    """How often a job may be tried."""

    max_attempts: int
    replay_attempts: int = 0


def at(time: int) -> datetime:
    """Return the moment that a model's time stands for."""
    return _START + timedelta(seconds=time)


def time_of(moment: datetime) -> int:
    """Return a model's time for a moment."""
    return int((moment - _START).total_seconds())


@lru_cache(maxsize=1 << 16)
def judged(work: Work | None, attempt: Try | None, budget: Budget, command: object, now: int) -> Answer:
    """Let `decide` judge one command: against a job, or against a job with one execution of it."""
    if work is None:
        return decide(None, command, at(now))
    job = _job(work, budget)
    return decide(job if attempt is None else Attempt(job, _execution(attempt)), command, at(now))


def matches(move: Move, work: Work | None, attempt: Try | None, now: int) -> bool:
    """Tell whether the rows are still those that the move was decided on: what the store's WHERE asks."""
    for machine, row in ((JOB, work), (EXECUTION, attempt)):
        step = move.step(machine)
        if step is not None and step.subject is not None and (row is None or row.version != step.version):
            return False
    if move.token is not None and (attempt is None or attempt.token != move.token):
        return False
    return move.lease_live is None or (attempt is not None and (attempt.expires > now) is move.lease_live)


def moved(move: Move, work: Work | None) -> Work:
    """Return the job after a move."""
    step = move.step(JOB)
    if step is None:
        assert work is not None  # noqa: S101  # only a birth has no job
        return work
    if work is None:
        return Work(JobState(step.target), step.edges)
    return work._replace(
        state=JobState(step.target),
        version=work.version + step.edges,
        attempts=work.attempts + (step.event == "claim"),
        excused=work.excused + move.excused,
        due=work.due if move.run_at is None else time_of(move.run_at),
    )


def tried(move: Move, attempt: Try | None, *, token: int, expires: int) -> Try | None:
    """Return the execution after a move. A birth gets this token and this lease."""
    step = move.step(EXECUTION)
    if step is None:
        return attempt
    if attempt is None or step.subject is None:
        return Try(ExecutionStatus(step.target), step.edges, token, expires)
    return attempt._replace(status=ExecutionStatus(step.target), version=attempt.version + step.edges)


@lru_cache(maxsize=1 << 16)
def _job(work: Work, budget: Budget) -> Job:
    return Job(
        job_id=1,
        operation="model",
        operation_version="1",
        client="model",
        key="model",
        queue="default",
        state=work.state,
        version=work.version,
        attempts=work.attempts,
        excused=work.excused,
        max_attempts=budget.max_attempts,
        replay_attempts=budget.replay_attempts,
        priority=0,
        run_at=at(work.due),
        payload=None if work.slimmed else "{}",
        digest="",
        result=None,
        last_attempt_at=None,
        last_error_code=None,
        last_error_message=None,
        quarantine_code=None,
        replay_reason=None,
        replaces=None,
        created_at=_START,
        updated_at=_START,
    )


@lru_cache(maxsize=1 << 16)
def _execution(attempt: Try) -> Execution:
    return Execution(
        exec_id=1,
        job_id=1,
        attempt=attempt.token,
        status=attempt.status,
        version=attempt.version,
        lease_owner="model",
        lease_token=attempt.token,
        lease_expires_at=at(attempt.expires),
        excused=False,
        error_code=None,
        error_message=None,
        progress=None,
        progress_note=None,
        cancel_asked_at=None,
        started_at=None,
        finished_at=None,
        created_at=_START,
        updated_at=_START,
    )
