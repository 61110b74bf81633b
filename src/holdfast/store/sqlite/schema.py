"""What the database itself has written down of the schema on SQLite: triggers, and tables as the migrations make them.

Invariants: what is expected comes from the migrations themselves, run in memory; spaces do not count.
"""

import sqlite3
from contextlib import closing
from functools import cache

from holdfast.store.migrations import RECORD, migrations, unique_indexes

_MADE = "SELECT type, name, sql FROM sqlite_master WHERE type IN ('table', 'index') AND name GLOB 'holdfast_*'"


def altered(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Return the tables and unique indexes that are not as the migrations make them: a subject and the words."""
    expected, found = _expected(), _made(connection)
    wrong = [name for name, text in expected.items() if name in found and found[name] != text]
    return [(f"{kind.upper()} {name}", "it is not as the migrations make it") for kind, name in sorted(wrong)]


def triggers_of(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the text of every trigger that has one of our names, or stands on one of our tables."""
    rows = connection.execute("SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    return {
        name: sql
        for name, table, sql in rows
        if name.startswith("holdfast_") or str(table).lower().startswith("holdfast_")
    }


def _made(connection: sqlite3.Connection) -> dict[tuple[str, str], str]:
    cursor = connection.cursor()
    cursor.row_factory = None
    return {
        (kind, name): " ".join(text.split())
        for kind, name, text in cursor.execute(_MADE).fetchall()
        if isinstance(text, str) and (kind == "table" or name in unique_indexes("sqlite"))
    }


@cache
def _expected() -> dict[tuple[str, str], str]:
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in (RECORD, *(text for migration in migrations("sqlite") for text in migration.statements())):
            connection.execute(statement)
        return _made(connection)
