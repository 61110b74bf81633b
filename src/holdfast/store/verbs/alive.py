"""Which workers run: those that were seen a short time ago and have let no lease expire since. Some may be silent.

Invariants: nothing here writes.
"""

from collections.abc import Container
from datetime import datetime, timedelta

from holdfast.store.transaction import Reading
from holdfast.store.verbs.lists import WorkerRow

ALIVE_S = 30.0
"""A worker that was not seen for longer, or one of whose leases has expired since it was last seen, counts as lost."""
SILENT_S = ALIVE_S / 3
"""A worker that runs is seen every five seconds. One that is silent for longer than this hangs, or was killed."""


def alive_workers(reading: Reading, now: datetime) -> list[WorkerRow]:
    """Return the workers that run, oldest first."""
    since, lost = now - timedelta(seconds=ALIVE_S), reading.lists.lost_by_owner(now)
    return [
        worker
        for worker in reading.lists.workers()
        if worker.stopped_at is None and worker.seen_at >= max(since, lost.get(worker.worker_id, since))
    ]


def is_silent(worker: WorkerRow, now: datetime) -> bool:
    """Return whether a worker that counts as running hangs, or was killed."""
    return now - worker.seen_at > timedelta(seconds=SILENT_S)


def worker_state(worker: WorkerRow, alive: Container[str], now: datetime) -> str:
    """Return `running`, `silent`, `lost` or `stopped`; `alive` has the ids of the workers that count as running."""
    if worker.worker_id not in alive:
        return "lost" if worker.stopped_at is None else "stopped"
    return "silent" if is_silent(worker, now) else "running"
