"""Switches: what is stopped, by whom, why, and how many jobs are held.

Invariants: a switch that is on comes first.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.governed import Switch
from holdfast.core.machines import JobState, SwitchState
from holdfast.explain.values import by_state
from holdfast.governance.switches import known_switches, operation_of, reasons_of
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
        operation, is_on = operation_of(switch.name), switch.state is SwitchState.ON
        held = by_state(counts, operation=operation)[JobState.PENDING] if is_on and operation else 0
        rows.append(SwitchRow(switch=switch, on=is_on, held=held, operation=operation, **reasons_of(reading, switch)))
    return SwitchesView(
        now=now, rows=tuple(rows), known=tuple(name for name in known_switches(reading) if name not in on)
    )
