"""The diagnosis of a record other than a job: a grant, a run of a procedure, a step, a value, a switch.

Invariants: nothing is written here; a sound journal is right if its last move is the record's; otherwise the record
keeps its state, but in no case permits more than before: a grant is revoked, a switch is on.
"""

from __future__ import annotations

from typing import Any

from holdfast.audit.check.context import RuleContext
from holdfast.audit.repair.attempt_diagnosis import LOST
from holdfast.audit.repair.record import ExaminedRecord, RepairAct, is_sound, record_times
from holdfast.core.digest import Json
from holdfast.core.environments import DEV
from holdfast.core.machine import Machine
from holdfast.core.machines import GRANT, SWITCH, VALUE, GrantState, SwitchState, ValueState
from holdfast.store.transaction import Reading
from holdfast.store.verbs.evidence import Evidence


def restore_history_start(reading: Reading, machine: Machine, subject: int) -> list[RepairAct]:
    """Return the act that sets history_from back to 1, if it was changed by hand and all rows exist."""
    record = ExaminedRecord(reading, machine, subject)
    context = RuleContext(Evidence(reading), limit=1, batch=1)
    if record.image is None or not record.rows or not is_sound(machine, record.rows, 1, context):
        return []
    return [record.act("mend", "all rows of the history exist", history_from=1)]


def repair_record(reading: Reading, machine: Machine, subject: int) -> list[RepairAct] | None:
    """Return the acts that repair a record; None if its state cannot be determined."""
    record = ExaminedRecord(reading, machine, subject)
    if record.image is None:
        return None
    state, why, restart = _verdict(reading, record)
    if state is None or (state == ValueState.SUPERSEDED and record.image["successor_code"] is None):
        return None
    times = {} if restart else record_times(record)
    return list(record.put(state, why, restart=restart, **times, **_columns_of_state(record, state)))


def _verdict(reading: Reading, record: ExaminedRecord) -> tuple[str | None, str, bool]:
    """Return the state of a record after the repair (None if unknown), why, and whether its history must restart."""
    last = record.last
    if record.vouched and last is not None and record.image is not None:
        doubt = _doubt(reading, record.image) if record.machine is GRANT and last.target == GrantState.ACTIVE else None
        return (
            (GrantState.REVOKED, doubt, False) if doubt else (last.target, f"the journal ends at {last.target}", False)
        )
    if record.archived and record.state in record.machine.states:
        return record.state, "the history is archived", False
    return _state_without_journal(reading, record), "the journal is not sound", True


def _state_without_journal(reading: Reading, record: ExaminedRecord) -> str | None:
    """Return the state of a record whose history is not sound; None if unknown."""
    image, known = record.image or {}, record.state in record.machine.states
    if record.machine is GRANT and record.state not in GRANT.final:
        return GrantState.REVOKED if known or image["consumed_by"] is None else GrantState.CONSUMED
    if record.machine is SWITCH:
        # No journal shows that a grant lifted it. But only one switch of a name may be on.
        others = reading.maintenance.images("holdfast_switches", name=image["name"], state=SwitchState.ON)
        return SwitchState.OFF if any(other["switch_id"] != record.id for other in others) else SwitchState.ON
    return record.state if known else None


def _doubt(reading: Reading, grant: dict[str, Any]) -> str | None:
    """Return why an active grant must be revoked, or None."""
    if grant["approved_by"] is None:
        return "the grant has no approver"
    if grant["approved_by"] == grant["requested_by"] and reading.settings.read().get("environment", DEV) != DEV:
        return "the requester approved the grant"
    return None


def _columns_of_state(record: ExaminedRecord, state: str) -> dict[str, Json]:
    """Return the columns that depend on the state: the consumer of a grant, the successor of a value."""
    image = record.image or {}
    if record.machine is GRANT:
        consumers = [
            row.actor for row in record.kept if row.target == GrantState.CONSUMED and row.maintenance_id is None
        ]
        by = image["consumed_by"] or (consumers[-1] if consumers else LOST)
        return {"consumed_by": by if state == GrantState.CONSUMED else None}
    if record.machine is VALUE and state != ValueState.SUPERSEDED:
        return {"successor_code": None, "successor_version": None}
    return {}
