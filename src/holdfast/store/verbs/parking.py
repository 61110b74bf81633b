"""Verbs of parked jobs: pending jobs that no claim sees until a cause ends: a limit, other jobs, or the depth.

Invariants: only a pending job is parked, and for one cause; parking is no move, so it has no version and no journal
row; a job is unparked only by the cause for which it was parked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from holdfast.store.statements import encoded
from holdfast.store.verbs.base import WritingVerbs

Cause = Literal["limit", "after", "depth"]


class ParkingWrites(WritingVerbs):
    """Parks and unparks jobs."""

    def park(self, job_ids: Iterable[int], cause: Cause, bucket: str | None = None) -> set[int]:
        """Park pending jobs that are not parked; return the ids of those that are parked now by this call."""
        rows = encoded([(job_id, bucket) for job_id in sorted(set(job_ids))])
        return {job_id for (job_id,) in self._run("park_jobs", rows=rows, parked=cause)}

    def let_go(self, job_ids: Iterable[int], cause: Cause) -> set[int]:
        """Unpark jobs that are parked for this cause, and announce their queues; return their ids."""
        found = self._run("unpark_jobs", rows=encoded(sorted(set(job_ids))), parked=cause)
        self._session.queues_to_announce.update(queue for _, queue in found)
        return {job_id for job_id, _ in found}
