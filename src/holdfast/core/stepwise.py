"""The guards of an attempt that is not completed in one write: start, commit, finish, fail, give back, heartbeat.

`decide` imports this module at the first such command.

Invariants: after the commit boundary an attempt is finished, by its worker or after its lease has expired by recovery;
an attempt that has ended has no heartbeat.
"""

from datetime import datetime

from holdfast.core.commands import Beat, Commit, Fail, Finish, GiveBack, Start
from holdfast.core.decide import (
    CANCELLED,
    Answer,
    Move,
    Refused,
    aborted,
    execution_step,
    guards,
    job_step,
    not_held,
    wrong_state,
)
from holdfast.core.machines import EXECUTION, ExecutionStatus
from holdfast.core.records import Attempt


@guards(Start)
def _start(attempt: Attempt, command: Start, now: datetime) -> Answer:
    refused = not_held(attempt.execution, "start", command.token, now)
    if refused:
        return refused
    return Move(steps=(execution_step(attempt, "start"),), token=command.token, lease_live=True)


@guards(Commit)
def _commit(attempt: Attempt, command: Commit, now: datetime) -> Answer:
    refused = not_held(attempt.execution, "commit", command.token, now)
    if refused:
        return refused
    steps = (execution_step(attempt, "commit"),)
    return Move(steps=steps, token=command.token, lease_live=True, result=command.result)


@guards(Finish)
def _finish(attempt: Attempt, command: Finish, now: datetime) -> Answer:
    execution = attempt.execution
    if command.token is not None and command.token != execution.lease_token:
        return Refused("lease_lost", f"{command.token} is not the current lease token of execution {execution.exec_id}")
    if execution.status == ExecutionStatus.DONE:
        return Move()
    if not EXECUTION.allows("finish", execution.status):
        return wrong_state(EXECUTION, execution.exec_id, "finish", execution.status)
    if command.token is None and execution.lease_expires_at > now:
        until = execution.lease_expires_at.isoformat()
        return Refused("lease_live", f"the lease of execution {execution.exec_id} is valid until {until}")
    # After the commit boundary no effect can be applied twice, so the worker may finish after its lease has expired.
    steps = (execution_step(attempt, "finish"), job_step(attempt.job, "succeed"))
    live = False if command.token is None else None
    return Move(steps=steps, token=execution.lease_token, lease_live=live)


@guards(Fail)
def _fail(attempt: Attempt, command: Fail, now: datetime) -> Answer:
    refused = not_held(attempt.execution, "abort", command.token, now)
    if refused:
        return refused
    job = attempt.job
    if command.quarantine_code == CANCELLED:
        event = "cancel"
    elif command.permanent or not job.may_replay:
        event = "quarantine"
    elif command.retry_at is not None and job.may_retry:
        event = "retry"
    else:
        event = "fail"
    quarantine_code = (command.quarantine_code or command.code) if event in ("quarantine", "cancel") else None
    return aborted(
        attempt,
        event,
        token=command.token,
        lease_live=True,
        run_at=command.retry_at if event == "retry" else None,
        error_code=command.code,
        error_message=command.message,
        quarantine_code=quarantine_code,
    )


@guards(GiveBack)
def _give_back(attempt: Attempt, command: GiveBack, now: datetime) -> Answer:
    refused = not_held(attempt.execution, "abort", command.token, now)
    if refused:
        return refused
    return aborted(
        attempt,
        "give_back",
        token=command.token,
        lease_live=True,
        run_at=command.run_at,
        error_code=command.code,
        error_message=command.message,
        excused=True,
    )


@guards(Beat)
def _beat(attempt: Attempt, command: Beat, now: datetime) -> Answer:
    execution = attempt.execution
    if command.token != execution.lease_token:
        return Refused("lease_lost", f"{command.token} is not the current lease token of execution {execution.exec_id}")
    if execution.status in EXECUTION.final:
        return Refused("wrong_state", f"execution {execution.exec_id} has ended: it is {execution.status}")
    if execution.lease_expires_at <= now:
        expired = execution.lease_expires_at.isoformat()
        return Refused("lease_expired", f"the lease of execution {execution.exec_id} expired at {expired}")
    return Move(token=command.token, lease_live=True)
