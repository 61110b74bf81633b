"""Verbs of workers and queues: which workers live, which queues are paused, and whose turn a duty is.

Invariants: a fleet takes a duty once a period; a paused queue gives out no job.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from holdfast.core.records import time_text
from holdfast.store.statements import encoded
from holdfast.store.verbs.base import Verbs, WritingVerbs


class WorkerWrites(WritingVerbs):
    """Notes what workers do."""

    def seen(self, worker_id: str, queues: Sequence[str], operations: Sequence[str], concurrency: int) -> None:
        """Note that a worker lives, and what it does."""
        self._run(
            "worker_seen",
            worker_id=worker_id,
            queues=encoded(list(queues)),
            operations=encoded(list(operations)),
            concurrency=concurrency,
            now=self._store.time_parameter(),
        )

    def stopped(self, worker_id: str) -> None:
        """Note that a worker has stopped."""
        self._run("worker_stopped", worker_id=worker_id, now=self._store.time_parameter())

    def forget(self, before: datetime) -> None:
        """Forget workers that were last seen before a time: every start of one leaves a row."""
        self._run("forget_workers", before=self._store.stored(before))

    def take_duty(self, name: str, every_s: float) -> bool:
        """Tell whether it falls to the caller to do what a whole fleet does once in a period."""
        now = self._store.now()
        due = time_text(now - timedelta(seconds=every_s))
        return bool(self._run("take_duty", name=f"duty:{name}", now=time_text(now), due=due))

    def retry_duty(self, name: str, every_s: float, after_s: float) -> None:
        """Let a duty that was taken and failed be taken again after a time, not only after its whole period."""
        due = self._store.now() - timedelta(seconds=every_s - min(after_s, every_s))
        self._session.settings.set(f"duty:{name}", time_text(due))


class QueueReads(Verbs):
    """Reads which queues are paused."""

    def paused(self) -> list[str]:
        """Return the queues that give out no work."""
        return [queue for (queue,) in self._run("paused_queues")]


class QueueWrites(QueueReads, WritingVerbs):
    """Pauses and resumes queues."""

    def pause(self, queue: str, *, actor: str, reason: str) -> None:
        """Stop giving out work of a queue; what is running goes on."""
        self._run("pause_queue", queue=queue, actor=actor, reason=reason, now=self._store.time_parameter())

    def resume(self, queue: str, *, actor: str, reason: str) -> bool:
        """Give out work of a queue again; return whether it was paused."""
        resumed = bool(self._run("resume_queue", queue=queue, actor=actor, reason=reason))
        self._session.queues_to_announce.add(queue)
        return resumed
