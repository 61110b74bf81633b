"""The partitions of the journal on PostgreSQL: the next one is there before it is needed, an archived one is dropped.

Invariants: a partition has the unique indexes and the triggers of the first one before a row can reach it; adding one
does not keep writers out; only a partition that the journal has left behind is dropped.
"""

import re
from typing import Any

import msgspec

from holdfast.core.errors import invariant
from holdfast.store.postgres.triggers import partition_triggers

FIRST = "holdfast_journal_p0"
ROWS = 5_000_000  # of each partition after the first
_BOUNDS = re.compile(r"FROM \((?:'?(\d+)'?|MINVALUE)\) TO \('?(\d+)'?\)")


class Partition(msgspec.Struct, frozen=True):
    """A part of the journal: the rows with `first <= seq < end`."""

    name: str
    first: int
    end: int


def partitions(connection: Any, schema: str) -> list[Partition]:
    """Return the journal's partitions, oldest first; none where there is no journal yet."""
    rows = connection.execute(
        "SELECT c.relname::text, pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i"
        " JOIN pg_class c ON c.oid = i.inhrelid"
        " WHERE i.inhparent = to_regclass(quote_ident(%s) || '.holdfast_journal')",
        (schema,),
    ).fetchall()
    found = []
    for name, bounds in rows:
        match = _BOUNDS.search(bounds)
        invariant(match, f"the bounds of {name} cannot be read")
        if match:
            found.append(Partition(name, int(match[1] or 0), int(match[2])))
    return sorted(found, key=lambda partition: partition.first)


def add_partition(connection: Any, schema: str, rows: int = ROWS) -> str | None:
    """Add the next partition once the last one is half full, and return its name; None if it is not time yet."""
    last = partitions(connection, schema)[-1]
    [[seq]] = connection.execute("SELECT last_value FROM holdfast_journal_seq").fetchall()
    if seq < last.first + (last.end - last.first) // 2:
        return None
    name = f"holdfast_journal_p{int(last.name.rpartition('p')[2]) + 1}"
    for statement in _made(name, last.end, last.end + rows):
        connection.execute(statement)
    return name


def drop_partition(connection: Any, name: str) -> None:
    """Drop a partition whose rows are archived."""
    connection.execute(f"DROP TABLE {name}")


def indexes(partition: str) -> list[str]:
    """Return the statements that make a partition's own unique indexes."""
    one_job = "WHERE machine = 'JOB' AND grant_id IS NOT NULL"
    return [
        f"CREATE UNIQUE INDEX {partition}_subject ON {partition} (machine, subject, version)",
        f"CREATE UNIQUE INDEX {partition}_grant ON {partition} (grant_id) {one_job}",
    ]


def _made(name: str, first: int, end: int) -> list[str]:
    # Made apart and then attached: that lets others write meanwhile, which CREATE … PARTITION OF does not.
    return [
        f"CREATE TABLE {name} (LIKE holdfast_journal INCLUDING DEFAULTS INCLUDING CONSTRAINTS)",
        *indexes(name),
        f"ALTER TABLE holdfast_journal ATTACH PARTITION {name} FOR VALUES FROM ({first}) TO ({end})",
        *(
            text
            for (table, trigger), definition in partition_triggers(name).items()
            for text in (definition, f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {trigger}")
        ),
    ]
