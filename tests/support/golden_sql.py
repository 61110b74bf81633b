"""The golden files of the store: the triggers of both databases, as a new ledger gets them, and its table of errors."""

from __future__ import annotations

from holdfast.store import generate, meanings

STORE = "src/holdfast/store"


def triggers() -> dict[str, str]:
    """Return the triggers of SQLite, and the functions and triggers of PostgreSQL."""
    return {f"{STORE}/{path.parent.name}/{path.name}": text for path, text in generate.texts().items()}


def database_errors() -> dict[str, str]:
    """Return the page of what the error codes of both databases mean."""
    return {"docs/database-errors.md": meanings.page()}
