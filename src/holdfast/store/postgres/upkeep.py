"""The upkeep of a ledger on PostgreSQL: streams for snapshots, the journal's partitions, and what the catalogue shows.

Invariants: see `store.upkeep`, `postgres.partitions`, `postgres.constraints` and `postgres.altered`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import psycopg

from holdfast.core.errors import RefusedByDatabaseError
from holdfast.store.postgres.altered import altered
from holdfast.store.postgres.constraints import lost
from holdfast.store.postgres.partitions import add_partition, archived_partition, drop_partition
from holdfast.store.upkeep import Upkeep

if TYPE_CHECKING:
    from holdfast.core.seals import Seal
    from holdfast.store.postgres.store import PostgresStore

# A time as the one text form that both databases share.
TIME_TEXT = """to_char("{column}" AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""


class PostgresUpkeep(Upkeep):
    """The upkeep of one schema."""

    store: PostgresStore

    def stream(self, connection: Any, sql: str, kinds: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        # COPY gives one row at a time, however large; a cursor would give a page.
        with connection.cursor().copy(f"COPY ({sql}) TO STDOUT") as copy:
            copy.set_types([{"whole": "int8", "flag": "int8", "real": "float8"}.get(kind, "text") for kind in kinds])
            yield from copy.rows()

    def load(self, connection: Any, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        names = ", ".join(f'"{column}"' for column in columns)
        try:
            with connection.cursor().copy(f"COPY {table} ({names}) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
        except psycopg.DataError as error:  # also one without a code: text with a zero character in it
            raise RefusedByDatabaseError(str(error).strip().split("\n")[0]) from error

    def plain(self, column: str, kind: str) -> str:
        forms = {"time": TIME_TEXT, "flag": '"{column}"::integer'}
        return forms.get(kind, '"{column}"').format(column=column)

    def in_order(self, column: str, kind: str) -> str:
        return f'"{column}" COLLATE "C"' if kind == "text" else f'"{column}"'

    def faults(self, connection: Any) -> list[tuple[str, str]]:
        rows = connection.execute(
            "SELECT 'CONSTRAINT ' || k.conname, 'it is not validated on ' || c.relname FROM pg_constraint k"
            " JOIN pg_class c ON c.oid = k.conrelid WHERE c.relnamespace = to_regnamespace(quote_ident(%(schema)s))"
            " AND c.relname LIKE 'holdfast\\_%%' AND NOT k.convalidated"
            " UNION ALL SELECT 'INDEX ' || x.relname, 'it is not valid' FROM pg_index i"
            " JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_class c ON c.oid = i.indrelid"
            " WHERE c.relnamespace = to_regnamespace(quote_ident(%(schema)s)) AND c.relname LIKE 'holdfast\\_%%'"
            " AND NOT (i.indisvalid AND i.indisready AND i.indislive)"
            " UNION ALL SELECT 'TABLE ' || c.relname, 'it has no primary key' FROM pg_class c"
            " WHERE c.relnamespace = to_regnamespace(quote_ident(%(schema)s)) AND c.relkind IN ('r', 'p')"
            " AND NOT c.relispartition AND c.relname LIKE 'holdfast\\_%%' AND c.relname <> 'holdfast_transitions'"
            " AND NOT EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)"
            " UNION SELECT 'TABLE ' || c.relname, 'the triggers of its foreign keys are switched off' FROM pg_trigger t"
            " JOIN pg_class c ON c.oid = t.tgrelid WHERE c.relnamespace = to_regnamespace(quote_ident(%(schema)s))"
            " AND c.relname LIKE 'holdfast\\_%%' AND t.tgisinternal AND t.tgenabled = 'D' ORDER BY 1",
            {"schema": self.store.schema},
        )
        found = [*cast("list[tuple[str, str]]", rows.fetchall()), *lost(connection, self.store.schema)]
        named = {subject for subject, _ in found}  # the definition of a constraint, too, says that it is not validated
        return [*found, *(each for each in altered(self.store, connection) if each[0] not in named)]

    def begin_numbers(self, connection: Any, table: str) -> None:
        # A rollback does not undo `setval`, unless the transaction has altered the sequence before.
        names = connection.execute(
            "SELECT s.oid::regclass::text FROM pg_class s JOIN pg_depend d ON d.classid = 'pg_class'::regclass"
            " AND d.objid = s.oid AND d.deptype IN ('a', 'i') JOIN pg_class t ON t.oid = d.refobjid"
            " WHERE s.relkind = 'S' AND t.relnamespace = to_regnamespace(quote_ident(%s)) AND t.relname = %s",
            (self.store.schema, table),
        ).fetchall()
        for (name,) in names:
            connection.execute(f"ALTER SEQUENCE {name} RESTART")

    def extend_journal(self, connection: Any) -> str | None:
        return add_partition(connection, self.store.schema)

    def archived_partition(self, archived: Seal) -> str | None:
        return archived_partition(self.store, self.store.schema, archived)

    def drop_partition(self, connection: Any, name: str) -> bool:
        return drop_partition(connection, self.store.schema, name)
