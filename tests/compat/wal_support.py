"""What the tests of the write-ahead log share: a log on a clock that the test moves, and a storage beside it.

Invariants: a row of `storage` is one effect, and nothing makes it unique, so that a second one would be seen.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from holdfast import Ledger
from holdfast.compat import Boundary, Effect, Wal, WalEntry
from holdfast.testing import VirtualClock, virtual_world
from tests.compat.support import rows

STORAGE = "CREATE TABLE storage (entry bigint NOT NULL, who text NOT NULL, name text, body text)"
PUT = "INSERT INTO storage (entry, who, name, body) VALUES (:entry, :who, :name, :body)"


def virtual_ledger(url: str, clock: VirtualClock, *, seed: int = 0) -> Ledger:
    """Return a ledger in which nothing happens by itself: another seed is another process."""
    return Ledger(url, world=virtual_world(clock, seed=seed))


def make_storage(ledger: Ledger) -> None:
    with ledger.store.transaction() as transaction:
        transaction.execute(STORAGE)


def put(entry: WalEntry) -> Effect:
    """Return the effect of an entry: one row that says whose it is."""
    key = None if entry.idempotency_key is None else str(entry.idempotency_key)
    return Effect(PUT, {"entry": entry.id, "who": entry.client, "name": key, "body": entry.data.decode()})


def apply(entry: WalEntry, boundary: Boundary) -> dict[str, Any]:
    """Carry an entry out."""
    effect = put(entry)
    boundary.effect(effect.sql, effect.params, rows=1)
    return {"stored": entry.id}


def effects(url: str) -> Counter[int]:
    """Return how often each entry took effect."""
    return Counter(entry for (entry,) in rows(url, "SELECT entry FROM storage"))


def append(wal: Wal, n: int, *, client: str = "alice", operation: str = "Create") -> list[int]:
    """Append entries under the keys 1 to n, and return their ids."""
    return [wal.append_with_idempotency(client, key, operation, f"body {key}".encode())[0] for key in range(1, n + 1)]
