"""Records as the JSON values that scripts rely on.

Invariants: a job shows exactly JOB_FIELDS, in that order; times are UTC text in the one format; a result is the value
that was stored, not its text.
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
    """Return a job as its JSON object."""
    shown = {name: _plain(getattr(job, name)) for name in JOB_FIELDS}
    shown["result"] = result_value(job)
    return shown


def result_value(job: Job | PastJob) -> object:
    """Return the value that the job stored, or None."""
    return None if job.result is None else json.loads(job.result)


def row_value(row: msgspec.Struct) -> dict[str, object]:
    """Return an execution, a row of the journal or a report as its JSON object: every field."""
    return {name: _plain(getattr(row, name)) for name in row.__struct_fields__}


def _plain(value: object) -> object:
    return time_text(value) if isinstance(value, datetime) else value
