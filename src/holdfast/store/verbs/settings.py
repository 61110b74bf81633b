"""Verbs of the settings of a ledger.

Invariants: a required setting has no default (see `store.settings`).
"""

from __future__ import annotations

from holdfast.store.settings import Settings
from holdfast.store.verbs.base import Verbs, WritingVerbs


class SettingReads(Verbs):
    """Reads the settings."""

    def read(self) -> Settings:
        return Settings(self._run("get_meta"))


class SettingWrites(SettingReads, WritingVerbs):
    """Writes settings."""

    def set(self, name: str, value: str) -> None:
        self._run("set_meta", name=name, value=value)
