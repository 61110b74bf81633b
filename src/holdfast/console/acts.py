"""The acts of operators: on jobs, queues, switches, schedules and stalled work. Pages and the API both call these.

Acts that need a permission are in `governed_acts.py`.

Invariants: an act is the function of the library that the command calls, so that no rule exists twice; it has a reason
and the actor of its caller, and the journal stores both; a caller who is limited to some queues or operations cannot
see, and so not change, a job outside of them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from holdfast.console.context import Visit
from holdfast.console.security.callers import Caller, Role, out_of_scope
from holdfast.core import commands
from holdfast.core.digest import is_storable
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
from holdfast.store.requests import INTEGER_MAX

REASON_MAX = 4000  # characters
ID_MAX = 2**63 - 1
Id = Annotated[int, Meta(ge=1, le=ID_MAX)]
Word = Annotated[str, Meta(min_length=1, max_length=1024)]

T = TypeVar("T")


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


def zoned(moment: datetime | None, field: str) -> datetime | None:
    """Return a time in UTC; raise InputError if it has no zone."""
    if moment is None:
        return None
    try:
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except OverflowError:  # at the ends of the calendar
        pass
    raise InputError(
        f"{field} needs a zone, and a year from 1 to 9999.",
        next_step="Write it as 2030-01-31T12:00:00Z.",
        context={"field": field},
    )


# ---------------------------------------------------------------------------------------------------------------------
# Jobs


def seen_job(here: Visit, job_id: int, version: int | None = None) -> Job:
    """Return a job as it is now; raise JobNotFoundError if there is none that the caller may see.

    Raise StateTransitionRaceError if it has moved since the caller saw it at `version`.
    """
    job = here.ledger.job(job_id)
    if not here.caller.sees(job.queue, job.operation):
        raise JobNotFoundError(f"job {job_id} does not exist", context={"job_id": job_id})
    require_version(job, version)
    return job


def retry(here: Visit, job_id: int, *, reason: str, version: int | None = None) -> JobState:
    """Retry a failed job if it has attempts left; return its state."""
    why, job = reason_given(reason), seen_job(here, job_id, version)
    command = commands.Retry(run_at=here.store.now())
    return here.ledger.rule(job, command, actor=here.actor, reason=why)


def cancel(here: Visit, job_id: int, *, reason: str, version: int | None = None) -> JobState:
    """Cancel a pending or failed job, or request a running one to stop; return its state."""
    why, job = reason_given(reason), seen_job(here, job_id, version)
    if job.state is JobState.RUNNING:
        return here.ledger.cancel(job_id, actor=here.actor, reason=why)
    return here.ledger.rule(job, commands.Cancel(), actor=here.actor, reason=why)


def revoke_lease(here: Visit, job_id: int, *, reason: str, version: int | None = None) -> JobState:
    """End the attempt of a job that hangs, although its lease is valid; return the state of the job."""
    why = reason_given(reason)
    seen_job(here, job_id, version)
    return here.ledger.revoke(job_id, actor=here.actor, reason=why)


def quarantine(here: Visit, job_id: int, code: str, *, reason: str, version: int | None = None) -> QuarantineResult:
    """Quarantine a pending or failed job."""
    why = reason_given(reason)
    seen_job(here, job_id)
    return quarantining.add(here.store, job_id, code, operator=here.actor, reason=why, version=version)


def recover(here: Visit, *, reason: str) -> RecoveryReport:
    """Recover the jobs whose lease has expired. The journal stores how each attempt ended, but not the reason."""
    reason_given(reason)
    here.caller.require_unlimited()
    return recover_now(here.ledger, actor=here.actor)


# ---------------------------------------------------------------------------------------------------------------------
# Submitting


class SubmitBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to submit. A token submits as a client of its own name; an operator may name another client."""

    operation: Word
    payload: dict[str, Any] = {}
    client: Word | None = None
    queue: Word | None = None
    priority: Annotated[int, Meta(ge=-INTEGER_MAX, le=INTEGER_MAX)] | None = None
    run_at: datetime | None = None
    version: Word | None = None


