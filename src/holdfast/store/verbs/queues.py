"""Verbs of queues: which are paused, how many jobs may wait in one, and the changes of these settings.

The claim and the submit read `holdfast_queues`. Each change is a setting too, so that it has a journal row.

Invariants: jobs of a paused queue are not claimed; a change and its journal row are one transaction.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.limits import DEPTH as PARKED_BEYOND
from holdfast.core.limits import QUEUE, Limit
from holdfast.store.rows import reader
from holdfast.store.verbs.base import Verbs, WritingVerbs

DEPTH, PAUSE, PAUSED = "depth", "pause", "true"
BEFORE = "set before changes of queues were journalled"


class QueueChange(msgspec.Struct, frozen=True):
    """One change of a queue: its limit, its depth limit, its weight, its pause, or the fair step of all queues.

    A value is JSON, None without one.
    """

    what: str
    before: str | None
    after: str | None
    actor: str
    reason: str
    at: datetime


_read_change = reader(QueueChange)


class QueueReads(Verbs):
    """Reads which queues are paused, and the changes of a queue."""

    def paused(self) -> list[str]:
        return [queue for (queue,) in self._run("paused_queues")]

    def history(self, queue: str, *, limit: int = 100) -> list[QueueChange]:
        """Return the changes of a queue that the journal has, newest first."""
        return self._all(_read_change, "queue_changes", queue=queue, subject=f"{QUEUE}:{queue}", n=limit)


class QueueWrites(QueueReads, WritingVerbs):
    """Pauses, resumes and limits queues."""

    def pause(self, queue: str, *, actor: str, reason: str) -> None:
        """Pause a queue: its jobs are not claimed. Running jobs continue."""
        if self._run("pause_queue", queue=queue, actor=actor, reason=reason, now=self._store.time_parameter()):
            self._session.configuration.set(PAUSE, queue, PAUSED, actor=actor, reason=reason)

    def resume(self, queue: str, *, actor: str, reason: str) -> bool:
        """Resume a queue; return whether it was paused."""
        resumed = bool(self._run("resume_queue", queue=queue, actor=actor, reason=reason))
        if resumed:
            self._remove(PAUSE, queue, PAUSED, actor, reason)
        self._session.queues_to_announce.add(queue)
        return resumed

    def limit_depth(self, queue: str, depth: int | None, *, park: bool = False, actor: str, reason: str) -> None:
        """Set how many jobs may wait in a queue; None removes the limit. More are refused, or parked.

        Parked jobs are let go if the queue no longer parks.
        """
        before = self._run("depth_of", queue=queue)
        self._run("limit_queue", queue=queue, depth=depth)
        parks = depth is not None and park
        if before and (depth is None or parks) and not before[0][1]:
            self._remove(DEPTH, queue, str(before[0][0]), actor, reason)
        if parks or (before and before[0][1]):
            limit = Limit(depth=depth) if parks else None
            self._session.limits.set(PARKED_BEYOND + queue, limit, actor=actor, reason=reason)
        if depth is not None and not park:
            self._session.configuration.set(DEPTH, queue, str(depth), actor=actor, reason=reason)

    def _remove(self, kind: str, queue: str, value: str, actor: str, reason: str) -> None:
        """Journal that a value was removed; if the ledger set it before it journalled such changes, that too."""
        settings = self._session.configuration
        if settings.get(kind, queue) is None:
            settings.set(kind, queue, value, actor="holdfast", reason=BEFORE)
        settings.remove(kind, queue, actor=actor, reason=reason)
