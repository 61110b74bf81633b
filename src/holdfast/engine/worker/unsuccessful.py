"""The end of an attempt that did not simply succeed: the command that writes it, and what follows a refused completion.

Invariants: an attempt without a handler here costs the job nothing; a completion that the ledger refuses becomes a
failure, or is staged again if the handler said how.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from holdfast.core.commands import Complete, Fail, GiveBack
from holdfast.core.decide import CANCELLED, Refused
from holdfast.core.errors import EffectError, RegistryError, StoreError
from holdfast.core.machines import ExecutionStatus
from holdfast.engine.tasks import EndTask
from holdfast.engine.worker.attempt import HeldAttempt
from holdfast.engine.worker.outcome import Outcome, Raised, Then, failed, outcome_of

logger = logging.getLogger("holdfast")

HANDLER_MISSING, HANDLER_MISSING_S = "handler_missing", 5.0
AGAIN_MAX = 20  # after so many refusals of what it stages, an attempt fails
COMMIT_MISSING = "commit_missing"


def ending(running: HeldAttempt, outcome: Outcome) -> EndTask | None:
    """Return what writes the end of an attempt; None if its handler has completed the job in its own transaction."""
    if running.operation is None and outcome is None:
        outcome = _missing(running)
    raised = _not_committed(running) if outcome is None else outcome
    if not isinstance(raised, Raised):
        return None
    if raised.then is Then.HOLD:
        _hold(running, raised.after_s)
    task = EndTask(running.record, _command(running, raised, running.ledger.store.now()))
    if running.ledger.tracebacks and (running.operation is None or running.operation.tracebacks):
        task.traceback = raised.traceback
    return task


def _missing(running: HeldAttempt) -> Raised:
    """Return the end of an attempt that has no handler here: it costs nothing, and another worker may have one."""
    job = running.job
    here = running.ledger.operations.versions(job.operation)
    has = f"handlers only for {', '.join(here)}" if here else "no handler for any version"
    needed = f"{job.operation} needs a handler for version {job.operation_version}; this worker has {has}"
    return Raised(HANDLER_MISSING, needed, Then.GIVE_BACK, HANDLER_MISSING_S)


def _not_committed(running: HeldAttempt) -> Raised | None:
    """Return a failure if the transaction in which the handler completed the job was never committed."""
    try:
        with running.ledger.store.reading() as reading:
            found = reading.lists.attempt(running.record.execution.exec_id)
    except StoreError:
        return None  # not known; if it was not committed, the lease expires
    if found is None or found.execution.status is not ExecutionStatus.IN_PROGRESS:
        return None
    running.undo_commit()
    return Raised(COMMIT_MISSING, "run.commit was called, but its transaction was not committed")


def _hold(running: HeldAttempt, seconds: float) -> None:
    """Hold the rate of a job for all, before its attempt ends: the next job must not start in between."""
    try:
        running.ledger.perform(lambda tx: tx.limits.hold(running.record.job_id, seconds))
    except StoreError as error:
        logger.warning("job %s: its rate could not be held for %g s: %s", running.record.job_id, seconds, error)


def _command(running: HeldAttempt, outcome: Raised, now: datetime) -> object:
    token, code, message = running.record.token, outcome.code, outcome.message
    after = now + timedelta(seconds=outcome.after_s)
    match outcome.then:
        case Then.GIVE_BACK:
            return GiveBack(token, after, code, message if code == HANDLER_MISSING else None)
        case Then.CANCEL if running.worker_stopping and not running.cancel_requested:
            # The handler stopped because the worker does: the job is not cancelled.
            return GiveBack(token, now, "worker_stopped")
        case Then.CANCEL:
            return Fail(token, code, message, quarantine_code=CANCELLED)
        case Then.QUARANTINE:
            return Fail(token, code, message, permanent=True, quarantine_code=code)
    if running.operation is None:
        return Fail(token, code, message, retry_at=after if outcome.then in (Then.RETRY, Then.HOLD) else None)
    policy, kind = running.operation.retry, outcome.kind
    if policy.no_progress_after is not None:
        from holdfast.engine.worker.no_progress import NO_PROGRESS, makes_no_progress  # noqa: PLC0415 - if declared

        if makes_no_progress(running, outcome, policy.no_progress_after):
            return Fail(token, code, message, permanent=True, quarantine_code=NO_PROGRESS)
    if outcome.then in (Then.RETRY, Then.HOLD):
        return Fail(token, code, message, retry_at=after)
    delay_s = policy.delay_s(running.job.spent, kind, running.ledger.world.randomness)
    retry_at = None if delay_s is None else now + timedelta(seconds=delay_s)
    return Fail(token, code, message, retry_at=retry_at, permanent=policy.is_final(kind))


def must_write_again(running: HeldAttempt, task: EndTask | None) -> bool:
    """Handle the ledger's answer to an ending that was not simply written; return whether to write it again."""
    if task is None:
        if running.committed is not None and running.ledger.listening:
            from holdfast.engine.events import publish_own_commit  # noqa: PLC0415 - only with a subscriber

            publish_own_commit(running.ledger, running.record, running.committed)
    elif isinstance(task.error, StoreError) or (task.error is not None and refused(running, task.error)):
        return True
    elif task.error is not None:
        logger.error("job %s: the end of its attempt cannot be written: %s", running.job.job_id, task.error)
    elif isinstance(task.outcome, Refused):
        logger.warning(
            "job %s: the ledger refused the end of attempt %s: %s",
            running.job.job_id, running.attempt, task.outcome.message,
        )  # fmt: skip
    else:
        from holdfast.engine.worker.traces import log_failure  # noqa: PLC0415 - also where nothing raised

        log_failure(running, task)
    return False


def refused(running: HeldAttempt, error: Exception) -> bool:
    """Make a failure of a completion that the ledger refused to write; return False if there is nothing to write."""
    task = running.task
    kept = task is not None and task.kept and not isinstance(error, EffectError | RegistryError)
    if task is not None and kept:
        running.drop_checkpoints()  # one of them may be what cannot be stored
    if task is None or not isinstance(task.command, Complete):
        return bool(kept)
    operation = error.context.get("operation") if isinstance(error, RegistryError) else None
    if isinstance(error, RegistryError) and operation not in running.confirmed and running.ledger.known.learn(error):
        running.confirmed |= {operation}
        running.conclude(running.outcome)  # a follow-up that names no version is submitted at the one in force now
    elif running.operation and running.again and running.agains < AGAIN_MAX and isinstance(error, EffectError):
        running.agains += 1
        running.conclude(_staged_again(running, error))
    else:
        running.conclude(failed(error))
    return True


def _staged_again(running: HeldAttempt, error: EffectError) -> Outcome:
    """Let a handler stage again what was refused, and return the outcome."""
    running.staged.effects, running.staged.calls = [], []
    again, operation = running.again, running.operation
    if again is None or operation is None:
        return failed(error)
    return outcome_of(operation, running, lambda: again(error))
