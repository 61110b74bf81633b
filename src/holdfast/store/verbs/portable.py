"""Verbs of snapshots: whole tables as rows that are equal on both databases.

Invariants: rows are plain (see `store.tables`) and in the order of their key; writing rows needs an open maintenance
door.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.store.statements import encoded
from holdfast.store.tables import DUTY, NUMBERED, PREFIX, Column, Kind, Row, Table
from holdfast.store.verbs.base import Verbs, WritingVerbs

if TYPE_CHECKING:
    from holdfast.store.store import Store


class PortableReads(Verbs):
    """Reads whole tables."""

    def rows_of(self, table: Table) -> Iterator[Row]:
        """Yield the rows of a table in the order of its key."""
        store = self._store
        columns = ", ".join(_plain(store, column) for column in table.columns)
        key = ", ".join(store.upkeep.in_order(column.name, column.kind) for column in table.columns[: len(table.key)])
        here = f" WHERE substr(name, 1, {len(DUTY)}) <> '{DUTY}'" if table.name == "meta" else ""
        sql = f"SELECT {columns} FROM {table.full_name}{here} ORDER BY {key}"
        kinds = [column.kind for column in table.columns]
        return store.upkeep.stream(self._session.connection, sql, kinds)

    def count_of(self, table: Table) -> int:
        [[n]] = self._session.execute(f"SELECT count(*) FROM {table.full_name}")
        return int(n)

    def sequences(self) -> dict[str, int]:
        """Return the last number of the sequence of each table."""
        found = {name.removeprefix(PREFIX): int(n) for name, n in self._run("read_sequences")}
        return {name: found.get(name, 0) for name in NUMBERED}


class PortableWrites(PortableReads, WritingVerbs):
    """Writes whole tables."""

    def occupied(self) -> list[str]:
        """Return the tables that contain work or history; none in an empty ledger."""
        return [name for (name,) in self._run("occupied_tables")]

    def orphaned(self) -> list[str]:
        """Return the tables that contain a row without the job or the call that it belongs to."""
        return [name for (name,) in self._run("orphaned_tables")]

    def advance(self, given_out: Mapping[str, int]) -> None:
        """Set the sequence of each table to at least the given number."""
        for name in NUMBERED:
            value = given_out.get(name, 0)
            if value > 0:
                self._run("advance_sequence", table=PREFIX + name, value=value)

    def bring(self, table: Table, rows: Sequence[Row]) -> None:
        """Insert rows with all their columns; needs an open maintenance door."""
        if table.shared:
            self._run("make_room", table=table.name, names=encoded([row[0] for row in rows]))
        self._store.upkeep.load(self._session.connection, table.full_name, table.names, rows)

    def end_leases(self) -> int:
        """Expire every lease now; return how many there were."""
        return len(self._run("end_leases", now=self._store.time_parameter()))


def _plain(store: Store[Any], column: Column) -> str:
    if column.kind is Kind.REAL:
        # JSON has no NaN and no infinity: they become null.
        return f'CASE WHEN "{column.name}" BETWEEN -1e308 AND 1e308 THEN "{column.name}" END'
    return store.upkeep.plain(column.name, column.kind)
