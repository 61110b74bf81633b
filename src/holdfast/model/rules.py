"""Small jobs, executions and grants for the models; `core.decide` decides, and moves change them as in the store.

Invariants: no rule is repeated here: `decide` alone says whether a command is allowed and what it changes. `matches` is
the guard of the store's write: the versions, the token and the lease must match the move, or nothing is written. A time
is a small number; only the order of times matters.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeVar

import msgspec

from holdfast.core.authority import Act, Wanted
from holdfast.core.commands import Submit
from holdfast.core.decide import Answer, Move, decide, step_of
from holdfast.core.environments import PROD
from holdfast.core.governed import Grant
from holdfast.core.machines import EXECUTION, GRANT, JOB, ExecutionStatus, GrantState, JobState
from holdfast.core.records import LOSSES_EXCUSED, Attempt, Execution, Job

_START = datetime(2026, 1, 1, tzinfo=UTC)
T = TypeVar("T")


class Work(NamedTuple):
    """The fields of a job that a rule reads."""

    state: JobState
    version: int
    attempts: int = 0
    excused: int = 0
    due: int = 0
    slimmed: bool = False

    @property
    def spent(self) -> int:
        """Return the attempts that count."""
        return self.attempts - self.excused


class Try(NamedTuple):
    """The fields of an execution that a rule reads."""

    status: ExecutionStatus
    version: int
    token: int
    expires: int

    @property
    def attempt(self) -> int:
        """Return the number of the attempt: the tokens of a job count from 1."""
        return self.token


class Paper(NamedTuple):
    """The fields of a grant to release one job that a rule reads."""

    state: GrantState
    version: int
    job: int
    requested_by: str
    approved_by: str | None
    expires: int


class Budget(NamedTuple):
    """How often a job may be tried."""

    max_attempts: int
    replay_attempts: int = 0


class Guard(StrEnum):
    """What a write compares with the rows."""

    JOB = "the version of the job"
    EXECUTION = "the version of the execution"
    TOKEN = "the token"  # noqa: S105  # a word, no secret
    LEASE = "the lease"


@dataclass(frozen=True, eq=False, slots=True)
class Plan:
    """A move that was decided and is not yet written. Equal plans are one object: see `planned`."""

    verb: str
    move: Move
    rank: tuple[object, ...]  # for sorting: the order of object ids differs between runs

    def __repr__(self) -> str:
        return self.verb


@cache
def planned(verb: str, move: Move) -> Plan:
    """Return the plan to write a move. States contain plans and are compared very often, so plans are cached."""
    return Plan(verb, move, (verb, move.token or 0, *(step.version for step in move.steps)))


def with_at(values: tuple[T, ...], index: int, value: T) -> tuple[T, ...]:
    """Return the values with `value` at this index."""
    return (*values[:index], value, *values[index + 1 :])


def at(time: int) -> datetime:
    """Return the moment of a model's time."""
    return _START + timedelta(seconds=time)


def time_of(moment: datetime) -> int:
    """Return a model's time for a moment."""
    return int((moment - _START).total_seconds())


def submitted(budget: Budget) -> Work:
    """Return a job that was just submitted."""
    birth = judged(None, None, budget, Submit(), 0)
    assert isinstance(birth, Move)  # noqa: S101  # a first submit is never refused
    return moved(birth, None)


@lru_cache(maxsize=1 << 16)
def judged(work: Work | None, attempt: Try | None, budget: Budget, command: object, now: int) -> Answer:
    """Return the answer of `decide` to a command, for a job or for a job with one of its executions."""
    if work is None:
        return decide(None, command, at(now))
    job = job_of(work, budget)
    return decide(job if attempt is None else Attempt(job, execution_of(attempt)), command, at(now))


def stamped(move: Move, paper: Paper, actor: str) -> Paper:
    """Return the grant after a move."""
    step = step_of(move, GRANT.name)
    return paper._replace(
        state=GrantState(step.target),
        version=paper.version + step.edges,
        approved_by=actor if step.event == "approve" else paper.approved_by,
    )


def matches(move: Move, work: Work | None, attempt: Try | None, now: int) -> bool:
    """Return whether the rows still match the move: the condition of the store's WHERE."""
    for machine, row in ((JOB, work), (EXECUTION, attempt)):
        step = move.step(machine)
        if step is not None and step.subject is not None and (row is None or row.version != step.version):
            return False
    if move.token is not None and (attempt is None or attempt.token != move.token):
        return False
    return move.lease_live is None or (attempt is not None and (attempt.expires > now) is move.lease_live)


def unguarded(move: Move, guards: Collection[Guard]) -> Move:
    """Return a move without some guards: for a flaw, and to test which guards are necessary alone."""
    dropped = {machine.name for machine, guard in ((JOB, Guard.JOB), (EXECUTION, Guard.EXECUTION)) if guard in guards}
    return msgspec.structs.replace(
        move,
        steps=tuple(step for step in move.steps if step.machine not in dropped),
        token=None if Guard.TOKEN in guards else move.token,
        lease_live=None if Guard.LEASE in guards else move.lease_live,
    )


def moved(move: Move, work: Work | None) -> Work:
    """Return the job after a move."""
    step = move.step(JOB)
    if step is None:
        assert work is not None  # noqa: S101  # only a submit has no job
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
    """Return the execution after a move. A new execution gets this token and this lease."""
    step = move.step(EXECUTION)
    if step is None:
        return attempt
    if attempt is None or step.subject is None:
        return Try(ExecutionStatus(step.target), step.edges, token, expires)
    return attempt._replace(status=ExecutionStatus(step.target), version=attempt.version + step.edges)


@lru_cache(maxsize=1 << 16)
def job_of(work: Work, budget: Budget) -> Job:
    """Return the job of a model; its excuses for lost leases are used up, so that its attempts are bounded."""
    return record_of(
        Job,
        job_id=1,
        state=work.state,
        version=work.version,
        attempts=work.attempts,
        excused=work.excused,
        max_attempts=budget.max_attempts,
        replay_attempts=budget.replay_attempts,
        run_at=at(work.due),
        payload=None if work.slimmed else "{}",
        lost=LOSSES_EXCUSED,
    )


def record_of(kind: Callable[..., T], **given: object) -> T:
    """Return a record with these fields, which are all that a rule reads; every other field is None."""
    fields: Any = kind
    return kind(**{**dict.fromkeys(fields.__struct_fields__), **given})


@lru_cache(maxsize=1 << 16)
def execution_of(attempt: Try) -> Execution:
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
        cancel_requested_at=None,
        started_at=None,
        finished_at=None,
        created_at=_START,
        updated_at=_START,
    )


def release_of(job: int) -> Wanted:
    return Wanted(act=Act.RELEASE, target=f"job:{job}", environment=PROD, executor="model")


@lru_cache(maxsize=1 << 16)
def grant_of(paper: Paper) -> Grant:
    """Return a grant to release one job."""
    wanted = release_of(paper.job)
    return record_of(
        Grant,
        grant_id=1,
        state=paper.state,
        version=paper.version,
        action=str(wanted.act),
        target=wanted.target,
        scope=wanted.scope("quarantine it again").text,
        requested_by=paper.requested_by,
        approved_by=paper.approved_by,
        expires_at=at(paper.expires),
    )
