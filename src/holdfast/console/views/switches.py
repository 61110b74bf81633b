"""Switches: what is stopped, by whom, why, and how many jobs are held.

Invariants: a switch that is on comes first.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.governed import Switch
from holdfast.core.machines import SWITCH, JobState, SwitchState
from holdfast.governance.switches import OPERATION, known_switches
from holdfast.store.transaction import Reading

SHOWN = 50


class SwitchRow(msgspec.Struct, frozen=True, kw_only=True):
    """A switch that was thrown, with the reasons of its throw and its lift."""

    switch: Switch
    on: bool
    reason: str | None
    lifted_by: str | None
    lifted_reason: str | None
    held: int  # pending jobs of the operation that it stops
    operation: str | None


class SwitchesView(msgspec.Struct, frozen=True, kw_only=True):
    """The switches that were thrown, and the names of those that could be."""

    now: datetime
    rows: tuple[SwitchRow, ...]
    known: tuple[str, ...]


def switches_view(reading: Reading, now: datetime) -> SwitchesView:
    """Return the switches that are on, and the last ones that were lifted."""
    on = reading.switches.on()
    lifted = [one for one in reading.switches.page(limit=SHOWN) if one.state is SwitchState.OFF]
    counts = reading.counts.current()
    rows = []
    for switch in [*sorted(on.values(), key=lambda one: one.name), *lifted]:
        operation = switch.name.removeprefix(OPERATION) if switch.name.startswith(OPERATION) else None
        held = sum(c.n for c in counts if c.operation == operation and c.state is JobState.PENDING)
        rows.append(_row(reading, switch, operation, held))
    thrown = set(on)
    return SwitchesView(
        now=now, rows=tuple(rows), known=tuple(name for name in known_switches(reading) if name not in thrown)
    )


def _row(reading: Reading, switch: Switch, operation: str | None, held: int) -> SwitchRow:
    on = switch.state is SwitchState.ON
    reason: str | None = switch.reason
    if not on:
        moves = {row.event: row.reason for row in reading.journal.of(switch.switch_id, SWITCH.name)}
        reason = moves.get("throw")
    return SwitchRow(
        switch=switch,
        on=on,
        reason=reason,
        lifted_by=None if on else switch.actor,
        lifted_reason=None if on else switch.reason,
        held=held if on else 0,
        operation=operation,
    )
