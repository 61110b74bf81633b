"""Staged effects on SQLite: statements of handlers, in the transaction that commits their jobs.

Invariants: the effects of a group hold the write lock for at most two seconds, or a quarter of the shortest lease, so
that no heartbeat is late because of them; an effect that fails, has another row count, takes too long or ends the
transaction is the effect's fault; an error of the file or the disk is the database's.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING

from holdfast.core.errors import EffectError
from holdfast.store.effects import limit, require_rows
from holdfast.store.requests import Effect
from holdfast.store.sqlite.errors import of_effect

if TYPE_CHECKING:
    from holdfast.store.sqlite.store import SqliteStore

LIMIT_S = 2.0
STEPS = 10_000  # of SQLite's virtual machine between two looks at the clock: less than a millisecond


def apply(store: SqliteStore, connection: sqlite3.Connection, effects: Sequence[Effect]) -> None:
    """Apply effects in order; raise EffectError if one fails, has another row count, or ends the transaction."""
    limit_s = limit(LIMIT_S, store.shortest_lease_s, effects)
    deadline = monotonic() + limit_s
    connection.set_progress_handler(lambda: monotonic() > deadline, STEPS)
    try:
        for effect in effects:
            if monotonic() > deadline:
                raise EffectError(
                    f"the effects of a group took longer than {limit_s:g} s",
                    context={"waited": True, "statement": effect.sql[:80]},
                )
            _apply_one(store, connection, effect)
    except EffectError as error:
        error.context["limit_s"] = limit_s
        raise
    finally:
        connection.set_progress_handler(None, 0)


def _apply_one(store: SqliteStore, connection: sqlite3.Connection, effect: Effect) -> None:
    try:
        cursor = connection.execute(effect.sql, effect.params)
        cursor.fetchall()
    except (sqlite3.Error, OverflowError) as error:  # OverflowError: of the driver, for an integer above 64 bits
        raise of_effect(store.path, error, effect.sql) from error
    require_rows(effect, cursor.rowcount)
    if not connection.in_transaction:
        raise EffectError(f"an effect ended the transaction: {effect.sql[:80]}")
