"""Verbs of replay: which jobs may be replayed, and how the queues are doing.

Invariants: nothing is decided here; jobs are found in ascending order of their ids, page by page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.store.statements import encoded
from holdfast.store.verbs.base import Verbs, WritingVerbs
from holdfast.store.verbs.lists import RESTING


class ReplayReads(Verbs):
    """Reads what replay needs to know."""

    def jobs_after(
        self,
        job_id: int,
        state: JobState,
        *,
        queues: Sequence[str] = (),
        operations: Sequence[str] = (),
        limit: int = 1000,
    ) -> list[Job]:
        """Return a page of the jobs in a state above an id, lowest first; an empty filter lets all pass."""
        rows = self._run(
            "resting_jobs_after" if state in RESTING else "jobs_after",
            job_id=job_id,
            state=state,
            queues=encoded(list(queues)) if queues else None,
            operations=encoded(list(operations)) if operations else None,
            n=limit,
        )
        return [self._job(row) for row in rows]

    def replaced_by(self, job_ids: Iterable[int]) -> dict[int, int]:
        """Return, of these jobs, those that others replace, each with the newest of them."""
        return dict(self._run("replaced_by", rows=encoded(sorted(job_ids))))

    def recent_attempts(
        self, queues: Sequence[str], *, since: datetime, among: int = 1000
    ) -> list[tuple[datetime, datetime | None]]:
        """Return when the latest attempts at jobs of these queues began and ended; those that ended before are old."""
        rows = self._run("recent_attempts", queues=encoded(list(queues)), since=self._store.stored(since), n=among)
        moment = self._store.moment
        return [(moment(begun), None if ended is None else moment(ended)) for begun, ended in rows]


class ReplayWrites(ReplayReads, WritingVerbs):
    """Keeps replays apart."""

    def lock(self) -> None:
        """Let no other replay begin until this transaction ends; where writers take turns anyway, do nothing."""
        self._run("lock_replays")
