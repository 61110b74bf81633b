"""The job machine under the names of G: the statuses, the table, one transition.

Invariants: everything here is derived from the JOB machine; no edge is stated a second time.
"""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

import msgspec

from holdfast.core.machines import JOB, JobState

JobStatus = JobState

VALID_TRANSITIONS: Mapping[JobStatus, frozenset[JobStatus]] = MappingProxyType(
    {
        status: frozenset({status, *(JobStatus(edge.target) for edge in JOB.edges if edge.source == status)})
        for status in JobStatus
    }
)
"""The statuses that may follow each status. Requesting the current status is allowed, and writes nothing."""


class StateTransition(msgspec.Struct, frozen=True):
    """One transition of one job, valid or not."""

    job_id: str
    from_status: JobStatus
    to_status: JobStatus
    timestamp: datetime
    operator: str | None = None
    reason: str | None = None
    metadata: Mapping[str, object] = {}

    def is_valid(self) -> bool:
        """Return whether the table lists it."""
        return self.to_status in VALID_TRANSITIONS[self.from_status]

    def is_idempotent(self) -> bool:
        """Return whether the job has the requested status already."""
        return self.from_status == self.to_status
