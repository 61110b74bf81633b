"""The transition table, and the machines that are declared from it.

This table is the single source of truth. Validation in Python, the triggers of both databases, the diagrams, the
model and the TLA+ constants are derived from it; nothing else in the project restates a transition.

Invariants: JOB has eight edges and no more; ENTRY (`core.entries`) is JOB seen through a map, not another machine.
"""

from enum import StrEnum

from holdfast.core.machine import Machine, Row, Rule


class JobState(StrEnum):
    """The states of a job."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    QUARANTINED = "quarantined"


class ExecutionStatus(StrEnum):
    """The statuses of an execution."""

    LEASED = "LEASED"
    IN_PROGRESS = "IN_PROGRESS"
    COMMITTED = "COMMITTED"
    DONE = "DONE"
    ABORTED = "ABORTED"


class GrantState(StrEnum):
    """The states of a grant."""

    DRAFT = "draft"
    ACTIVE = "active"
    CONSUMED = "consumed"
    REVOKED = "revoked"
    EXPIRED = "expired"


class ProcedureState(StrEnum):
    """The states of a run of a procedure."""

    PLANNED = "planned"
    RUNNING = "running"
    COMPENSATING = "compensating"
    STOPPED = "stopped"
    DONE = "done"


class ValueState(StrEnum):
    """The states of a value of the registry."""

    ACTIVE = "active"
    SUPERSEDED = "superseded"
    RETIRED = "retired"


class StepState(StrEnum):
    """The states of a performed step of a procedure."""

    PERFORMED = "performed"
    UNDONE = "undone"


class SwitchState(StrEnum):
    """The states of a switch that was thrown."""

    ON = "on"
    OFF = "off"


class SettingState(StrEnum):
    """The states of a setting of the fleet: one value of a name is active."""

    ACTIVE = "active"
    REPLACED = "replaced"
    REMOVED = "removed"


class RequestState(StrEnum):
    """The state of a request to cancel: what becomes of it, the end of its attempt says."""

    REQUESTED = "requested"


TABLE = (
    # A job: one unit of work. The last edge is the only one that needs a grant.
    Row("JOB", "submit", "∅ → pending"),
    Row("JOB", "claim", "pending → running"),
    Row("JOB", "succeed", "running → succeeded"),
    Row("JOB", "fail", "running → failed"),
    Row("JOB", "retry", "running → failed → pending"),
    Row("JOB", "retry", "failed → pending"),
    Row("JOB", "expire", "running → failed → pending"),
    Row("JOB", "revoke", "running → failed → pending"),
    Row("JOB", "give_back", "running → failed → pending"),
    Row("JOB", "replay", "failed → pending"),
    Row("JOB", "quarantine", "running → failed → quarantined"),
    Row("JOB", "quarantine", "failed → quarantined"),
    Row("JOB", "quarantine", "pending → quarantined"),
    Row("JOB", "cancel", "running → failed → quarantined"),
    Row("JOB", "cancel", "failed → quarantined"),
    Row("JOB", "cancel", "pending → quarantined"),
    Row("JOB", "lapse", "pending → quarantined"),  # its deadline passed before an attempt began
    Row("JOB", "release", "quarantined → pending", Rule.GOVERNED),
    # An execution: one attempt at a job, under a lease. `begin` leases and starts in one write.
    Row("EXECUTION", "lease", "∅ → LEASED"),
    Row("EXECUTION", "begin", "∅ → LEASED → IN_PROGRESS"),
    Row("EXECUTION", "start", "LEASED → IN_PROGRESS"),
    Row("EXECUTION", "commit", "IN_PROGRESS → COMMITTED"),
    Row("EXECUTION", "finish", "COMMITTED → DONE"),
    Row("EXECUTION", "complete", "IN_PROGRESS → COMMITTED → DONE"),
    Row("EXECUTION", "abort", "LEASED → ABORTED"),
    Row("EXECUTION", "abort", "IN_PROGRESS → ABORTED"),
    # A request to cancel a running attempt: a ruling without an edge of JOB. If the attempt commits, it was too late.
    Row("REQUEST", "request_cancel", "∅ → requested"),
    # A grant: a permission for one governed act, which works once.
    Row("GRANT", "request", "∅ → draft"),
    Row("GRANT", "approve", "draft → active"),
    Row("GRANT", "consume", "active → consumed"),
    Row("GRANT", "revoke", "draft → revoked"),
    Row("GRANT", "revoke", "active → revoked"),
    Row("GRANT", "expire", "active → expired"),
    # A run of a procedure. `abort` stops with nothing to undo; `resume` continues a stopped run at its first open step.
    Row("PROCEDURE", "plan", "∅ → planned"),
    Row("PROCEDURE", "run", "planned → running"),
    Row("PROCEDURE", "finish", "running → done"),
    Row("PROCEDURE", "abort", "planned → stopped"),
    Row("PROCEDURE", "abort", "running → stopped"),
    Row("PROCEDURE", "compensate", "running → compensating"),
    Row("PROCEDURE", "stop", "compensating → stopped"),
    Row("PROCEDURE", "resume", "stopped → running"),
    # One performance of a step of a run. Performing an undone step again makes another record.
    Row("STEP", "perform", "∅ → performed"),
    Row("STEP", "undo", "performed → undone"),
    # A governed value of the registry: never deleted, only superseded or retired.
    Row("VALUE", "admit", "∅ → active", Rule.GOVERNED),
    Row("VALUE", "supersede", "active → superseded", Rule.GOVERNED),
    Row("VALUE", "retire", "active → retired", Rule.GOVERNED),
    # A switch that stops work. Anyone may throw it; lifting it needs a grant.
    Row("SWITCH", "throw", "∅ → on"),
    Row("SWITCH", "lift", "on → off", Rule.GOVERNED),
    # A setting that the whole fleet follows, such as a schedule. Another value is another record.
    Row("SETTING", "set", "∅ → active"),
    Row("SETTING", "replace", "active → replaced"),
    Row("SETTING", "remove", "active → removed"),
)

JOB = Machine("JOB", TABLE, names=JobState, final={JobState.SUCCEEDED, JobState.QUARANTINED})
EXECUTION = Machine("EXECUTION", TABLE, names=ExecutionStatus, final={ExecutionStatus.DONE, ExecutionStatus.ABORTED})
REQUEST = Machine("REQUEST", TABLE, names=RequestState, final={RequestState.REQUESTED})
GRANT = Machine("GRANT", TABLE, names=GrantState, final={GrantState.CONSUMED, GrantState.REVOKED, GrantState.EXPIRED})
PROCEDURE = Machine("PROCEDURE", TABLE, names=ProcedureState, final={ProcedureState.DONE})
STEP = Machine("STEP", TABLE, names=StepState, final={StepState.UNDONE})
VALUE = Machine("VALUE", TABLE, names=ValueState, final={ValueState.SUPERSEDED, ValueState.RETIRED})
SWITCH = Machine("SWITCH", TABLE, names=SwitchState, final={SwitchState.OFF})
SETTING = Machine("SETTING", TABLE, names=SettingState, final={SettingState.REPLACED, SettingState.REMOVED})

MACHINES = {
    machine.name: machine for machine in (JOB, EXECUTION, REQUEST, GRANT, PROCEDURE, STEP, VALUE, SWITCH, SETTING)
}

OPEN = frozenset(set(ExecutionStatus) - EXECUTION.final)
"""Executions that have not ended. A job with one of these is running."""

COMMITTED = frozenset({ExecutionStatus.COMMITTED, ExecutionStatus.DONE})
"""Executions past the commit boundary. A job has at most one."""

EXEC_IDS = 1_000_000  # exec_id = job_id * EXEC_IDS + attempt
