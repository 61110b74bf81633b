"""Which workers run: those that were seen a short time ago and have let no lease expire since.

Invariants: nothing here writes.
"""

from datetime import datetime, timedelta

from holdfast.store.transaction import Reading
from holdfast.store.verbs.lists import WorkerRow

ALIVE_S = 30.0
"""A worker records a heartbeat at least every ten seconds. After three missed heartbeats, or once one of its leases has
expired since it was last seen, it counts as stopped."""


def alive_workers(reading: Reading, now: datetime) -> list[WorkerRow]:
    """Return the workers that run, oldest first."""
    since, lost = now - timedelta(seconds=ALIVE_S), reading.lists.lost_by_owner(now)
    return [
        worker
        for worker in reading.lists.workers()
        if worker.stopped_at is None and worker.seen_at >= max(since, lost.get(worker.worker_id, since))
    ]
