"""Verbs of replay: which jobs may be replayed, and the recent attempts of queues.

Invariants: these verbs decide nothing; jobs are returned in ascending order of their ids, page by page.
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
    """Reads the jobs and attempts that a replay needs."""

    def jobs_after(
        self,
        job_id: int,
        state: JobState,
        *,
        queues: Sequence[str] = (),
        operations: Sequence[str] = (),
        limit: int = 1000,
    ) -> list[Job]:
        """Return a page of the jobs in a state with ids above `job_id`, lowest first; an empty filter matches all."""
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
        """Return the newest replacement of each of these jobs that has one."""
        return dict(self._run("replaced_by", rows=encoded(sorted(job_ids))))

    def recent_attempts(
        self, queues: Sequence[str], *, since: datetime, among: int = 1000
    ) -> list[tuple[datetime, datetime | None]]:
        """Return the start and end of the latest attempts in these queues, without those that ended before `since`."""
        rows = self._run("recent_attempts", queues=encoded(list(queues)), since=self._store.stored(since), n=among)
        moment = self._store.moment
        return [(moment(begun), None if ended is None else moment(ended)) for begun, ended in rows]


class ReplayWrites(ReplayReads, WritingVerbs):
    """Locks replays."""

    def lock(self) -> None:
        """Let no other replay begin until this transaction ends; does nothing on SQLite."""
        self._run("lock_replays")
