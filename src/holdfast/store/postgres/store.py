"""The store on PostgreSQL, for a fleet.

Invariants: READ COMMITTED with synchronous_commit=on; behind a transaction pooler nothing of a session is used; leases
expire by the clock of the database, not of the workers; claims lock with SKIP LOCKED, so workers do not wait for each
other.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from holdfast.core.errors import (
    BadUrlError,
    CommitUnknownError,
    ConnectionUnfitError,
    DurabilityError,
    HoldfastError,
    StoreDamagedError,
    StoreError,
    StoreUnavailableError,
)
from holdfast.store.effects import limit
from holdfast.store.postgres import session
from holdfast.store.postgres.connection import LedgerConnection, arrays, texts
from holdfast.store.postgres.errors import first_line, translated, without_password
from holdfast.store.postgres.idioms import pyformat
from holdfast.store.postgres.schema import PostgresSchema
from holdfast.store.postgres.watch import ListeningPool, ListenWatch
from holdfast.store.requests import Effect
from holdfast.store.statements import statements
from holdfast.store.store import Clock, Params
from holdfast.store.transaction import Reading, Transaction
from holdfast.store.watch import Watch

if TYPE_CHECKING:
    from holdfast.store.upkeep import Upkeep
    from holdfast.store.verbs.bulk import Columns

POSTGRES_OLDEST = 140000
CONNECT_S = 10
LOCK_S = 5
NOW_ERROR = timedelta(seconds=0.1)  # the server's time is read at a new connection, whose answer may be late
PLANS_S_MIN, PLANS_S_MAX = 0.25, 10.0
_TABLE = re.compile(r"(?<![.\w])holdfast_\w+")
_NAMED = re.compile(r"%\((\w+)\)s")
INSERT_JOB = "insert_job"


class PostgresStore(PostgresSchema):
    """A ledger in one schema of a PostgreSQL database."""

    dialect = "postgres"

    def __init__(self, url: str, clock: Clock | None = None, *, schema: str = "public") -> None:
        super().__init__(url, clock, schema)
        self.pool: ListeningPool = ListeningPool(self._open, self._disconnect)
        self.pooled = False  # a pooler is between this process and the server, and may change the session
        self._keeps_sessions: bool | None = None  # whether that pooler is in session mode; None: not known yet
        self._statements = _qualified_statements(self._prefix())
        self._server_time: tuple[datetime, float] | None = None
        self.now_error = NOW_ERROR if clock is None else timedelta()
        self._identity: session.DatabaseIdentity | None = None

    @contextmanager
    def alone(self) -> Iterator[Transaction]:
        """Yield a transaction whose one statement, or two sent together, commits itself: one round trip, not three."""
        if self.pooled:  # what the statement needs must be set in its transaction
            with self.transaction() as transaction:
                yield transaction
            return
        connection = self.take()
        sound = False
        try:
            self._begin(connection)
            transaction = _Alone(self, connection)
            yield transaction
            if self.is_open(connection):  # because of another statement, such as a read of the key's job
                self._commit_or_say(connection)
            self.operations.update(transaction.learned)
            sound = self._announced(connection, transaction)
        except HoldfastError:
            sound = self._rolled_back(connection)
            raise
        except Exception as error:
            sound = self._rolled_back(connection)
            translated = self.translated(error)
            if isinstance(translated, StoreUnavailableError):
                raise CommitUnknownError(f"the connection was lost during a statement: {translated}") from error
            raise translated from error
        finally:
            self.pool.give(connection, sound=sound)

    @contextmanager
    def glance(self) -> Iterator[Reading]:
        """Yield a view for reads that need no common snapshot: each statement is one round trip, not three."""
        if self.pooled:
            with self.reading() as reading:
                yield reading
            return
        connection = self.take()
        try:
            connection.autocommit = True
            yield Reading(self, connection)
        except HoldfastError:
            raise
        except Exception as error:
            raise self.translated(error) from error
        finally:
            sound = connection.pgconn.transaction_status == TransactionStatus.IDLE
            if sound:
                connection.autocommit = False
            self.pool.give(connection, sound=sound)

    def take(self) -> LedgerConnection:
        """Take a connection from the pool, with the answers to its announcements read."""
        connection = super().take()
        try:
            connection.settle()
        except BaseException as error:
            self.pool.give(connection, sound=False)
            if not isinstance(error, psycopg.Error):
                raise
            connection = super().take()  # a lost connection is dropped with the idle ones: this one is new
        return connection

    def now(self) -> datetime:
        """Return the time of the database: read at each new connection, and continued by the monotonic clock."""
        if self.clock is not None:
            return self.clock()
        if self._server_time is None:
            self.pool.give(self.take(), sound=True)
        at, since = cast("tuple[datetime, float]", self._server_time)
        return at + timedelta(seconds=time.monotonic() - since)

    def run(self, connection: Any, name: str, params: Params) -> list[tuple[Any, ...]]:
        cursor = connection.cursor(row_factory=tuple_row)  # a borrowed connection may have another
        try:
            for text in self._statements[name]:
                cursor.execute(text, params)
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
            # These statements name only tables and columns that the migrations made.
            raise StoreDamagedError(first_line(error), context={"sqlstate": error.sqlstate}) from error
        return _rows(cursor)

    def run_committed(self, connection: LedgerConnection, name: str, params: Params) -> list[tuple[Any, ...]]:
        """Run a named statement that commits itself, and return its rows."""
        connection.autocommit = True
        try:
            return self.run(connection, name, params)
        finally:
            if not connection.closed:
                connection.autocommit = False

    def run_together(self, session: Transaction, *named: tuple[str, Params]) -> list[list[tuple[Any, ...]]]:
        """Run named statements one after the other, and return the rows of each.

        If they commit themselves, they are sent together and commit together: one round trip. Each sees what was
        committed before it began, the second one more than the first.
        """
        if self.pooled or session.is_open or not psycopg.Pipeline.is_supported():
            return [session.run(name, **params) for name, params in named]
        connection = session.connection
        connection.autocommit = True
        try:
            with connection.pipeline():
                cursors = [self._sent(connection, name, params) for name, params in named]
            return [cursor.fetchall() for cursor in cursors]
        finally:
            if not connection.closed:
                connection.autocommit = False

    def _sent(self, connection: LedgerConnection, name: str, params: Params) -> psycopg.Cursor[tuple[Any, ...]]:
        [text] = self._statements[name]
        return connection.cursor().execute(text, params)

    def insert_job(self, connection: LedgerConnection, params: Params) -> list[tuple[int]]:
        """Run the statement that submits one job, and commit it; return its id, or no row if its key is in use."""
        text, names = _numbered(self._prefix())
        values = [None if (value := params[name]) is None else str(value) for name in names]
        return [(int(job_id),) for (job_id,) in connection.ask(INSERT_JOB, text, values) if job_id is not None]

    def insert_jobs(self, session: Reading, columns: Columns, **params: object) -> list[int | None]:
        [[ids]] = session.run("insert_jobs", **params, **texts(columns))
        return [int(job_id) if job_id else None for job_id in ids.split(",")]

    def complete_jobs(self, session: Reading, rows: Sequence[tuple[int, int, str]], **params: object) -> int:
        [[written]] = session.run("complete_jobs", **params, **arrays(rows))
        return int(written)

    def execute(self, connection: Any, sql: str, params: Params | Sequence[object] = ()) -> list[tuple[Any, ...]]:
        cursor = connection.execute(sql, params or None)
        return _rows(cursor)

    def named(self, connection: Any, sql: str, params: Params) -> tuple[list[str], list[tuple[Any, ...]]]:
        cursor = connection.cursor(row_factory=tuple_row)
        cursor.execute(pyformat(sql), params)
        result = cursor.pgresult
        names = [(result.fname(n) or b"").decode() for n in range(result.nfields)] if result is not None else []
        return names, _rows(cursor)

    def apply(self, connection: Any, effects: Sequence[Effect]) -> None:
        from holdfast.store.postgres.effects import apply  # noqa: PLC0415 - many handlers stage none

        apply(self, connection, effects)

    def is_open(self, connection: Any) -> bool:
        # INERROR is open too: it can be rolled back to a savepoint.
        return connection.pgconn.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)

    @contextmanager
    def borrowed(self, connection: Any) -> Iterator[Transaction]:
        """Yield a transaction on a connection of the caller, who begins and commits it."""
        with super().borrowed(connection) as transaction, session.readable_times(transaction.connection):
            yield transaction

    def require_fit(self, connection: Any) -> None:
        if not isinstance(connection, psycopg.Connection):
            from holdfast.store.borrowed import not_taken  # noqa: PLC0415 - only for an error

            raise not_taken(connection, "psycopg")
        if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
            raise ConnectionUnfitError(
                "begin a transaction: it is in autocommit mode", context={"needs": "transaction"}
            )
        if connection.info.transaction_status == TransactionStatus.INERROR:
            raise ConnectionUnfitError("the transaction has failed; roll it back first", context={"needs": "rollback"})
        [isolation, durable, *database] = cast(
            "tuple[str, str, int, int]",
            connection.cursor(row_factory=tuple_row)
            .execute(
                "SELECT current_setting('transaction_isolation'), current_setting('synchronous_commit'),"
                f" {session.DATABASE}"
            )
            .fetchone(),
        )
        if isolation != "read committed":
            raise ConnectionUnfitError(f"READ COMMITTED is needed, not {isolation}", context={"needs": "isolation"})
        if durable not in ("on", "remote_apply"):
            raise ConnectionUnfitError(
                f"synchronous_commit is {durable}; on is needed", context={"needs": "synchronous_commit"}
            )
        if self._identity is None:
            self.pool.give(self.take(), sound=True)  # a new connection reads it
        if self._identity is None or database != list(self._identity[:2]):
            raise ConnectionUnfitError("the connection is to another database", context={"needs": "database"})

    def stored(self, moment: datetime | None) -> datetime | None:
        return moment

    def time_parameter(self) -> datetime | None:
        return self.clock() if self.clock is not None else None

    def judged_at(self, at: datetime) -> datetime | None:
        return None if self.clock is None else at  # None: the clock of the database, as SKIP LOCKED never waits

    def lease_until(self, seconds: float) -> float:
        return seconds

    def moment(self, value: object) -> datetime:
        return cast("datetime", value)

    def announce(self, connection: LedgerConnection, queues: set[str]) -> None:
        if queues:
            connection.announce(self._channel, queues)

    def announce_inside(self, connection: Any, queues: set[str]) -> None:
        for queue in sorted(queues):
            connection.execute("SELECT pg_notify(%s, %s)", (self._channel, queue))

    @property
    def upkeep(self) -> Upkeep:
        from holdfast.store.postgres.upkeep import PostgresUpkeep  # noqa: PLC0415 - beside the path of a job

        return PostgresUpkeep(self)

    def watch(self) -> Watch:
        return session.NoWatch() if self.pooled else ListenWatch(self, self._channel)

    def translate(self, error: Exception) -> HoldfastError | None:
        return translated(error, url=self.url, schema=self.schema) if isinstance(error, psycopg.Error) else None

    def _open(self) -> LedgerConnection:
        try:
            connection = LedgerConnection.connect(
                self.url, connect_timeout=CONNECT_S, application_name="holdfast", client_encoding="UTF8"
            )
        except psycopg.ProgrammingError as error:
            raise BadUrlError(f"the PostgreSQL URL is invalid: {without_password(str(error), self.url)}") from None
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: LedgerConnection) -> None:
        if connection.info.server_version < POSTGRES_OLDEST:
            raise StoreError(
                f"PostgreSQL {connection.info.server_version // 10000} is not supported",
                next_step="Use PostgreSQL 14 or newer.",
            )
        found = session.facts(connection)
        if found.pooled and self._keeps_sessions is None:
            self._keeps_sessions = session.keeps_sessions(connection, self.url)
        if found.pooled and not self._keeps_sessions:
            session.use_no_session(connection)
            if not self.pooled:
                self.pooled = True
                session.say_pooled()
        else:
            session.use_session(connection, self.schema, LOCK_S)
        if found.synchronous_commit not in ("on", "remote_apply"):
            raise DurabilityError(
                f"synchronous_commit is {found.synchronous_commit}; on is needed",
                context={"synchronous_commit": found.synchronous_commit},
            )
        self._server_time = found.at, found.read_at
        if self._identity is not None and self._identity != found.database:
            session.say_other_database(self._identity, found.database)
        self._identity = found.database

    def _disconnect(self, connection: LedgerConnection) -> None:
        with suppress(psycopg.Error):
            connection.settle()
        connection.close()

    def _begin(self, connection: LedgerConnection, *how: str) -> None:  # noqa: ARG002 - of other databases
        """Discard old query plans, or set what a pooled transaction needs; psycopg begins it with the first statement.

        A plan that was made while a table was small would scan the whole table after it has grown. Plans are discarded
        at intervals that double with the age of the connection, up to ten seconds.
        """
        if self.pooled:
            session.set_in_transaction(connection, self.schema, LOCK_S)
            return
        now = time.monotonic()
        if now >= connection.plans_due:
            if connection.plans_due:
                with suppress(psycopg.OperationalError):  # the first statement reports a lost connection
                    connection.command("DISCARD PLANS")
            connection.plans_age_s = min(max(2 * connection.plans_age_s, PLANS_S_MIN), PLANS_S_MAX)
            connection.plans_due = now + connection.plans_age_s

    def _begin_reading(self, connection: LedgerConnection) -> None:
        connection.command("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        if self.pooled:
            session.set_in_transaction(connection, self.schema, LOCK_S)

    def _end_reading(self, connection: LedgerConnection) -> None:
        # Commit, not roll back: after a rollback psycopg forgets the prepared statements of the connection.
        if not connection.closed:
            connection.commit()

    def _commit(self, connection: LedgerConnection) -> None:
        if connection.pgconn.transaction_status == TransactionStatus.INERROR:
            # COMMIT would roll back and report no error.
            raise psycopg.errors.InFailedSqlTransaction("a statement failed and its error was suppressed")
        if connection.effects_ran:  # of a task that failed in its savepoint
            connection.effects_ran = False
            connection.execute(session.UNLOCK)
        connection.commit()

    def _rollback(self, connection: LedgerConnection) -> None:
        if connection.effects_ran:
            # A rollback keeps the locks of a session. In one message: a pooler may give the next one another session.
            connection.effects_ran = False
            with suppress(psycopg.Error):  # a lost connection has lost its locks
                connection.command(f"ROLLBACK; {session.UNLOCK}; BEGIN")
        connection.rollback()  # raises on a lost connection, which must not go back to the pool
        connection.forget()

    def limit_locks(self, connection: LedgerConnection, effects: Sequence[Effect]) -> float:
        """Let effects wait for a lock for as long as they may; return how many seconds that is."""
        limit_s = limit(LOCK_S, self.shortest_lease_s, effects)
        if limit_s < LOCK_S:
            connection.execute("SELECT pg_catalog.set_config('lock_timeout', %s, true)", (f"{limit_s:.3f}s",))
        return limit_s

    def reset_session(self, connection: LedgerConnection) -> bool:
        """Undo what effects have changed in their session; return whether their transaction can still write."""
        return session.reset_after_effects(connection, self.schema, LOCK_S, local=self.pooled)


class _Alone(Transaction):
    """A transaction of one statement, which commits itself."""

    store: PostgresStore
    alone = True

    def run(self, name: str, /, **params: object) -> list[tuple[Any, ...]]:
        if self.store.pooled or self.is_open:
            return super().run(name, **params)
        if name == INSERT_JOB:
            return list(self.store.insert_job(self.connection, params))
        return self.store.run_committed(self.connection, name, params)


def _rows(cursor: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a statement that returns some; `description` would take longer than the statement."""
    result = cursor.pgresult
    return cursor.fetchall() if result is not None and result.nfields else []


@cache
def _numbered(prefix: str) -> tuple[str, list[str]]:
    """Return the statement that submits one job with numbered parameters, and their names in order."""
    [text] = _qualified_statements(prefix)[INSERT_JOB]
    names = list(dict.fromkeys(_NAMED.findall(text)))
    return _NAMED.sub(lambda name: f"${names.index(name[1]) + 1}", text), names


@cache
def _qualified_statements(prefix: str) -> dict[str, tuple[str, ...]]:
    """Return the statements with the schema before each table: a borrowed connection may have another search_path."""
    return {
        name: tuple(_TABLE.sub(lambda table: prefix + table[0], pyformat(text)) for text in texts)
        for name, texts in statements("postgres").items()
    }
