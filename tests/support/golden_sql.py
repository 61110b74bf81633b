"""The golden files of generated SQL: the triggers of both dialects, as a new ledger gets them."""

from __future__ import annotations

from holdfast.store.postgres import triggers as postgres
from holdfast.store.sqlite import triggers as sqlite

HEAD = "-- Generated: `make golden` writes this file, and `make verify` compares it.\n\n"
SCHEMA = '"holdfast".'
STORE = "src/holdfast/store"


def triggers() -> dict[str, str]:
    """Return the triggers of SQLite, and the functions and triggers of PostgreSQL."""
    functions = (
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $holdfast$\n{body}\n$holdfast$"
        for name, body in postgres.functions(SCHEMA, 1).items()
    )
    return {
        f"{STORE}/sqlite/triggers.golden.sql": _file(*sqlite.triggers(1).values()),
        f"{STORE}/postgres/triggers.golden.sql": _file(*functions, *postgres.triggers().values()),
    }


def _file(*statements: str) -> str:
    return HEAD + "\n\n".join(f"{statement};" for statement in statements) + "\n"
