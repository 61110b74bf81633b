"""Verbs of workers: which workers run, and which worker performs a duty.

Invariants: one worker of a fleet takes a duty in each period.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from holdfast.core.records import time_text
from holdfast.store.statements import encoded
from holdfast.store.verbs.base import WritingVerbs


class WorkerWrites(WritingVerbs):
    """Registers workers and their duties."""

    def seen(self, worker_id: str, queues: Sequence[str], operations: Sequence[str], concurrency: int) -> None:
        """Register a worker, or update when it was last seen, its queues and its operations."""
        self._run(
            "worker_seen",
            worker_id=worker_id,
            queues=encoded(list(queues)),
            operations=encoded(list(operations)),
            concurrency=concurrency,
            now=self._store.time_parameter(),
        )

    def stopped(self, worker_id: str) -> None:
        self._run("worker_stopped", worker_id=worker_id, now=self._store.time_parameter())

    def forget(self, before: datetime) -> None:
        """Delete workers that were last seen before a time; every start of a worker adds a row."""
        self._run("forget_workers", before=self._store.stored(before))

    def take_duty(self, name: str, every_s: float) -> bool:
        """Take a duty that one worker of the fleet performs in each period; return False if it was already taken."""
        now = self._store.now()
        due = time_text(now - timedelta(seconds=every_s))
        return bool(self._run("take_duty", name=f"duty:{name}", now=time_text(now), due=due))

    def retry_duty(self, name: str, every_s: float, after_s: float) -> None:
        """Let a duty that failed be taken again after `after_s`, not only after the whole period."""
        due = self._store.now() - timedelta(seconds=every_s - min(after_s, every_s))
        self._session.settings.set(f"duty:{name}", time_text(due))
