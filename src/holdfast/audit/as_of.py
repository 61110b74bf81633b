"""The state of the ledger at a past time, computed from its journal.

A journal row has the time at which it was written: a row that was written before the given time and committed shortly
after it is included.

Invariants: rows written at exactly the given time are included; nothing is guessed: a column that follows from no
journal row, finished attempt or later move is None, and `unknown` lists those of the job; where the necessary rows are
archived, the answer is HistoryArchivedError and never a state.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.errors import HistoryArchivedError, InputError, JobNotFoundError
from holdfast.core.journal import JournalRow
from holdfast.core.machines import COMMITTED, EXECUTION, JOB, REQUEST, ExecutionStatus, JobState
from holdfast.core.records import Execution, Job, Submitted, time_text
from holdfast.store.transaction import Reading
from holdfast.store.verbs.counts import Count


class PastJob(Submitted, frozen=True, kw_only=True):
    """A job at a past time: the columns that never change, those from the journal, and None where unknown."""

    operation: str
    queue: str
    state: JobState
    version: int
    attempts: int
    excused: int | None
    priority: int
    run_at: datetime | None
    result: str | None
    last_error_code: str | None
    last_error_message: str | None
    quarantine_code: str | None
    replay_reason: str | None
    updated_at: datetime


class PastExecution(msgspec.Struct, frozen=True, kw_only=True):
    """An execution at a past time. Lease and progress of an open one are not in the journal, and so None."""

    exec_id: int
    job_id: int
    attempt: int
    status: ExecutionStatus
    version: int
    lease_owner: str
    lease_token: int
    lease_expires_at: datetime | None
    excused: bool
    error_code: str | None
    error_message: str | None
    progress: float | None
    progress_note: str | None
    cancel_requested_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    created_at: datetime
    updated_at: datetime


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """A job, its executions and its history at a past time."""

    at: datetime
    job: PastJob
    executions: tuple[PastExecution, ...]
    journal: tuple[JournalRow, ...]  # the job's rows and its executions', in the order in which they were written
    unknown: tuple[str, ...]  # the job's columns whose value at that time is not known
    archived_before: datetime | None  # the time of the first journal row of the job, if older rows were archived


def counts_at(reading: Reading, at: datetime, now: datetime) -> list[Count]:
    """Return the number of jobs by state at a past time; raise HistoryArchivedError if the rows are archived."""
    _require_past(at, now)
    counts, unknown = reading.counts.as_of(at)
    if unknown:
        raise _archived_error(f"the state of {unknown} jobs is not known", at, reading.journal.complete_since())
    return counts


def job_at(reading: Reading, job_id: int, at: datetime, now: datetime) -> Past:
    """Return a job as it was at a past time.

    Raise JobNotFoundError if it was submitted later, and HistoryArchivedError if the rows are archived.
    """
    _require_past(at, now)
    job = reading.jobs.get(job_id)
    if job.created_at > at:
        submitted = time_text(job.created_at)
        raise JobNotFoundError(
            f"job {job_id} did not exist at {time_text(at)}: it was submitted at {submitted}",
            next_step=f"Give a time at or after {submitted}.",
            context={"job_id": job_id, "at": time_text(at), "submitted_at": submitted},
        )
    first, kept = reading.journal.kept(job_id)
    executions = tuple(
        _execution_then(execution, _JournalAt(EXECUTION.name, execution.exec_id, kept, first, at))
        for execution in reading.lists.executions(job_id)
        if execution.created_at <= at
    )
    history = _JournalAt(JOB.name, job_id, kept, first, at)
    rows = tuple(row for row in kept if row.at <= at)
    past_job, unknown = _job_then(job, history, executions)
    if history.earlier:  # a start or a commit writes the row of the job too
        past_job = msgspec.structs.replace(
            past_job, updated_at=max(row.at for row in rows if row.machine != REQUEST.name)
        )
    return Past(
        at=at,
        job=past_job,
        executions=executions,
        journal=rows,
        unknown=unknown,
        archived_before=history.archived_before(job.updated_at),
    )


class _JournalAt:
    """The journal rows of one record, split at a past time."""

    def __init__(self, machine: str, subject: int, kept: Sequence[JournalRow], first: int, at: datetime) -> None:
        own = [row for row in kept if (row.machine, row.subject) == (machine, subject)]
        self.at = at
        self.earlier = [row for row in own if row.at <= at]
        self.later = [row for row in own if row.at > at]
        self.is_whole = first == 1 and bool(own) and own[0].version == 1
        # An attempt has no `history_from`. Its history was cut if that of its job was and its own first row is missing.
        self._was_cut = first > 1 and (machine == JOB.name or not own or own[0].version > 1)

    def archived_before(self, last_moved: datetime) -> datetime | None:
        """Return the time of the first row that was not archived, or None if none was archived."""
        if not self._was_cut:
            return None
        first = [*self.earlier, *self.later][:1]
        return first[0].at if first else last_moved

    def archived_error(self, what: str, last_moved: datetime) -> HistoryArchivedError:
        """Return the error with the time from which on the record's history is known."""
        return _archived_error(what, self.at, self.archived_before(last_moved))


# ---------------------------------------------------------------------------------------------------------------------
# Errors


