"""What the tests of the queue share: the truth as the database tells it, and random histories.

Invariants: `rows` asks the database through its own driver, never through the store; a random history raises nothing
but refusals that a caller is meant to see.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

import psycopg

from holdfast.compat import AuditEvent, IdempotentJobQueue, IngestionJob, JobStatus
from holdfast.core.errors import RefusedByDatabaseError, RefusedError
from holdfast.core.project import project, rulings_of

STATUSES = tuple(JobStatus)
JOURNAL = (
    "SELECT j.key, g.version, g.source, g.target, g.event, g.actor, g.reason, g.attempt, g.move_id"
    " FROM holdfast_journal g JOIN holdfast_jobs j ON j.job_id = g.subject WHERE g.machine = 'JOB'"
    " ORDER BY j.job_id, g.version"
)


class Memory:
    """An audit logger that remembers."""

    def __init__(self) -> None:
        self.events: list[AuditEvent] = []

    def record(self, event: AuditEvent, /) -> None:
        self.events.append(event)

    def actions(self) -> list[tuple[str, str]]:
        return [(event.job_id, event.action) for event in self.events]


def rows(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Run one statement through the database's own driver and return its rows."""
    connection: Any = sqlite3.connect(urlsplit(url).path[1:]) if url.startswith("sqlite") else psycopg.connect(url)
    try:
        cursor = connection.execute(statement)
        found = cursor.fetchall() if cursor.description else []
        connection.commit()
    finally:
        connection.close()
    return found


def everything(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row that a move could touch."""
    return {
        table: rows(url, f"SELECT * FROM {table} ORDER BY 1")
        for table in ("holdfast_jobs", "holdfast_executions", "holdfast_journal", "holdfast_count_deltas")
    }


def job_row(url: str, job_id: str) -> dict[str, Any]:
    """Return what the database says about one job."""
    columns = ("state", "version", "attempts", "priority", "quarantine_code", "last_error_code", "actor", "reason")
    [found] = rows(url, f"SELECT {', '.join(columns)} FROM holdfast_jobs WHERE key = '{job_id}'")
    return dict(zip(columns, found, strict=True))


def edges(url: str) -> Counter[tuple[str, str]]:
    """Return every edge of every job that the journal has, births left out, under the names of audit events."""
    return Counter(
        (key, f"transition_{source}_to_{target}") for key, _, source, target, *_ in rows(url, JOURNAL) if source
    )


def job(job_id: str, **given: Any) -> IngestionJob:
    return IngestionJob(job_id, "local_files", {"path": f"/{job_id}"}, **given)


def put(queue: IdempotentJobQueue, status: JobStatus, job_id: str) -> None:
    """Enqueue a job and bring it to a status; one that runs is held by this queue."""
    assert queue.enqueue(job(job_id))
    if status in (JobStatus.RUNNING, JobStatus.SUCCEEDED, JobStatus.FAILED):
        queue.mark_running(job_id, idempotent=False)
    if status is JobStatus.SUCCEEDED:
        queue.mark_completed(job_id, idempotent=False)
    if status is JobStatus.FAILED:
        queue.mark_failed(job_id, idempotent=False)
    if status is JobStatus.QUARANTINED:
        queue.mark_quarantined(job_id, idempotent=False)
    assert queue.get_job(job_id)["status"] is status


def mark(queue: IdempotentJobQueue, status: JobStatus, job_id: str, *, idempotent: bool) -> None:
    """Ask for a status by the verb that leads there."""
    verbs: dict[JobStatus, Callable[..., object]] = {
        JobStatus.PENDING: queue.reschedule,
        JobStatus.RUNNING: queue.mark_running,
        JobStatus.SUCCEEDED: queue.mark_completed,
        JobStatus.FAILED: queue.mark_failed,
        JobStatus.QUARANTINED: queue.mark_quarantined,
    }
    verbs[status](job_id, idempotent=idempotent)


# ---------------------------------------------------------------------------------------------------------------------
# Random histories

_WEIGHTS = {
    "claim": 4,
    "claim_it": 3,
    "mark_running": 3,
    "mark_completed": 5,
    "mark_failed": 6,
    "reschedule": 6,
    "heartbeat": 2,
    "expire": 4,
    "mark_quarantined": 1,
    "cancel_job": 1,
    "enqueue": 2,
}


def wander(queue: IdempotentJobQueue, rng: random.Random, job_ids: Sequence[str], steps: int) -> Counter[str]:
    """Do random things to random jobs; return how often each verb was refused."""
    refused: Counter[str] = Counter()
    for _ in range(steps):
        [verb] = rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
        job_id, mode = rng.choice(job_ids), {"idempotent": rng.random() < 0.5}
        try:
            if verb == "claim":
                queue.claim()
            elif verb == "claim_it":
                queue.claim(job_id)
            elif verb == "heartbeat":
                queue.heartbeat(job_id)
            elif verb == "expire":
                queue.expire(job_id)
            elif verb == "enqueue":
                assert not queue.enqueue(job(job_id)), "an existing job was taken for a new one"
            else:
                getattr(queue, verb)(job_id, **mode)
        except RefusedByDatabaseError:
            raise
        except RefusedError:
            refused[verb] += 1
    return refused


def check_history(url: str, queue: IdempotentJobQueue, job_ids: Iterable[str]) -> Counter[JobStatus]:
    """Assert what must be true of every job after any history, and return how many ended where."""
    ended: Counter[JobStatus] = Counter()
    chains: dict[str, list[tuple[Any, ...]]] = {}
    for key, *rest in rows(url, JOURNAL):
        chains.setdefault(key, []).append(tuple(rest))
    for job_id in job_ids:
        [[ledger_id, state, version, attempts]] = rows(
            url, f"SELECT job_id, state, version, attempts FROM holdfast_jobs WHERE key = '{job_id}'"
        )
        chain = chains[job_id]
        assert [step[0] for step in chain] == list(range(1, version + 1))
        assert [step[1] for step in chain] == [None, *(step[2] for step in chain[:-1])]
        assert chain[-1][2] == state
        claims = [step for step in chain if step[1:3] == ("pending", "running")]
        numbers = rows(url, f"SELECT attempt FROM holdfast_executions WHERE job_id = {ledger_id} ORDER BY exec_id")
        assert [number for (number,) in numbers] == list(range(1, attempts + 1))
        assert len(claims) == attempts
        with queue.store.reading() as reading:
            assert project(reading.executions(ledger_id), rulings_of(reading.journal(ledger_id))) == state
        ended[JobStatus(state)] += 1
    return ended
