"""Rewrites the triggers, unique indexes and sequences of an existing ledger, and begins new epochs.

Invariants: each function uses one transaction, that of the caller or its own; the result equals that of a new ledger.
"""

import re
from typing import Any

from holdfast.store.migrations import Rules, door_is_open, machine_rows, plan, require_ledger, rules_of, unique_indexes
from holdfast.store.store import Store
from holdfast.store.transaction import Reading, Transaction

_PARTITION = re.compile(r"_p\d+_")


def rewrite_enforcement(store: Store[Any], transaction: Transaction, *, indexes: bool = False) -> None:
    """Rewrite the digests of the machines, every trigger and the sequences; with `indexes`, only the lost indexes."""
    connection = transaction.connection
    statements = (
        lost_indexes(store, connection) if indexes else rewritten(store, connection, rules_of(store, connection))
    )
    for statement in statements:
        store.execute(connection, statement)
    if not indexes:
        advance_sequences(store, transaction)


def advance_sequences(store: Store[Any], transaction: Transaction) -> None:
    """Advance each sequence that is behind to the greatest id of its table."""
    for table, _, greatest in behind(transaction):
        store.upkeep.begin_numbers(transaction.connection, table)
        transaction.run("advance_sequence", table=table, value=greatest)


def rewritten(store: Store[Any], connection: Any, rules: Rules) -> list[str]:
    """Return the statements that write the digests of the machines and every trigger again, and drop foreign ones."""
    return [
        *machine_rows(), *shut_doors(store, connection), *store.foreign_enforcement(connection, rules),
        *store.enforcement(connection, rules),
    ]  # fmt: skip


def behind(reading: Reading) -> list[tuple[str, int, int]]:
    """Return the tables whose sequence is behind: the table, the last number of the sequence, the greatest id."""
    last = dict(reading.run("read_sequences"))
    greatest = [(f"holdfast_{name}", int(n)) for name, n in reading.run("greatest_numbers")]
    return [(table, int(last.get(table, 0)), n) for table, n in greatest if int(last.get(table, 0)) < n]


def begin_epoch(store: Store[Any]) -> int:
    """Begin the next epoch and return it; journal rows from now on sort after all earlier rows."""
    with store.transaction() as transaction:
        connection = transaction.connection
        require_ledger(store, connection)
        epoch = rules_of(store, connection).epoch + 1
        prepare(store, connection, epoch)
        with transaction.maintenance.open(who="holdfast", why=f"epoch {epoch} begins"):
            transaction.settings.set("epoch", str(epoch))
    return epoch


def prepare(store: Store[Any], connection: Any, epoch: int, *, governed: bool = False) -> None:
    """Create the schema if there is none, of a governed ledger or not, and write every trigger for the next epoch."""
    store.lock_schema(connection)
    for statement in plan(store, connection, governed=governed, epoch=epoch).statements:
        store.execute(connection, statement)


def shut_doors(store: Store[Any], connection: Any) -> list[str]:
    """Return the statements that remove a door that a finished transaction left open, without journalling it."""
    if not door_is_open(store, connection):
        return []
    on = "" if store.dialect == "sqlite" else " ON holdfast_maintenance"
    return [f"DROP TRIGGER IF EXISTS holdfast_maintenance_shut{on}", "DELETE FROM holdfast_maintenance"]


def lost_indexes(store: Store[Any], connection: Any) -> list[str]:
    """Return the statements that create the missing unique indexes."""
    made = unique_indexes(store.dialect)
    lost = sorted(store.missing_indexes(connection))
    # The indexes of a later partition of the journal are those of the first, with the name of the partition.
    texts = {}
    for name in lost:
        partition = _PARTITION.search(name)
        text = made[_PARTITION.sub("_p0_", name)]
        texts[name] = text.replace("_p0", partition[0][:-1]) if partition else text
    return [statement for name in lost for statement in (f"DROP INDEX IF EXISTS {name}", texts[name])]
