"""The acts of operators: on jobs, queues, switches, schedules and stalled work. Pages and the API both call these.

Acts that need a permission are in `governed_acts.py`.

Invariants: an act is the function of the library that the command calls, so that no rule exists twice; it has a reason
and the actor of its caller, and the journal stores both; a caller who is limited to some queues or operations cannot
see, and so not change, a job outside of them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

import msgspec

from holdfast.console.context import Console
from holdfast.console.security.callers import Caller, Role, out_of_scope
from holdfast.core import commands
from holdfast.core.digest import Json, is_storable
from holdfast.core.errors import InputError, JobNotFoundError, UnknownOperationError
from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.engine.operations import Call
from holdfast.engine.worker.reaper import RecoveryReport
from holdfast.engine.worker.reaper import recover as recover_now
from holdfast.governance import quarantine as quarantining
from holdfast.governance import switches
from holdfast.governance.quarantine import QuarantineResult, require_version
from holdfast.governance.switches import SwitchChange
from holdfast.scheduling.schedules import Schedules
from holdfast.store import Admission

REASON_MAX = 4000  # characters

T = TypeVar("T")


class JobMoved(msgspec.Struct, frozen=True):
    """A job after an act."""

    job_id: int
    state: JobState


def reason_given(reason: str) -> str:
    """Return a reason without the spaces around it; raise InputError if it is missing or too long."""
    text = reason.strip()
    if not (0 < len(text) <= REASON_MAX and is_storable(text)):
        raise InputError(
            f"The reason must be a text of 1 to {REASON_MAX} characters.",
            next_step="Write why, in one sentence; the journal stores it.",
            context={"field": "reason"},
        )
    return text


# ---------------------------------------------------------------------------------------------------------------------
# Jobs


def seen_job(console: Console, caller: Caller, job_id: int, version: int | None = None) -> Job:
    """Return a job as it is now; raise JobNotFoundError if there is none that the caller may see.

    Raise StateTransitionRaceError if it has moved since the caller saw it at `version`.
    """
    job = console.ledger.job(job_id)
    if not caller.sees(job.queue, job.operation):
        raise JobNotFoundError(f"job {job_id} does not exist", context={"job_id": job_id})
    require_version(job, version)
    return job


def retry(console: Console, caller: Caller, job_id: int, *, reason: str, version: int | None = None) -> JobMoved:
    """Retry a failed job if it has attempts left."""
    why, job = reason_given(reason), seen_job(console, caller, job_id, version)
    command = commands.Retry(run_at=console.store.now())
    return JobMoved(job_id, console.ledger.rule(job, command, actor=caller.actor, reason=why))


def cancel(console: Console, caller: Caller, job_id: int, *, reason: str, version: int | None = None) -> JobMoved:
    """Cancel a pending or failed job; request a running one to stop."""
    why, job = reason_given(reason), seen_job(console, caller, job_id, version)
    if job.state is JobState.RUNNING:
        return JobMoved(job_id, console.ledger.cancel(job_id, actor=caller.actor, reason=why))
    return JobMoved(job_id, console.ledger.rule(job, commands.Cancel(), actor=caller.actor, reason=why))


def revoke_lease(console: Console, caller: Caller, job_id: int, *, reason: str, version: int | None = None) -> JobMoved:
    """End the attempt of a job that hangs, although its lease is valid."""
    why = reason_given(reason)
    seen_job(console, caller, job_id, version)
    return JobMoved(job_id, console.ledger.revoke(job_id, actor=caller.actor, reason=why))


def quarantine(
    console: Console, caller: Caller, job_id: int, code: str, *, reason: str, version: int | None = None
) -> QuarantineResult:
    """Quarantine a pending or failed job."""
    why = reason_given(reason)
    seen_job(console, caller, job_id)
    return quarantining.add(console.store, job_id, code, operator=caller.actor, reason=why, version=version)


def recover(console: Console, caller: Caller, *, reason: str) -> RecoveryReport:
    """Recover the jobs whose lease has expired. The journal says what each attempt ended with, not the reason."""
    reason_given(reason)
    caller.require_unlimited()
    return recover_now(console.ledger, actor=caller.actor)


# ---------------------------------------------------------------------------------------------------------------------
# Submitting


class SubmitRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to submit."""

    operation: str
    payload: dict[str, Json] = {}
    client: str | None = None  # a token submits under its own name, unless it is an operator's
    queue: str | None = None
    priority: int | None = None
    run_at: datetime | None = None
    version: str | None = None


