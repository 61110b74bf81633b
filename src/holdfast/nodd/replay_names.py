"""The names that NODD's replay gives to the general ones: versions of its files, filters, states and fields.

Invariants: what is fixed by the interface of `nodd-replay` is written here and nowhere else; translating there and back
gives the same.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.core.selection import Attempts, SelectionFilters, Window

SPEC_VERSION, SPEC_KIND = "kfm.nodd.replay/v1alpha1", "ReplaySelection"
OVERLAY_VERSION, OVERLAY_KIND = "kfm.nodd.env/v1alpha1", "NoddEnvOverlay"
IN_PROGRESS = "in_progress"
WAL_ID = "wal_id"
# A field of SelectionFilters, and what a spec file of NODD calls it.
FILTER_NAMES = {"queues": "datasets", "queues_exclude": "datasets_exclude", "jobs": "wal_ids"}


class WalStatus(StrEnum):
    """The state of a write-ahead record, or of its job: both names of a running one are accepted."""

    PENDING = "pending"
    RUNNING = "running"
    IN_PROGRESS = IN_PROGRESS
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    QUARANTINED = "quarantined"

    @property
    def job_state(self) -> JobState:
        return JobState.RUNNING if self is WalStatus.IN_PROGRESS else JobState(self.value)


class NoddFilters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The filters of a spec file of NODD."""

    datasets: tuple[str, ...] = ()
    datasets_exclude: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    status: tuple[WalStatus, ...] = (WalStatus.FAILED,)
    error_codes: tuple[str, ...] = ()
    event_time: Window | None = None
    created_at: Window | None = None
    time_range_overlap: Window | None = None
    attempts: Attempts | None = None
    wal_ids: tuple[str, ...] = ()  # job ids, keys, or the wal_id of payloads

    def to_selection(self) -> SelectionFilters:
        """Return the same filters under their general names."""
        return SelectionFilters(
            queues=self.datasets,
            queues_exclude=self.datasets_exclude,
            operations=self.operations,
            status=tuple(status.job_state for status in self.status),
            error_codes=self.error_codes,
            event_time=self.event_time,
            created_at=self.created_at,
            time_range_overlap=self.time_range_overlap,
            attempts=self.attempts,
            jobs=self.wal_ids,
            id_field=WAL_ID if self.wal_ids else None,
        )


def record_field(job: Job, name: str) -> tuple[bool, object]:
    """Return whether NODD has its own meaning for a field of a job, and the value."""
    if name == "dataset":
        return True, job.queue
    if name == "status":
        return True, IN_PROGRESS if job.state is JobState.RUNNING else str(job.state)
    if name == WAL_ID:
        payload = msgspec.json.decode(job.payload or "null")
        wal_id = payload.get(WAL_ID) if isinstance(payload, dict) else None
        return True, wal_id if isinstance(wal_id, str) else job.job_id
    return False, None
