"""What a job's state must be, given its executions and the rulings about it.

Invariants: pure; the stored state of every job equals `project(...)` at the end of every transaction. Executions alone
cannot tell failed from quarantined, and a job cancelled before any claim has none: hence the rulings.
"""

from collections.abc import Iterable
from typing import Protocol

from holdfast.core.machine import Edge
from holdfast.core.machines import JOB, OPEN, ExecutionStatus, JobState
from holdfast.core.records import JournalRow, Ruling

RULED_EDGES = frozenset(
    edge for edge in JOB.edges if edge.source is not None and JobState.RUNNING not in (edge.source, edge.target)
)
"""The edges of a job that no execution makes: they do not touch `running`, and are not its birth."""


REST = frozenset({JobState.PENDING, JobState.FAILED, JobState.QUARANTINED})
"""Where a repair can put a job by itself; that a job runs or has succeeded is for its executions to say."""


def rulings_of(journal: Iterable[JournalRow]) -> tuple[Ruling, ...]:
    """Return the rulings among a job's journal rows, oldest first. What a repair wrote is one, whatever its source."""
    rows = sorted((row for row in journal if row.machine == JOB.name), key=lambda row: row.version)
    return tuple(
        Ruling(row.event, JobState(row.target), row.attempt or 0)
        for row in rows
        if Edge(row.source, row.target) in RULED_EDGES or (row.maintenance_id is not None and row.target in REST)
    )


class Made(Protocol):
    """What counts of an execution: which attempt it was, and where it stands."""

    @property
    def attempt(self) -> int: ...

    @property
    def status(self) -> ExecutionStatus: ...


def project(executions: Iterable[Made], rulings: Iterable[Ruling]) -> JobState:
    """Return the state that these facts add up to."""
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
