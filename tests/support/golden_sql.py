"""The golden files of generated SQL: the triggers of both databases, as a new ledger gets them."""

from __future__ import annotations

from holdfast.store import generate

STORE = "src/holdfast/store"


def triggers() -> dict[str, str]:
    """Return the triggers of SQLite, and the functions and triggers of PostgreSQL."""
    return {f"{STORE}/{path.parent.name}/{path.name}": text for path, text in generate.texts().items()}
