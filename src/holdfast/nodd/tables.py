"""The application's tables: made beside the ledger's, in its own database, once.

Invariants: the tables are made, or brought up to date, in one transaction or not at all, by one process; their version
stands in the ledger's settings, and one that this Holdfast does not know is refused; so is a ledger that was restored
without them.
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
UPGRADES: dict[str, Callable[[Transaction], None]] = {"1": to_version_2}  # from there to this version


def prepare(store: Store[Any]) -> bool:
    """Make the application's tables if they are not there, or bring them up to date; return whether they were made."""
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
    """Tell whether a ledger has the application's tables; raise if they are not those of this version."""
    found = _version(store)
    if found is not None:
        _require_known(store, found)
    return found is not None


def _version(store: Store[Any]) -> str | None:
    with store.reading() as reading:
        return reading.settings.read().get(SETTING)


def _require_known(store: Store[Any], found: str) -> None:
    if found != VERSION:
        older = "Stop the workers, and run `holdfast nodd records`, which brings them up to date."
        raise SchemaVersionError(
            f"the tables of nodd are of version {found}, and this is made for {VERSION}",
            next_step=older if found in UPGRADES else "Use the Holdfast that they were made by, or a later one.",
            context={"found": found, "expected": VERSION},
        )
    _require_there(store)


def _require_there(store: Store[Any]) -> None:
    if not any(name.rpartition(".")[2] == "nodd_units" for name in store.tables_beside()):
        raise StoreDamagedError(
            "the tables of nodd are not here, though this ledger had them: a snapshot does not carry them",
            next_step="Copy the nodd_ tables from where it was made, or `holdfast nodd backfill` a new ledger.",
        )
