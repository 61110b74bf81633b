"""Submissions whose key is in use: the jobs that were submitted under it, or the error for other work.

Invariants: a key belongs to one client and to one piece of work, for the life of the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.store.requests import Admission, Submission
from holdfast.store.verbs.jobs import key_conflict

if TYPE_CHECKING:
    from holdfast.store.verbs.jobs import JobReads


def admissions(jobs: JobReads, repeated: Sequence[tuple[Submission, str]]) -> list[Admission]:
    """Return the admission of each submission, given with its digest; raise IdempotencyConflictError for other work."""
    existing = jobs.by_key([(submission.client, submission.key or "") for submission, _ in repeated])
    found: list[Admission] = []
    for submission, digest in repeated:
        job = existing[submission.client, submission.key or ""]
        if job.digest != digest:
            raise key_conflict(submission)
        found.append(Admission(job.job_id, is_new=False, existing=job))
    return found
