"""The application's own statements, hand-written for each database, by name.

Invariants: both dialects have the same files and the same names; values are always parameters, written `:name`.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from holdfast.store.statements import gathered

if TYPE_CHECKING:
    from holdfast.store.reading import Reading

FILES = ("admission.sql", "ingest.sql", "rejected.sql", "catalog.sql", "operations.sql", "checks.sql", "upgrade.sql")


@cache
def statements(dialect: str) -> dict[str, tuple[str, ...]]:
    """Return every statement of a dialect by its name."""
    return gathered(f"holdfast.nodd.sql.{dialect}", FILES)


@cache
def schema(dialect: str) -> tuple[str, ...]:
    """Return the statements that make the tables."""
    text = files(f"holdfast.nodd.sql.{dialect}").joinpath("schema.sql").read_text(encoding="utf-8")
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return tuple(part.strip() for part in "\n".join(lines).split(";") if part.strip())


def ask(reading: Reading, name: str, **params: Any) -> list[tuple[Any, ...]]:
    """Run a named statement and return the rows of its last part."""
    rows: list[tuple[Any, ...]] = []
    for part in statements(reading.dialect)[name]:
        _, rows = reading.ask(part, params)
    return rows
