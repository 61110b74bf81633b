"""The application's tables: made beside the ledger's, in its own database, once.

Invariants: the tables are made in one transaction, or not at all; their version stands in the ledger's settings, and
one that this Holdfast does not know is refused; so is a ledger that was restored without them.
"""

from __future__ import annotations

from typing import Any

from holdfast.core.errors import SchemaVersionError, StoreDamagedError
from holdfast.nodd.statements import schema
from holdfast.store import Store

SETTING, VERSION = "nodd_schema", "1"


def prepare(store: Store[Any]) -> bool:
    """Make the application's tables if they are not there; return whether they were made now."""
    if is_prepared(store):
        return False
    with store.transaction() as transaction:
        found = transaction.meta().get(SETTING)
        if found is None:
            for statement in schema(store.dialect):
                transaction.execute(statement)
            transaction.set_meta(SETTING, VERSION)
            return True
    _require_known(store, found)
    return False


def is_prepared(store: Store[Any]) -> bool:
    """Tell whether a ledger has the application's tables; raise if they are not those of this version."""
    with store.reading() as reading:
        found = reading.meta().get(SETTING)
    if found is not None:
        _require_known(store, found)
    return found is not None


def _require_known(store: Store[Any], found: str) -> None:
    if found != VERSION:
        raise SchemaVersionError(
            f"the tables of nodd are of version {found}, and this is made for {VERSION}",
            context={"found": found, "expected": VERSION},
        )
    if not any(name.rpartition(".")[2] == "nodd_units" for name in store.tables_beside()):
        raise StoreDamagedError(
            "the tables of nodd are not here, though this ledger had them: a snapshot does not carry them",
            next_step="Copy the nodd_ tables from where it was made, or `holdfast nodd backfill` a new ledger.",
        )
