"""The names, formats and fields in which the replay command of an application differs from `holdfast replay`.

Invariants: the commands are the same for every program; a program changes names, never behaviour.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.cli.replay.overlays import HOLDFAST_OVERLAY, OverlayFormat
from holdfast.cli.replay.spec_files import HOLDFAST_SPEC, SpecFormat
from holdfast.core.records import Job
from holdfast.core.redaction import redacted
from holdfast.explain.values import JOB_FIELDS, job_value
from holdfast.store import Store

EXTRA_FIELDS = ("replaces", "excused", "quarantine_code", "operation_version")  # of a job, beside JOB_FIELDS


@dataclass(frozen=True, kw_only=True)
class Program:
    """The names and formats of a program; the defaults are those of `holdfast replay`."""

    name: str = "holdfast replay"
    url_flag: str = "--db"
    url_variable: str = "HOLDFAST_URL"
    env_variable: str | None = None  # an environment must be named, by --env or by this variable
    reason_needed: bool = True
    queue: str = "queue"  # what it calls a queue, in flags, fields and column titles
    spec: SpecFormat = HOLDFAST_SPEC
    overlay: OverlayFormat = HOLDFAST_OVERLAY
    columns: tuple[str, ...] = ("job_id", "queue", "status", "attempts", "last_error_code", "created_at")
    record_fields: tuple[str, ...] = ()  # that `inspect` adds to the fields of a job

    def text(self, text: str) -> str:
        """Return a message or a next step with the flags and the name of this program."""
        return text

    def find(self, store: Store[Any], name: str) -> Job | None:  # noqa: ARG002 - a job has no other name
        """Return the job that this program knows by a name of its own; None if the name is not of that kind."""
        return None

    def field(self, job: Job, name: str) -> object:
        """Return a field of a job, or else of its payload; None if there is no such field."""
        if name == "status":
            return str(job.state)
        if name in JOB_FIELDS:
            return job_value(job)[name]
        if name in EXTRA_FIELDS:
            return getattr(job, name)
        payload = msgspec.json.decode(job.payload or "null")
        value = payload.get(name) if isinstance(payload, dict) else None
        if isinstance(value, str):
            # The redaction recognises a secret by the name before it, so the name is added and removed again.
            return redacted(f"{name}={value}").removeprefix(f"{name}=")
        return value if isinstance(value, (bool, int, float)) or value is None else f"({type(value).__name__})"
