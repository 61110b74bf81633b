"""The names of a write-ahead log's queue and operations.

Invariants: a job is an entry of a log if its queue and its operation both have the prefixes.
"""

from holdfast.core.records import Job

QUEUE_PREFIX, OPERATION_PREFIX = "wal:", "wal."
"""Prefixes of a log's queue and operations. The queue is always paused, so that workers claim no entries."""


def log_of(job: Job) -> str | None:
    """Return the name of the log to which a job belongs, or None if it is not an entry."""
    is_entry = job.queue.startswith(QUEUE_PREFIX) and job.operation.startswith(OPERATION_PREFIX)
    return job.queue.removeprefix(QUEUE_PREFIX) if is_entry else None
