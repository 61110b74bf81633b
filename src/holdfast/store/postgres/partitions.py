"""The partitions of the journal on PostgreSQL: the next one is there before it is needed, an archived one is dropped.

Invariants: a partition has the unique indexes and the triggers of the first one before a row can reach it; adding one
does not keep writers out; only a partition that gets no more rows, and whose every row is archived, is dropped, and the
process that drops it waits for writers for at most LOCK_MS.
"""

import re
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.errors import invariant

if TYPE_CHECKING:
    from holdfast.core.seals import Seal
    from holdfast.store.store import Store

FIRST = "holdfast_journal_p0"
ROWS = 5_000_000  # of each partition after the first
LOCK_MS = 250  # less than what PostgreSQL takes for a deadlock, so that the process that drops is the one that gives up
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
        if bounds is None:  # it was dropped after this view began: bounds are read as they are now
            continue
        match = _BOUNDS.search(bounds)
        invariant(match, f"the bounds of {name} cannot be read")
        if match:
            found.append(Partition(name, int(match[1] or 0), int(match[2])))
    return sorted(found, key=lambda partition: partition.first)


# ---------------------------------------------------------------------------------------------------------------------
# Adding


def add_partition(connection: Any, schema: str, rows: int = ROWS) -> str | None:
    """Add partitions until the last one is less than half full; return the name of the last one added, if any."""
    name = None
    [[seq]] = connection.execute("SELECT last_value FROM holdfast_journal_seq").fetchall()
    last = partitions(connection, schema)[-1]
    while seq >= last.first + (last.end - last.first) // 2:
        name = f"holdfast_journal_p{int(last.name.rpartition('p')[2]) + 1}"
        last = Partition(name, last.end, last.end + rows)
        for statement in _made(last):
            connection.execute(statement)
    return name


def indexes(partition: str) -> list[str]:
    """Return the statements that make a partition's own unique indexes."""
    one_job = "WHERE machine = 'JOB' AND grant_id IS NOT NULL"
    return [
        f"CREATE UNIQUE INDEX {partition}_subject ON {partition} (subject, version, machine)",
        f"CREATE UNIQUE INDEX {partition}_grant ON {partition} (grant_id) {one_job}",
    ]


def _made(partition: Partition) -> list[str]:
    name = partition.name
    bounds = f"FROM ({partition.first}) TO ({partition.end})"
    # Made apart and then attached: that lets others write meanwhile, which CREATE … PARTITION OF does not.
    return [
        f"CREATE TABLE {name} (LIKE holdfast_journal INCLUDING DEFAULTS INCLUDING CONSTRAINTS)",
        *indexes(name),
        f"ALTER TABLE holdfast_journal ATTACH PARTITION {name} FOR VALUES {bounds}",
        *(
            text
            for (table, trigger), definition in partition_triggers(name).items()
            for text in (definition, f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {trigger}")
        ),
    ]


def partition_triggers(partition: str) -> dict[tuple[str, str], str]:
    """Return the triggers that a journal partition needs of its own: those of statements are not inherited."""
    texts = {"truncate": before_truncate(partition), "written": after_written(partition)}
    return {
        (partition, f"{partition}_{name}"): f"CREATE TRIGGER {partition}_{name} {text}" for name, text in texts.items()
    }


def after_written(table: str) -> str:
    return (
        f"AFTER INSERT ON {table} REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT"
        f" EXECUTE FUNCTION {'holdfast_aborted' if table == 'holdfast_aborted' else 'holdfast_journal'}_written()"
    )


def before_truncate(table: str) -> str:
    return f"BEFORE TRUNCATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION holdfast_truncate()"


# ---------------------------------------------------------------------------------------------------------------------
# Dropping


def archived_partition(store: "Store[Any]", schema: str, archived: "Seal") -> str | None:
    """Return the oldest partition if every row that it has, or can ever get, is closed by this seal or one before it.

    Seals keep the number up to which all rows belong to transactions that they have closed. Nothing hashes that number,
    so the rows are looked at too. Nothing is locked.
    """
    with store.reading() as reading:
        connection = reading.connection
        [oldest, *later] = partitions(connection, schema)
        if (
            not later
            or reading.seals.horizon(archived.epoch, archived.last_xid, below=archived.last_seq) < oldest.end - 1
        ):
            return None
        return None if _any_row_after(connection, oldest, archived) else oldest.name


def _any_row_after(connection: Any, partition: Partition, archived: "Seal") -> bool:
    # This reads the journal, not the partition by its name, because another process may drop the partition now.
    [[found]] = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM holdfast_journal WHERE seq < %s AND (epoch, xid, seq) > (%s, %s, %s))",
        (partition.end, *archived.end),
    ).fetchall()
    return bool(found)


def drop_partition(connection: Any, schema: str, name: str) -> bool:
    """Drop a partition whose rows are archived: lock the journal for that moment, or give up almost at once."""
    connection.execute(f"SET LOCAL lock_timeout TO {LOCK_MS}")
    connection.execute("LOCK TABLE holdfast_journal IN ACCESS EXCLUSIVE MODE")
    if name not in [partition.name for partition in partitions(connection, schema)]:
        return False
    connection.execute(f"DROP TABLE {name}")
    return True
