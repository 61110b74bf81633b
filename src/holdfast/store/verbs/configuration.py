"""Verbs of the settings that a whole fleet follows, such as schedules.

Invariants: a name of a kind has at most one active value; a value is never changed: another value is another record,
and replaces the one before in the same transaction; every change is journalled with its actor and reason.
"""

from __future__ import annotations

from holdfast.core.decide import Move, Refused
from holdfast.core.governed import Setting, SettingEvent
from holdfast.core.machines import SETTING
from holdfast.store.rows import reader
from holdfast.store.verbs.base import Verbs, new_move_id
from holdfast.store.verbs.moving import MovingVerbs

_read_setting = reader(Setting)


class ConfigurationReads(Verbs):
    """Reads settings."""

    def active(self, kind: str) -> list[Setting]:
        """Return the active settings of a kind, by name."""
        return self._all(_read_setting, "active_settings", kind=kind)

    def get(self, kind: str, name: str) -> Setting | None:
        """Return the active value of a setting; None if it has none."""
        return self._one(_read_setting, "get_setting", kind=kind, name=name)

    def history(self, kind: str, name: str, *, limit: int = 100) -> list[Setting]:
        """Return all values of a setting, newest first."""
        return self._all(_read_setting, "setting_history", kind=kind, name=name, n=limit)


class ConfigurationWrites(ConfigurationReads, MovingVerbs):
    """Sets, replaces and removes settings."""

    def set(self, kind: str, name: str, value: str, *, actor: str, reason: str) -> bool:
        """Give a setting a value, in place of the one it has; return False if it has this value already.

        Return False too if another process has set it since it was read: the caller may read it again.
        """
        move_id = new_move_id()
        before = self.get(kind, name)
        if before is not None and before.value == value:
            return False
        if before is not None and isinstance(self._end(before, "replace", actor, reason, move_id), Refused):
            return False
        rows = self._run(
            "insert_setting",
            kind=kind,
            name=name,
            value=value,
            **self._birth(SETTING, "set"),
            **self._signature(actor, reason, move_id),
        )
        return bool(rows)

    def remove(self, kind: str, name: str, *, actor: str, reason: str) -> bool:
        """Remove a setting; return False if it has no value."""
        before = self.get(kind, name)
        return before is not None and isinstance(self._end(before, "remove", actor, reason, new_move_id()), Move)

    def _end(self, setting: Setting, event: str, actor: str, reason: str, move_id: str) -> Move | Refused:
        return self._move_one(
            "move_setting",
            SETTING,
            setting,
            SettingEvent(event),
            f"setting {setting.kind} {setting.name}",
            setting_id=setting.setting_id,
            **self._signature(actor, reason, move_id),
        )
