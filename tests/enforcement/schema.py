"""Everything that the catalog of a database says about the ledger's schema, in a form that can be compared.

Invariants: object ids, sizes and statistics are left out; two ledgers with equal dumps enforce the same.
"""

from __future__ import annotations

from typing import Any

from tests.enforcement.raw import Client

_POSTGRES = {
    "relations": """
        SELECT c.relname::text, c.relkind::text, c.relpersistence::text, c.relispartition, c.relrowsecurity,
               pg_get_expr(c.relpartbound, c.oid), pg_get_partkeydef(c.oid)
          FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace""",
    "columns": """
        SELECT c.relname::text, a.attname::text, a.attnum, format_type(a.atttypid, a.atttypmod), a.attnotnull,
               a.attidentity::text, a.attgenerated::text, pg_get_expr(d.adbin, d.adrelid)
          FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
          LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
         WHERE c.relnamespace = current_schema()::regnamespace AND a.attnum > 0 AND NOT a.attisdropped""",
    "constraints": """
        SELECT conrelid::regclass::text, conname::text, pg_get_constraintdef(oid), condeferrable, condeferred
          FROM pg_constraint WHERE connamespace = current_schema()::regnamespace""",
    "indexes": "SELECT tablename::text, indexname::text, indexdef FROM pg_indexes WHERE schemaname = current_schema()",
    "triggers": """
        SELECT t.tgrelid::regclass::text, t.tgname::text, pg_get_triggerdef(t.oid, true), t.tgenabled::text,
               t.tgdeferrable, t.tginitdeferred, t.tgparentid <> 0
          FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
         WHERE c.relnamespace = current_schema()::regnamespace AND NOT t.tgisinternal""",
    "functions": """
        SELECT proname::text, prosrc, prosecdef, provolatile::text, proconfig::text, pg_get_function_arguments(oid)
          FROM pg_proc WHERE pronamespace = current_schema()::regnamespace""",
    "views": """
        SELECT c.relname::text, pg_get_viewdef(c.oid), obj_description(c.oid, 'pg_class')
          FROM pg_class c WHERE c.relkind = 'v' AND c.relnamespace = current_schema()::regnamespace""",
    "sequences": "SELECT sequencename::text, data_type::text, start_value, increment_by, cache_size FROM pg_sequences",
}
_SQLITE = {
    "objects": "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'",
}


def schema_of(client: Client) -> dict[str, list[tuple[Any, ...]]]:
    queries = _POSTGRES if client.dialect == "postgres" else _SQLITE
    return {name: sorted(client.run(sql), key=repr) for name, sql in queries.items()}


def tables_of(client: Client) -> list[str]:
    if client.dialect == "sqlite":
        rows = client.run("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    else:
        rows = client.run("SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema()")
    return sorted(name for (name,) in rows)


def everything_in(url: str) -> dict[str, Any]:
    """Return the schema and every row of every table."""
    client = Client(url)
    try:
        rows = {table: sorted(client.run(f'SELECT * FROM "{table}"'), key=repr) for table in tables_of(client)}
        return {**schema_of(client), "rows": rows}
    finally:
        client.close()
