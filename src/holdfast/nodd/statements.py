"""The application's own SQL statements, by name.

Invariants: a statement that both databases understand is written once, in `sql/`; a dialect's folder has only those
that differ, under the same names in both; no name is in both places. Values are always parameters, written `:name`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.store.statements import Statements, gathered

if TYPE_CHECKING:
    from holdfast.store.transaction import Reading

FOLDER = Path(__file__).parent / "sql"


@cache
def statements(dialect: str) -> Statements:
    return gathered(dialect, FOLDER, FOLDER / dialect)


@cache
def schema(dialect: str) -> tuple[str, ...]:
    """Return the statements that make the tables, their indexes and the view of records."""
    return (*_parts(dialect, "schema.sql"), *_parts(dialect, "ignored.sql"), *_parts(dialect, "view.sql"))


@cache
def upgrade(dialect: str) -> tuple[str, ...]:
    """Return the statements that turn the tables of version 2 into those of version 3."""
    return ("DROP VIEW nodd_wal_records", *_parts(dialect, "ignored.sql"), *_parts(dialect, "view.sql"))


def _parts(dialect: str, file: str) -> tuple[str, ...]:
    text = (FOLDER / dialect / file).read_text(encoding="utf-8")
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return tuple(part.strip() for part in "\n".join(lines).split(";") if part.strip())


def run_statement(reading: Reading, name: str, **params: Any) -> list[tuple[Any, ...]]:
    """Run a named statement and return the rows of its last part."""
    rows: list[tuple[Any, ...]] = []
    for part in statements(reading.dialect)[name]:
        _, rows = reading.query(part, params)
    return rows
