"""Reads for people who watch a ledger: lists of jobs without payloads, failures, lanes of queues, the last moves.

Invariants: nothing here writes; each read looks at a bounded number of rows, found by an index, and a list says how far
it looked.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from holdfast.core.journal import JournalRow
from holdfast.core.machines import JobState
from holdfast.store.rows import reader
from holdfast.store.statements import encoded
from holdfast.store.transaction import Reading
from holdfast.store.verbs.lists import FEW_WAITING, RESTING, Pause

ID_MAX = 2**63 - 1
WINDOW = 20_000  # jobs that one page looks through
SMALL = 4  # times the size of a page: the window that is looked through first
UNFOLDED_MAX = 20_000  # deltas of counts that are read one by one; a trigger folds a quarter as many
WAITING_MAX = 1_000  # jobs that wait for one bucket of a limit are counted up to this number
DUE_MAX = 10_000  # due jobs of a lane are counted up to this number


class JobLine(msgspec.Struct, frozen=True, gc=False):
    """A job as a list shows it, without its payload and result."""

    job_id: int
    state: JobState
    operation: str
    queue: str
    client: str
    key: str | None
    attempts: int
    excused: int
    max_attempts: int
    run_at: datetime
    created_at: datetime
    updated_at: datetime
    last_error_code: str | None
    last_error_message: str | None
    quarantine_code: str | None
    lost: int | None  # leases that it lost


class JobFilters(msgspec.Struct, frozen=True, kw_only=True):
    """The filters of a list of jobs; None does not filter."""

    state: JobState | None = None
    operation: str | None = None
    queue: str | None = None
    client: str | None = None
    code: str | None = None  # of the last error


class JobLines(msgspec.Struct, frozen=True, kw_only=True):
    """A page of jobs, newest first, and how far it looked."""

    lines: list[JobLine]
    looked_from: int | None  # the lowest id that was looked at; None: down to the lower bound
    more: bool  # older jobs may match


class FailedFact(NamedTuple):
    """The fields by which failed jobs are grouped."""

    job_id: int
    operation: str
    queue: str
    code: str | None
    message: str | None
    at: datetime


class Lane(NamedTuple):
    """The pending jobs of one queue and priority: the earliest time, and how many are due, counted up to DUE_MAX."""

    queue: str
    priority: int
    first_at: datetime
    due: int


class JobMoves(NamedTuple):
    """Moves of jobs of one operation and queue in one minute; `code` is that of the attempts that ended in error."""

    minute: datetime
    operation: str
    queue: str
    source: str | None
    target: str
    event: str
    code: str | None
    n: int


class HeldAttempt(msgspec.Struct, frozen=True):
    """A running job, the worker that holds it, and until when."""

    owner: str
    job_id: int
    operation: str
    queue: str
    attempt: int
    began_at: datetime
    lease_expires_at: datetime
    progress: float | None
    note: str | None


_read_line = reader(JobLine)
_read_entry = reader(JournalRow)
_read_held = reader(HeldAttempt)


def job_lines(
    reading: Reading,
    filters: JobFilters,
    *,
    before: int | None = None,
    after: int = 0,
    limit: int = 50,
    window: int = WINDOW,
) -> JobLines:
    """Return a page of the jobs below the id `before` and above `after`; it looks through at most `window` jobs."""
    state = filters.state
    bounds = {"before": ID_MAX if before is None else before, "after": after}
    statement, floor = _statement(reading, state)
    params: dict[str, object] = {**msgspec.structs.asdict(filters), **bounds, "n": limit + 1}
    found: list[JobLine] = []
    # Most pages are full after a few jobs: a small window is looked through first.
    for size in (min(window, SMALL * limit), window) if floor is not None else (None,):
        more = {} if size is None else {"window": size}
        found = [_read_line(row, reading.store.moment) for row in reading.run(statement, **params, **more)]
        if len(found) > limit:
            return JobLines(lines=found[:limit], looked_from=found[limit - 1].job_id, more=True)
    if floor is None:
        return JobLines(lines=found, looked_from=None, more=False)
    named = {"state": state} if floor == "resting_floor" else {}
    [[lowest, n]] = reading.run(floor, window=window, **bounds, **named)
    cut = n == window
    return JobLines(lines=found, looked_from=lowest if cut else None, more=cut)


def _statement(reading: Reading, state: JobState | None) -> tuple[str, str | None]:
    """Return the statement that lists jobs in a state, and the one that says how far its window reaches."""
    if state in RESTING:
        return "resting_lines", "resting_floor"
    if state is JobState.RUNNING:
        return "running_lines", None
    if state is JobState.PENDING and sum(n for _, _, of, n in reading.counts.raw() if of == state) <= FEW_WAITING:
        return "waiting_lines", None
    return "job_lines", "window_floor"


def first_job_since(reading: Reading, moment: datetime) -> int:
    """Return the id of the first job that was submitted at `moment` or later; ids grow with the time of submission.

    If there is none, return the id after the last one.
    """
    last = greatest_job(reading)
    low, high = 1, last + 1
    while low < high:
        middle = (low + high) // 2
        rows = reading.run("call_from", job_id=middle)
        if not rows or reading.store.moment(rows[0][1]) >= moment:
            high = middle
        else:
            low = rows[0][0] + 1
    return low


def greatest_job(reading: Reading) -> int:
    """Return the greatest id of a job, 0 if there is none."""
    [[last]] = reading.run("greatest_job")
    return last or 0


def count_failed(reading: Reading, *, most: int) -> int:
    """Return how many jobs are failed, counted no further than `most`."""
    [[_, count]] = reading.run("resting_floor", state=JobState.FAILED, before=ID_MAX, after=0, window=most)
    return int(count)


def failed_facts(reading: Reading, *, limit: int, before: int | None = None) -> list[FailedFact]:
    """Return the facts of the newest failed jobs, below an id if one is given."""
    moment = reading.store.moment
    rows = reading.run("failed_facts", before=ID_MAX if before is None else before, n=limit)
    return [
        FailedFact(job_id, operation, queue, code, message, moment(at))
        for job_id, operation, queue, code, message, at in rows
    ]


def due_lanes(reading: Reading, queues: Sequence[str], now: datetime) -> list[Lane]:
    """Return the lanes of these queues that have pending jobs, by queue, the highest priority first."""
    rows = reading.run("due_lanes", queues=encoded(list(queues)), now=reading.store.stored(now), n=DUE_MAX)
    return [Lane(queue, priority, reading.store.moment(first), int(due)) for queue, priority, first, due in rows]


def recent_durations(reading: Reading, *, limit: int = 2000) -> list[tuple[str, float]]:
    """Return how many seconds the handlers of the newest succeeded jobs ran, each with its queue."""
    moment = reading.store.moment
    rows = reading.run("recent_durations", n=limit)
    return [(queue, (moment(ended) - moment(began)).total_seconds()) for queue, began, ended in rows]


class RecentMoves(NamedTuple):
    """The moves of jobs since a time, by minute."""

    moves: list[JobMoves]
    since: datetime | None  # if UNFOLDED_MAX deltas or more are not folded: the time from which on all moves are here


def recent_moves(reading: Reading, since: datetime) -> RecentMoves:
    """Return the moves of jobs since a time."""
    moment = reading.store.moment
    [[unfolded, first]] = reading.run("newest_deltas", n=UNFOLDED_MAX)
    rows = reading.run("recent_moves", since=reading.store.stored(since), n=UNFOLDED_MAX)
    moves = [
        JobMoves(moment(minute), operation, queue, source or None, target, event, code or None, int(n))
        for minute, operation, queue, source, target, event, code, n in rows
    ]
    return RecentMoves(moves, moment(first) if unfolded == UNFOLDED_MAX and first is not None else None)


def waiting_by_bucket(reading: Reading, *, limit: int = 200) -> dict[str, int]:
    """Return the buckets of limits that jobs wait for, each with how many do, counted up to WAITING_MAX."""
    rows = reading.run("waiting_by_bucket", n=limit, most=WAITING_MAX)
    return {bucket: int(jobs) for bucket, jobs in rows}


def journal_tail(
    reading: Reading,
    *,
    machine: str | None = None,
    event: str | None = None,
    actor: str | None = None,
    before: int | None = None,
    limit: int = 100,
    window: int = WINDOW,
) -> tuple[list[JournalRow], int]:
    """Return the newest entries of the journal below a number, newest first, and the number that it looked down to."""
    [[last]] = reading.run("last_entry")
    top = (last or 0) + 1 if before is None else before
    after = max(0, top - 1 - window)
    rows = reading.run("journal_tail", machine=machine, event=event, actor=actor, before=top, after=after, n=limit)
    found = [_read_entry(row, reading.store.moment) for row in rows]
    return found, found[-1].seq if len(found) == limit else after + 1


def keyed_clients(reading: Reading, *, limit: int = 1000) -> list[str]:
    """Return the clients that have used idempotency keys."""
    return [client for (client,) in reading.run("keyed_clients", n=limit)]


def pauses(reading: Reading) -> dict[str, Pause]:
    """Return the paused queues: since when, by whom and why."""
    moment = reading.store.moment
    return {queue: Pause(moment(at), by, reason) for queue, at, by, reason in reading.run("pauses")}


def attempts_held(reading: Reading, *, limit: int = 1000) -> list[HeldAttempt]:
    """Return the running jobs with their workers, by the time at which their lease expires."""
    return [_read_held(row, reading.store.moment) for row in reading.run("attempts_held", n=limit)]
