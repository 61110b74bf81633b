"""What can be read from a ledger, inside a transaction or beside one.

Invariants: one view, one moment: everything read through one Reading comes from one snapshot. Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

import msgspec

from holdfast.core.errors import InputError, JobNotFoundError
from holdfast.core.machines import JOB, JobState
from holdfast.core.records import Attempt, Execution, Grant, Job, JournalRow
from holdfast.store.requests import Declared

if TYPE_CHECKING:
    from holdfast.store.store import Store

_EXECUTION_WIDTH = len(Execution.__struct_fields__)
_Record = TypeVar("_Record", bound=msgspec.Struct)
_Reader = Callable[[Sequence[Any], Callable[[Any], datetime]], _Record]


def encoded(rows: object) -> str:
    """Return rows as the JSON text that the statements take."""
    return msgspec.json.encode(rows).decode()


def _reader(record: type[_Record]) -> _Reader[_Record]:
    """Return what turns a row into a record. Which columns need turning is worked out here, once."""
    kinds = [
        next(kind for kind in (*get_args(hint), hint) if kind is not type(None))
        for hint in get_type_hints(record).values()
    ]
    times = [index for index, kind in enumerate(kinds) if kind is datetime]
    flags = [index for index, kind in enumerate(kinds) if kind is bool]
    names = [
        (index, {member.value: member for member in kind})
        for index, kind in enumerate(kinds)
        if isinstance(kind, type) and issubclass(kind, Enum)
    ]

    def read(row: Sequence[Any], moment: Callable[[Any], datetime]) -> _Record:
        values = list(row)
        for index in times:
            if values[index] is not None:
                values[index] = moment(values[index])
        for index, members in names:
            values[index] = members[values[index]]
        for index in flags:
            values[index] = bool(values[index])
        return record(*values)

    return read


_read_job = _reader(Job)
_read_execution = _reader(Execution)
_read_grant = _reader(Grant)
_read_journal_row = _reader(JournalRow)


class Count(msgspec.Struct, frozen=True):
    """How many jobs of one operation and queue are in one state."""

    operation: str
    queue: str
    state: JobState
    n: int


class WorkerRow(msgspec.Struct, frozen=True):
    """A worker as the ledger last saw it."""

    worker_id: str
    queues: list[str]
    operations: list[str]
    concurrency: int
    started_at: datetime
    seen_at: datetime
    stopped_at: datetime | None


class Reading:
    """A view of the ledger at one moment."""

    def __init__(self, store: Store[Any], connection: Any) -> None:
        self._store = store
        self._connection = connection

    def meta(self) -> dict[str, str]:
        """Return the ledger's settings."""
        return dict(self._run("get_meta"))

    def operations(self) -> dict[str, Declared]:
        """Return the declared operations by name."""
        return {
            name: msgspec.structs.replace(msgspec.json.decode(defaults, type=Declared), version=version)
            for name, version, defaults in self._run("known_operations")
        }

    def jobs(self, job_ids: Iterable[int]) -> list[Job]:
        """Return the jobs that exist among these, by id."""
        return [self._job(row) for row in self._run("get_jobs", rows=encoded(list(job_ids)))]

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
        rows = self._run(
            "list_jobs", state=state, operation=operation, queue=queue, client=client, before=before, n=limit
        )
        return [self._job(row) for row in rows]

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

    def counts(self) -> list[Count]:
        """Return how many jobs stand where: the folded counts and the few deltas since."""
        return [Count(row[0], row[1], JobState(row[2]), row[3]) for row in self._run("read_counts")]

    def next_due(self, queues: Sequence[str]) -> datetime | None:
        """Return the earliest time at which a job of these queues may run: past if one is due, None if none waits."""
        [[moment]] = self._run("next_due", queues=encoded(list(queues)))
        return None if moment is None else self._store.moment(moment)

    def any_expired(self, at: datetime | None = None) -> bool:
        """Tell whether a lease has run out, without taking any lock."""
        [[found]] = self._run("any_expired", now=self._time(at))
        return bool(found)

    def stalled(self, limit: int = 1000) -> list[Attempt]:
        """Return the attempts whose lease has run out, the longest first."""
        return [self._attempt(row) for row in self._run("stalled_attempts", now=self._time(None), n=limit)]

    def checkpoints(self, job_id: int) -> dict[str, str]:
        """Return what earlier attempts at a job have kept, as JSON texts by name."""
        return dict(self._run("checkpoints_of", job_id=job_id))

    def paused_queues(self) -> list[str]:
        """Return the queues that give out no work."""
        return [queue for (queue,) in self._run("paused_queues")]

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

    def grant(self, grant_id: int) -> Grant | None:
        """Return a grant, if it exists."""
        rows = self._run("get_grant", grant_id=grant_id)
        return self._grant(rows[0]) if rows else None

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

    def _grant(self, row: Sequence[Any]) -> Grant:
        return _read_grant(row, self._store.moment)

    def _journal_row(self, row: Sequence[Any]) -> JournalRow:
        return _read_journal_row(row, datetime.fromisoformat)  # text on both databases: it is sealed