def submit(console: Console, caller: Caller, wanted: SubmitRequest, key: str | None) -> Admission:
    """Submit a job under the name of the caller, and return its id; the same key and call give the same job."""
    client = wanted.client or caller.name
    if client != caller.name and Role.OPERATOR not in caller.roles:
        raise out_of_scope(caller, f"It cannot submit as the client {client}.")
    if wanted.run_at is not None and wanted.run_at.utcoffset() is None:
        raise InputError(
            "run_at needs a time zone.", next_step="Write 2030-01-31T12:00:00Z.", context={"field": "run_at"}
        )
    queue = wanted.queue or _queue_of(console, wanted.operation)
    if not caller.sees(queue, wanted.operation):
        raise out_of_scope(caller, f"It does not cover {wanted.operation} in the queue {queue}.")
    call: Call = Call(
        operation=wanted.operation,
        payload=wanted.payload,
        client=client,
        key=key,
        queue=wanted.queue,
        priority=wanted.priority,
        run_at=wanted.run_at,
        version=wanted.version,
    )
    if key is None:  # written once: if the answer of COMMIT is lost, the caller must look for the job
        with console.store.transaction() as transaction:
            return console.ledger.submit_in(transaction, [call], actor=caller.actor)[0]
    return console.ledger.perform(lambda tx: console.ledger.submit_in(tx, [call], actor=caller.actor)[0])


def _queue_of(console: Console, operation: str) -> str:
    with console.store.reading() as reading:
        declared = reading.operations.declared().get(operation)
        if declared is None and not reading.governed:
            raise UnknownOperationError(
                f"no process has declared the operation {operation!r}", context={"operation": operation}
            )
    return declared.queue if declared else "default"


# ---------------------------------------------------------------------------------------------------------------------
# Queues and switches


class QueueChange(msgspec.Struct, frozen=True):
    """A queue after an act."""

    queue: str
    paused: bool
    changed: bool


def pause_queue(console: Console, caller: Caller, queue: str, *, reason: str) -> QueueChange:
    """Pause a queue; jobs that are running continue."""
    why = reason_given(reason)
    _require_queue(caller, queue)
    with console.store.reading() as reading:
        changed = queue not in reading.queues.paused()
    console.ledger.pause(queue, actor=caller.actor, reason=why)
    return QueueChange(queue, paused=True, changed=changed)


def resume_queue(
    console: Console, caller: Caller, queue: str, *, reason: str, grant_id: int | None = None
) -> QueueChange:
    """Resume a paused queue; outside dev this consumes a grant."""
    why = reason_given(reason)
    _require_queue(caller, queue)
    changed = switches.resume_queue(console.store, queue, actor=caller.actor, reason=why, grant_id=grant_id)
    return QueueChange(queue, paused=False, changed=changed)


def _require_queue(caller: Caller, queue: str) -> None:
    if caller.operations or (caller.queues and queue not in caller.queues):
        raise out_of_scope(caller, f"It does not cover the whole queue {queue}.")


def throw_switch(console: Console, caller: Caller, name: str, *, reason: str) -> SwitchChange:
    """Throw a switch that this ledger knows: what it names stops."""
    why = reason_given(reason)
    _require_switch(caller, name)
    with console.store.reading() as reading:
        switches.require_known_switch(reading, name)
    return switches.throw(console.store, name, actor=caller.actor, reason=why)


def lift_switch(
    console: Console, caller: Caller, name: str, *, reason: str, grant_id: int | None = None
) -> SwitchChange:
    """Lift a switch; outside dev this consumes a grant."""
    why = reason_given(reason)
    _require_switch(caller, name)
    return switches.lift(console.store, name, actor=caller.actor, reason=why, grant_id=grant_id)


def _require_switch(caller: Caller, name: str) -> None:
    own = not caller.queues and name.removeprefix(switches.OPERATION) in caller.operations
    if caller.limited and not (own and name.startswith(switches.OPERATION)):
        raise out_of_scope(caller, f"It does not cover all that the switch {name} stops.")


# ---------------------------------------------------------------------------------------------------------------------
# Schedules


class ScheduleChange(msgspec.Struct, frozen=True):
    """A schedule after an act; `job_id` is the job that a trigger submitted."""

    name: str
    changed: bool
    job_id: int | None = None


def pause_schedule(console: Console, caller: Caller, name: str, *, reason: str) -> ScheduleChange:
    """Pause a schedule; its ticks do not fire, and are not made up for later."""
    return ScheduleChange(name, _scheduled(console, caller, Schedules.pause, name, reason))


def resume_schedule(console: Console, caller: Caller, name: str, *, reason: str) -> ScheduleChange:
    """Resume a schedule from its next tick."""
    return ScheduleChange(name, _scheduled(console, caller, Schedules.resume, name, reason))


def trigger_schedule(console: Console, caller: Caller, name: str, *, reason: str) -> ScheduleChange:
    """Submit the job of a schedule now, beside its ticks."""
    return ScheduleChange(name, changed=True, job_id=_scheduled(console, caller, Schedules.trigger, name, reason))


def _scheduled(console: Console, caller: Caller, act: Callable[..., T], name: str, reason: str) -> T:
    why = reason_given(reason)
    caller.require_unlimited()
    return act(Schedules(console.ledger), name, actor=caller.actor, reason=why)
