"""Staged effects on SQLite: statements of handlers, in the transaction that commits their jobs.

Invariants: an effect that fails, has another row count or ends the transaction is the effect's fault; an error of the
file or the disk is the database's.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.core.errors import EffectError
from holdfast.store.effects import require_rows
from holdfast.store.requests import Effect
from holdfast.store.sqlite.errors import of_effect

if TYPE_CHECKING:
    from holdfast.store.sqlite.store import SqliteStore


def apply(store: SqliteStore, connection: sqlite3.Connection, effects: Sequence[Effect]) -> None:
    """Apply effects in order; raise EffectError if one fails, has another row count, or ends the transaction."""
    for effect in effects:
        try:
            cursor = connection.execute(effect.sql, effect.params)
            cursor.fetchall()
        except sqlite3.Error as error:
            raise of_effect(store.path, error, effect.sql) from error
        require_rows(effect, cursor.rowcount)
        if not connection.in_transaction:
            raise EffectError(f"an effect ended the transaction: {effect.sql[:80]}")
