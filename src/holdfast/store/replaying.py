"""What the ledger is asked for replay: finding what may be replayed, and how the queues are doing.

Invariants: nothing is decided here; jobs are found in ascending order of their ids, page by page.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.store.statements import encoded

if TYPE_CHECKING:
    from holdfast.store.store import Store

_AT_REST = frozenset({JobState.FAILED, JobState.QUARANTINED, JobState.RUNNING})  # those of a partial index


class ReplayReading(ABC):
    """The part of a Reading for replay."""

    _store: Store[Any]

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
            "resting_jobs_after" if state in _AT_REST else "jobs_after",
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

    @abstractmethod
    def _job(self, row: Sequence[Any]) -> Job: ...

    @abstractmethod
    def _run(self, name: str, /, **params: object) -> list[tuple[Any, ...]]: ...


class ReplayWriting(ABC):
    """The part of a transaction for replay."""

    _store: Store[Any]

    def lock_replays(self) -> None:
        """Let no other replay begin until this transaction ends; where writers take turns anyway, do nothing."""
        self._run("lock_replays")

    @abstractmethod
    def _run(self, name: str, /, **params: object) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def _signature(self, actor: str | None, reason: str | None, move_id: str | None = None) -> dict[str, object]: ...
