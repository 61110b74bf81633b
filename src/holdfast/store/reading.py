"""What can be read from a ledger, inside a transaction or beside one.

Invariants: one view, one moment: everything read through one Reading comes from one snapshot. Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.errors import InputError, JobNotFoundError
from holdfast.core.machines import JOB, JobState
from holdfast.core.records import Attempt, Execution, Job, JournalRow, time_text
from holdfast.store.governance import GovernanceReading
from holdfast.store.quarantine import QuarantineReading
from holdfast.store.registry import RegistryReading
from holdfast.store.replaying import ReplayReading
from holdfast.store.requests import Declared
from holdfast.store.retention import RetentionReading
from holdfast.store.rows import reader, unreadable
from holdfast.store.settings import Settings, declared_from
from holdfast.store.statements import encoded
from holdfast.store.supersession import SupersessionReading

if TYPE_CHECKING:
    from holdfast.store.store import Store

_EXECUTION_WIDTH = len(Execution.__struct_fields__)


RESTING = frozenset({JobState.FAILED, JobState.QUARANTINED, JobState.RUNNING})  # those of a partial index
FEW_WAITING = 20_000  # so many can be sorted for a page; among more, a page is found soon


_read_job = reader(Job)
_read_execution = reader(Execution)
_read_journal_row = reader(JournalRow)


def _plain(value: object) -> object:
    return time_text(value) if isinstance(value, datetime) else value


class Count(msgspec.Struct, frozen=True):
    """How many jobs of one operation and queue are in one state."""

    operation: str
    queue: str
    state: JobState
    n: int


def _count(row: Sequence[Any]) -> Count:
    operation, queue, state, n = row
    if state not in JOB.states:
        raise unreadable(f"of jobs called {state!r}")
    return Count(operation, queue, JobState(state), int(n))


class Pause(msgspec.Struct, frozen=True):
    """Since when a queue gives out no work, by whom, and why."""

    at: datetime
    by: str | None
    reason: str | None


class WorkerRow(msgspec.Struct, frozen=True):
    """A worker as the ledger last saw it."""

    worker_id: str
    queues: list[str]
    operations: list[str]
    concurrency: int
    started_at: datetime
    seen_at: datetime
    stopped_at: datetime | None


class Reading(
    RetentionReading, GovernanceReading, RegistryReading, SupersessionReading, ReplayReading, QuarantineReading
):
    """A view of the ledger at one moment."""

    def __init__(self, store: Store[Any], connection: Any) -> None:
        self._store = store
        self._connection = connection

    @property
    def dialect(self) -> str:
        """Return which kind of database this is: sqlite or postgres."""
        return self._store.dialect

    def now(self) -> datetime:
        """Return the time that leases and grants are measured by."""
        return self._store.now()

    def meta(self) -> Settings:
        """Return the ledger's settings."""
        return Settings(self._run("get_meta"))

    def operations(self) -> dict[str, Declared]:
        """Return the declared operations by name."""
        return {
            name: msgspec.structs.replace(declared_from(name, defaults), version=version)
            for name, version, defaults in self._run("known_operations")
        }

    def jobs(self, job_ids: Iterable[int]) -> list[Job]:
        """Return the jobs that exist among these, by id."""
        asked = list(job_ids)
        return [self._job(row) for row in self._run("get_jobs", rows=encoded(asked))] if asked else []

    def job(self, job_id: int) -> Job:
        """Return one job, or raise JobNotFoundError."""
        found = self.jobs([job_id])
        if not found:
            raise JobNotFoundError(f"there is no job {job_id}", context={"job_id": job_id})
        return found[0]

    def jobs_by_key(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Job]:
        """Return the jobs that were submitted under these (client, key) pairs."""
        rows = self._run("jobs_by_key", rows=encoded(keys))
        return {(job.client, job.key): job for job in map(self._job, rows) if job.key is not None}

    def list_jobs(
        self,
        *,
        state: JobState | None = None,
        operation: str | None = None,
        queue: str | None = None,
        client: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Job]:
        """Return jobs, newest first; `before` continues below the last id of a page."""
        if limit < 1:
            raise InputError("a page has at least one job")
        asked = {"state": state, "operation": operation, "queue": queue, "client": client, "before": before, "n": limit}
        rows = self._run(self._listing(state), **asked)
        return [self._job(row) for row in rows]

    def _listing(self, state: JobState | None) -> str:
        """Return the statement that finds a page without looking at many jobs in other states."""
        if state in RESTING:
            return "list_resting_jobs"
        if state is JobState.PENDING and sum(n for _, _, of, n in self.raw_counts() if of == state) <= FEW_WAITING:
            return "list_waiting_jobs"
        return "list_jobs"

    def executions(self, job_id: int) -> list[Execution]:
        """Return a job's executions, first attempt first."""
        return [self._execution(row) for row in self._run("executions_of", job_id=job_id)]

    def attempt(self, exec_id: int) -> Attempt | None:
        """Return an execution with its job, if it exists."""
        rows = self._run("get_attempt", exec_id=exec_id)
        return self._attempt(rows[0]) if rows else None

    def journal(self, subject: int, machine: str = JOB.name) -> list[JournalRow]:
        """Return the history of one record, oldest first."""
        return [self._journal_row(row) for row in self._run("journal_of", machine=machine, subject=subject)]

    def journal_of_executions(self, job_id: int) -> list[JournalRow]:
        """Return the history of all executions of a job."""
        return [self._journal_row(row) for row in self._run("journal_of_executions", job_id=job_id)]

    def images(self, table: str, **where: object) -> list[dict[str, Any]]:
        """Return rows of one of the ledger's tables as they stand, by column, whatever they say; times as text."""
        conditions = " AND ".join(f"{column} = :{column}" for column in where)
        columns, rows = self._store.named(
            self._connection, f"SELECT * FROM {table} WHERE {conditions} ORDER BY 1, 2", where
        )
        return [{name: _plain(value) for name, value in zip(columns, row, strict=True)} for row in rows]

    def counts(self) -> list[Count]:
        """Return how many jobs stand where: the folded counts and the few deltas since."""
        return [_count(row) for row in self.raw_counts()]

    def raw_counts(self) -> list[tuple[str, str, str, int]]:
        """Return the counts as (operation, queue, state, n), whatever the states are called."""
        return [(operation, queue, state, int(n)) for operation, queue, state, n in self._run("read_counts")]

    def counts_as_of(self, at: datetime) -> tuple[list[Count], int]:
        """Return how many jobs stood where at a time, and of how many the journal no longer tells."""
        rows = self._run("counts_as_of", at=time_text(at))
        told = [_count(row) for row in rows if row[2] is not None]
        return told, sum(row[3] for row in rows if row[2] is None)

    def told_from(self) -> datetime | None:
        """Return the time from which on the journal tells of every job; None if no job's history was cut."""
        [[moment]] = self._run("told_from")
        return None if moment is None else self._store.moment(moment)

    def histories_of(self, job_id: int) -> dict[tuple[str, int], int]:
        """Return the first version that the journal tells of: of a job and its executions, by machine and id."""
        return {(machine, subject): first for machine, subject, first in self._run("histories_of", job_id=job_id)}

    def next_due(self, queues: Sequence[str]) -> datetime | None:
        """Return the earliest time at which a job of these queues may run: past if one is due, None if none waits."""
        [[moment]] = self._run("next_due", queues=encoded(list(queues)))
        return None if moment is None else self._store.moment(moment)

    def anything_to_check(self) -> bool:
        """Return whether a job runs, an execution is open or a seal exists: else a check at open can find nothing."""
        [[found]] = self._run("anything_to_check")
        return bool(found)

    def any_expired(self, at: datetime | None = None) -> bool:
        """Tell whether a lease has run out, without taking any lock."""
        [[found]] = self._run("any_expired", now=self._time(at))
        return bool(found)

    def stalled(self, limit: int = 1000) -> list[Attempt]:
        """Return the attempts whose lease has run out, the longest first."""
        return [self._attempt(row) for row in self._run("stalled_attempts", now=self._time(None), n=limit)]

    def slimmable(
        self,
        *,
        before: datetime,
        states: Iterable[str] = JOB.final,
        queue: str | None = None,
        after: int = 0,
        limit: int = 1000,
    ) -> list[int]:
        """Return ids above `after` of jobs that ended before a time and still have their payload, lowest first."""
        rows = self._run(
            "slimmable_jobs",
            after=after,
            states=encoded(sorted(states)),
            before=self._store.stored(before),
            queue=queue,
            n=limit,
        )
        return [job_id for (job_id,) in rows]

    def checkpoints(self, job_id: int) -> dict[str, str]:
        """Return what earlier attempts at a job have kept, as JSON texts by name."""
        return dict(self._run("checkpoints_of", job_id=job_id))

    def paused_queues(self) -> list[str]:
        """Return the queues that give out no work."""
        return [queue for (queue,) in self._run("paused_queues")]

    def pause_of(self, queue: str) -> Pause | None:
        """Return the pause of a queue, if it is paused."""
        rows = self._run("pause_of", queue=queue)
        return Pause(self._store.moment(rows[0][0]), *rows[0][1:]) if rows else None

    def due_ahead(self, job: Job, now: datetime, limit: int) -> int:
        """Return how many due jobs of a job's queue are claimed before it, no further than a limit."""
        [[n]] = self._run(
            "due_ahead",
            queue=job.queue,
            priority=job.priority,
            run_at=self._store.stored(job.run_at),
            job_id=job.job_id,
            now=self._store.stored(now),
            n=limit,
        )
        return int(n)

    def held_by_owner(self, now: datetime) -> dict[str, int]:
        """Return how many executions each owner holds under a lease that has not run out."""
        return dict(self._run("held_by_owner", now=self._store.stored(now)))

    def lost_by_owner(self, now: datetime) -> dict[str, datetime]:
        """Return when the last lease of each owner ran out, among those of executions that are still open."""
        moment = self._store.moment
        return {owner: moment(at) for owner, at in self._run("lost_by_owner", now=self._store.stored(now))}

    def workers(self) -> list[WorkerRow]:
        """Return the workers that have ever said hello, oldest first."""
        moment = self._store.moment
        return [
            WorkerRow(
                worker_id, msgspec.json.decode(queues), msgspec.json.decode(operations), concurrency, moment(started),
                moment(seen), None if stopped is None else moment(stopped),
            )
            for worker_id, queues, operations, concurrency, started, seen, stopped in self._run("workers")
        ]  # fmt: skip

    def ask(self, sql: str, params: Mapping[str, object]) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run a statement of the caller's own with `:name` for each value; return its columns' names, and its rows."""
        return self._store.named(self._connection, sql, params)

    def execute(self, sql: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement of the caller's own, with the driver's own placeholders, in this transaction."""
        return self._store.execute(self._connection, sql, params)

    def _time(self, at: datetime | None) -> object:
        """Return `:now`: a given time on a database that goes by ours, else what the dialect says."""
        return self._store.time_parameter() if at is None else self._store.judged_at(at)

    def _run(self, name: str, /, **params: object) -> list[tuple[Any, ...]]:
        return self._store.run(self._connection, name, params)

    def _job(self, row: Sequence[Any]) -> Job:
        return _read_job(row, self._store.moment)

    def _execution(self, row: Sequence[Any]) -> Execution:
        return _read_execution(row, self._store.moment)

    def _attempt(self, row: tuple[Any, ...]) -> Attempt:
        return Attempt(self._job(row[_EXECUTION_WIDTH:]), self._execution(row[:_EXECUTION_WIDTH]))

    def _journal_row(self, row: Sequence[Any]) -> JournalRow:
        return _read_journal_row(row, datetime.fromisoformat)  # text on both databases: it is sealed
