"""The application's tables, in the database of the ledger.

Invariants: one process creates the tables, in one transaction; their version is in the ledger's settings; the version
before is upgraded, any other is refused, and so is a ledger that was restored without the tables.
"""

from __future__ import annotations

from typing import Any

from holdfast.core.errors import SchemaVersionError, StoreDamagedError
from holdfast.nodd.statements import schema, upgrade
from holdfast.store import Store

SETTING, VERSION = "nodd_schema", "3"
BEFORE = "2"  # has no table of ignored records, and another view; `prepare` upgrades it


def prepare(store: Store[Any]) -> bool:
    """Create the application's tables if they do not exist, or upgrade them; return whether they were created.

    Raises SchemaVersionError if their version is another one, and StoreDamagedError if they are missing.
    """
    found = _version(store)
    if found in (None, BEFORE):
        with store.transaction() as transaction:
            store.lock_schema(transaction.connection)
            found = transaction.settings.read().get(SETTING)
            if found in (None, BEFORE):
                for statement in schema(store.dialect) if found is None else upgrade(store.dialect):
                    transaction.execute(statement)
                transaction.settings.set(SETTING, VERSION)
                return found is None
    _require_known(store, found)
    return False


def is_prepared(store: Store[Any]) -> bool:
    """Return whether a ledger has the application's tables; raise SchemaVersionError if they are of another version."""
    found = _version(store)
    if found is not None:
        _require_known(store, found)
    return found is not None


def _version(store: Store[Any]) -> str | None:
    with store.reading() as reading:
        return reading.settings.read().get(SETTING)


def _require_known(store: Store[Any], found: str | None) -> None:
    if found not in (VERSION, BEFORE):
        raise SchemaVersionError(
            f"the tables of nodd have version {found}; this Holdfast needs version {VERSION}",
            next_step="Use the Holdfast version that created them.",
            context={"found": found, "expected": VERSION},
        )
    if not any(name.rpartition(".")[2] == "nodd_units" for name in store.upkeep.tables_beside()):
        raise StoreDamagedError(
            "the tables of nodd are missing, although the ledger's settings name them: snapshots do not contain them",
            next_step="Copy the nodd_ tables of the first database, or fill a ledger: `holdfast nodd backfill --help`.",
        )
