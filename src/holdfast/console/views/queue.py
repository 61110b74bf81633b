"""One queue: its status, its lanes, its workers, its operations and its failures.

Invariants: everything is read from one reading and judged at one time.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.console.views.activity import last_hour
from holdfast.console.views.failures import FailedGroups, Group
from holdfast.console.views.queues import QueueRow, fleet_of, queue_rows
from holdfast.explain.values import by_state
from holdfast.store.transaction import Reading
from holdfast.store.verbs.gate import limits, parking_queues
from holdfast.store.verbs.known_queues import require_queue
from holdfast.store.verbs.lists import WorkerRow
from holdfast.store.verbs.watch import HeldAttempt, JobFilters, JobLine, attempts_held, job_lines


class OperationRow(msgspec.Struct, frozen=True):
    """The jobs of one operation in a queue, by state."""

    operation: str
    counts: dict[str, int]


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the page of a queue shows."""

    row: QueueRow
    now: datetime
    workers: tuple[WorkerRow, ...]
    operations: tuple[OperationRow, ...]
    groups: tuple[Group, ...]
    held: tuple[HeldAttempt, ...]
    newest: tuple[JobLine, ...]
    limit: int | None  # the depth from which on submits are refused or parked
    parks: bool


def queue_view(reading: Reading, name: str, groups: FailedGroups, now: datetime) -> QueueView:
    """Return a queue; raise QueueUnknownError if the ledger does not know it. `groups` may be some seconds older."""
    require_queue(reading, name)
    fleet = fleet_of(reading, now)
    [row] = queue_rows(reading, fleet, last_hour(reading, now), [name])
    operations = sorted({count.operation for count in fleet.counts if count.queue == name})
    return QueueView(
        row=row,
        now=now,
        workers=tuple(worker for worker in fleet.alive if name in worker.queues),
        operations=tuple(OperationRow(one, by_state(fleet.counts, queue=name, operation=one)) for one in operations),
        groups=tuple(group for group in groups.groups if name in group.queues)[:10],
        held=tuple(one for one in attempts_held(reading) if one.queue == name)[:20],
        newest=tuple(job_lines(reading, JobFilters(queue=name), limit=10).lines),
        limit=limits(reading).get(name),
        parks=name in parking_queues(reading),
    )
