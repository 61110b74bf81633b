"""Decides whether a command is allowed on a record now, and which edges it takes.

`decide(record, command, now)` is pure and contains every guard. It returns a Move, which names the exact rows and
versions that the store must still find when it writes, or Refused, which gives the code and the reason.

Invariants: a Move takes only paths of the transition table; a Move with no steps is a no-op and nothing is written;
a worker's move needs the current token of an unexpired lease; only an expired lease is reclaimed; a governed path needs
a grant.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from holdfast.core.commands import Claim, Complete, Submit
from holdfast.core.errors import invariant
from holdfast.core.machine import Machine
from holdfast.core.machines import EXECUTION, JOB, ExecutionStatus, JobState
from holdfast.core.records import Attempt, Execution, Job

REPLAY_REASONS = frozenset({"dlq-drain", "incident", "backfill", "test"})
CANCELLED = "cancelled"
DEADLINE_PASSED = "deadline_passed"
LEASE_EXPIRED = "lease_expired"


# ---------------------------------------------------------------------------------------------------------------------
# Answers


class Refused(msgspec.Struct, frozen=True):
    """The command is refused: a stable code, the reason as a sentence, and what to do if only the state shows it."""

    code: str
    message: str
    next_step: str | None = None


class Step(msgspec.Struct, frozen=True):
    """One row to move: the event, the source and target states, and the version that the row must have now."""

    machine: str
    subject: int | None  # the id of the record; None for a new record: the database assigns the id
    event: str
    source: str | None
    target: str
    edges: int
    version: int  # before the step


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """What to write: at most one step for each machine, and the values that are stored with it."""

    steps: tuple[Step, ...] = ()
    token: int | None = None  # the lease token that the execution must still have; None: no lease is involved
    lease_live: bool | None = None  # True: the lease must be unexpired; False: it must be expired; None: either
    run_at: datetime | None = None
    error_code: str | None = None
    error_message: str | None = None
    quarantine_code: str | None = None
    excused: bool = False
    lost: bool = False  # the lease was lost
    result: str | None = None

    def step(self, machine: Machine) -> Step | None:
        """Return the step of one machine, if the move has one."""
        for step in self.steps:
            if step.machine == machine.name:
                return step
        return None


def step_of(answer: Move | Refused, machine: str) -> Step:
    """Return the one step of a machine that a move has."""
    steps = [step for step in answer.steps if step.machine == machine] if isinstance(answer, Move) else []
    invariant(len(steps) == 1, f"a move with {len(steps)} steps of {machine}")
    return steps[0]


Answer = Move | Refused
_R = TypeVar("_R")
_C = TypeVar("_C")
_GUARDS: dict[type, Callable[[Any, Any, datetime], Answer]] = {}


def decide(record: object, command: object, now: datetime) -> Answer:
    """Return the move that a command makes on a record at a time, or why it is refused."""
    if type(command) not in _GUARDS:
        from holdfast.core import rulings, stepwise  # noqa: F401, PLC0415 - they register what most jobs never need
    return _GUARDS[type(command)](record, command, now)


def guards(command: type[_C]) -> Callable[[Callable[[_R, _C, datetime], Answer]], Callable[[_R, _C, datetime], Answer]]:
    """Register the decorated function as the guard of a command."""

    def register(guard: Callable[[_R, _C, datetime], Answer]) -> Callable[[_R, _C, datetime], Answer]:
        _GUARDS[command] = guard
        return guard

    return register


# ---------------------------------------------------------------------------------------------------------------------
# Guards of a job


@guards(Submit)
def _submit(job: Job | None, _command: Submit, _now: datetime) -> Answer:
    if job is not None:
        return Refused("exists", f"job {job.job_id} already exists")
    return Move(steps=(_birth(JOB, "submit"),))


@guards(Claim)
def _claim(job: Job, command: Claim, now: datetime) -> Answer:
    if job.state != JobState.PENDING:
        return wrong_state(JOB, job.job_id, "claim", job.state)
    if job.run_at > now:
        return Refused("not_due", f"job {job.job_id} is not due before {job.run_at.isoformat()}")
    birth = _birth(EXECUTION, "begin" if command.begin else "lease")
    return Move(steps=(job_step(job, "claim"), birth))


# ---------------------------------------------------------------------------------------------------------------------
# Guards of an attempt


def not_held(execution: Execution, event: str, token: int, now: datetime) -> Refused | None:
    """Refuse unless the token is the current one of an unexpired lease, and the status allows the event."""
    if token != execution.lease_token:
        return Refused("lease_lost", f"{token} is not the current lease token of execution {execution.exec_id}")
    if not EXECUTION.allows(event, execution.status):
        return wrong_state(EXECUTION, execution.exec_id, event, execution.status)
    if execution.lease_expires_at <= now:
        expired = execution.lease_expires_at.isoformat()
        return Refused("lease_expired", f"the lease of execution {execution.exec_id} expired at {expired}")
    return None


@guards(Complete)
def _complete(attempt: Attempt, command: Complete, now: datetime) -> Answer:
    refused = not_held(attempt.execution, "complete", command.token, now)
    if refused:
        return refused
    steps = (execution_step(attempt, "complete"), job_step(attempt.job, "succeed"))
    return Move(steps=steps, token=command.token, lease_live=True, result=command.result)


# ---------------------------------------------------------------------------------------------------------------------
# Steps


def _birth(machine: Machine, event: str) -> Step:
    return record_step(machine, None, event, None, 0)


def job_step(job: Job, event: str) -> Step:
    """Return the step that an event takes from the state of a job."""
    return record_step(JOB, job.job_id, event, job.state, job.version)


def aborted(attempt: Attempt, event: str, **values: Any) -> Move:
    """Return the move that ends an attempt without success. If its cancellation was requested, the job is cancelled."""
    if attempt.execution.cancel_requested_at is not None:
        ended = {"quarantine_code": CANCELLED, "error_code": values["error_code"] or CANCELLED}
        event, values = "cancel", values | ended | {"run_at": None, "excused": False}
    return Move(steps=(execution_step(attempt, "abort"), job_step(attempt.job, event)), **values)


def execution_step(attempt: Attempt, event: str) -> Step:
    """Return the step that an event takes from the status of an attempt's execution."""
    execution = attempt.execution
    return record_step(EXECUTION, execution.exec_id, event, execution.status, execution.version)


