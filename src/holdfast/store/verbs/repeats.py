"""Submissions that were not inserted: the jobs that exist under their keys, or the error for other work.

Invariants: a key belongs to one client and to one piece of work, for the life of the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.core.errors import IdempotencyConflictError
from holdfast.core.records import Job
from holdfast.store.requests import Admission, Submission

if TYPE_CHECKING:
    from holdfast.store.transaction import Transaction
    from holdfast.store.verbs.jobs import JobReads


def admissions(
    jobs: JobReads, transaction: Transaction, rest: Sequence[tuple[Submission, str]], born: dict[str, object]
) -> list[Admission]:
    """Return the admission of each submission, given with its digest; raise IdempotencyConflictError for other work.

    The gate of the ledger decides about a submission without a job under its key; `born` are the values that all rows
    of an insert share.
    """
    keyed = [(submission.client, submission.key) for submission, _ in rest if submission.key is not None]
    existing = jobs.by_key(keyed) if keyed else {}
    found = [
        None if job is None else existing_admission(submission, digest, job)
        for submission, digest in rest
        for job in [existing.get((submission.client, submission.key or ""))]
    ]
    if None in found:
        from holdfast.store.verbs.gate import gated_admissions  # noqa: PLC0415 - only where there is a gate

        left = [one for one, admission in zip(rest, found, strict=True) if admission is None]
        more = iter(gated_admissions(jobs, transaction, left, born))
        return [next(more) if admission is None else admission for admission in found]
    return [admission for admission in found if admission is not None]


def existing_admission(submission: Submission, digest: str, job: Job) -> Admission:
    """Return the admission of a submission whose job exists; raise IdempotencyConflictError for other work."""
    if job.digest != digest:
        raise key_conflict(submission)
    return Admission(job.job_id, is_new=False, existing=job)


def key_conflict(submission: Submission) -> IdempotencyConflictError:
    """Return the error for a key that was used for other work."""
    return IdempotencyConflictError(
        f"client {submission.client!r} has used the key {submission.key!r} for another operation or payload",
        context={"client": submission.client, "key": submission.key},
    )
