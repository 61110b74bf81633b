"""Staged effects on PostgreSQL: statements of handlers, in the transaction that commits their jobs.

Invariants: an effect leaves nothing behind on the session, and does not change how its own transaction commits; one
that fails, has another row count or ends the transaction is the effect's fault; a lost connection and an error of the
server are the database's.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
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
    connection.effects_ran = True
    limit_s = store.limit_locks(connection, effects)
    sent: list[tuple[Effect, psycopg.Cursor[Any]]] = []
    try:
        # Sent together: waiting for each answer takes longer than most effects do.
        with connection.pipeline() if psycopg.Pipeline.is_supported() else nullcontext():
            for text, rows, group in groups(effects):
                batch = rows is None and len(group) > 1
                for effect in group[:1] if batch else group:
                    # Binary, because psycopg then uses the protocol in which several statements cannot be sent as one.
                    cursor = connection.cursor(binary=True)
                    sent.append((effect, cursor))
                    if batch:
                        cursor.executemany(as_pyformat(text), [one.params for one in group])
                    else:
                        cursor.execute(as_pyformat(text), effect.params)
    except psycopg.Error as error:
        failed = _first_failed(sent)
        raised = of_effect(error, connection, failed.sql, url=store.url, schema=store.schema)
        raised.context["limit_s"] = limit_s
        raise raised from error
    for effect, cursor in sent:
        require_rows(effect, cursor.rowcount)
    if connection.info.transaction_status != TransactionStatus.INTRANS:
        raise EffectError("an effect ended the transaction", context={"statement": effects[-1].sql[:80]})
    try:
        writable = store.reset_session(connection)
    except psycopg.Error as error:
        raise of_effect(error, connection, "RESET ALL", url=store.url, schema=store.schema) from error
    if not writable:
        raise EffectError("an effect has made the transaction read-only", context={"statement": effects[-1].sql[:80]})
    connection.effects_ran = False


def _first_failed(sent: Sequence[tuple[Effect, psycopg.Cursor[Any]]]) -> Effect:
    """Return the effect that the database refused; raise EffectError if one before it has another row count."""
    for effect, cursor in sent:
        if cursor.rowcount < 0:
            return effect
        require_rows(effect, cursor.rowcount)
    return sent[-1][0]
