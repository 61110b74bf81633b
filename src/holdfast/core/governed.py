"""The records of governance (grants, runs, steps, switches, values), their commands and their guards.

Importing this module registers its guards with `decide`; a command of governance cannot exist without them.

Invariants: a grant is approved by a person other than its requester, unless the caller allows self-approval; an expired
grant is neither approved nor consumed; a governed move names its grant.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.decide import Answer, Move, Refused, guards, job_step, record_step, wrong_state
from holdfast.core.machines import (
    GRANT,
    JOB,
    PROCEDURE,
    SETTING,
    STEP,
    SWITCH,
    VALUE,
    GrantState,
    JobState,
    ProcedureState,
    SettingState,
    StepState,
    SwitchState,
    ValueState,
)
from holdfast.core.records import Job

# ---------------------------------------------------------------------------------------------------------------------
# Records


class Grant(msgspec.Struct, frozen=True):
    """A permission for one governed act: it works once, has a scope, and expires."""

    grant_id: int
    state: GrantState
    version: int
    action: str
    target: str
    scope: str
    requested_by: str
    approved_by: str | None
    consumed_by: str | None
    expires_at: datetime
    reason: str
    requested_via: str | None
    approved_via: str | None
    created_at: datetime
    updated_at: datetime


class NamedLease(msgspec.Struct, frozen=True):
    """An exclusive right to a name, which one holder has until it expires."""

    name: str
    holder: str
    token: int
    acquired_at: datetime
    expires_at: datetime


class ProcedureRun(msgspec.Struct, frozen=True):
    """One run of a procedure, keyed by its idempotency root."""

    run_id: int
    idempotency_root: str
    procedure: str
    state: ProcedureState
    version: int
    step: int  # the highest step that the run has reached
    stop_state: str | None
    params: str
    plan: str
    lease: str
    grant_id: int | None
    failure: str | None
    actor: str
    reason: str | None
    created_at: datetime
    updated_at: datetime


class PerformedStep(msgspec.Struct, frozen=True):
    """One performance of a step: its outcome, and whether it was undone."""

    step_id: int
    run_id: int
    number: int
    name: str
    state: StepState
    version: int
    outcome: str
    actor: str
    reason: str | None
    created_at: datetime
    updated_at: datetime


class RegistryValue(msgspec.Struct, frozen=True):
    """A governed value of the registry: an operation code at a protocol version."""

    value_id: int
    vocab_id: str
    collection: str
    operation_code: str
    protocol_version: str
    act_type: str
    semantics: str
    authority_ref: str
    digest: str
    status: str
    state: ValueState
    version: int
    successor_code: str | None
    successor_version: str | None
    rollback_ref: str | None
    run_id: int | None
    grant_id: int | None
    created_at: datetime
    updated_at: datetime


class Collection(msgspec.Struct, frozen=True):
    """A vocabulary of the registry: the schema of its values, and whether it is in force."""

    collection: str
    schema: str
    schema_digest: str
    manifest_digest: str | None
    status: str
    run_id: int
    created_at: datetime
    updated_at: datetime


class Evidence(msgspec.Struct, frozen=True):
    """A document that a governed act stored for its reviewers."""

    evidence_id: int
    run_id: int | None
    kind: str
    subject: str
    content: str
    digest: str
    actor: str
    grant_id: int | None
    voided_at: datetime | None
    created_at: datetime


class Switch(msgspec.Struct, frozen=True):
    """A switch that was thrown: `on`, or `off` after it was lifted."""

    switch_id: int
    name: str
    state: SwitchState
    version: int
    thrown_by: str
    actor: str
    reason: str
    grant_id: int | None
    created_at: datetime
    updated_at: datetime


class Setting(msgspec.Struct, frozen=True):
    """One value of a setting that the whole fleet follows; `value` is JSON."""

    setting_id: int
    kind: str
    name: str
    value: str
    state: SettingState
    version: int
    actor: str
    reason: str
    created_at: datetime
    updated_at: datetime


class Approver(msgspec.Struct, frozen=True):
    """A person who may approve grants; their public key proves that an approval is theirs."""

    name: str
    public_key: str
    added_by: str
    reason: str
    grant_id: int | None
    added_at: datetime
    revoked_at: datetime | None
    revoked_by: str | None


# ---------------------------------------------------------------------------------------------------------------------
# Commands


class Release(msgspec.Struct, frozen=True):
    """Make a quarantined job pending again; requires an operator, a reason and a grant."""

    operator: str
    reason: str
    grant_id: int | None
    run_at: datetime | None = None


class GrantEvent(msgspec.Struct, frozen=True):
    """Approve, consume, revoke or expire a grant."""

    event: str
    actor: str
    may_self_approve: bool = False


class ProcedureEvent(msgspec.Struct, frozen=True):
    """Move a procedure run by one of its events."""

    event: str


class StepEvent(msgspec.Struct, frozen=True):
    """Undo a performed step."""

    event: str


class SwitchEvent(msgspec.Struct, frozen=True):
    """Lift a switch, under a grant."""

    event: str
    grant_id: int | None


class SettingEvent(msgspec.Struct, frozen=True):
    """Replace or remove the active value of a setting."""

    event: str


class ValueEvent(msgspec.Struct, frozen=True):
    """Supersede or retire a registry value, under a grant."""

    event: str
    grant_id: int | None
    successor: tuple[str, str] | None = None


# ---------------------------------------------------------------------------------------------------------------------
# Guards


@guards(Release)
def _release(job: Job, command: Release, _now: datetime) -> Answer:
    if job.state == JobState.PENDING:
        return Move()
    if job.state != JobState.QUARANTINED:
        return wrong_state(JOB, job.job_id, "release", job.state)
    if job.slimmed:
        return Refused("slimmed", f"retention has deleted the payload of job {job.job_id}; submit the work again")
    if not command.operator.strip() or not command.reason.strip():
        return Refused("operator_required", f"the release of job {job.job_id} requires an operator and a reason")
    if command.grant_id is None:
        return Refused("grant_required", f"the release of job {job.job_id} requires a grant of its own")
    return Move(steps=(job_step(job, "release"),), run_at=command.run_at)


@guards(GrantEvent)
def _grant_event(grant: Grant, command: GrantEvent, now: datetime) -> Answer:
    if not GRANT.allows(command.event, grant.state):
        return wrong_state(GRANT, grant.grant_id, command.event, grant.state)
    expired = grant.expires_at <= now
    if command.event == "expire" and not expired:
        return Refused("not_expired", f"grant {grant.grant_id} is valid until {grant.expires_at.isoformat()}")
    if command.event in ("approve", "consume") and expired:
        return Refused("grant_expired", f"grant {grant.grant_id} expired at {grant.expires_at.isoformat()}")
    if command.event == "approve" and command.actor == grant.requested_by and not command.may_self_approve:
        return Refused(
            "self_approval", f"{command.actor} requested grant {grant.grant_id}, so another person must approve it"
        )
    target = GRANT.path(command.event, grant.state)
    return Move(steps=(record_step(GRANT, grant.grant_id, target.event, grant.state, grant.version),))


@guards(ProcedureEvent)
def _procedure_event(run: ProcedureRun, command: ProcedureEvent, _now: datetime) -> Answer:
    if not PROCEDURE.allows(command.event, run.state):
        return wrong_state(PROCEDURE, run.run_id, command.event, run.state)
    return Move(steps=(record_step(PROCEDURE, run.run_id, command.event, run.state, run.version),))


@guards(StepEvent)
def _step_event(step: PerformedStep, command: StepEvent, _now: datetime) -> Answer:
    if not STEP.allows(command.event, step.state):
        return wrong_state(STEP, step.step_id, command.event, step.state)
    return Move(steps=(record_step(STEP, step.step_id, command.event, step.state, step.version),))


@guards(SwitchEvent)
def _switch_event(switch: Switch, command: SwitchEvent, _now: datetime) -> Answer:
    if not SWITCH.allows(command.event, switch.state):
        return wrong_state(SWITCH, switch.switch_id, command.event, switch.state)
    if command.grant_id is None:
        return Refused("grant_required", f"switch {switch.name}: {command.event} requires a grant of its own")
    return Move(steps=(record_step(SWITCH, switch.switch_id, command.event, switch.state, switch.version),))


@guards(SettingEvent)
def _setting_event(setting: Setting, command: SettingEvent, _now: datetime) -> Answer:
    if not SETTING.allows(command.event, setting.state):
        return wrong_state(SETTING, setting.setting_id, command.event, setting.state)
    return Move(steps=(record_step(SETTING, setting.setting_id, command.event, setting.state, setting.version),))


@guards(ValueEvent)
def _value_event(value: RegistryValue, command: ValueEvent, _now: datetime) -> Answer:
    if not VALUE.allows(command.event, value.state):
        return wrong_state(VALUE, value.value_id, command.event, value.state)
    if command.grant_id is None:
        return Refused("grant_required", f"value {value.value_id}: {command.event} requires a grant of its own")
    if command.event == "supersede" and command.successor is None:
        return Refused("successor_required", f"value {value.value_id}: supersede requires a successor")
    return Move(steps=(record_step(VALUE, value.value_id, command.event, value.state, value.version),))
