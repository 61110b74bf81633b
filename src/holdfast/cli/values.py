"""Converts records to the JSON values that commands print.

Invariants: a job has exactly JOB_FIELDS, in that order; times are UTC text in one format; a result is the stored value,
not its text.
"""

import json
from datetime import datetime

import msgspec

from holdfast.audit.as_of import PastJob
from holdfast.core.records import Job, time_text

JOB_FIELDS = (
    "job_id", "operation", "client", "key", "queue", "state", "version", "attempts", "max_attempts", "priority",
    "run_at", "last_error_code", "last_error_message", "replay_reason", "result", "created_at", "updated_at",
)  # fmt: skip


def job_value(job: Job | PastJob) -> dict[str, object]:
    """Return a job as a JSON object."""
    shown = {name: _plain(getattr(job, name)) for name in JOB_FIELDS}
    shown["result"] = result_value(job)
    return shown


def result_value(job: Job | PastJob) -> object:
    """Return the stored result of a job, or None."""
    return None if job.result is None else json.loads(job.result)


def row_value(row: msgspec.Struct) -> dict[str, object]:
    """Return an execution, a journal row or a report as a JSON object with all its fields."""
    return {name: _plain(getattr(row, name)) for name in row.__struct_fields__}


def _plain(value: object) -> object:
    return time_text(value) if isinstance(value, datetime) else value