def record_step(machine: Machine, subject: int | None, event: str, source: str | None, version: int) -> Step:
    """Return the step that an event takes from a state; raise InvalidStateTransitionError if there is none."""
    path = machine.path(event, source)
    return Step(machine.name, subject, event, path.source, path.target, len(path.edges), version)


# What a person can do about a job that a command does not apply to, by the state of the job.
_NEXT = {
    JobState.RUNNING: "Wait until its attempt ends: `holdfast show {job_id}`.",
    JobState.SUCCEEDED: "To run the work again, submit it with a new key.",
    JobState.FAILED: "To retry it: `holdfast retry {job_id}`.",
    JobState.QUARANTINED: "To release it: `holdfast quarantine release {job_id} --reason TEXT`.",
}


def wrong_state(machine: Machine, subject: int, event: str, state: str) -> Refused:
    """Return the refusal of an event that the state of a record does not allow."""
    name = f"{machine.name.lower()} {subject}"
    if event not in machine.events:
        return Refused("wrong_state", f"{name}: there is no event {event!r}")
    advice = _NEXT.get(JobState(state), "").format(job_id=subject) if machine is JOB else ""
    return Refused("wrong_state", f"{name} is {state}, so {event} is not possible", advice or None)


COMPLETED = Move(
    steps=(
        record_step(EXECUTION, None, "complete", ExecutionStatus.IN_PROGRESS, 0),
        record_step(JOB, None, "succeed", JobState.RUNNING, 0),
    )
)
"""The move of every attempt that completes, without ids: decided once, with its guards in the WHERE of the write."""
