"""Verbs of erasures: they remove the personal data of a job; its digests, its history and the use of its key stay.

Invariants: an erasure is written under an open maintenance door, with the grant that the same move has consumed; a key
that was erased is in use for life, known by a hash with a secret of the ledger; while an erasure is being written, no
job is submitted.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.records import Job
from holdfast.store.statements import encoded
from holdfast.store.transaction import Reading, Transaction

ABORTED = "holdfast_aborted"
SECRET = "erasure_secret"  # noqa: S105 - the name of a setting of the ledger


class Erasure(msgspec.Struct, frozen=True):
    """The erasure of a job: when, by whom, why, and under which grant."""

    job_id: int
    erased_at: datetime
    actor: str
    reason: str
    grant_id: int


def erasure_of(reading: Reading, job_id: int) -> Erasure | None:
    rows = reading.run("erasure_of", job_id=job_id)
    return Erasure(job_id, reading.store.moment(rows[0][0]), *rows[0][1:]) if rows else None


def is_written_back(reading: Reading, job_id: int) -> bool:
    """Return whether an erased job has data again."""
    return bool(reading.run("erased_to_check", job_id=job_id, n=1))


def record(transaction: Transaction, job: Job, *, actor: str, reason: str, grant_id: int, move_id: str) -> None:
    """Record the erasure of a job, and the hash of its key; needs an open maintenance door and `lock_calls`."""
    hashed = None if job.key is None else key_hash(_secret(transaction, create=True), job.client, job.key)
    transaction.run(
        "add_erasure",
        job_id=job.job_id,
        client=job.client,
        key_hash=hashed,
        actor=actor,
        reason=reason,
        grant_id=grant_id,
        move_id=move_id,
        now=transaction.store.time_parameter(),
    )


def erase(transaction: Transaction, job_id: int) -> None:
    """Remove the data that were submitted with a job and its results; needs an open maintenance door and `lock_calls`.

    Payload, key, result, error messages, progress notes, checkpoints and tracebacks are removed.
    """
    transaction.run("erase_job", job_id=job_id)
    # A row of an ended attempt is never updated, not even under the door.
    for row in transaction.maintenance.images(ABORTED, job_id=job_id):
        transaction.maintenance.forget(ABORTED, job_id=job_id, attempt=row["attempt"])
        transaction.maintenance.put_back(ABORTED, {**row, "error_message": None, "progress_note": None})


def lock_calls(transaction: Transaction) -> None:
    """Let no job be submitted until this transaction ends, so that no submit misses the erasure of its key."""
    transaction.run("lock_calls")


def key_hash(secret: str, client: str, key: str) -> str:
    """Return the hash by which an erased key is known."""
    return hmac.new(bytes.fromhex(secret), f"{client}\n{key}".encode(), "sha256").hexdigest()


def hashes(transaction: Transaction, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return the hashes of (client, key) pairs; none if nothing was ever erased in this ledger."""
    secret = _secret(transaction)
    return {pair: key_hash(secret, *pair) for pair in keys} if secret else {}


def jobs_by_hash(reading: Reading, hashed: Sequence[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Return the ids of erased jobs by (client, hash of the key)."""
    rows: list[tuple[Any, ...]] = reading.run("erased_by_hash", rows=encoded(list(hashed)))
    return {(client, digest): job_id for client, digest, job_id in rows}


def _secret(transaction: Transaction, *, create: bool = False) -> str:
    secret = transaction.settings.read().get(SECRET, "")
    if not secret and create:
        secret = os.urandom(32).hex()
        transaction.settings.set(SECRET, secret)
    return secret
