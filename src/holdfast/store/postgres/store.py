"""The store on PostgreSQL, for a fleet.

Invariants: READ COMMITTED with synchronous_commit=on; the database's clock measures leases, whatever a worker's clock
says; set-based statements lock with SKIP LOCKED, so workers never queue for each other's jobs.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from holdfast.core.errors import (
    BadUrlError,
    ConnectionUnfitError,
    DurabilityError,
    EffectError,
    HoldfastError,
    RefusedByDatabaseError,
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from holdfast.store.effects import Effect, as_pyformat, groups, require_rows
from holdfast.store.enforcement import Refusal
from holdfast.store.postgres.schema import PostgresSchema
from holdfast.store.postgres.watch import Announcer, ListenWatch
from holdfast.store.statements import pyformat, statements
from holdfast.store.store import Clock, Params, Watch

if TYPE_CHECKING:
    from holdfast.store.upkeep import Upkeep

POSTGRES_OLDEST = 140000
CONNECT_S = 10
LOCK_S = 5
PLANS_S_MIN, PLANS_S_MAX = 0.25, 10.0
_DATABASE = (
    " (SELECT system_identifier FROM pg_control_system()),"
    " (SELECT oid::bigint FROM pg_database WHERE datname = current_database())"
)
_TABLE = re.compile(r"(?<![.\w])holdfast_\w+")
_DAMAGED = {"XX001", "XX002"}  # data_corrupted, index_corrupted
_REFUSALS = {str(refusal) for refusal in Refusal}


class PostgresStore(PostgresSchema):
    """A ledger in one schema of a PostgreSQL database."""

    dialect = "postgres"

    def __init__(self, url: str, clock: Clock | None = None, *, schema: str = "public") -> None:
        super().__init__(url, clock, schema)
        self._announcer = Announcer(self._open, self._channel)
        self._statements = {
            name: tuple(self._qualified(pyformat(text)) for text in texts)
            for name, texts in statements(self.dialect).items()
        }
        self._server_time: tuple[datetime, float] | None = None
        self._plans_due: WeakKeyDictionary[psycopg.Connection[tuple[Any, ...]], tuple[float, float]]
        self._plans_due = WeakKeyDictionary()
        self._identity: list[int] | None = None

    def now(self) -> datetime:
        """Return the database's time: asked once a connection, carried on by this process's monotonic clock."""
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
            # These statements name only what migrations made.
            raise StoreDamagedError(_first_line(error), context={"sqlstate": error.sqlstate}) from error
        return cursor.fetchall() if cursor.description else []

    def execute(self, connection: Any, sql: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        cursor = connection.execute(sql, tuple(params) or None)
        return cursor.fetchall() if cursor.description else []

    def named(self, connection: Any, sql: str, params: Params) -> tuple[list[str], list[tuple[Any, ...]]]:
        cursor = connection.cursor(row_factory=tuple_row)
        cursor.execute(pyformat(sql), params)
        columns = cursor.description or ()
        return [column.name for column in columns], cursor.fetchall() if columns else []

    def apply(self, connection: Any, effects: Sequence[Effect]) -> None:
        cursor = connection.cursor()
        try:
            for text, rows, group in groups(effects):
                if rows is None and len(group) > 1:
                    cursor.executemany(as_pyformat(text), [effect.params for effect in group])
                else:
                    for effect in group:
                        cursor.execute(as_pyformat(text), effect.params)
                        require_rows(effect, cursor.rowcount)
                if connection.info.transaction_status != TransactionStatus.INTRANS:
                    raise EffectError("an effect ended the transaction")  # at once: the next would begin another
        except psycopg.Error as error:
            unavailable = self.translate(error)
            if isinstance(unavailable, StoreUnavailableError | StoreDamagedError):
                raise unavailable from error
            raise EffectError(f"the database refused an effect: {str(error).splitlines()[0]}") from error

    def is_open(self, connection: Any) -> bool:
        # INERROR is open too: it can be rolled back to a savepoint.
        return bool(connection.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR))

    def require_fit(self, connection: Any) -> None:
        if not isinstance(connection, psycopg.Connection):
            raise ConnectionUnfitError(f"a psycopg connection is needed, not a {type(connection).__name__}")
        if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
            raise ConnectionUnfitError("the connection commits by itself: begin a transaction first")
        if connection.info.transaction_status == TransactionStatus.INERROR:
            raise ConnectionUnfitError("the transaction has failed already: roll it back first")
        [isolation, durable, *database] = cast(
            "tuple[str, str, int, int]",
            connection.cursor(row_factory=tuple_row)
            .execute(
                "SELECT current_setting('transaction_isolation'), current_setting('synchronous_commit')," + _DATABASE
            )
            .fetchone(),
        )
        if isolation != "read committed":
            raise ConnectionUnfitError(f"the transaction is {isolation}; READ COMMITTED is needed")
        if durable not in ("on", "remote_apply"):
            raise ConnectionUnfitError(f"synchronous_commit is {durable}; on is needed")
        if database != self._database():
            raise ConnectionUnfitError("the connection is to another database than the ledger's")

    def _database(self) -> list[int]:
        """Return what tells the ledger's database from any other: two of them may hold the same tables."""
        if self._identity is None:
            connection = self.take()
            try:
                self._identity = list(cast("tuple[int, int]", connection.execute("SELECT" + _DATABASE).fetchone()))
                connection.rollback()
            finally:
                self.pool.give(connection, sound=connection.info.transaction_status == TransactionStatus.IDLE)
        return self._identity

    def stored(self, moment: datetime | None) -> datetime | None:
        return moment

    def time_parameter(self) -> datetime | None:
        return self.clock() if self.clock is not None else None

    def judged_at(self, at: datetime) -> datetime | None:
        return None if self.clock is None else at  # its own clock, and SKIP LOCKED never waits

    def lease_until(self, seconds: float) -> float:
        return seconds

    def moment(self, value: object) -> datetime:
        return cast("datetime", value)

    def announce(self, queues: set[str]) -> None:
        if queues:
            self._announcer.tell(queues)

    def announce_inside(self, connection: Any, queues: set[str]) -> None:
        for queue in sorted(queues):
            connection.execute("SELECT pg_notify(%s, %s)", (self._channel, queue))

    @property
    def upkeep(self) -> Upkeep:
        from holdfast.store.postgres.upkeep import PostgresUpkeep  # noqa: PLC0415 - beside the path of a job

        return PostgresUpkeep(self)

    def close(self) -> None:
        self._announcer.close()
        super().close()

    def watch(self, on_change: Callable[[], None]) -> Watch:
        return ListenWatch(self._open, self._channel, on_change)

    def translate(self, error: Exception) -> HoldfastError | None:
        if not isinstance(error, psycopg.Error):
            return None
        state, text = error.sqlstate or "", _first_line(error)
        if state in _REFUSALS:
            return RefusedByDatabaseError(text, context={"refusal": state})
        if state.startswith(("22", "23")):
            return RefusedByDatabaseError(text)
        if state in _DAMAGED or (state == "42P01" and "holdfast_" in text):
            return StoreDamagedError(text, context={"sqlstate": state})
        if state in ("40001", "40P01", "55P03"):
            return StoreBusyError(text)
        if state == "3F000":
            return StoreUnavailableError(
                f"there is no schema {self.schema!r}", next_step="Create it (CREATE SCHEMA …), or name another."
            )
        if state in ("25006", "42501"):
            return StoreReadOnlyError(text)
        if isinstance(error, psycopg.OperationalError):
            return StoreUnavailableError(_without_password(text, self.url))
        return None

    def _open(self) -> psycopg.Connection[tuple[Any, ...]]:
        try:
            connection = psycopg.connect(self.url, connect_timeout=CONNECT_S, application_name="holdfast")
        except psycopg.ProgrammingError as error:
            raise BadUrlError(f"the URL is not a PostgreSQL one: {_without_password(str(error), self.url)}") from None
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        if connection.info.server_version < POSTGRES_OLDEST:
            raise StoreError(
                f"PostgreSQL {connection.info.server_version // 10000} is too old",
                next_step="Use PostgreSQL 14 or newer.",
            )
        connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(self.schema)))
        connection.execute("SET timezone TO 'UTC'")
        # What the ledger reads is hot, in memory or on a disk without a head: an index is the way to it.
        connection.execute("SET random_page_cost TO 1.1")
        # A user's lock may hold up one effect; it must not hold up the ledger.
        connection.execute(sql.SQL("SET lock_timeout TO {}").format(sql.Literal(f"{LOCK_S}s")))
        asked = time.monotonic()  # before the question: time that lags would take work that is due for work to come
        [durable, at] = cast(
            "tuple[str, datetime]",
            connection.execute("SELECT current_setting('synchronous_commit'), statement_timestamp()").fetchone(),
        )
        connection.commit()
        if durable not in ("on", "remote_apply"):
            raise DurabilityError(
                f"synchronous_commit is {durable}; on is needed", context={"synchronous_commit": durable}
            )
        self._server_time = at, asked

    def _disconnect(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        connection.close()

    def _begin(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        """Leave it to psycopg, which begins with the first statement; but first let go of plans that have aged.

        A plan that was made while a table was small would read it whole when it has grown. Plans are made anew whenever
        a connection has lived twice as long, and then every ten seconds.
        """
        due, age_s = self._plans_due.get(connection, (0.0, 0.0))
        now = time.monotonic()
        if now >= due:
            if due:
                with suppress(psycopg.OperationalError):  # a connection that died is found by the first statement
                    connection.execute("DISCARD PLANS")
            age_s = min(max(2 * age_s, PLANS_S_MIN), PLANS_S_MAX)
            self._plans_due[connection] = now + age_s, age_s

    def _begin_reading(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")

    def _end_reading(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        # After a rollback psycopg forgets every statement that it has prepared on the connection.
        if not connection.closed:
            connection.commit()

    def _commit(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        connection.commit()

    def _rollback(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        connection.rollback()  # raises on a lost connection, which must not go back to the pool

    def _qualified(self, text: str) -> str:
        """Name the schema: a borrowed connection may look elsewhere."""
        return _TABLE.sub(lambda table: self._prefix() + table[0], text)


def _first_line(error: psycopg.Error) -> str:
    return str(error).strip().split("\n")[0]


def _without_password(text: str, url: str) -> str:
    try:
        password = psycopg.conninfo.conninfo_to_dict(url).get("password")
    except psycopg.ProgrammingError:
        # The text of a URL that cannot be parsed may quote any part of it.
        return "it cannot be parsed"
    return text.replace(str(password), "***") if password else text
