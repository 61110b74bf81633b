"""Converts records to the JSON values that commands print.

Invariants: a job has exactly JOB_FIELDS, in that order; times are UTC text in one format; a result is the stored value,
not its text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.frames import where
from holdfast.core.journal import JournalRow
from holdfast.core.machines import JOB, REQUEST
from holdfast.core.records import Job, Submitted, time_text
from holdfast.core.redaction import redacted_json, redacted_lines
from holdfast.core.spans import counted
from holdfast.store import Admission
from holdfast.store.transaction import Reading
from holdfast.store.verbs.counts import Count

if TYPE_CHECKING:  # the past is read only if a command is given a time
    from holdfast.audit.as_of import PastJob

PAYLOAD_SHOWN_MAX = 65_536  # characters
# The fields of what was submitted that no command shows. One that is neither here nor below comes last.
_NOT_SHOWN = {"operation_version", "digest", "replay_attempts", "replaces"}
_IN_ORDER = (
    "job_id", "operation", "client", "key", "queue", "state", "version", "attempts", "max_attempts", "priority",
    "run_at", "last_error_code", "last_error_message", "replay_reason", "result", "created_at", "updated_at",
)  # fmt: skip
JOB_FIELDS = (*_IN_ORDER, *(name for name in Submitted.__struct_fields__ if name not in {*_IN_ORDER, *_NOT_SHOWN}))


def job_value(job: Job | PastJob) -> dict[str, object]:
    shown = {name: _plain(getattr(job, name)) for name in JOB_FIELDS}
    shown["result"] = result_value(job)
    return shown


def admission_value(admission: Admission) -> dict[str, Any]:
    """Return what a submit answers: the job, whether it is new, and the state and result of one that exists."""
    job = admission.existing
    return {
        "job_id": admission.job_id,
        "is_new": admission.is_new,
        "state": job.state if job else JOB.path("submit", None).target,
        "result": result_value(job) if job else None,
    }


def job_history(reading: Reading, job_id: int) -> list[JournalRow]:
    """Return the history of a job, its attempts and the requests to cancel it, in the order of writing."""
    rows = [*reading.journal.of(job_id), *reading.journal.of_executions(job_id)]
    rows += reading.journal.of(job_id, REQUEST.name)
    return sorted(rows, key=lambda row: (row.seq, row.machine == JOB.name))  # a move of both has one number


def by_state(counts: Iterable[Count], *, queue: str | None = None, operation: str | None = None) -> dict[str, int]:
    """Return how many jobs are in each state, of one queue and of one operation if they are named."""
    states = dict.fromkeys(JOB.states, 0)
    for count in counts:
        if queue in (None, count.queue) and operation in (None, count.operation):
            states[count.state] += count.n
    return states


def counts_value(counts: Iterable[Count]) -> dict[str, Any]:
    """Return how many jobs are in each state, in all and by operation."""
    found = list(counts)
    names = dict.fromkeys(count.operation for count in found)
    return {"states": by_state(found), "operations": {name: by_state(found, operation=name) for name in names}}


def tries(job: Job | PastJob) -> str:
    """Return the automatic attempts used of those allowed, such as 3/3; replays are added as +1, excused ones not."""
    automatic, replays = _used(job)
    return f"{automatic}/{job.max_attempts}" + (f" +{replays}" if replays else "")


def tries_in_words(job: Job | PastJob) -> str:
    """Return the same in words, with the replays of those allowed."""
    automatic, replays = _used(job)
    return f"{automatic} of {job.max_attempts}" + (
        f", and {replays} of {job.replay_attempts} replays" if replays else ""
    )


def tries_left(job: Job | PastJob) -> str:
    """Return in words the automatic attempts used, and the replays left."""
    automatic, replays = _used(job)
    left = max(0, job.replay_attempts - replays)
    return f"{automatic} of {job.max_attempts} automatic attempts used; {counted(left, 'replay')} left"


def _used(job: Job | PastJob) -> tuple[int, int]:
    """Return how many automatic attempts and how many replays a job has used, without those that are excused."""
    spent = job.attempts - (job.excused or 0)
    automatic = min(spent, job.max_attempts)
    return automatic, spent - automatic


def result_value(job: Job | PastJob) -> object:
    return None if job.result is None else json.loads(job.result)


def payload_value(job: Job) -> object:
    """Return the payload of a job without likely secrets, None if it was deleted; of a long one, the beginning."""
    if job.payload is None:
        return None
    if len(job.payload) > PAYLOAD_SHOWN_MAX:
        return redacted_lines(job.payload[:PAYLOAD_SHOWN_MAX], PAYLOAD_SHOWN_MAX) + "…"
    return redacted_json(json.loads(job.payload))


def traceback_values(traces: Mapping[int, str]) -> list[dict[str, object]]:
    """Return where attempts failed, each with the number of the attempt."""
    found = ((attempt, where(text), text) for attempt, text in traces.items())
    return [
        {"attempt": attempt, "where": str(place) if place else None, "text": text} for attempt, place, text in found
    ]


def row_value(row: msgspec.Struct) -> dict[str, object]:
    """Return an execution, a journal row or a report as a JSON object with all its fields."""
    return {name: _plain(getattr(row, name)) for name in row.__struct_fields__}


def _plain(value: object) -> object:
    return time_text(value) if isinstance(value, datetime) else value
