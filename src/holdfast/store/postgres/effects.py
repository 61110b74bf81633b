"""Staged effects on PostgreSQL: statements of handlers, in the transaction that commits their jobs.

Invariants: an effect leaves nothing behind on the session, and does not change how its own transaction commits; one
that fails, has another row count or ends the transaction is the effect's fault; a lost connection and an error of the
server are the database's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import TransactionStatus

from holdfast.core.errors import EffectError
from holdfast.store.effects import as_pyformat, groups, require_rows
from holdfast.store.postgres.errors import of_effect
from holdfast.store.requests import Effect

if TYPE_CHECKING:
    from holdfast.store.postgres.store import PostgresStore


def apply(store: PostgresStore, connection: Any, effects: Sequence[Effect]) -> None:
    """Apply effects in order; raise EffectError if one fails, has another row count, or ends the transaction."""
    # Binary, because psycopg then uses the protocol in which several statements cannot be sent as one.
    cursor = connection.cursor(binary=True)
    connection.effects_ran = True
    limit_s = store.limit_locks(connection, effects)
    for text, rows, group in groups(effects):
        try:
            if rows is None and len(group) > 1:
                cursor.executemany(as_pyformat(text), [effect.params for effect in group])
            else:
                for effect in group:
                    cursor.execute(as_pyformat(text), effect.params)
                    require_rows(effect, cursor.rowcount)
        except psycopg.Error as error:
            raised = of_effect(error, connection, text, url=store.url, schema=store.schema)
            raised.context["limit_s"] = limit_s
            raise raised from error
        if connection.info.transaction_status != TransactionStatus.INTRANS:
            # Raised here, before the next effect would begin another transaction.
            raise EffectError(f"an effect ended the transaction: {text[:80]}", context={"statement": text[:80]})
    try:
        writable = store.reset_session(connection)
    except psycopg.Error as error:
        raise of_effect(error, connection, "RESET ALL", url=store.url, schema=store.schema) from error
    if not writable:
        raise EffectError("an effect has made the transaction read-only", context={"statement": effects[-1].sql[:80]})
    connection.effects_ran = False
