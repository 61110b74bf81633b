"""A job at one time, for its explanation: what the ledger knows about it, and texts for findings.

Invariants: everything is read from one snapshot; nothing here writes.
"""

import shlex
from datetime import datetime
from functools import cached_property

from holdfast.core.frames import Where, where
from holdfast.core.journal import JournalRow
from holdfast.core.machines import REQUEST, JobState
from holdfast.core.records import LOSSES_EXCUSED, Job, time_text
from holdfast.core.spans import age, instant
from holdfast.explain.explanation import Finding, FindingCode
from holdfast.store.transaction import Reading
from holdfast.store.verbs.alive import alive_workers
from holdfast.store.verbs.tracebacks import tracebacks_of


class JobView:
    """A job at one time, and what the ledger knows about it."""

    def __init__(self, reading: Reading, job: Job, now: datetime) -> None:
        self.reading = reading
        self.job = job
        self.now = now
        self.all_workers = reading.lists.workers()
        self.workers = alive_workers(reading, now)

    @cached_property
    def where(self) -> Where | None:
        """Where the handler failed at the last failure, if that is known."""
        traces = tracebacks_of(self.reading, self.job.job_id)
        failures = [e for e in self.reading.lists.executions(self.job.job_id) if e.error_code and not e.excused]
        return where(traces.get(failures[-1].attempt)) if failures else None

    @property
    def last_error(self) -> str:
        """The last error in one line, with where it was raised."""
        job = self.job
        first = (job.last_error_message or "").partition("\n")[0]
        error = ": ".join(filter(None, (job.last_error_code, first)))
        return f"{error} (at {self.where})" if self.where else error

    @property
    def failure_evidence(self) -> dict[str, object]:
        """The attempts and the last error of the job, as evidence; `where` if the handler's line is known."""
        named = ("attempts", "spent", "max_attempts", "replay_attempts", "last_error_code", "last_error_message")
        known = {"where": str(self.where)} if self.where else {}
        return {**{name: getattr(self.job, name) for name in named}, **known}

    @property
    def requests(self) -> list[JournalRow]:
        """The requests to cancel attempts of the job, oldest first."""
        return self.reading.journal.of(self.job.job_id, REQUEST.name)

    @property
    def suspect(self) -> bool:
        """Whether the job runs alone, because it has lost leases."""
        return (self.job.lost or 0) >= LOSSES_EXCUSED

    def finding(self, code: FindingCode, message: str, evidence: dict[str, object], then: str | None = None) -> Finding:
        """Return a finding. Without a better next command, it is `holdfast show`."""
        if self.job.operation.startswith("nodd."):
            from holdfast.nodd.units import next_command  # noqa: PLC0415 - for its own jobs alone

            then = next_command(self.job, code) or then
        return Finding(code, message, evidence, then or f"holdfast show {self.job.job_id}")

    def queue_jobs(self, state: JobState) -> str:
        """Return the command that lists the jobs of the queue in a state."""
        return f"holdfast jobs --state {state} --queue {shlex.quote(self.job.queue)}"

    def when(self, moment: datetime) -> str:
        """Return a time as text, with its distance from now."""
        return f"{instant(moment)} UTC ({age(moment, self.now)})"


def moment_text(moment: datetime | None) -> str | None:
    return None if moment is None else time_text(moment)
