"""The meaning of the error codes of a database: whose fault each is, in an effect and elsewhere, and its error.

The tables are `postgres/sqlstates.py` and `sqlite/result_codes.py`; `docs/database-errors.md` is generated from them.

Invariants: every code has one meaning, that of the longest entry that it begins with; an error that is the effect's
becomes EffectError and is charged to its job; one that is the database's is a StoreError, and the write is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from holdfast.core.errors import HoldfastError


class Fault(StrEnum):
    """Whose fault an error is."""

    EFFECT = "effect"  # the job that staged the statement pays for it
    CALLER = "caller"  # who submitted the value, or configured the role, the URL or the schema
    DATABASE = "database"  # the request is right: it is sent again


class Meaning(NamedTuple):
    """One entry: a code, or what a class of codes begins with."""

    code: str
    name: str
    in_effect: Fault
    elsewhere: Fault
    error: type[HoldfastError]  # elsewhere


def meaning_of(code: str, table: Sequence[Meaning], default: Meaning) -> Meaning:
    """Return the longest entry that a code begins with."""
    found = [entry for entry in table if code.startswith(entry.code)]
    return max(found, key=lambda entry: len(entry.code)) if found else default


def page() -> str:
    """Return `docs/database-errors.md`."""
    from holdfast.store.postgres import sqlstates  # noqa: PLC0415 - only where the page is written
    from holdfast.store.sqlite import result_codes  # noqa: PLC0415 - the same

    lines = [
        "# What an error of the database means",
        "",
        "Generated from `src/holdfast/store/postgres/sqlstates.py` and `src/holdfast/store/sqlite/result_codes.py` by",
        "`make golden`: do not edit.",
        "",
        "Every code has one meaning: that of the longest entry that it begins with.",
        "",
        "- **effect**: the statement that a handler staged is wrong. Its attempt fails with `effect_failed`; no other",
        "  job pays for it.",
        "- **caller**: a value, a role, a URL or a schema is wrong. The caller gets the error.",
        "- **database**: the database is unreachable, busy or damaged. A worker writes the same ends again until they",
        "  are written; the attempt is not charged.",
        "",
        "A connection that is lost three times while the effects of one job run or are committed, alone and after",
        "pauses, is the fault of these effects: the job fails with `effect_failed`; so is a prepared statement that is",
        "missing or exists already. A code that ends a connection, raised by a function of the effect, is the effect's",
        "fault too: the server itself says FATAL.",
    ]
    for heading, key, table, default in (
        ("PostgreSQL", "SQLSTATE", sqlstates.TABLE, sqlstates.OTHER),
        ("SQLite", "result code", result_codes.TABLE, result_codes.OTHER),
    ):
        lines += ["", f"## {heading}", "", f"| {key} | name | in an effect | elsewhere | error elsewhere |"]
        lines += ["|---|---|---|---|---|"]
        for entry in (*table, default):
            code = f"`{entry.code}`" if entry.code else "any other"
            lines.append(f"| {code} | {entry.name} | {entry.in_effect} | {entry.elsewhere} | `{entry.error.code}` |")
    return "\n".join(lines) + "\n"
