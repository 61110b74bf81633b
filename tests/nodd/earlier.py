"""Ledgers whose application tables were made, and written to, by version 1."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.nodd import ingest_attempt, tables
from holdfast.nodd.statements import statements

HERE = Path(__file__).parent / "version_1"
FENCE = "UPDATE nodd_units SET superseded_by = NULL WHERE wal_id = :wal_id AND superseded_by IS NULL"


def schema_1(dialect: str) -> list[str]:
    """Return the statements that made the tables of version 1."""
    lines = (HERE / f"{dialect}.sql").read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("--"))
    return [part.strip() for part in text.split(";") if part.strip()]


@contextmanager
def as_version_1() -> Iterator[None]:
    """Let tables be made as version 1 made them, and commits write what its commits wrote."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "VERSION", "1")
        patch.setattr(tables, "UPGRADES", {})
        patch.setattr(tables, "schema", schema_1)
        patch.setattr(ingest_attempt, "statements", lambda dialect: {**statements(dialect), "settle_unit": (FENCE,)})
        yield
