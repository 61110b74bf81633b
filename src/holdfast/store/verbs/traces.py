"""Verbs of traces: in which trace a job was submitted, as W3C's `traceparent` and `tracestate`.

Invariants: a store writes traces only after `keep_traces`, in the transaction of the submit, and only of new jobs; any
other store runs no statement for them. Retention and erasure delete them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Never

from holdfast.store.requests import Admission, Submission
from holdfast.store.statements import encoded
from holdfast.store.store import Store
from holdfast.store.transaction import Group, Reading, Transaction
from holdfast.store.verbs.jobs import JobWrites


class Trace(NamedTuple):
    """Where a trace is, as the two headers of W3C's Trace Context."""

    traceparent: str
    tracestate: str | None = None


class TracedSubmission(Submission, frozen=True, kw_only=True):
    """A submission with the trace in which it was made."""

    trace: Trace


class TracedJobWrites(JobWrites):
    """Submits jobs with their traces."""

    def submit(
        self, submissions: Sequence[Submission], *, actor: str | None = None, reason: str | None = None
    ) -> list[Admission]:
        """Submit as `JobWrites.submit` does, and write the traces of the new jobs."""
        admissions = super().submit(submissions, actor=actor, reason=reason)
        rows = [
            (admission.job_id, *submission.trace)
            for submission, admission in zip(submissions, admissions, strict=True)
            if admission.is_new and isinstance(submission, TracedSubmission)
        ]
        if rows:
            self._run("add_traces", rows=encoded(rows))
        return admissions


class TracedTransaction(Transaction):
    """A transaction of a store that keeps traces."""

    jobs: Group[Never, TracedJobWrites] = Group("TracedJob", "traces")


def keep_traces(store: Store[Any]) -> None:
    """Write the traces of what is submitted from now on. A submit is then never a statement that commits itself."""
    vars(store).update(transactions=TracedTransaction, alone=store.transaction)


def trace_of(reading: Reading, job_id: int) -> Trace | None:
    """Return the trace in which a job was submitted, if it is known."""
    rows = reading.run("trace_of", job_id=job_id)
    return Trace(*rows[0]) if rows else None


def forget_traces(transaction: Transaction, job_ids: Sequence[int]) -> None:
    transaction.run("forget_traces", rows=encoded(sorted(job_ids)))
