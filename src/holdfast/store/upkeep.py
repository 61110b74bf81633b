"""What snapshots, restores, retention, repair and checks need of a database as a whole, beside transactions.

Invariants: nothing here is on the path of a job; a dialect's part is imported when it is first used (`Store.upkeep`).
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
    """The upkeep of one ledger's database. Dialects override what is different there."""

    def __init__(self, store: Store[Any]) -> None:
        self.store = store

    # -- snapshots ----------------------------------------------------------------------------------------------------

    @contextmanager
    def long_view(self, beside: Path) -> Iterator[Reading]:  # noqa: ARG002 - where a long view costs others little
        """Yield a view that may be read for long; a dialect that needs a copy puts it into the directory `beside`."""
        with self.store.reading() as reading:
            yield reading

    @abstractmethod
    def stream(self, connection: Any, sql: str, kinds: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query, whose columns are of these kinds, without holding more than a few."""

    @abstractmethod
    def load(self, connection: Any, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Insert many plain rows."""

    def tables_beside(self) -> list[str]:
        """Return the tables of the database that are not Holdfast's, without writing anything."""
        with self.store.reading() as reading:
            return [name for (name,) in reading.run("tables_beside")]

    def plain(self, column: str, kind: str) -> str:  # noqa: ARG002 - where what is stored is plain already
        """Return the expression that gives a column's plain value: text, a number, or null."""
        return f'"{column}"'

    def in_order(self, column: str, kind: str) -> str:  # noqa: ARG002 - where text is compared by code point already
        """Return the expression that orders by a column, and text by its code points."""
        return f'"{column}"'

    @contextmanager
    def drafted(self) -> Iterator[Store[Any]]:
        """Yield a store to make a ledger in, which is in this place when the block ends, whole or not at all.

        Raise FileThereError if another process has made a ledger here meanwhile.
        """
        yield self.store  # where a transaction is enough

    # -- the journal --------------------------------------------------------------------------------------------------

    def extend_journal(self, connection: Any) -> str | None:  # noqa: ARG002 - where the journal is one table
        """Add the journal's next partition if it is time to, and return its name."""
        return None

    def archived_partition(self, archived: Seal) -> str | None:  # noqa: ARG002 - the same
        """Return the journal's oldest partition if all its rows are closed by this seal or one before it."""
        return None

    def drop_partition(self, connection: Any, name: str) -> bool:  # noqa: ARG002 - the same
        """Drop a partition of the journal; False if it is gone already, StoreBusyError if writers are in the way."""
        return False

    def journal_is_full(self, connection: Any) -> bool:  # noqa: ARG002 - where numbers come from a sequence
        """Return whether a row of the journal has the greatest number there is, so that no row can follow it."""
        return False

    # -- checks and repair --------------------------------------------------------------------------------------------

    def begin_numbers(self, connection: Any, table: str) -> None:  # noqa: B027 - most need nothing
        """Let a change of where a table's ids go on be undone with the transaction, where it would not be."""

    @abstractmethod
    def faults(self, connection: Any) -> list[tuple[str, str]]:
        """Return what the database itself finds wrong with the ledger's tables: a subject, and the words."""
