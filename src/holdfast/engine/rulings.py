"""Rulings: what an operator decides about a job, outside of any attempt.

Invariants: a ruling is applied to a job as it was read, or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from holdfast.core import commands
from holdfast.core.arguments import refuse_unfit
from holdfast.core.decide import Move, Refused
from holdfast.core.errors import InputError, InvalidStateTransitionError, StateTransitionRaceError
from holdfast.core.guarded import guarded
from holdfast.core.machines import JOB, JobState
from holdfast.core.records import Attempt, Job
from holdfast.core.redaction import redacted
from holdfast.core.rulings import Revoke
from holdfast.engine.tasks import CallTask
from holdfast.engine.worker.raised import HOPELESS
from holdfast.store import Transaction
from holdfast.store.requests import INTEGER_MAX
from holdfast.store.verbs.known_queues import require_queue

if TYPE_CHECKING:
    from holdfast.engine.events import Transition
    from holdfast.engine.ledger import Ledger


class RuleTask(CallTask):
    """A ruling on a job as it was read; `rule` returns the Move, or why it was Refused."""

    def __init__(self, job: Job, rule: Callable[[Transaction], Move | Refused], *, actor: str) -> None:
        super().__init__(rule, ("during_ruling", "after_ruling"))
        self.job = job
        self.actor = actor

    def events(self, at: datetime) -> Iterator[Transition]:
        from holdfast.engine.events import of_move  # noqa: PLC0415 - only in a process with a subscriber

        if isinstance(self.outcome, Move):
            yield from of_move(self.job, self.outcome, at, actor=self.actor)


class RevokeTask(RuleTask):
    """The end of an attempt whose lease is revoked, as it was read."""

    def __init__(self, attempt: Attempt, *, actor: str, reason: str, retry_at: datetime) -> None:
        moves = [(attempt, Revoke(retry_at, reason))]
        super().__init__(attempt.job, lambda tx: tx.executions.move(moves, actor=actor, reason=reason)[0], actor=actor)
        self._execution = attempt.execution

    def events(self, at: datetime) -> Iterator[Transition]:
        from holdfast.engine.events import of_move  # noqa: PLC0415 - only in a process with a subscriber

        if isinstance(self.outcome, Move):
            yield from of_move(self.job, self.outcome, at, self._execution, actor=self.actor)


def cancel(ledger: Ledger, job: Job, *, actor: str, reason: str | None) -> JobState:
    """Cancel a pending or failed job, or request a running one to stop; return its state. See `Ledger.cancel`."""
    if job.state is JobState.RUNNING and ledger.perform(
        lambda tx: tx.notes.request_cancel(job.job_id, actor=actor, reason=reason)
    ):
        return JobState.RUNNING
    return rule(ledger, job, commands.Cancel(), actor=actor, reason=reason)


def retry(ledger: Ledger, job: Job, *, actor: str, reason: str | None) -> JobState:
    """Retry a failed job; return its state. See `Ledger.retry`."""
    return rule(ledger, job, commands.Retry(run_at=ledger.store.due_now()), actor=actor, reason=reason)


@guarded
def revoke(ledger: Ledger, job_id: int, *, actor: str, reason: str) -> JobState:
    """End the attempt that runs a job, also under a live lease; return the job's state. See `Ledger.revoke`."""
    _require_signature(actor, reason)
    if not reason.strip():
        raise InputError("revoke needs a reason", next_step="Give a reason.")
    reason = redacted(reason)
    with ledger.store.reading() as reading:
        job, attempt = reading.jobs.get(job_id), reading.lists.current_attempt(job_id)
    if attempt is None:
        raise InvalidStateTransitionError(
            f"job {job_id} is {job.state}; only the lease of a running job can be revoked",
            next_step=f"See `holdfast show {job_id}`.",
            context={"job_id": job_id, "refusal": "wrong_state"},
        )
    return _ruled(ledger, RevokeTask(attempt, actor=actor, reason=reason, retry_at=ledger.store.due_now()))


@guarded
def rule(ledger: Ledger, job: Job, command: object, *, actor: str, reason: str | None) -> JobState:
    """Apply a command to a job as it was read; return its state. See `Ledger.rule`."""
    _require_signature(actor, reason)
    ruling = RuleTask(job, lambda tx: tx.rulings.rule([(job, command)], actor=actor, reason=reason)[0], actor=actor)
    return _ruled(ledger, ruling)


def _ruled(ledger: Ledger, task: RuleTask) -> JobState:
    job = task.job
    ledger.perform_tasks([task])
    answer: Move | Refused = task.result()
    if isinstance(answer, Refused):
        race = answer.code == "race"
        error = StateTransitionRaceError if race else InvalidStateTransitionError
        context = {"job_id": job.job_id, "refusal": answer.code}
        advice = answer.next_step
        if job.quarantine_code in HOPELESS:  # a release would end in quarantine again
            advice = f"It would end the same way again. See `holdfast explain {job.job_id}`, and submit it anew."
        raise error(answer.message, next_step=advice, context=context)
    step = answer.step(JOB)
    return JobState(step.target) if step else job.state


@guarded
def quarantine(ledger: Ledger, job: Job, code: str, *, actor: str, reason: str | None) -> JobState:
    """Quarantine a job as it was read; return its state. See `Ledger.quarantine`."""
    refuse_unfit("code", code, "str")
    message = None if reason is None else redacted(reason)
    return rule(ledger, job, commands.Quarantine(code, message), actor=actor, reason=message)


def pause(ledger: Ledger, queue: str, *, actor: str, reason: str) -> None:
    """Pause a queue; see `Ledger.pause`."""
    _require_queue(queue, actor, reason)
    own = {operation.declared.queue for operation in ledger.operations}

    def write(transaction: Transaction) -> None:
        require_queue(transaction, queue, own)
        transaction.queues.pause(queue, actor=actor, reason=reason)

    ledger.perform(write)


def resume(ledger: Ledger, queue: str, *, actor: str, reason: str) -> None:
    """Resume a queue; see `Ledger.resume`."""
    _require_queue(queue, actor, reason)
    ledger.perform(lambda tx: tx.queues.resume(queue, actor=actor, reason=reason))


def limit(ledger: Ledger, queue: str, depth: int | None, *, park: bool, actor: str, reason: str) -> None:
    """Limit the depth of a queue; see `Ledger.limit`."""
    _require_queue(queue, actor, reason)
    refuse_unfit("depth", depth, "int | None")
    refuse_unfit("park", park, "bool")
    if depth is not None and not 0 <= depth <= INTEGER_MAX:
        raise InputError(f"depth is {depth}; it must be from 0 to {INTEGER_MAX}", context={"depth": depth})
    ledger.perform(lambda tx: tx.queues.limit_depth(queue, depth, park=park, actor=actor, reason=reason))


def _require_queue(queue: str, actor: str, reason: str) -> None:
    refuse_unfit("queue", queue, "str")
    _require_signature(actor, reason)


def _require_signature(actor: str, reason: str | None) -> None:
    """Raise InputError for an actor or a reason that a journal cannot store."""
    refuse_unfit("actor", actor, "str")
    refuse_unfit("reason", reason, "str | None")
