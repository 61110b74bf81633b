"""The application's tables, in the database of the ledger.

Invariants: one process creates or upgrades the tables, in one transaction; their version is in the ledger's settings;
an unknown version is refused, and so is a ledger that was restored without the tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.core.errors import SchemaVersionError, StoreDamagedError
from holdfast.nodd.statements import schema
from holdfast.nodd.upgrade import to_version_2
from holdfast.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.store.transaction import Transaction

SETTING, VERSION = "nodd_schema", "2"
UPGRADES: dict[str, Callable[[Transaction], None]] = {"1": to_version_2}  # from that version to the current one


def prepare(store: Store[Any]) -> bool:
    """Create the application's tables, or upgrade them; return whether they were created.

    Raises SchemaVersionError if their version is unknown, and StoreDamagedError if they are missing.
    """
    found = _version(store)
    if found is None or found in UPGRADES:
        if found is not None:
            _require_there(store)
        with store.transaction() as transaction:
            store.lock_schema(transaction.connection)
            found = transaction.settings.read().get(SETTING)
            if found is None:
                for statement in schema(store.dialect):
                    transaction.execute(statement)
                transaction.settings.set(SETTING, VERSION)
                return True
            if found in UPGRADES:
                UPGRADES[found](transaction)
                transaction.settings.set(SETTING, VERSION)
                return False
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


def _require_known(store: Store[Any], found: str) -> None:
    if found != VERSION:
        older = "Stop the workers, then run `holdfast nodd records`, which upgrades the tables."
        raise SchemaVersionError(
            f"the tables of nodd have version {found}; this Holdfast needs version {VERSION}",
            next_step=older if found in UPGRADES else "Use the Holdfast version that created them, or a later one.",
            context={"found": found, "expected": VERSION},
        )
    _require_there(store)


def _require_there(store: Store[Any]) -> None:
    if not any(name.rpartition(".")[2] == "nodd_units" for name in store.upkeep.tables_beside()):
        raise StoreDamagedError(
            "the tables of nodd are missing, although the ledger's settings name them: snapshots do not contain them",
            next_step="Copy the nodd_ tables from the first database, or fill a new ledger (`holdfast nodd backfill`).",
        )
