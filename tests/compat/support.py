"""What the tests of the queue share: the truth as the database has it, and random histories of several workers.

Invariants: `rows` reads the database through its own driver, never through the store.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any
from urllib.parse import urlsplit

import msgspec
import psycopg

from holdfast.compat import IdempotentJobQueue, JobStatus
from holdfast.core.project import project, rulings_of
from tests.compat.actor import History, actor, job
from tests.support import children

STATUSES = tuple(JobStatus)
JOBS = "holdfast_jobs JOIN holdfast_calls USING (job_id)"
JOURNAL = (
    "SELECT c.key, g.version, g.source, g.target, g.event, g.actor, g.reason, g.attempt, g.move_id"
    " FROM holdfast_edges g JOIN holdfast_calls c ON c.job_id = g.subject WHERE g.machine = 'JOB'"
    " ORDER BY c.job_id, g.version"
)


Database = str | sqlite3.Connection | psycopg.Connection
"""The URL of a database, or a connection to it, for tests that read often."""


def rows(database: Database, statement: str) -> list[tuple[Any, ...]]:
    """Run one statement through the database's own driver and return its rows."""
    return _answers(database, [statement])[0]


def everything(database: Database) -> list[list[tuple[Any, ...]]]:
    """Return every row that a move could touch."""
    tables = ("holdfast_calls", "holdfast_jobs", "holdfast_aborted", "holdfast_journal", "holdfast_count_deltas")
    return _answers(database, [f"SELECT * FROM {table} ORDER BY 1, 2" for table in tables])


def _answers(database: Database, statements: Iterable[str]) -> list[list[tuple[Any, ...]]]:
    if isinstance(database, str):
        with closing(connected(database)) as connection:
            return _answers(connection, statements)
    cursors: list[Any] = [database.execute(statement) for statement in statements]
    answers = [cursor.fetchall() if cursor.description else [] for cursor in cursors]
    database.commit()
    return answers


def connected(url: str) -> Any:
    return sqlite3.connect(urlsplit(url).path[1:]) if url.startswith("sqlite") else psycopg.connect(url)


def job_row(database: Database, job_id: str) -> dict[str, Any]:
    """Return what the database says about one job."""
    columns = ("state", "version", "attempts", "priority", "quarantine_code", "last_error_code", "actor", "reason")
    [found] = rows(
        database,
        f"SELECT {', '.join(columns)} FROM holdfast_jobs JOIN holdfast_calls USING (job_id) WHERE key = '{job_id}'",
    )
    return dict(zip(columns, found, strict=True))


def edges(url: str) -> Counter[tuple[str, str]]:
    """Return every edge of every job that the journal has, births left out, under the names of audit events."""
    return Counter(
        (key, f"transition_{source}_to_{target}") for key, _, source, target, *_ in rows(url, JOURNAL) if source
    )


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

NAMES = [f"job-{n}" for n in range(15)]


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """One job as it was read at one moment."""

    job_id: str
    state: str
    version: int
    attempts: int
    held: int  # how many of its executions had not ended


LOOK = (
    "SELECT c.key, j.state, j.version, j.attempts, (SELECT count(*) FROM holdfast_executions e WHERE"
    " e.job_id = j.job_id AND e.status IN ('LEASED', 'IN_PROGRESS', 'COMMITTED'))"
    " FROM holdfast_jobs j JOIN holdfast_calls c ON c.job_id = j.job_id"
)


def random_histories(url: str, seed: int, job_ids: Sequence[str], steps: int = 75) -> tuple[History, list[Seen]]:
    """Run two processes and three threads on the same jobs while one more thread reads."""
    seen: dict[Seen, None] = {}
    over = threading.Event()

    def look() -> None:
        with closing(connected(url)) as connection:
            while not over.wait(0.005):
                seen.update(dict.fromkeys(Seen(*row) for row in connection.execute(LOOK).fetchall()))
                connection.rollback()

    with ExitStack() as stack, ThreadPoolExecutor(4) as threads:
        stack.callback(over.set)
        children = [stack.enter_context(process_actor(url, seed + n, steps, job_ids)) for n in range(2)]
        onlooker = threads.submit(look)

        def go() -> None:
            for child in children:
                child.start()

        line = threading.Barrier(3, action=go, timeout=60)
        works = [threads.submit(actor, url, seed + 10 + n, steps, job_ids, line.wait) for n in range(3)]
        histories = [*(work.result() for work in works), *(child.history() for child in children)]
        over.set()
        onlooker.result()
    events = [event for history in histories for event in history.events]
    return History(events, sum(history.refused for history in histories)), list(seen)


class Child(children.Child):
    """A worker in a process of its own; it waits until all are ready."""

    def __init__(self, url: str, seed: int, steps: int, job_ids: Sequence[str]) -> None:
        super().__init__("tests.compat.actor", url, str(seed), str(steps), *job_ids)
        assert self.says() == children.READY

    def start(self) -> None:
        self.go()

    def history(self) -> History:
        return msgspec.json.decode(self.output().encode(), type=History)


def process_actor(url: str, seed: int, steps: int, job_ids: Sequence[str]) -> Child:
    return Child(url, seed, steps, job_ids)


def check_history(url: str, queue: IdempotentJobQueue, job_ids: Iterable[str]) -> Counter[JobStatus]:
    """Assert what must be true of every job after any history, and return how many ended where."""
    ended: Counter[JobStatus] = Counter()
    chains: dict[str, list[tuple[Any, ...]]] = {}
    for key, *rest in rows(url, JOURNAL):
        chains.setdefault(key, []).append(tuple(rest))
    numbers: dict[int, list[int]] = {}
    for ledger_id, attempt in rows(url, "SELECT job_id, attempt FROM holdfast_executions ORDER BY exec_id"):
        numbers.setdefault(ledger_id, []).append(attempt)
    found = rows(
        url, "SELECT key, job_id, state, version, attempts FROM holdfast_jobs JOIN holdfast_calls USING (job_id)"
    )
    assert {key for key, *_ in found} >= set(job_ids)
    with queue.store.reading() as reading:
        for key, ledger_id, state, version, attempts in found:
            chain = chains[key]
            assert [step[0] for step in chain] == list(range(1, version + 1))
            assert [step[1] for step in chain] == [None, *(step[2] for step in chain[:-1])]
            assert chain[-1][2] == state
            assert sum(step[1:3] == ("pending", "running") for step in chain) == attempts
            assert numbers.get(ledger_id, []) == list(range(1, attempts + 1))
            assert project(reading.lists.executions(ledger_id), rulings_of(reading.journal.of(ledger_id))) == state
            ended[JobStatus(state)] += 1
    return ended