def submit(here: Visit, wanted: SubmitBody, key: str | None) -> Admission:
    """Submit a job under the name of the caller, and return its id; the same key and call give the same job."""
    client = wanted.client or here.caller.name
    if client != here.caller.name and Role.OPERATOR not in here.caller.roles:
        raise out_of_scope(here.caller, f"It cannot submit as the client {client}.")
    run_at = zoned(wanted.run_at, "run_at")
    queue = wanted.queue or _queue_of(here, wanted.operation)
    if not here.caller.sees(queue, wanted.operation):
        raise out_of_scope(here.caller, f"It does not cover {wanted.operation} in the queue {queue}.")
    call: Call = Call(
        operation=wanted.operation,
        payload=wanted.payload,
        client=client,
        key=key,
        queue=wanted.queue,
        priority=wanted.priority,
        run_at=run_at,
        version=wanted.version,
    )
    if key is None:  # written once: if the answer of COMMIT is lost, the caller must look for the job
        with here.store.transaction() as transaction:
            return here.ledger.submit_in(transaction, [call], actor=here.actor)[0]
    return here.ledger.perform(lambda tx: here.ledger.submit_in(tx, [call], actor=here.actor)[0])


def _queue_of(here: Visit, operation: str) -> str:
    with here.store.reading() as reading:
        declared = reading.operations.declared().get(operation)
        if declared is None and not reading.governed:
            raise UnknownOperationError(
                f"no process has declared the operation {operation!r}", context={"operation": operation}
            )
    return declared.queue if declared else "default"


# ---------------------------------------------------------------------------------------------------------------------
# Queues and switches


def pause_queue(here: Visit, queue: str, *, reason: str) -> bool:
    """Pause a queue, whose running jobs continue; return whether it was not paused before."""
    why = reason_given(reason)
    _require_queue(here.caller, queue)
    with here.store.reading() as reading:
        changed = queue not in reading.queues.paused()
    here.ledger.pause(queue, actor=here.actor, reason=why)
    return changed


def resume_queue(here: Visit, queue: str, *, reason: str, grant_id: int | None = None) -> bool:
    """Resume a queue, outside dev under a grant; return whether it was paused before."""
    why = reason_given(reason)
    _require_queue(here.caller, queue)
    return switches.resume_queue(here.store, queue, actor=here.actor, reason=why, grant_id=grant_id)


def _require_queue(caller: Caller, queue: str) -> None:
    if caller.operations or (caller.queues and queue not in caller.queues):
        raise out_of_scope(caller, f"It does not cover the whole queue {queue}.")


def throw_switch(here: Visit, name: str, *, reason: str) -> SwitchChange:
    """Throw a switch that this ledger knows: what it names stops."""
    why = reason_given(reason)
    _require_switch(here.caller, name)
    with here.store.reading() as reading:
        switches.require_known_switch(reading, name)
    return switches.throw(here.store, name, actor=here.actor, reason=why)


def lift_switch(here: Visit, name: str, *, reason: str, grant_id: int | None = None) -> SwitchChange:
    """Lift a switch; outside dev this consumes a grant."""
    why = reason_given(reason)
    _require_switch(here.caller, name)
    return switches.lift(here.store, name, actor=here.actor, reason=why, grant_id=grant_id)


def _require_switch(caller: Caller, name: str) -> None:
    own = not caller.queues and name.removeprefix(switches.OPERATION) in caller.operations
    if caller.limited and not (own and name.startswith(switches.OPERATION)):
        raise out_of_scope(caller, f"It does not cover all that the switch {name} stops.")


# ---------------------------------------------------------------------------------------------------------------------
# Schedules


def pause_schedule(here: Visit, name: str, *, reason: str) -> bool:
    """Pause a schedule; its ticks do not fire, and are not made up for later. Return whether it was not paused."""
    return _scheduled(here, Schedules.pause, name, reason)


def resume_schedule(here: Visit, name: str, *, reason: str) -> bool:
    """Resume a schedule from its next tick; return whether it was paused."""
    return _scheduled(here, Schedules.resume, name, reason)


def trigger_schedule(here: Visit, name: str, *, reason: str) -> int:
    """Submit the job of a schedule now, beside its ticks; return the id of the job."""
    return _scheduled(here, Schedules.trigger, name, reason)


def _scheduled(here: Visit, act: Callable[..., T], name: str, reason: str) -> T:
    why = reason_given(reason)
    here.caller.require_unlimited()
    return act(Schedules(here.ledger), name, actor=here.actor, reason=why)
