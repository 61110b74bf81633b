"""Workers: who works, on what, and who was lost.

Invariants: a worker runs if the ledger saw it a short time ago and it has let no lease expire since.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.store.transaction import Reading
from holdfast.store.verbs.alive import alive_workers, worker_state
from holdfast.store.verbs.lists import WorkerRow
from holdfast.store.verbs.watch import HeldAttempt, attempts_held

GONE_SHOWN = 8


class WorkerLine(msgspec.Struct, frozen=True, kw_only=True):
    """A worker, whether it runs, and what it holds."""

    worker: WorkerRow
    state: str  # running, silent, lost or stopped
    tone: str
    held: tuple[HeldAttempt, ...]
    expired: int  # of its leases


class WorkersView(msgspec.Struct, frozen=True, kw_only=True):
    """The workers that run first, then the last ones that stopped."""

    now: datetime
    queue: str | None
    lines: tuple[WorkerLine, ...]
    running: int
    slots: int
    held: int
    expired: int
    left_out: int


TONES = {"running": "succeeded", "silent": "attention", "lost": "failed", "stopped": "pending"}  # in this order


def workers_view(reading: Reading, now: datetime, *, queue: str | None = None) -> WorkersView:
    """Return the workers of a ledger, or those that serve one queue."""
    alive = {worker.worker_id for worker in alive_workers(reading, now)}
    held = attempts_held(reading)
    found = [worker for worker in reading.lists.workers() if queue is None or queue in worker.queues]
    lines = [_line(worker, now, held, worker_state(worker, alive, now)) for worker in reversed(found)]
    lines.sort(key=lambda line: [*TONES].index(line.state))
    running = [line for line in lines if line.worker.worker_id in alive]
    shown = lines[: len(running) + GONE_SHOWN]
    return WorkersView(
        now=now,
        queue=queue,
        lines=tuple(shown),
        running=len(running),
        slots=sum(line.worker.concurrency for line in running),
        held=sum(len(line.held) for line in running),
        expired=sum(one.lease_expires_at <= now for one in held),
        left_out=len(lines) - len(shown),
    )


def _line(worker: WorkerRow, now: datetime, held: list[HeldAttempt], state: str) -> WorkerLine:
    own = tuple(one for one in held if one.owner == worker.worker_id)
    return WorkerLine(
        worker=worker,
        state=state,
        tone=TONES[state],
        held=own,
        expired=sum(one.lease_expires_at <= now for one in own),
    )
