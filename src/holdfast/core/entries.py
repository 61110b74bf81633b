"""ENTRY: the states of a job as a write-ahead log names them.

Invariants: ENTRY is JOB seen through `ENTRY_STATUS`; it has no edges of its own.
"""

from collections.abc import Iterator
from enum import StrEnum

from holdfast.core.machine import Edge
from holdfast.core.machines import JOB, JobState


class EntryStatus(StrEnum):
    """The names of a job's states in the write-ahead log."""

    PENDING = "Pending"
    COMPLETED = "Completed"
    FAILED = "Failed"


ENTRY_STATUS = {
    JobState.PENDING: EntryStatus.PENDING,
    JobState.RUNNING: EntryStatus.PENDING,
    JobState.FAILED: EntryStatus.PENDING,
    JobState.SUCCEEDED: EntryStatus.COMPLETED,
    JobState.QUARANTINED: EntryStatus.FAILED,
}


def entry_edges() -> Iterator[Edge]:
    """Yield the edges of ENTRY: those of JOB that change the status of the entry, without the governed edge."""
    seen: set[Edge] = set()
    for edge in JOB.edges:
        if edge in JOB.governed_edges:
            continue
        source = ENTRY_STATUS[JobState(edge.source)] if edge.source else None
        seen_as = Edge(source, ENTRY_STATUS[JobState(edge.target)])
        if seen_as.source != seen_as.target and seen_as not in seen:
            seen.add(seen_as)
            yield seen_as
