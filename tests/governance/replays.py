"""What the tests of replay share: ledgers with failed jobs, made by the store's own verbs, and what is in every table.

Invariants: a failed job was submitted, claimed and failed, in sets; a checksum covers every row of every table.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from holdfast.core.commands import Complete, Fail
from holdfast.core.records import Attempt
from holdfast.core.selection import Selection, SelectionFilters, Window
from holdfast.governance.replay.guards import ReplayPolicy, policy_of
from holdfast.store import Declared, Lease, Store, Submission

WHO: Any = {"actor": "ann", "reason": "the disk was full", "replay_reason": "incident"}
AGAIN: Any = {"actor": "ann", "reason": "and on it goes"}
CHUNK = 5_000


def dev(**settings: Any) -> ReplayPolicy:
    """Return the policy of dev, with other settings."""
    return msgspec.structs.replace(policy_of("dev"), **settings)


def fill(
    store: Store[Any],
    n: int,
    *,
    queue: str = "goes-abi",
    operation: str = "noop",
    code: str = "io_error",
    permanent: bool = False,
    prefix: str = "k",
    payload: str = "{}",
    **settings: Any,
) -> list[int]:
    """Add jobs of one queue that have failed once; permanent failures rest in quarantine."""
    job_ids: list[int] = []
    for first in range(0, n, CHUNK):
        keys = [f"{prefix}{queue}{number}" for number in range(first, min(first + CHUNK, n))]
        with store.transaction() as transaction:
            transaction.operations.declare({operation: Declared()} if operation != "noop" else {})
            admitted = transaction.jobs.submit(
                [
                    Submission(operation=operation, payload=payload, client="c", key=key, queue=queue, **settings)
                    for key in keys
                ]
            )
            attempts = claim(transaction, [admission.job_id for admission in admitted])
            fail(transaction, attempts, code=code, permanent=permanent)
        job_ids += [admission.job_id for admission in admitted]
    return sorted(job_ids)


def claim(transaction: Any, job_ids: Sequence[int], owner: str = "w") -> list[Attempt]:
    attempts: list[Attempt] = transaction.executions.claim_these(job_ids, Lease(owner=owner, seconds=600))
    return attempts


def fail(transaction: Any, attempts: Sequence[Attempt], *, code: str = "io_error", permanent: bool = False) -> None:
    moves = [
        (attempt, Fail(attempt.execution.lease_token, code, "it broke", permanent=permanent)) for attempt in attempts
    ]
    answers = transaction.executions.move(moves, actor="w")
    assert len(answers) == len(attempts)


def work(store: Store[Any], queue: str = "goes-abi", *, code: str | None = None, n: int = 100_000) -> int:
    """Do everything that is due, as a worker would; with a code, by failing. Return how many attempts were made."""
    with store.transaction() as transaction:
        attempts = transaction.executions.claim(Lease(owner="w", seconds=600, n=n, queues=(queue,)))
        if code is not None:
            fail(transaction, attempts, code=code)
        else:
            transaction.executions.move(
                [(attempt, Complete(attempt.execution.lease_token)) for attempt in attempts], actor="w"
            )
    return len(attempts)


def selection(
    store: Store[Any], *, env: str = "dev", queues: Sequence[str] = ("goes-abi",), **settings: Any
) -> Selection:
    """Return a selection of what has failed in a queue since yesterday."""
    start = store.now() - timedelta(days=1)
    filters = {"queues": tuple(queues), "created_at": Window(start, start + timedelta(days=2))}
    return Selection(
        name="s", env=env, filters=SelectionFilters(**{**filters, **settings.pop("filters", {})}), **settings
    )


def states(store: Store[Any]) -> dict[str, int]:
    """Return how many jobs are in which state, counted from the rows."""
    with store.reading() as reading:
        return dict(sorted(reading.execute("SELECT state, count(*) FROM holdfast_jobs GROUP BY state")))


def replays(store: Store[Any]) -> Counter[int]:
    """Return how often each job was replayed, by its journal."""
    with store.reading() as reading:
        rows = reading.execute("SELECT subject FROM holdfast_journal WHERE machine = 'JOB' AND event = 'replay'")
    return Counter(subject for (subject,) in rows)


def checksum(store: Store[Any]) -> str:
    """Return the SHA-256 of every row of every table of the ledger."""
    digest = hashlib.sha256()
    with store.reading() as reading:
        for table in sorted(store.tables(reading.connection)):
            rows = reading.execute(f"SELECT * FROM {table}")
            lines = sorted(json.dumps([str(value) for value in row]) for row in rows)
            digest.update(f"{table} {len(lines)}\n".encode())
            digest.update("\n".join(lines).encode())
    return digest.hexdigest()


def on_both(cases: Iterable[Any], *few: Any) -> list[Any]:
    """Return (database, case) to parametrise by: all on SQLite; on PostgreSQL a few always, the others as slow ones."""
    return [
        pytest.param(database, case, marks=marks)
        for case in cases
        for database, marks in (
            ("sqlite", []),
            ("postgres", [pytest.mark.pg] if case in few else [pytest.mark.pg, pytest.mark.slow]),
        )
    ]
