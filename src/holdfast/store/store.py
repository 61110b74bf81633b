"""What a store is: transactions over one ledger, whichever database holds it.

Invariants: every write happens inside `transaction()`, which commits durably or leaves nothing behind; an error that
leaves this layer is a HoldfastError, never a driver's; a store that was opened has the schema, the machines and the
triggers that this version of Holdfast generates.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdfast.core.errors import CommitUnknownError, HoldfastError, StoreUnavailableError
from holdfast.store.effects import Effect
from holdfast.store.pool import Pool
from holdfast.store.requests import Declared
from holdfast.store.transaction import Reading, Transaction

if TYPE_CHECKING:
    from holdfast.core.seals import Seal

logger = logging.getLogger("holdfast")

Clock = Callable[[], datetime]
Params = Mapping[str, object]
Connection = TypeVar("Connection")


def host_clock() -> datetime:
    """Return the host's time, in UTC."""
    return datetime.now(UTC)


class Watch(ABC):
    """Notices that other processes have written. `arm` asks for the next notice, `close` ends the thread."""

    @abstractmethod
    def arm(self) -> None:
        """Ask to be told of the next change."""

    @abstractmethod
    def close(self) -> None:
        """Stop watching."""


class Store(ABC, Generic[Connection]):
    """One ledger in one database. Dialects say how to connect, begin, run and translate."""

    dialect: str
    one_writer = False  # does a transaction that writes keep every other one waiting?

    def __init__(self, url: str, clock: Clock | None) -> None:
        self.url = url
        self._clock = clock
        self._pool = Pool(self._open, self._disconnect)
        self.operations: dict[str, Declared] = {}  # those known to exist, by name: a name once declared stays declared
        self.governed: bool | None = None  # by a registry; None until somebody asks

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Yield a transaction that commits at the end of the block, or is rolled back by any exception."""
        connection = self._take()
        sound = False
        try:
            with self._turn():
                self._begin(connection)
                try:
                    transaction = Transaction(self, connection)
                    yield transaction
                    self._commit_or_say(connection)
                except BaseException:
                    sound = self._rolled_back(connection)
                    raise
            sound = True
            self.operations.update(transaction.learned)
            self._announce_or_log(transaction.queues_to_announce)
        except HoldfastError:
            raise
        except Exception as error:
            raise self.translated(error) from error
        finally:
            self._pool.give(connection, sound=sound)

    @contextmanager
    def borrowed(self, connection: Any) -> Iterator[Transaction]:
        """Yield the verbs over a connection that the caller owns, begins and commits."""
        try:
            self.require_fit(connection)
            transaction = Transaction(self, connection)
            yield transaction
            self.announce_inside(connection, transaction.queues_to_announce)
        except HoldfastError:
            raise
        except Exception as error:
            raise self.translated(error) from error

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """Yield a consistent view of the ledger; nothing can be written through it."""
        connection = self._take_to_read()
        sound = False
        try:
            try:
                yield Reading(self, connection)
            finally:
                self._end_reading(connection)
            sound = True
        except HoldfastError:
            sound = True
            raise
        except Exception as error:
            raise self.translated(error) from error
        finally:
            self._pool.give(connection, sound=sound)

    def close(self) -> None:
        """Close every connection that is not in use."""
        self._pool.close()

    def __enter__(self) -> Store[Connection]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _rolled_back(self, connection: Connection) -> bool:
        """Roll back, and tell whether the connection can be used again."""
        try:
            self._rollback(connection)
        except Exception:  # noqa: BLE001 - whatever a dying connection raises, the first error is the one to report
            return False
        return True

    def _announce_or_log(self, queues: set[str]) -> None:
        """Announce what is durable: whatever goes wrong now must not look as if it were not."""
        try:
            self.announce(queues)
        except Exception:
            logger.exception("idle workers could not be told; they find the work at their next poll")

    def _commit_or_say(self, connection: Connection) -> None:
        try:
            self._commit(connection)
        except Exception as error:
            translated = self.translated(error)
            if isinstance(translated, StoreUnavailableError):
                raise CommitUnknownError(f"the connection was lost during COMMIT: {translated}") from error
            raise translated from error

    def _take_to_read(self) -> Connection:
        """Take a connection and begin to read. A kept one may have died with its server: then a new one is tried."""
        connection = self._take()
        try:
            self._begin_reading(connection)
        except Exception:  # noqa: BLE001 - whatever it was, the new connection tells
            self._pool.give(connection, sound=False)
        else:
            return connection
        connection = self._take()
        try:
            self._begin_reading(connection)
        except Exception as error:
            self._pool.give(connection, sound=False)
            raise self.translated(error) from error
        return connection

    def _take(self) -> Connection:
        try:
            return self._pool.take()
        except HoldfastError:
            raise
        except Exception as error:
            raise self.translated(error) from error

    def translated(self, error: Exception) -> Exception:
        """Return a driver's error as Holdfast's where it has one, else the error itself."""
        return self.translate(error) or error

    # -- what a dialect says ------------------------------------------------------------------------------------------

    @abstractmethod
    def now(self) -> datetime:
        """Return the time that leases are measured by, as well as this process can know it."""

    @abstractmethod
    def run(self, connection: Any, name: str, params: Params) -> list[tuple[Any, ...]]:
        """Run a named statement and return its rows."""

    @abstractmethod
    def execute(self, connection: Any, sql: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one statement given as text: for migrations and for what an operator stages."""

    @abstractmethod
    def named(self, connection: Any, sql: str, params: Params) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run one statement with `:name` for each value; return the names of its columns, and its rows."""

    @abstractmethod
    def apply(self, connection: Any, effects: Sequence[Effect]) -> None:
        """Apply effects in order; raise EffectError if one fails, touches other rows, or ends the transaction."""

    @abstractmethod
    def is_open(self, connection: Any) -> bool:
        """Tell whether the connection's transaction still stands."""

    @contextmanager
    def savepoint(self, connection: Any) -> Iterator[None]:
        """Yield a block whose writes are undone, and no others, if it raises."""
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
        """Raise ConnectionUnfitError unless the promises can be kept on a connection that the caller owns."""

    @abstractmethod
    def stored(self, moment: datetime | None) -> object:
        """Return a time as this dialect stores it."""

    @abstractmethod
    def time_parameter(self) -> object:
        """Return what `:now` is: a time, or None where the database's own clock decides."""

    @abstractmethod
    def judged_at(self, at: datetime) -> object:
        """Return `:now` for judging leases at a time that this process read earlier."""

    @abstractmethod
    def lease_until(self, seconds: float) -> object:
        """Return a lease's end as this dialect's statements take it: a time, or the seconds to add to its clock."""

    @abstractmethod
    def moment(self, value: object) -> datetime:
        """Return the time that a stored value means."""

    def announce(self, queues: set[str]) -> None:
        """Tell idle workers of other processes that these queues may have work: committed, but perhaps unnoticed."""

    def announce_inside(self, connection: Any, queues: set[str]) -> None:
        """Tell idle workers of these queues when the transaction of a borrowed connection commits."""

    @abstractmethod
    def watch(self, on_change: Callable[[], None]) -> Watch:
        """Return a watch that calls `on_change`, from a thread of its own, when another process has written."""

    @abstractmethod
    def translate(self, error: Exception) -> HoldfastError | None:
        """Return Holdfast's error for a driver's, or None if it is not one."""

    @abstractmethod
    def _open(self) -> Connection: ...

    @abstractmethod
    def _disconnect(self, connection: Connection) -> None: ...

    @contextmanager
    def _turn(self) -> Iterator[None]:
        yield

    @abstractmethod
    def _begin(self, connection: Connection) -> None: ...

    @abstractmethod
    def _begin_reading(self, connection: Connection) -> None: ...

    def _end_reading(self, connection: Connection) -> None:
        self._rollback(connection)

    @abstractmethod
    def _commit(self, connection: Connection) -> None: ...

    @abstractmethod
    def _rollback(self, connection: Connection) -> None: ...

    # -- what the schema needs ----------------------------------------------------------------------------------------

    def lock_schema(self, connection: Any) -> None:
        """Let one migration run at a time; where writers take turns anyway, there is nothing to do."""

    @abstractmethod
    def tables(self, connection: Any) -> set[str]:
        """Return the names of the ledger's tables that exist."""

    @abstractmethod
    def enforcement(self, connection: Any, epoch: int) -> list[str]:
        """Return the statements that write every trigger anew."""

    @abstractmethod
    def foreign_enforcement(self, connection: Any, epoch: int) -> list[str]:
        """Return the statements that drop triggers and functions under our names that are not ours."""

    def extend_journal(self, connection: Any) -> str | None:  # noqa: ARG002 - where the journal is one table
        """Add the journal's next partition if it is time to, and return its name."""
        return None

    def archived_partition(self, archived: Seal) -> str | None:  # noqa: ARG002 - the same
        """Return the journal's oldest partition if all its rows are closed by this seal or one before it."""
        return None

    def drop_partition(self, connection: Any, name: str) -> bool:  # noqa: ARG002 - the same
        """Drop a partition of the journal; False if it is gone already, StoreBusyError if writers are in the way."""
        return False

    def require_present(self, connection: Any, epoch: int) -> None:
        """Raise EpochError if the database counts transactions from below what was sealed; most do not count them."""

    def begin_numbers(self, connection: Any, table: str) -> None:
        """Let a change of where a table's ids go on be undone with the transaction, where it would not be."""

    def journal_is_full(self, connection: Any) -> bool:  # noqa: ARG002 - where numbers come from a sequence
        """Return whether a row of the journal has the greatest number there is, so that no row can follow it."""
        return False

    @abstractmethod
    def missing_indexes(self, connection: Any) -> set[str]:
        """Return the names of the unique indexes that enforce a promise and are not there."""

    @abstractmethod
    def enforcement_drift(self, connection: Any, epoch: int) -> list[str]:
        """Return the names of triggers, functions and indexes that are missing or differ from ours."""

    @abstractmethod
    def faults(self, connection: Any) -> list[tuple[str, str]]:
        """Return what the database itself finds wrong with the ledger's tables: a subject, and the words."""

    # -- what a new ledger needs --------------------------------------------------------------------------------------

    @property
    def absolute_url(self) -> str:
        """The URL that names this store to a process in any directory."""
        return self.url

    @property
    def exists(self) -> bool:
        """Whether the database exists; one in a file may not."""
        return True

    @contextmanager
    def drafted(self) -> Iterator[Store[Any]]:
        """Yield a store to make a ledger in, which is in this place when the block ends, whole or not at all.

        Raise FileThereError if another process has made a ledger here meanwhile.
        """
        yield self  # where a transaction is enough

    # -- what a snapshot needs ----------------------------------------------------------------------------------------

    @contextmanager
    def standing(self, beside: Path) -> Iterator[Reading]:  # noqa: ARG002 - where a long view costs others little
        """Yield a view that may be read for long; a dialect that needs a copy puts it into the directory `beside`."""
        with self.reading() as reading:
            yield reading

    @abstractmethod
    def stream(self, connection: Any, sql: str, kinds: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query, whose columns are of these kinds, without holding more than a few."""

    @abstractmethod
    def load(self, connection: Any, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Insert many plain rows."""

    def tables_beside(self) -> list[str]:
        """Return the tables of the database that are not Holdfast's, without writing anything."""
        with self.reading() as reading:
            return [name for (name,) in self.run(reading.connection, "tables_beside", {})]

    def plain(self, column: str, kind: str) -> str:  # noqa: ARG002 - where what is stored is plain already
        """Return the expression that gives a column's plain value: text, a number, or null."""
        return f'"{column}"'

    def in_order(self, column: str, kind: str) -> str:  # noqa: ARG002 - where text is compared by code point already
        """Return the expression that orders by a column, and text by its code points."""
        return f'"{column}"'
