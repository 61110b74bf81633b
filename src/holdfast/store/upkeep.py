"""The methods of a database for snapshots, restores, retention, repair and checks.

Invariants: submits and workers do not use them; the module of a dialect is imported on first use (`Store.upkeep`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.core.seals import Seal
    from holdfast.store.store import Store
    from holdfast.store.transaction import Reading


class Upkeep(ABC):
    """The upkeep of the database of one ledger. Dialects override the methods that differ."""

    def __init__(self, store: Store[Any]) -> None:
        self.store = store

    # -- snapshots ----------------------------------------------------------------------------------------------------

    @contextmanager
    def long_view(self, beside: Path) -> Iterator[Reading]:  # noqa: ARG002 - a dialect that needs no copy
        """Yield a view for a long read; a dialect that needs a copy writes it into the directory `beside`."""
        with self.store.reading() as reading:
            yield reading

    @abstractmethod
    def stream(self, connection: Any, sql: str, kinds: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query with columns of these kinds; only a few rows are in memory at a time."""

    @abstractmethod
    def load(self, connection: Any, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Insert many plain rows."""

    def tables_beside(self) -> list[str]:
        """Return the tables of the database that do not belong to Holdfast; writes nothing."""
        with self.store.reading() as reading:
            return [name for (name,) in reading.run("tables_beside")]

    def plain(self, column: str, kind: str) -> str:  # noqa: ARG002 - where what is stored is plain already
        """Return the SQL expression for the plain value of a column: text, a number, or null."""
        return f'"{column}"'

    def in_order(self, column: str, kind: str) -> str:  # noqa: ARG002 - where text is compared by code point already
        """Return the SQL expression to order by a column; text is ordered by code points."""
        return f'"{column}"'

    @contextmanager
    def drafted(self) -> Iterator[Store[Any]]:
        """Yield a store in which the caller creates a ledger; it becomes visible at the end of the block, or never.

        Raise FileThereError if another process has created a ledger here.
        """
        yield self.store  # for a dialect where a transaction is enough

    # -- the journal --------------------------------------------------------------------------------------------------

    def extend_journal(self, connection: Any) -> str | None:  # noqa: ARG002 - where the journal is one table
        """Add the next partition of the journal if the last one is half full; return its name, or None."""
        return None

    def archived_partition(self, archived: Seal) -> str | None:  # noqa: ARG002 - the same
        """Return the oldest partition of the journal if this seal or an earlier one covers all its rows, else None."""
        return None

    def drop_partition(self, connection: Any, name: str) -> bool:  # noqa: ARG002 - the same
        """Drop a partition of the journal; return False if it does not exist, raise StoreBusyError if it is in use."""
        return False

    def journal_is_full(self, connection: Any) -> bool:  # noqa: ARG002 - where numbers come from a sequence
        """Return whether a row of the journal has the greatest possible number, so that no row can follow."""
        return False

    # -- checks and repair --------------------------------------------------------------------------------------------

    def begin_numbers(self, connection: Any, table: str) -> None:  # noqa: B027 - most need nothing
        """Prepare the sequence of a table so that a change of its value is rolled back with the transaction."""

    @abstractmethod
    def faults(self, connection: Any) -> list[tuple[str, str]]:
        """Return the faults that the database reports for the tables of the ledger: a subject and a message each."""
