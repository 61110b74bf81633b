"""Records made by hand, and the command with which `decide` takes each event of each machine.

Invariants: an attempt is consistent: its job's state is what its execution says.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from holdfast.core import commands as ask
from holdfast.core import governed
from holdfast.core.decide import CANCELLED, Refused, Step, decide
from holdfast.core.governed import Grant, PerformedStep, ProcedureRun, RegistryValue, Setting, Switch
from holdfast.core.machine import Machine
from holdfast.core.machines import (
    EXECUTION,
    GRANT,
    JOB,
    OPEN,
    PROCEDURE,
    REQUEST,
    SETTING,
    STEP,
    SWITCH,
    VALUE,
    ExecutionStatus,
    GrantState,
    JobState,
    ProcedureState,
    SettingState,
    StepState,
    SwitchState,
    ValueState,
)
from holdfast.core.records import Attempt, Execution, Job
from holdfast.core.rulings import Lapse, Revoke

NOW = datetime(2030, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
TICK = timedelta(microseconds=1)
TOKEN = 7


def _made(kind: Any, /, **fields: object) -> Any:
    """Make a record; what is not given is None."""
    return kind(**{**dict.fromkeys(kind.__struct_fields__), **fields})


def job(state: JobState = JobState.PENDING, **fields: object) -> Job:
    made: Job = _made(
        Job,
        **{
            "job_id": 1, "operation": "noop", "operation_version": "1.0.0", "client": "c", "queue": "default",
            "state": state, "version": 3, "attempts": 1, "excused": 0, "max_attempts": 5, "replay_attempts": 5,
            "priority": 0, "run_at": NOW, "payload": "{}", "digest": "d", "created_at": NOW, "updated_at": NOW,
            **fields,
        },
    )  # fmt: skip
    return made


def execution(status: ExecutionStatus = ExecutionStatus.IN_PROGRESS, **fields: object) -> Execution:
    made: Execution = _made(
        Execution,
        **{
            "exec_id": TOKEN, "job_id": 1, "attempt": 1, "status": status, "version": 2, "lease_owner": "w",
            "lease_token": TOKEN, "lease_expires_at": NOW + TICK, "excused": False, "created_at": NOW,
            "updated_at": NOW, **fields,
        },
    )  # fmt: skip
    return made


def attempt(status: ExecutionStatus, *, expired: bool = False, **job_fields: object) -> Attempt:
    """An execution with its job, under a lease that ends with the next tick, or with this one."""
    return Attempt(
        job(_job_state(status), **job_fields),
        execution(status, lease_expires_at=NOW if expired else NOW + TICK),
    )


def grant(state: GrantState, **fields: object) -> Grant:
    made: Grant = _made(
        Grant,
        **{
            "grant_id": 4, "state": state, "version": 2, "action": "release", "target": "job:1", "scope": "{}",
            "requested_by": "ann", "expires_at": NOW + TICK, "reason": "r", "created_at": NOW, "updated_at": NOW,
            **fields,
        },
    )  # fmt: skip
    return made


def procedure_run(state: ProcedureState) -> ProcedureRun:
    made: ProcedureRun = _made(
        ProcedureRun, run_id=5, idempotency_root="root", procedure="p", state=state, version=2, step=0,
        created_at=NOW, updated_at=NOW,
    )  # fmt: skip
    return made


def step(state: StepState) -> PerformedStep:
    made: PerformedStep = _made(
        PerformedStep, step_id=8, run_id=5, number=0, name="S0", state=state, version=1, outcome="{}", actor="ann",
        created_at=NOW, updated_at=NOW,
    )  # fmt: skip
    return made


def switch(state: SwitchState) -> Switch:
    made: Switch = _made(
        Switch, switch_id=9, name="replay", state=state, version=1, thrown_by="ann", actor="ann", reason="r",
        created_at=NOW, updated_at=NOW,
    )  # fmt: skip
    return made


def setting(state: SettingState) -> Setting:
    made: Setting = _made(
        Setting, setting_id=5, kind="schedule", name="nightly", value="{}", state=state, version=1, actor="ann",
        reason="r", created_at=NOW, updated_at=NOW,
    )  # fmt: skip
    return made


def value(state: ValueState) -> RegistryValue:
    made: RegistryValue = _made(
        RegistryValue, value_id=6, operation_code="o", protocol_version="1.0.0", state=state, version=1,
        created_at=NOW, updated_at=NOW,
    )  # fmt: skip
    return made


def step_for(machine: Machine, source: str | None, event: str) -> Step | None:
    """Return the step that `decide` takes for this event of a record in this state; None if it refuses.

    None too if no command leads to the event from this state.
    """
    question = {
        JOB.name: _of_a_job, EXECUTION.name: _of_an_execution, GRANT.name: _of_a_grant,
        PROCEDURE.name: _of_a_procedure, STEP.name: _of_a_step, VALUE.name: _of_a_value,
        SWITCH.name: _of_a_switch, SETTING.name: _of_a_setting, REQUEST.name: _of_a_request,
    }[machine.name](source, event)  # fmt: skip
    if question is None:
        return None
    answer = decide(*question, NOW)
    if isinstance(answer, Refused):
        return None
    taken = answer.step(machine)
    return taken if taken and (taken.source, taken.event) == (source, event) else None


Question = tuple[object, msgspec.Struct]


def undecided_births(machine: Machine) -> set[str]:
    """The events without a command: the births that the store writes without a decision."""
    births = {
        GRANT.name: "request", PROCEDURE.name: "plan", STEP.name: "perform", VALUE.name: "admit", SWITCH.name: "throw",
        SETTING.name: "set",
        REQUEST.name: "request_cancel",
    }  # fmt: skip
    return {births[machine.name]} if machine.name in births else set()


def _job_state(status: ExecutionStatus) -> JobState:
    if status in OPEN:
        return JobState.RUNNING
    return JobState.SUCCEEDED if status == ExecutionStatus.DONE else JobState.FAILED


def _of_a_job(source: str | None, event: str) -> Question | None:
    if event == "submit":
        return None if source is None else job(JobState(source)), ask.Submit()
    if source is None:
        return None
    state = JobState(source)
    of_an_attempt = {
        "succeed": ask.Complete(TOKEN),
        "fail": ask.Fail(TOKEN, "c", "m"),
        "expire": ask.Expire(NOW),
        "revoke": Revoke(NOW, "why"),
        "give_back": ask.GiveBack(TOKEN, NOW),
    }
    from_outside = {
        "claim": ask.Claim(),
        "retry": ask.Retry(),
        "replay": ask.Replay("test"),
        "quarantine": ask.Quarantine("c"),
        "cancel": ask.Cancel(),
        "lapse": Lapse(NOW),
        "release": governed.Release("op", "why", 4),
    }
    while_running = {
        "retry": ask.Fail(TOKEN, "c", "m", retry_at=NOW),
        "quarantine": ask.Fail(TOKEN, "c", "m", permanent=True),
        "cancel": ask.Fail(TOKEN, "c", "m", permanent=True, quarantine_code=CANCELLED),
    }
    if state == JobState.RUNNING and event in while_running:
        return attempt(ExecutionStatus.IN_PROGRESS), while_running[event]
    if event in of_an_attempt:
        ended = ExecutionStatus.DONE if state == JobState.SUCCEEDED else ExecutionStatus.ABORTED
        held = execution(
            ExecutionStatus.IN_PROGRESS if state == JobState.RUNNING else ended,
            lease_expires_at=NOW if event == "expire" else NOW + TICK,
        )
        return Attempt(job(state), held), of_an_attempt[event]
    return (job(state), from_outside[event]) if event in from_outside else None


def _of_an_execution(source: str | None, event: str) -> Question | None:
    status = None if source is None else ExecutionStatus(source)
    if event in ("lease", "begin"):
        # A claim makes a new execution; of a job that has one it must not move that one.
        return job(JobState.PENDING if status is None else _job_state(status)), ask.Claim(begin=event == "begin")
    command = {
        "start": ask.Start(TOKEN),
        "commit": ask.Commit(TOKEN),
        "finish": ask.Finish(TOKEN),
        "complete": ask.Complete(TOKEN),
        "abort": ask.Fail(TOKEN, "c", "m"),
        "expire": ask.Expire(NOW),
        "give_back": ask.GiveBack(TOKEN, NOW),
    }.get(event)
    if status is None or command is None:
        return None
    return attempt(status, expired=event == "expire"), command


def _of_a_grant(source: str | None, event: str) -> Question | None:
    if source is None:
        return None
    expires_at = NOW if event == "expire" else NOW + TICK
    return grant(GrantState(source), expires_at=expires_at), governed.GrantEvent(event, "bob")


def _of_a_procedure(source: str | None, event: str) -> Question | None:
    return None if source is None else (procedure_run(ProcedureState(source)), governed.ProcedureEvent(event))


def _of_a_step(source: str | None, event: str) -> Question | None:
    return None if source is None else (step(StepState(source)), governed.StepEvent(event))


def _of_a_switch(source: str | None, event: str) -> Question | None:
    return None if source is None else (switch(SwitchState(source)), governed.SwitchEvent(event, 4))


def _of_a_setting(source: str | None, event: str) -> Question | None:
    return None if source is None else (setting(SettingState(source)), governed.SettingEvent(event))


def _of_a_request(_source: str | None, _event: str) -> Question | None:
    return None


def _of_a_value(source: str | None, event: str) -> Question | None:
    successor = ("o", "2.0.0")
    return None if source is None else (value(ValueState(source)), governed.ValueEvent(event, 4, successor))
