"""Verbs of kill switches.

Invariants: a switch moves as `core.decide` says, matching id, state and version; a write of zero rows is a refusal.
"""

from __future__ import annotations

from holdfast.core.decide import Move, Refused
from holdfast.core.governed import Switch, SwitchEvent
from holdfast.core.machines import SWITCH
from holdfast.store.rows import reader
from holdfast.store.verbs.base import Verbs
from holdfast.store.verbs.moving import MovingVerbs

_read_switch = reader(Switch)


class SwitchReads(Verbs):
    """Reads switches."""

    def on(self) -> dict[str, Switch]:
        return {switch.name: switch for switch in self._all(_read_switch, "switches_on")}

    def last(self, name: str) -> Switch | None:
        """Return the newest record of a switch, on or off; None if it was never thrown."""
        return self._one(_read_switch, "last_switch", name=name)

    def page(self, *, limit: int = 100) -> list[Switch]:
        """Return a page of all switches that were thrown, newest first."""
        return self._all(_read_switch, "list_switches", n=limit)


class SwitchWrites(SwitchReads, MovingVerbs):
    """Throws and lifts switches."""

    def throw(self, name: str, *, actor: str, reason: str) -> bool:
        """Throw a switch; return False if it is already on."""
        rows = self._run(
            "insert_switch",
            name=name,
            **self._birth(SWITCH, "throw"),
            **self._signature(actor, reason),
        )
        return bool(rows)

    def lift(self, switch: Switch, *, grant_id: int | None, actor: str, reason: str, move_id: str) -> Move | Refused:
        """Lift a switch under a grant that the same move has consumed, matching id, state and version."""
        return self._move_one(
            "move_switch",
            SWITCH,
            switch,
            SwitchEvent("lift", grant_id),
            f"switch {switch.name}",
            switch_id=switch.switch_id,
            grant_id=grant_id,
            **self._signature(actor, reason, move_id),
        )
