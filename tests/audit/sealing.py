"""Sealed ledgers, ways to tamper with them, and the expected seals, computed without the code under test.

Invariants: `loose_rows` and `rebuilt` share nothing with the sealer and the verifier but the rows of the tables: keys
are compared and hashes made with the standard library alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.core.seals import Seal
from holdfast.store import Store, Submission
from holdfast.store.reinstall import rewrite_enforcement
from tests.audit.knife import without_triggers
from tests.enforcement.raw import Client

COLUMNS = (
    "seq", "epoch", "xid", "machine", "subject", "version", "source", "target", "event", "actor", "reason", "attempt",
    "move_id", "grant_id", "maintenance_id", "at", "status_from", "status_to",
)  # fmt: skip
SEAL_COLUMNS = Seal.__struct_fields__
BLOCK = 8  # rows of a block, and jobs of a transaction


def submit(store: Store[Any], n: int = BLOCK, *, actor: str = "tests", reason: str | None = None) -> None:
    """Write n journal rows in one transaction."""
    with store.transaction() as transaction:
        transaction.jobs.submit(
            [Submission(operation="noop", payload="{}") for _ in range(n)], actor=actor, reason=reason
        )


def journal(store: Store[Any]) -> list[tuple[Any, ...]]:
    """Return every row of the journal, as it is hashed, in the order of its numbers."""
    with store.reading() as reading:
        rows = reading.execute(f"SELECT {', '.join(COLUMNS)} FROM holdfast_journal ORDER BY seq")
    return [as_hashed(row) for row in rows]


def as_hashed(row: Sequence[Any]) -> tuple[Any, ...]:
    """Return a row with its time as text."""
    return tuple(f"{v.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z" if isinstance(v, datetime) else v for v in row)


def seals(store: Store[Any]) -> list[Seal]:
    with store.reading() as reading:
        return [
            Seal(*row)
            for row in reading.execute(f"SELECT {', '.join(SEAL_COLUMNS)} FROM holdfast_seals ORDER BY seal_id")
        ]


def key_of(row: Sequence[Any]) -> tuple[int, int, int]:
    return row[1], row[2], row[0]


def loose_rows(store: Store[Any]) -> list[int]:
    """Return the numbers of rows that no seal closes; fail if a row is closed twice, or a seal is not over its rows."""
    with store.reading() as reading:
        [[ledger_id]] = reading.execute("SELECT value FROM holdfast_meta WHERE name = 'ledger_id'")
    rows, left, start = journal(store), set[int](), (0, 0, 0)
    left.update(row[0] for row in rows)
    previous = hashlib.sha256(f"holdfast:{ledger_id}".encode()).hexdigest()
    for number, seal in enumerate(seals(store), start=1):
        block = [row for row in rows if start < key_of(row) <= seal.end]
        numbers = {row[0] for row in block}
        assert numbers <= left, f"seal {number} closes rows again: {sorted(numbers - left)}"
        left -= numbers
        assert (seal.seal_id, seal.previous) == (number, previous)
        assert (seal.rows, seal.low_seq, seal.high_seq) == (len(block), block[0][0], block[-1][0])
        assert key_of(max(block, key=key_of)) == seal.end
        assert rebuilt(seal, block, previous) == seal
        start, previous = seal.end, seal.hash
    assert all(key_of(row) > start for row in rows if row[0] in left), "a row was left behind"
    return sorted(left)


def rebuilt(seal: Seal, block: Sequence[Sequence[Any]], previous: str) -> Seal:
    """Return a seal with the digest, the previous hash and the hash that it should have over some rows."""
    digest = hashlib.sha256()
    for row in block:
        digest.update(json.dumps(row, separators=(",", ":"), ensure_ascii=False).encode() + b"\n")
    return relinked(msgspec.structs.replace(seal, digest=digest.hexdigest(), rows=len(block)), previous)


def relinked(seal: Seal, previous: str) -> Seal:
    """Return a seal that follows another, with the hash that it should have then."""
    fields = {name: getattr(seal, name) for name in SEAL_COLUMNS if name not in ("hash", "horizon_xid", "horizon_seq")}
    fields["previous"] = previous
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return msgspec.structs.replace(seal, **fields, hash=hashlib.sha256(text.encode()).hexdigest())


def write_epoch(store: Store[Any], epoch: str) -> None:
    """Write another epoch with the guard of the settings off, so that no door is journalled."""
    with store.transaction() as transaction:
        names, on = ["holdfast_meta_update"], " ON holdfast_meta"
        if store.dialect == "sqlite":
            names, on = [*names, "holdfast_meta_insert"], ""
        for name in names:
            transaction.execute(f"DROP TRIGGER {name}{on}")
        transaction.settings.set("epoch", epoch)
        rewrite_enforcement(store, transaction)


@contextmanager
def guards_off(url: str) -> Iterator[Client]:
    """Yield a raw client while the ledger has no triggers; afterwards it has all of them again."""
    client = Client(url)
    with without_triggers(client):
        yield client
    client.commit()
    client.close()


def rewrite_all(client: Client, *, links_only: bool = False) -> None:
    """Make every seal anew over the rows as they are now, and note the new end: a forger who knows the whole format."""
    rows = [as_hashed(row) for row in client.run(f"SELECT {', '.join(COLUMNS)} FROM holdfast_journal ORDER BY seq")]
    [[ledger_id]] = client.run("SELECT value FROM holdfast_meta WHERE name = 'ledger_id'")
    start, previous = (0, 0, 0), hashlib.sha256(f"holdfast:{ledger_id}".encode()).hexdigest()
    for found in client.run(f"SELECT {', '.join(SEAL_COLUMNS)} FROM holdfast_seals ORDER BY seal_id"):
        old = Seal(*found)
        block = [row for row in rows if start < key_of(row) <= old.end]
        seal = relinked(old, previous) if links_only else rebuilt(old, block, previous)
        client.run(
            "UPDATE holdfast_seals SET rows = ?, digest = ?, previous = ?, hash = ? WHERE seal_id = ?",
            seal.rows, seal.digest, seal.previous, seal.hash, seal.seal_id,
        )  # fmt: skip
        client.run("UPDATE holdfast_meta SET value = ? WHERE name = 'seal_head'", f"{seal.seal_id} {seal.hash}")
        start, previous = seal.end, seal.hash


def shift_xids(client: Client, by: int) -> None:
    """Let the ledger look as if it came from a database with higher transaction ids."""
    client.run(f"UPDATE holdfast_journal SET xid = xid + {by}")
    client.run(f"UPDATE holdfast_seals SET last_xid = last_xid + {by}, horizon_xid = horizon_xid + {by}")
    rewrite_all(client)
