"""Sets what a session of the ledger needs, regardless of the settings of a role, a database or a pooler.

A transaction pooler (PgBouncer with pool_mode=transaction, and others) gives each transaction another session of the
server. What is set for a session would then be missing in the next transaction, and be found by another client.

Invariants: on a connection of its own, the settings are those of the session; behind a pooler they are set in each
transaction, for that transaction, and no prepared statement, LISTEN or other part of a session is used; the connection
of a caller gets its own settings back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import psycopg
from psycopg import IsolationLevel
from psycopg.pq import TransactionStatus

from holdfast.core.errors import ConfigurationError
from holdfast.store.configuration import configuration
from holdfast.store.watch import Watch

if TYPE_CHECKING:
    from holdfast.store.postgres.connection import LedgerConnection

logger = logging.getLogger("holdfast")

DATABASE = (
    "(SELECT system_identifier FROM pg_catalog.pg_control_system()),"
    " (SELECT oid::bigint FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())"
)
# The timeline of the last checkpoint is the old one for a while after a promotion: only a standby has to rely on it.
_TIMELINE = (
    "CASE WHEN pg_catalog.pg_is_in_recovery() THEN (SELECT timeline_id FROM pg_catalog.pg_control_checkpoint())"
    " ELSE ('x' || left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::integer END"
)
_NEEDED = {
    "timezone": "UTC",
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "extra_float_digits": "1",
    "array_nulls": "on",
    "transform_null_equals": "off",
    "standard_conforming_strings": "on",
    "quote_all_identifiers": "off",  # it changes the text of triggers and indexes, which are compared
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
    "statement_timeout": "0",  # a statement of the ledger that is cut off would only be sent again
    # Pages of the ledger are in memory or on an SSD, so random reads cost little: prefer indexes.
    "random_page_cost": "1.1",
}
_SET = "SELECT " + ", ".join(f"set_config('{name}', '{value}', %(local)s)" for name, value in _NEEDED.items())
_SET += ", set_config('search_path', pg_catalog.quote_ident(%(schema)s), %(local)s)"
# The options of the URL may request a session that only reads; the default of a role is no such request.
_READ_ONLY = "default_transaction_read_only"
_SET += f", set_config('{_READ_ONLY}', coalesce(%(read_only)s, current_setting('{_READ_ONLY}')), %(local)s)"
# A lock of a user's table may delay one effect; it must not stop the ledger.
_SET += ", set_config('lock_timeout', %(lock)s, %(local)s)"


class DatabaseIdentity(NamedTuple):
    """Which database this is: its cluster, its oid in it, and the timeline, which a failover or a recovery changes."""

    cluster: int
    oid: int
    timeline: int


class SessionFacts(NamedTuple):
    """The facts about a server that a new connection reads."""

    pooled: bool  # the server's process is not the one that the connection names: a pooler is between them
    synchronous_commit: str
    at: datetime  # the time of the server
    read_at: float  # the monotonic time just before
    database: DatabaseIdentity


def facts(connection: psycopg.Connection[tuple[Any, ...]]) -> SessionFacts:
    """Read the facts of a new connection, under any settings; the transaction stays open."""
    read_at = time.monotonic()  # before the query: a time that lags would make due work look not due
    [pid, durable, seconds, *database] = cast(
        "tuple[int, str, float, int, int, int]",
        connection.execute(
            "SELECT pg_catalog.pg_backend_pid(), pg_catalog.current_setting('synchronous_commit'),"
            f" extract(epoch FROM pg_catalog.statement_timestamp())::float8, {DATABASE}, {_TIMELINE}"
        ).fetchone(),
    )
    at = datetime.fromtimestamp(seconds, UTC)
    return SessionFacts(pid != connection.info.backend_pid, durable, at, read_at, DatabaseIdentity(*database))


def say_other_database(before: DatabaseIdentity, now: DatabaseIdentity) -> None:
    """Log that the URL leads to another database, or to another timeline of it, than before."""
    changes = [f"{name} {old} -> {new}" for name, old, new in zip(now._fields, before, now, strict=True) if old != new]
    logger.warning(
        "the database of the ledger has changed (%s): a failover, a recovery to an earlier time, or a restored copy."
        " Work that was acknowledged just before may be missing; attempts that began before are refused if they are."
        " Run `holdfast check`, and compare with a saved head: `holdfast audit verify --help`.",
        ", ".join(changes),
    )


def _needs(
    connection: psycopg.Connection[tuple[Any, ...]], schema: str, lock_s: float, *, local: bool
) -> dict[str, object]:
    read_only = None if _READ_ONLY in connection.info.options else "off"
    return {"schema": schema, "lock": f"{lock_s}s", "read_only": read_only, "local": local}


def use_session(connection: psycopg.Connection[tuple[Any, ...]], schema: str, lock_s: float) -> None:
    """Give the session of a new connection what the ledger needs, and end the transaction."""
    connection.execute(_SET, _needs(connection, schema, lock_s, local=False))
    connection.commit()


def keeps_sessions(connection: psycopg.Connection[tuple[Any, ...]], url: str) -> bool:
    """Return whether the pooler is declared to be in session mode, by the setting `pooler`; the transaction stays open.

    A client cannot prove that. Raise ConfigurationError if the contrary is noticed: the session of an idle connection
    is given to another one, or replaced.
    """
    if configuration().pooler != "session":
        return False
    own = _server_process(connection)
    connection.rollback()
    with psycopg.connect(url, connect_timeout=10) as other:
        if own != _server_process(other) and _server_process(connection) == own:
            return True
    raise ConfigurationError(
        "the setting pooler is `session`, but the pooler gives the session of an idle connection to others",
        next_step="Remove the setting (HOLDFAST_POOLER), or set pool_mode = session in the pooler.",
        context={"setting": "pooler", "pool_mode": "transaction"},
    )


def _server_process(connection: psycopg.Connection[tuple[Any, ...]]) -> object:
    row = connection.execute("SELECT pg_catalog.pg_backend_pid()").fetchone()
    return row and row[0]


def use_no_session(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """End the transaction of a new connection behind a pooler, and let it prepare no statements."""
    connection.rollback()
    connection.prepare_threshold = None
    connection.isolation_level = IsolationLevel.READ_COMMITTED  # each BEGIN says so, whatever the default is
    connection.read_only = False


def set_in_transaction(connection: psycopg.Connection[tuple[Any, ...]], schema: str, lock_s: float) -> None:
    """Give one transaction what the ledger needs: for a connection behind a pooler."""
    connection.execute(_SET, _needs(connection, schema, lock_s, local=True))


# What an effect may leave behind: settings, a role, LISTEN, cursors, temporary tables, locks, prepared statements.
UNLOCK = "SELECT pg_catalog.pg_advisory_unlock_all()"
_FORGET = f"RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; UNLISTEN *; CLOSE ALL; DISCARD TEMP; {UNLOCK}"
_PREPARED = "EXISTS (SELECT FROM pg_catalog.pg_prepared_statements WHERE from_sql)"  # the driver's are not from SQL
_DEALLOCATE = (
    "DO $$ DECLARE found text; BEGIN"
    " FOR found IN SELECT name FROM pg_catalog.pg_prepared_statements WHERE from_sql LOOP"
    " EXECUTE pg_catalog.format('DEALLOCATE %I', found); END LOOP; END $$"
)


def reset_after_effects(connection: LedgerConnection, schema: str, lock_s: float, *, local: bool) -> bool:
    """Undo what effects have changed in their session; return whether writing is still possible.

    It is one round trip, two if they prepared statements. It comes before COMMIT: an effect must not make its own
    commit less durable.
    """
    needed = _needs(connection, schema, lock_s, local=local)
    connection.listens = False
    cursor = psycopg.ClientCursor(connection)
    cursor.execute(f"{_FORGET}; {_SET}, {_PREPARED}, pg_catalog.current_setting('transaction_read_only')", needed)
    while cursor.nextset():
        continue
    row = cursor.fetchone()
    if row is not None and row[-2]:
        cursor.execute(_DEALLOCATE)
        connection.forget()  # one may have had the name of a statement of the ledger
    return row is not None and row[-1] == "off"


@contextmanager
def readable_times(connection: Any) -> Iterator[None]:
    """Let a caller's connection print times as the driver reads them, for a block of its transaction."""
    style = connection.info.parameter_status("DateStyle") if isinstance(connection, psycopg.Connection) else None
    if style is None or style.startswith("ISO") or connection.info.transaction_status != TransactionStatus.INTRANS:
        yield
        return
    connection.execute("SET LOCAL datestyle TO 'ISO, MDY'")
    yield
    if connection.info.transaction_status == TransactionStatus.INTRANS:
        connection.execute("SELECT pg_catalog.set_config('datestyle', %s, true)", (style,))


class NoWatch(Watch):
    """Notices nothing: behind a pooler a LISTEN is lost with the transaction, so idle workers poll."""

    def fileno(self) -> int | None:
        return None

    def changed(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing is open."""


def say_pooled() -> None:
    """Log that the ledger is behind a pooler, and which parts of a session it does not use."""
    logger.warning(
        "the ledger is behind a connection pooler (such as PgBouncer): it prepares no statements, sets what it needs in"
        " each transaction, and does not LISTEN, so idle workers find new work by polling once a second."
        " Connect workers to PostgreSQL directly for shorter waits and fewer round trips."
    )
