"""The words of the job machine under the names that G gives them: the statuses, the table, one transition.

Invariants: everything here is derived from the JOB machine; no edge is written down a second time.
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
"""Where a job may go from each status. Asking for the status it has already is allowed, and writes nothing."""


class StateTransition(msgspec.Struct, frozen=True):
    """One move of one job between two statuses, legal or not."""

    job_id: str
    from_status: JobStatus
    to_status: JobStatus
    timestamp: datetime
    operator: str | None = None
    reason: str | None = None
    metadata: Mapping[str, object] = {}

    def is_valid(self) -> bool:
        """Tell whether the table lists it."""
        return self.to_status in VALID_TRANSITIONS[self.from_status]

    def is_idempotent(self) -> bool:
        """Tell whether it asks for the status that the job has already."""
        return self.from_status == self.to_status
