"""Ledgers as an earlier schema version left them, from kept SQL texts.

Invariants: a text is frozen once it is kept; it has the tables, the triggers and the rows of its version.
"""

from __future__ import annotations

from pathlib import Path

from tests.enforcement.raw import Client

TEXTS = Path(__file__).parent.parent / "store"
SEPARATOR = "\n-- ----\n"


def build(url: str, version: int) -> None:
    """Make an empty database a ledger of a schema version."""
    client = Client(url)
    text = (TEXTS / f"version_{version}" / f"{client.dialect}.sql").read_text(encoding="utf-8")
    for statement in text.split(SEPARATOR)[1:]:
        client.run(statement)
    client.commit()
    client.close()
