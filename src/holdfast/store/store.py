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
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdfast.core.errors import CommitUnknownError, HoldfastError, StoreUnavailableError
from holdfast.store.effects import Effect
from holdfast.store.pool import Pool
from holdfast.store.requests import Declared
from holdfast.store.transaction import Reading, Transaction

if TYPE_CHECKING:
    from holdfast.store.upkeep import Upkeep

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
        self.clock = clock
        self.pool = Pool(self._open, self._disconnect)
        self.operations: dict[str, Declared] = {}  # those known to exist, by name: a name once declared stays declared
        self.governed: bool | None = None  # by a registry; None until somebody asks

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Yield a transaction that commits at the end of the block, or is rolled back by any exception."""
        connection = self.take()
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
            self.pool.give(connection, sound=sound)

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
            self.pool.give(connection, sound=sound)

    def close(self) -> None:
        """Close every connection that is not in use."""
        self.pool.close()

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
        connection = self.take()
        try:
            self._begin_reading(connection)
        except Exception:  # noqa: BLE001 - whatever it was, the new connection tells
            self.pool.give(connection, sound=False)
        else:
            return connection
        connection = self.take()
        try:
            self._begin_reading(connection)
        except Exception as error:
            self.pool.give(connection, sound=False)
            raise self.translated(error) from error
        return connection

    def take(self) -> Connection:
        """Take a connection from the pool; `pool.give` gives it back."""
        try:
            return self.pool.take()
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

    def require_present(self, connection: Any, epoch: int) -> None:
        """Raise EpochError if the database counts transactions from below what was sealed; most do not count them."""

    @abstractmethod
    def missing_indexes(self, connection: Any) -> set[str]:
        """Return the names of the unique indexes that enforce a promise and are not there."""

    @abstractmethod
    def enforcement_drift(self, connection: Any, epoch: int) -> list[str]:
        """Return the names of triggers, functions and indexes that are missing or differ from ours."""

    # -- what is beside the path of a job -----------------------------------------------------------------------------

    @property
    @abstractmethod
    def upkeep(self) -> Upkeep:
        """What snapshots, restores, retention, repair and checks need of this database."""

    @property
    def absolute_url(self) -> str:
        """The URL that names this store to a process in any directory."""
        return self.url

    @property
    def exists(self) -> bool:
        """Whether the database exists; one in a file may not."""
        return True
