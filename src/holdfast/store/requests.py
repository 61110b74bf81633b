"""What the store is asked for: work to record, leases to give.

Invariants: a payload is canonical JSON text already; a digest covers the operation and the payload, nothing else.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from holdfast.core.digest import sha256
from holdfast.core.records import MAX_ATTEMPTS, REPLAY_ATTEMPTS, Job


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A call as it enters the ledger: canonical payload text, ready to be written."""

    operation: str
    payload: str
    client: str = "local"
    key: str | None = None
    operation_version: str = "1.0.0"
    queue: str = "default"
    priority: int = 0
    run_at: datetime | None = None
    max_attempts: int = MAX_ATTEMPTS
    replay_attempts: int = REPLAY_ATTEMPTS
    replaces: int | None = None

    @property
    def digest(self) -> str:
        """Return what makes two submissions under one key the same work."""
        return sha256(f"{self.operation}\n{self.payload}")


class Declared(msgspec.Struct, frozen=True):
    """An operation as the ledger knows it: its version, and what a job gets that does not say otherwise."""

    version: str = "1.0.0"
    queue: str = "default"
    max_attempts: int = MAX_ATTEMPTS
    replay_attempts: int = REPLAY_ATTEMPTS
    priority: int = 0


class Admission(msgspec.Struct, frozen=True):
    """What became of a submission: its job, and whether it is new."""

    job_id: int
    is_new: bool
    existing: Job | None = None


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Who claims, for how long, how many, and from which queues."""

    owner: str
    seconds: float
    n: int = 1
    queues: tuple[str, ...] = ("default",)
    seconds_by_operation: Mapping[str, float] = {}
    begin: bool = True  # start the execution in the same write; False for real prefetch