def _require_past(at: datetime, now: datetime) -> None:
    if at > now:
        raise InputError(
            f"{time_text(at)} is in the future: it is {time_text(now)}",
            next_step="Give a time in the past.",
            context={"at": time_text(at), "now": time_text(now)},
        )


def _archived_error(what: str, at: datetime, known_from: datetime | None) -> HistoryArchivedError:
    context: dict[str, object] = {"at": time_text(at), "known_from": time_text(known_from) if known_from else None}
    if known_from is None:
        # Rows are missing, although none of this record was archived.
        return HistoryArchivedError(f"{what} at {time_text(at)}", next_step="Run `holdfast check`.", context=context)
    return HistoryArchivedError(
        f"{what} at {time_text(at)}: history before {time_text(known_from)} is archived",
        next_step=f"Give a time at or after {time_text(known_from)}, or read the archive.",
        context=context,
    )


# ---------------------------------------------------------------------------------------------------------------------
# An execution


def _execution_then(execution: Execution, history: _JournalAt) -> PastExecution:
    if history.earlier:
        last = history.earlier[-1]
        status, version, updated_at = ExecutionStatus(last.target), last.version, last.at
    elif execution.updated_at <= history.at:
        status, version, updated_at = execution.status, execution.version, execution.updated_at
    else:
        what = f"the status of attempt {execution.attempt} of job {execution.job_id} is not known"
        raise history.archived_error(what, execution.updated_at)
    ended = status in EXECUTION.final  # the columns of a finished attempt never change
    then: dict[str, Any] = msgspec.structs.asdict(execution)
    then |= {"status": status, "version": version, "updated_at": updated_at}
    then |= {name: _until(then[name], history.at) for name in ("cancel_requested_at", "started_at")}
    if not ended:
        then |= dict.fromkeys(_WRITTEN_AT_THE_END) | {"excused": False}
    return PastExecution(**then)


_WRITTEN_AT_THE_END = (
    "lease_expires_at", "error_code", "error_message", "progress", "progress_note", "finished_at",
)  # fmt: skip


def _until(moment: datetime | None, at: datetime) -> datetime | None:
    """Return the moment if it is not after `at`."""
    return moment if moment is not None and moment <= at else None


# ---------------------------------------------------------------------------------------------------------------------
# A job


def _job_then(job: Job, history: _JournalAt, executions: Sequence[PastExecution]) -> tuple[PastJob, tuple[str, ...]]:
    """Return the job at the past time, and the names of the columns that are not known."""
    earlier, later = history.earlier, history.later
    if earlier:
        last = earlier[-1]
        state, version, updated_at = JobState(last.target), last.version, last.at
        attempts = job.attempts if last.attempt is None else last.attempt
    elif job.updated_at <= history.at:
        state, version, updated_at, attempts = job.state, job.version, job.updated_at, job.attempts
    else:
        raise history.archived_error(f"the state of job {job.job_id} is not known", job.updated_at)
    unmoved = not later
    whole = len(executions) == attempts and history.is_whole
    known: dict[str, Any] = {}
    if unmoved or not any(row.target == JobState.PENDING for row in later):
        known["run_at"] = job.run_at  # only a move to pending writes it
    if unmoved or whole:
        known["excused"] = job.excused if unmoved else sum(execution.excused for execution in executions)
    if unmoved or state != JobState.QUARANTINED:
        known["quarantine_code"] = job.quarantine_code if unmoved else None
    if not any(row.event == "replay" for row in later):
        known["replay_reason"] = job.replay_reason
    elif whole and not any(row.event == "replay" for row in earlier):
        known["replay_reason"] = None
    known |= _errors_then(job, earlier, executions, unmoved=unmoved, whole=whole)
    committed = state == JobState.SUCCEEDED or any(execution.status in COMMITTED for execution in executions)
    if not (committed and job.slimmed):
        known["result"] = job.result if committed else None
    unchanged = {name: getattr(job, name) for name in Submitted.__struct_fields__}
    derived: dict[str, Any] = {name: known.get(name) for name in _DERIVED_COLUMNS}
    past = PastJob(
        operation=job.operation,
        queue=job.queue,
        state=state,
        version=version,
        attempts=attempts,
        priority=job.priority,
        updated_at=updated_at,
        **unchanged,
        **derived,
    )
    return past, tuple(name for name in _DERIVED_COLUMNS if name not in known)


_DERIVED_COLUMNS = (
    "run_at", "excused", "result", "last_error_code", "last_error_message", "quarantine_code", "replay_reason",
)  # fmt: skip


def _errors_then(
    job: Job, earlier: Sequence[JournalRow], executions: Sequence[PastExecution], *, unmoved: bool, whole: bool
) -> dict[str, object]:
    """Return the last error at the past time, if known: the job's own, or that of the last failed attempt."""
    if unmoved:
        return {"last_error_code": job.last_error_code, "last_error_message": job.last_error_message}
    failed = [execution for execution in executions if execution.error_code is not None and not execution.excused]
    if whole and failed:
        return {"last_error_code": failed[-1].error_code, "last_error_message": failed[-1].error_message}
    # A quarantine sets an error code on a job that never failed; the code is not in the journal.
    if whole and not any(row.target == JobState.QUARANTINED for row in earlier):
        return {"last_error_code": None, "last_error_message": None}
    return {}
