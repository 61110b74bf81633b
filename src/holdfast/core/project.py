"""Computes the state of a job from its executions and its rulings (moves that no execution made).

Invariants: pure; the stored state of every job equals `project(...)` at the end of every transaction. Rulings are
needed because executions do not show whether a job is failed or quarantined, and a cancelled job may have none.
"""

from collections.abc import Iterable
from typing import Protocol

from holdfast.core.journal import JournalRow, Ruling
from holdfast.core.machine import Edge
from holdfast.core.machines import JOB, OPEN, REQUEST, ExecutionStatus, JobState

RULED_EDGES = frozenset(
    edge for edge in JOB.edges if edge.source is not None and JobState.RUNNING not in (edge.source, edge.target)
)
"""The edges of a job that no execution takes: neither from nor to `running`, and not that of a new job."""


REST = frozenset({JobState.PENDING, JobState.FAILED, JobState.QUARANTINED})
"""The states that a repair can set without an execution; `running` and `succeeded` follow from executions."""


def rulings_of(journal: Iterable[JournalRow]) -> tuple[Ruling, ...]:
    """Return the rulings among the journal rows of a job, oldest first; rows of a repair count as rulings."""
    rows = list(journal)
    # A request is the first ruling on its attempt, and says that the job is cancelled if the attempt does not commit.
    requests = [
        Ruling(row.event, JobState.QUARANTINED, row.attempt or 0) for row in rows if row.machine == REQUEST.name
    ]
    moves = sorted((row for row in rows if row.machine == JOB.name), key=lambda row: row.version)
    ruled = [
        Ruling(row.event, JobState(row.target), row.attempt or 0)
        for row in moves
        if Edge(row.source, row.target) in RULED_EDGES or (row.maintenance_id is not None and row.target in REST)
    ]
    return (*requests, *ruled)


class Made(Protocol):
    """The fields of an execution that `project` reads: the number of the attempt and the status."""

    @property
    def attempt(self) -> int: ...

    @property
    def status(self) -> ExecutionStatus: ...


def project(executions: Iterable[Made], rulings: Iterable[Ruling]) -> JobState:
    """Return the state of a job with these executions and rulings."""
    latest = max(executions, key=lambda execution: execution.attempt, default=None)
    if latest is None:
        state, attempt = JobState.PENDING, 0
    elif latest.status in OPEN:
        return JobState.RUNNING
    elif latest.status == ExecutionStatus.DONE:
        return JobState.SUCCEEDED
    else:
        state, attempt = JobState.FAILED, latest.attempt
    for ruling in rulings:
        if ruling.attempt == attempt:
            state = ruling.target
    return state
