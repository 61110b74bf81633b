"""Verbs of quarantine: the quarantined jobs, page by page.

Invariants: these verbs only read; a page is found by an index, so its cost does not depend on jobs in other states.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.store.verbs.base import Verbs

FACTS_A_PAGE = 5000


class Fact(NamedTuple):
    """The fields by which quarantined jobs are counted."""

    job_id: int
    code: str | None
    error_code: str | None
    error_message: str | None
    operation: str
    queue: str
    since: datetime
    slimmed: bool


class QuarantineReads(Verbs):
    """Reads quarantined jobs."""

    def page(
        self,
        *,
        code: str | None = None,
        but: str | None = None,
        operation: str | None = None,
        queue: str | None = None,
        until: datetime | None = None,
        slimmed: bool = True,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Job]:
        """Return a page of quarantined jobs, newest first.

        `but` excludes one code, `until` excludes jobs that were quarantined later, and `slimmed=False` excludes jobs
        whose payload retention has deleted.
        """
        rows = self._run(
            "list_quarantined",
            state=JobState.QUARANTINED,
            code=code,
            but=but,
            operation=operation,
            queue=queue,
            until=self._store.stored(until),
            slimmed=slimmed,
            before=before,
            n=limit,
        )
        return [self._job(row) for row in rows]

    def facts(self) -> Iterator[Fact]:
        """Yield the facts of all quarantined jobs, oldest first."""
        last = 0
        while rows := self._run("quarantined_facts", state=JobState.QUARANTINED, after=last, n=FACTS_A_PAGE):
            for job_id, code, error_code, message, operation, queue, since, slimmed in rows:
                moment = self._store.moment(since)
                yield Fact(job_id, code, error_code, message, operation, queue, moment, bool(slimmed))
            last = rows[-1][0]
