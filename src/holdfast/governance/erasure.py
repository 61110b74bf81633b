"""Erasure: remove the personal data of one job under a grant, so that its history still verifies.

Invariants: only a job that has ended is erased; the grant, the erasure and its journal rows are one transaction; what
is erased already is left as it is, and uses no grant, unless it was written back; the key of an erased job is in use
for life.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from holdfast.core.authority import Act
from holdfast.core.errors import InvalidStateTransitionError
from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.governance.acts import actor_and_reason, retried
from holdfast.governance.approval import wanted_here
from holdfast.governance.grants import authorise
from holdfast.governance.quarantine import JOB_TARGET
from holdfast.store.verbs import erasures

if TYPE_CHECKING:
    from holdfast.store import Store
    from holdfast.store.transaction import Transaction

ENDED = (JobState.SUCCEEDED, JobState.QUARANTINED)


class ErasureResult(msgspec.Struct, frozen=True):
    """An erasure, and whether this call did it."""

    erasure: erasures.Erasure
    changed: bool


def erase(store: Store[Any], job_id: int, *, actor: str, reason: str, grant_id: int | None = None) -> ErasureResult:
    """Remove payload, result, key, error messages, progress notes, checkpoints and tracebacks of a job that has ended.

    Consume the grant for it, whose action is `erase` and whose target is `job:ID`; in dev one is made if none is given.
    Raise JobNotFoundError, InvalidStateTransitionError if the job has not ended, AuthorityError without a grant.
    """
    who, why = actor_and_reason(actor, reason)
    return retried(store, lambda transaction: _erased(transaction, job_id, who, why, grant_id))


def _erased(transaction: Transaction, job_id: int, actor: str, reason: str, grant_id: int | None) -> ErasureResult:
    erasures.lock_calls(transaction)
    job = transaction.jobs.get(job_id)
    done = erasures.erasure_of(transaction, job_id)
    if done is not None and not erasures.is_written_back(transaction, job_id):
        return ErasureResult(done, changed=False)
    if job.state not in ENDED:
        raise _not_ended(job)
    move_id = uuid4().hex
    wanted = wanted_here(transaction, Act.ERASE, f"{JOB_TARGET}{job_id}", actor)
    used = authorise(transaction, wanted, grant_id=grant_id, reason=reason, move_id=move_id)
    with transaction.maintenance.open(who=actor, why=reason, grant_id=used) as door:
        if done is None:
            erasures.record(transaction, job, actor=actor, reason=reason, grant_id=used, move_id=move_id)
        erasures.erase(transaction, job_id)
        transaction.maintenance.note(door, "erase", job_id=job_id)
    erased = erasures.erasure_of(transaction, job_id)
    return ErasureResult(msgspec.convert(erased, erasures.Erasure), changed=True)


def _not_ended(job: Job) -> InvalidStateTransitionError:
    cancel = f"`holdfast cancel {job.job_id} --reason TEXT`"
    steps = {
        JobState.RUNNING: f"Request it to stop with {cancel}; erase it when it has ended.",
        JobState.PENDING: f"Cancel it first: {cancel}.",
        JobState.FAILED: f"It could be retried. Cancel it first: {cancel}.",
    }
    return InvalidStateTransitionError(
        f"Job {job.job_id} is {job.state.value}; only a job that has succeeded or is quarantined can be erased.",
        next_step=steps[job.state],
        context={"job_id": job.job_id, "state": job.state.value, "refusal": "not_ended"},
    )
