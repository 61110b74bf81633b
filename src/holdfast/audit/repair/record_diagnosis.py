"""What would put right a record that is no job: a grant, a run of a procedure, a step, a value, a switch.

Invariants: nothing is written here; a sound journal that the record's last move vouches for is right; where it cannot
be believed, a record stays as it stands, but never so that a way opens: a permission is revoked, a switch is on.
"""

from __future__ import annotations

from typing import Any

from holdfast.audit.check.context import RuleContext
from holdfast.audit.repair.job_diagnosis import LOST
from holdfast.audit.repair.record import ExaminedRecord, RepairAct, is_sound, record_times
from holdfast.core.digest import Json
from holdfast.core.environments import DEV
from holdfast.core.machine import Machine
from holdfast.core.machines import GRANT, SWITCH, VALUE, GrantState, SwitchState, ValueState
from holdfast.store.transaction import Reading
from holdfast.store.verbs.evidence import Evidence


def restore_history_start(reading: Reading, machine: Machine, subject: int) -> list[RepairAct]:
    """Return what lets a history begin where it does, if somebody has cut it off by hand."""
    record = ExaminedRecord(reading, machine, subject)
    context = RuleContext(Evidence(reading), limit=1, batch=1)
    if record.image is None or not record.rows or not is_sound(machine, record.rows, 1, context):
        return []
    return [record.act("mend", "its history is all there", history_from=1)]


def repair_record(reading: Reading, machine: Machine, subject: int) -> list[RepairAct] | None:
    """Return what puts a record right; None if that cannot be told."""
    record = ExaminedRecord(reading, machine, subject)
    if record.image is None:
        return None
    state, why, anew = _verdict(reading, record)
    if state is None or (state == ValueState.SUPERSEDED and record.image["successor_code"] is None):
        return None
    times = {} if anew else record_times(record)
    return list(record.put(state, why, anew=anew, **times, **_what_goes_with(record, state)))


def _verdict(reading: Reading, record: ExaminedRecord) -> tuple[str | None, str, bool]:
    """Return where a record belongs, if that can be told, why, and whether its history must begin anew."""
    last = record.last
    if record.vouched and last is not None and record.image is not None:
        doubt = _doubt(reading, record.image) if record.machine is GRANT and last.target == GrantState.ACTIVE else None
        return (GrantState.REVOKED, doubt, False) if doubt else (last.target, f"its journal says {last.target}", False)
    if record.archived and record.state in record.machine.states:
        return record.state, "its history is archived", False
    return _fallen_back(reading, record), "its journal cannot be believed", True


def _fallen_back(reading: Reading, record: ExaminedRecord) -> str | None:
    """Return where a record belongs whose history is not whole, if that can be told."""
    image, known = record.image or {}, record.state in record.machine.states
    if record.machine is GRANT and record.state not in GRANT.final:
        return GrantState.REVOKED if known or image["consumed_by"] is None else GrantState.CONSUMED
    if record.machine is SWITCH:
        # Nobody can show that it was lifted under a grant. But what stops something is on once, not twice.
        others = reading.maintenance.images("holdfast_switches", name=image["name"], state=SwitchState.ON)
        return SwitchState.OFF if any(other["switch_id"] != record.id for other in others) else SwitchState.ON
    return record.state if known else None


def _doubt(reading: Reading, grant: dict[str, Any]) -> str | None:
    """Return why an active grant permits nothing, if that is so."""
    if grant["approved_by"] is None:
        return "nobody has approved it"
    if grant["approved_by"] == grant["requested_by"] and reading.settings.read().get("environment", DEV) != DEV:
        return "nobody else has approved it"
    return None


def _what_goes_with(record: ExaminedRecord, state: str) -> dict[str, Json]:
    """Return the columns that a record has in one state alone: who used a grant, and what follows a value."""
    image = record.image or {}
    if record.machine is GRANT:
        used = [row.actor for row in record.kept if row.target == GrantState.CONSUMED and row.maintenance_id is None]
        by = image["consumed_by"] or (used[-1] if used else LOST)
        return {"consumed_by": by if state == GrantState.CONSUMED else None}
    if record.machine is VALUE and state != ValueState.SUPERSEDED:
        return {"successor_code": None, "successor_version": None}
    return {}
