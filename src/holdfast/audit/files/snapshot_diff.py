"""The differences between two ledgers or snapshots.

Invariants: both are read side by side, in order, in constant memory; every row and column of a snapshot is compared,
except for what a restore must change: the epoch, and journal rows and seals of epochs that only one of the two has.
Moves in such an epoch are found all the same, because they change the row of a record.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from holdfast.audit.files.framed import GZIP
from holdfast.audit.files.snapshot import (
    PROGRESS_ROWS,
    LiveLedger,
    Progress,
    SnapshotFile,
    SnapshotHeader,
    SnapshotSource,
)
from holdfast.core.errors import InputError
from holdfast.store import open_store
from holdfast.store.tables import TABLES, Row, Table, table_named

SHOWN = 20
# A restore changes the epoch; the other settings repeat the last seal.
_OWN = frozenset({"epoch", "seal_head", "seal_floor"})
_EPOCHS = {name: table_named(name).names.index("epoch") for name in ("journal", "seals")}

Key = tuple[Any, ...]


class TableDifferences(msgspec.Struct, kw_only=True):
    """The differences of one table: their numbers, and the keys of the first ones."""

    only_a: int = 0
    only_b: int = 0
    changed: int = 0
    keys_only_a: list[Key] = []
    keys_only_b: list[Key] = []
    keys_changed: list[Key] = []

    @property
    def total(self) -> int:
        return self.only_a + self.only_b + self.changed

    def add(self, which: str, key: Key) -> None:
        """Count a row that differs, and keep its key if it is among the first."""
        setattr(self, which, getattr(self, which) + 1)
        shown: list[Key] = getattr(self, f"keys_{which}")
        if len(shown) < SHOWN:
            shown.append(key)


class SnapshotComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two sources and their differences."""

    a: SnapshotHeader
    b: SnapshotHeader
    rows: int  # compared
    tables: dict[str, TableDifferences]  # only those that differ

    @property
    def same(self) -> bool:
        return not self.tables


def diff(a: str, b: str, *, schema: str = "public", progress: Progress | None = None) -> SnapshotComparison:
    """Compare two snapshots or ledgers, each given as a file or a URL, and return the differences."""
    with ExitStack() as opened:
        one, other = (opened.enter_context(_source(place, schema)) for place in (a, b))
        epoch = min(one.header.epoch, other.header.epoch)
        tables, seen = {}, 0
        for table in TABLES:
            found = TableDifferences()
            for key, left, right in _pairs(
                table, _compared_rows(table, one, epoch), _compared_rows(table, other, epoch)
            ):
                seen += 1
                if left != right:
                    found.add("only_a" if right is None else "only_b" if left is None else "changed", key)
                if progress and seen % PROGRESS_ROWS == 0:
                    progress("comparing", seen, 0)
            if found.total:
                tables[table.name] = found
        for source in (one, other):
            if isinstance(source, SnapshotFile):
                source.finish()
        return SnapshotComparison(a=one.header, b=other.header, rows=seen, tables=tables)


@contextmanager
def _source(place: str, schema: str) -> Iterator[SnapshotSource]:
    """Open a snapshot, if the place is a compressed file, or else a ledger."""
    if "://" not in place and _is_compressed(place):
        with SnapshotFile(Path(place)) as snapshot:
            yield snapshot
        return
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-") as directory,
        open_store(place, schema=schema) as store,
        store.upkeep.long_view(Path(directory)) as reading,
    ):
        yield LiveLedger(store, reading)


def _is_compressed(place: str) -> bool:
    try:
        with Path(place).open("rb") as file:
            return file.read(len(GZIP)) == GZIP
    except (OSError, ValueError) as error:
        raise InputError(
            f"{place!r} cannot be read: {getattr(error, 'strerror', error)}",
            next_step="Give a snapshot file, or the file or URL of a ledger.",
        ) from error


def _compared_rows(table: Table, source: SnapshotSource, epoch: int) -> Iterator[Row]:
    if table.name == "meta":
        return (row for row in source.rows(table) if row[0] not in _OWN)
    if table.name in _EPOCHS:
        column = _EPOCHS[table.name]
        return (row for row in source.rows(table) if row[column] <= epoch)
    return source.rows(table)


def _pairs(
    table: Table, a: Iterator[Row], b: Iterator[Row]
) -> Iterator[tuple[Key, Sequence[Any] | None, Sequence[Any] | None]]:
    """Yield each key with its row on both sides; both sides are in the order of keys."""
    left, right = next(a, None), next(b, None)
    while left is not None or right is not None:
        left_key = None if left is None else table.key_of(left)
        right_key = None if right is None else table.key_of(right)
        if right_key is None or (left_key is not None and left_key < right_key):
            yield left_key or (), left, None
            left = next(a, None)
        elif left_key is None or right_key < left_key:
            yield right_key, None, right
            right = next(b, None)
        else:
            yield left_key, left, right
            left, right = next(a, None), next(b, None)
