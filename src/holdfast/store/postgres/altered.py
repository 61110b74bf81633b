"""Finds constraints, columns and unique indexes on PostgreSQL that differ from those that the migrations make.

Invariants: the expected definitions come from the server itself: it creates the tables as temporary ones, and rolls
back. For a role that may not create temporary tables, only names are compared (`constraints`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import psycopg

from holdfast.store.migrations import RECORD, migrations

if TYPE_CHECKING:
    from holdfast.store.postgres.store import PostgresStore

_TABLES = "c.relnamespace = {schema} AND c.relname LIKE 'holdfast\\_%%' AND NOT c.relispartition"
# Rows of (subject, definition); the name of the schema is removed from each definition.
_DEFINITIONS = (
    "SELECT 'CONSTRAINT ' || k.conname || ' of ' || c.relname, pg_get_constraintdef(k.oid)"
    f" FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid WHERE {_TABLES} AND k.contype IN ('c', 'f', 'u', 'p')"
    " UNION ALL SELECT 'COLUMN ' || c.relname || '.' || a.attname, concat_ws(' ', format_type(a.atttypid, a.atttypmod),"
    " 'identity ' || nullif(a.attidentity::text, ''), 'generated ' || nullif(a.attgenerated::text, ''),"
    " 'default ' || pg_get_expr(d.adbin, d.adrelid), 'collation ' || nullif(a.attcollation, 0)::regcollation::text)"
    " FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
    " LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum"
    f" WHERE {_TABLES} AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped"
    " UNION ALL SELECT 'INDEX ' || x.relname, pg_get_indexdef(x.oid) FROM pg_index i"
    " JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_class c ON c.oid = i.indrelid"
    f" WHERE {_TABLES} AND i.indisunique"
    " UNION ALL SELECT 'TABLE ' || c.relname, 'has rows of ' || h.relname FROM pg_inherits j"
    f" JOIN pg_class c ON c.oid = j.inhparent JOIN pg_class h ON h.oid = j.inhrelid WHERE {_TABLES} AND c.relkind = 'r'"
)
_expected: dict[int, dict[str, str]] = {}  # by version of the server


def altered(store: PostgresStore, connection: Any) -> list[tuple[str, str]]:
    """Return (subject, description) of each constraint, column and unique index that differs, or inherited table."""
    version = connection.info.server_version
    if version not in _expected:
        made = _as_made(store)
        if made is None:
            return []
        _expected[version] = made
    expected, found = _expected[version], _definitions(connection, "to_regnamespace(quote_ident(%s))", store.schema)
    return [
        (_subject(name), "it is not as the migrations make it")
        for name in sorted(found.keys() | expected.keys())
        # `lost` reports what is missing; a column that was added changes no rule.
        if name in found and found[name] != expected.get(name) and (name in expected or not name.startswith("COLUMN"))
    ]


def _as_made(store: PostgresStore) -> dict[str, str] | None:
    connection = store.take()
    sound = False
    try:
        connection.execute("SET LOCAL search_path TO pg_temp")
        for statement in (RECORD, *(text for each in migrations(store.dialect) for text in each.statements())):
            connection.execute(statement)
        return _definitions(connection, "pg_my_temp_schema()", None)
    except psycopg.Error:  # no privilege, or a standby
        return None
    finally:
        connection.rollback()
        connection.forget()
        sound = not connection.closed
        store.pool.give(connection, sound=sound)


def _definitions(connection: Any, schema: str, name: str | None) -> dict[str, str]:
    query = _DEFINITIONS.replace("{schema}", schema)
    rows = connection.execute(query, (name,) * query.count("%s") or None)
    [[space]] = connection.execute(f"SELECT nspname FROM pg_namespace WHERE oid = {schema}", (name,) if name else None)
    return {subject: _without(space, text) for subject, text in rows.fetchall()}


def _without(schema: str, text: str) -> str:
    quoted = '"' + schema.replace('"', '""') + '"'
    return re.sub(rf"(?<![\w\"])({re.escape(schema)}|{re.escape(quoted)}|pg_temp)\.", "", text)


def _subject(name: str) -> str:
    """Return the subject as `lost` names it."""
    return name.partition(" of ")[0]
