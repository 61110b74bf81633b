"""The store: transactions and reads of one ledger, on either database.

Invariants: every write happens inside `transaction()`, which commits durably or is rolled back; an error that leaves
this layer is a HoldfastError, not an error of the driver; an open store has the schema, the machines and the triggers
that this version of Holdfast generates.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, _GeneratorContextManager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdfast.core.errors import CommitUnknownError, HoldfastError, StoreUnavailableError
from holdfast.store.pool import Pool
from holdfast.store.requests import Declared, Effect
from holdfast.store.transaction import Reading, Transaction

if TYPE_CHECKING:
    from holdfast.store.migrations import Rules
    from holdfast.store.upkeep import Upkeep
    from holdfast.store.verbs.bulk import Columns
    from holdfast.store.watch import Watch

logger = logging.getLogger("holdfast")

Clock = Callable[[], datetime]
Params = Mapping[str, object]
Connection = TypeVar("Connection")


def host_clock() -> datetime:
    """Return the host's time, in UTC."""
    return datetime.now(UTC)


class Store(ABC, Generic[Connection]):
    """One ledger in one database. Each dialect implements how to connect, begin, run and translate errors."""

    dialect: str
    one_writer = False  # True: the database runs one writing transaction at a time
    now_error = timedelta()  # how far `now` may be from the time that the database compares with
    transactions: type[Transaction] = Transaction  # another kind for a store that keeps traces
    shortest_lease_s: float | None = None  # of the operations of a worker in this process: it limits effects
    effects_wait = False  # whether an effect of this process has waited as long as it may

    def __init__(self, url: str, clock: Clock | None) -> None:
        self.url = url
        self.clock = clock
        self.pool = Pool(self._open, self._disconnect)
        self.operations: dict[str, Declared] = {}  # known operations by name; a declared operation is never removed
        self.limited: bool | None = None  # whether the ledger has limits, as far as this process knows
        self.fair = False  # whether claims must compare priorities or queues, at the last look
        self.governed: bool | None = None  # whether a registry governs the ledger; None: not read yet

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Yield a transaction that commits at the end of the block, or is rolled back by any exception."""
        yield from self._transaction()

    def _transaction(self, *how: str) -> Iterator[Transaction]:
        connection = self.take()
        sound = False
        try:
            self._begin(connection, *how)
            try:
                transaction = self.transactions(self, connection)
                yield transaction
                if transaction.freed:
                    transaction.slots.admit()
                self._commit_or_say(connection)
            except BaseException:
                sound = self._rolled_back(connection)
                raise
            self.operations.update(transaction.learned)
            sound = self._announced(connection, transaction)
        except HoldfastError:
            raise
        except Exception as error:
            raise self.translated(error) from error
        finally:
            self.pool.give(connection, sound=sound)

    def alone(self) -> _GeneratorContextManager[Transaction]:
        """Return a transaction for a lone submit or claim, which a database may commit with less than others."""
        return self.transaction()

    def borrowed(self, connection: Any) -> _GeneratorContextManager[Transaction]:
        """Return a transaction on a connection of the caller, who begins and commits it."""
        from holdfast.store.borrowed import borrowed  # noqa: PLC0415 - most connections are the store's own

        return borrowed(self, connection)

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """Yield a consistent view of the ledger, for reads only."""
        connection = self._take_to_read()
        sound = False
        try:
            try:
                yield Reading(self, connection)
            except BaseException:
                with suppress(Exception):  # the first error counts
                    self._end_reading(connection)
                    sound = True
                raise
            self._end_reading(connection)
            sound = True
        except HoldfastError:
            raise
        except Exception as error:
            raise self.translated(error) from error
        finally:
            self.pool.give(connection, sound=sound)

    def glance(self) -> AbstractContextManager[Reading]:
        """Return a view for reads that need no common snapshot."""
        return self.reading()

    def close(self) -> None:
        """Close every connection that is not in use."""
        self.pool.close()

    def __enter__(self) -> Store[Connection]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _rolled_back(self, connection: Connection) -> bool:
        """Roll back; return whether the connection can be used again."""
        try:
            self._rollback(connection)
        except Exception:  # noqa: BLE001 - the caller reports the first error, not this one
            return False
        return True

    def _announced(self, connection: Connection, transaction: Transaction) -> bool:
        """Announce committed work; return whether the connection can be used again.

        An error is only logged: it must not look like a failed commit.
        """
        try:
            self.announce(connection, transaction.queues_to_announce)
            if not transaction.queues_to_announce:
                for watch in transaction.watches:
                    watch.changed()  # it has only this commit to report: still no other one can have written
        except Exception as error:
            from holdfast.store.interruption import from_signal_handler  # noqa: PLC0415 - most commits are announced

            if from_signal_handler(error):
                raise
            logger.exception("could not notify idle workers; they find the work at their next poll")
            return False
        return True

    def _commit_or_say(self, connection: Connection) -> None:
        try:
            self._commit(connection)
        except Exception as error:
            translated = self.translated(error)
            if isinstance(translated, StoreUnavailableError):
                message = f"COMMIT was not confirmed: {translated}"
                raise CommitUnknownError(message, context=translated.context) from error
            raise translated from error

    def _take_to_read(self) -> Connection:
        """Take a connection and begin to read. A pooled connection may be lost; then try once with a new one."""
        tries = 0
        while True:
            connection = self.take()
            try:
                self._begin_reading(connection)
            except BaseException as error:
                self.pool.give(connection, sound=False)
                translated = self.translate(error) if isinstance(error, Exception) else None
                if translated is None:
                    raise  # not of the driver
                tries += 1
                if tries > 1:
                    raise translated from error
            else:
                return connection

    def take(self) -> Connection:
        """Take a connection from the pool; `pool.give` returns it."""
        try:
            return self.pool.take()
        except HoldfastError:
            raise
        except Exception as error:
            raise self.translated(error) from error

    def translated(self, error: Exception) -> Exception:
        """Return the HoldfastError for an error of the driver, or the error itself if there is none."""
        return self.translate(error) or error

    # -- what each dialect implements ---------------------------------------------------------------------------------

    @abstractmethod
    def now(self) -> datetime:
        """Return the time by which leases expire, as this process knows it."""

    def due_now(self) -> datetime:
        """Return a time that the database has reached: at which a job is due at once, whatever `now` is off by."""
        return self.now() - self.now_error

    @abstractmethod
    def insert_jobs(self, session: Reading, columns: Columns, **params: object) -> list[int | None]:
        """Insert jobs, given column by column; return the id of each, None for one that was left out."""

    @abstractmethod
    def complete_jobs(self, session: Reading, rows: Sequence[tuple[int, int, str]], **params: object) -> int:
        """Complete attempts, given as (job_id, token, result) in the order of ids; return how many were written."""

    @abstractmethod
    def run(self, connection: Any, name: str, params: Params) -> list[tuple[Any, ...]]:
        """Run a named statement and return its rows."""

    @abstractmethod
    def execute(self, connection: Any, sql: str, params: Params | Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one statement given as text, such as one of a migration, and return its rows."""

    @abstractmethod
    def named(self, connection: Any, sql: str, params: Params) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run one statement with `:name` parameters; return the names of its columns, and its rows."""

    @abstractmethod
    def apply(self, connection: Any, effects: Sequence[Effect]) -> None:
        """Apply effects in order; raise EffectError if one fails, has another row count, or ends the transaction."""

    @abstractmethod
    def is_open(self, connection: Any) -> bool:
        """Return whether the transaction of the connection is still open."""

    @contextmanager
    def savepoint(self, connection: Any) -> Iterator[None]:
        """Yield a block; if it raises, only the writes of the block are undone."""
        self.execute(connection, "SAVEPOINT holdfast")
        try:
            yield
        except BaseException:
            if self.is_open(connection):
                self.execute(connection, "ROLLBACK TO SAVEPOINT holdfast")
                self.execute(connection, "RELEASE SAVEPOINT holdfast")
            raise
        self.execute(connection, "RELEASE SAVEPOINT holdfast")

    @abstractmethod
    def require_fit(self, connection: Any) -> None:
        """Raise ConnectionUnfitError unless a connection of the caller has the settings that Holdfast needs."""

    @abstractmethod
    def stored(self, moment: datetime | None) -> object:
        """Return a time as this dialect stores it."""

    @abstractmethod
    def time_parameter(self) -> object:
        """Return the value of `:now`: a time, or None if the clock of the database decides."""

    @abstractmethod
    def judged_at(self, at: datetime) -> object:
        """Return the value of `:now` for comparing leases with a time that this process read earlier."""

    @abstractmethod
    def lease_until(self, seconds: float) -> object:
        """Return the end of a lease for the statements of this dialect: a time, or the seconds from now."""

    @abstractmethod
    def moment(self, value: object) -> datetime:
        """Return the time of a stored value."""

    def announce(self, connection: Connection, queues: set[str]) -> None:
        """Notify idle workers of other processes that these queues may have committed work."""

    def announce_inside(self, connection: Any, queues: set[str]) -> None:
        """Notify idle workers of these queues when the transaction of a borrowed connection commits."""

    @abstractmethod
    def watch(self) -> Watch:
        """Return a watch that notices when another process writes."""

    @abstractmethod
    def translate(self, error: Exception) -> HoldfastError | None:
        """Return the HoldfastError for an error of the driver, or None if there is none."""

    @abstractmethod
    def _open(self) -> Connection: ...

    @abstractmethod
    def _disconnect(self, connection: Connection) -> None: ...

    @abstractmethod
    def _begin(self, connection: Connection, *how: str) -> None: ...

    @abstractmethod
    def _begin_reading(self, connection: Connection) -> None: ...

    def _end_reading(self, connection: Connection) -> None:
        self._rollback(connection)

    @abstractmethod
    def _commit(self, connection: Connection) -> None: ...

    @abstractmethod
    def _rollback(self, connection: Connection) -> None: ...

    # -- schema -------------------------------------------------------------------------------------------------------

    def lock_schema(self, connection: Any) -> None:
        """Let one migration run at a time; does nothing where the database has one writer at a time."""

    @abstractmethod
    def tables(self, connection: Any) -> set[str]:
        """Return the names of the ledger's tables that exist."""

    @abstractmethod
    def enforcement(self, connection: Any, rules: Rules) -> list[str]:
        """Return the statements that write every trigger again."""

    @abstractmethod
    def foreign_enforcement(self, connection: Any, rules: Rules) -> list[str]:
        """Return the statements that drop triggers and functions with names of Holdfast that Holdfast did not make."""

    def require_present(self, connection: Any, epoch: int) -> None:
        """Raise EpochError if the next transaction id is below the last sealed one; does nothing on SQLite."""

    @abstractmethod
    def missing_indexes(self, connection: Any) -> set[str]:
        """Return the names of the missing unique indexes."""

    @abstractmethod
    def enforcement_drift(self, connection: Any, rules: Rules) -> list[str]:
        """Return the names of triggers, functions and indexes that are missing or differ from the generated ones."""

    # -- upkeep -------------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def upkeep(self) -> Upkeep:
        """The methods for snapshots, restores, retention, repair and checks."""

    @property
    def absolute_url(self) -> str:
        """The URL of this store, valid in any working directory."""
        return self.url

    @property
    def exists(self) -> bool:
        """Whether the database exists; the file of a SQLite ledger may not exist yet."""
        return True
