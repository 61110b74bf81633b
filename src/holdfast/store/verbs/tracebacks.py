"""Verbs of tracebacks: where the failed attempts at a job failed. Retention and erasure delete them.

Invariants: a traceback is written in the transaction that ends its attempt, and never changed.
"""

from collections.abc import Sequence

from holdfast.store.statements import encoded
from holdfast.store.transaction import Reading, Transaction

TRACEBACK_MAX = 16_000  # characters


def tracebacks_of(reading: Reading, job_id: int) -> dict[int, str]:
    return dict(reading.run("tracebacks_of", job_id=job_id))


def keep_tracebacks(transaction: Transaction, rows: Sequence[tuple[int, int, str]]) -> None:
    """Write tracebacks, given as (job_id, attempt, text); the texts are redacted already."""
    transaction.run("keep_tracebacks", rows=encoded(sorted(rows)))


def forget_tracebacks(transaction: Transaction, job_ids: Sequence[int]) -> None:
    """Delete the tracebacks of these jobs; needs an open maintenance door."""
    transaction.run("forget_tracebacks", rows=encoded(sorted(job_ids)))
