"""Queues: does each keep up, and why not.

Invariants: all queues are judged at one time, from one reading; a queue that needs attention comes first.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from statistics import quantiles

import msgspec

from holdfast.console.views.activity import STALL_MINUTES, Activity
from holdfast.console.views.charts import Sparkline, binned, sparkline
from holdfast.console.views.words import clock
from holdfast.core.governed import Switch
from holdfast.core.machines import JobState
from holdfast.core.spans import counted
from holdfast.governance.switches import OPERATION
from holdfast.store.transaction import Reading
from holdfast.store.verbs.alive import alive_workers
from holdfast.store.verbs.counts import Count
from holdfast.store.verbs.known_queues import known_queues
from holdfast.store.verbs.lists import Pause, WorkerRow
from holdfast.store.verbs.watch import DUE_MAX, Lane, due_lanes, pauses, recent_durations

FAILING = 10  # from so many failed jobs in the last hour on, a queue counts as failing


class QueueStatus(StrEnum):
    """How a queue does, the worst first."""

    NO_WORKER = "no worker"
    STALLED = "nothing starts"
    FAILING = "failing"
    PAUSED = "paused"
    SWITCHED_OFF = "switched off"
    FULL = "all slots taken"
    WAITING = "waits"
    IDLE = "idle"
    KEEPS_UP = "keeps up"


TONES = {
    QueueStatus.NO_WORKER: "failed",
    QueueStatus.STALLED: "failed",
    QueueStatus.FAILING: "failed",
    QueueStatus.PAUSED: "attention",
    QueueStatus.SWITCHED_OFF: "attention",
    QueueStatus.FULL: "attention",
    QueueStatus.WAITING: "pending",
    QueueStatus.IDLE: "pending",
    QueueStatus.KEEPS_UP: "succeeded",
}


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """A queue at one time."""

    name: str
    status: QueueStatus
    words: str
    tone: str
    due: int
    due_more: bool  # more are due than are counted
    oldest_s: float | None  # how long the oldest due job has waited
    next_at: datetime | None  # when the first job that is not due will be
    counts: dict[str, int]
    workers: tuple[str, ...]
    slots: int
    rate: float
    trend: Sparkline
    failed_hour: int
    p50: float | None
    p95: float | None
    lanes: tuple[Lane, ...]
    pause: Pause | None

    @property
    def running(self) -> int:
        return self.counts[JobState.RUNNING]


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """What is read once for all queues."""

    now: datetime
    counts: list[Count]
    workers: list[WorkerRow]
    alive: list[WorkerRow]
    pauses: dict[str, Pause]
    switches: dict[str, Switch]
    limits: list[str]  # what the limits are of

    def total(self, state: JobState) -> int:
        return sum(count.n for count in self.counts if count.state is state)

    def waiting(self, queue: str) -> set[str]:
        """Return the operations of the pending jobs of a queue."""
        return {count.operation for count in self.counts if count.queue == queue and count.state is JobState.PENDING}

    def held_back(self, queue: str) -> bool:
        """Return whether a limit or a switch may be why pending jobs of a queue do not start."""
        waiting = self.waiting(queue)
        limited = {re.split("[=#]", subject.partition(":")[2])[0] for subject in self.limits}
        return bool(limited & {queue, *waiting}) or any(OPERATION + one in self.switches for one in waiting)


def fleet_of(reading: Reading, now: datetime) -> Fleet:
    return Fleet(
        now=now,
        counts=reading.counts.current(),
        workers=reading.lists.workers(),
        alive=alive_workers(reading, now),
        pauses=pauses(reading),
        switches=reading.switches.on(),
        limits=list(reading.limits.rules()),
    )


def queue_rows(
    reading: Reading, fleet: Fleet, activity: Activity, names: Sequence[str] | None = None
) -> list[QueueRow]:
    """Return all queues of a ledger, or the named ones: what needs attention first, then by name."""
    known = known_queues(reading, fleet.counts) if names is None else names
    lanes: dict[str, list[Lane]] = defaultdict(list)
    for lane in due_lanes(reading, known, fleet.now):
        lanes[lane.queue].append(lane)
    durations: dict[str, list[float]] = defaultdict(list)
    for queue, seconds in recent_durations(reading):
        durations[queue].append(seconds)
    rows = [_row(name, fleet, activity, lanes[name], durations[name]) for name in known]
    if names is None:  # a queue without any job, worker or operation of its own is not worth a row
        rows = [
            row for row in rows if row.name != "default" or any(row.counts.values()) or row.workers or len(rows) == 1
        ]
    order = list(QueueStatus)
    return sorted(rows, key=lambda row: (order.index(row.status), row.name))


def _row(name: str, fleet: Fleet, activity: Activity, lanes: Sequence[Lane], durations: Sequence[float]) -> QueueRow:
    counts = {
        state.value: sum(count.n for count in fleet.counts if count.queue == name and count.state is state)
        for state in JobState
    }
    serving = [worker for worker in fleet.alive if name in worker.queues]
    due = sum(lane.due for lane in lanes)
    first = [lane.first_at for lane in lanes]
    oldest = min((at for at in first if at <= fleet.now), default=None)
    ahead = min((at for at in first if at > fleet.now), default=None)
    done, failed = activity.done(name), activity.failed(name)
    slots = sum(worker.concurrency for worker in serving)
    waits_since = max(oldest, min(worker.started_at for worker in serving)) if oldest and serving else fleet.now
    stalled = fleet.now - waits_since > timedelta(minutes=STALL_MINUTES)
    stalled = stalled and not activity.begins(name) and not fleet.held_back(name)
    status = _status(name, fleet, counts, due, serving=bool(serving), slots=slots, failed=sum(failed), stalled=stalled)
    fast, slow = percentiles(durations)
    return QueueRow(
        name=name,
        status=status,
        words=_words(status, ahead, fleet.now),
        tone=TONES[status],
        due=due,
        due_more=any(lane.due >= DUE_MAX for lane in lanes),
        oldest_s=None if oldest is None else (fleet.now - oldest).total_seconds(),
        next_at=ahead,
        counts=counts,
        workers=tuple(worker.worker_id for worker in serving),
        slots=slots,
        rate=activity.rate(name),
        trend=sparkline(
            binned(done),
            f"{name}, last hour: {counted(sum(done), 'job')} done, {sum(failed)} failed",
            binned(failed),
        ),
        failed_hour=sum(failed),
        p50=fast,
        p95=slow,
        lanes=tuple(lanes),
        pause=fleet.pauses.get(name),
    )


def _status(
    name: str,
    fleet: Fleet,
    counts: Mapping[str, int],
    due: int,
    *,
    serving: bool,
    slots: int,
    failed: int,
    stalled: bool,
) -> QueueStatus:
    waiting = fleet.waiting(name)
    if name in fleet.pauses:
        return QueueStatus.PAUSED
    if waiting and all(OPERATION + operation in fleet.switches for operation in waiting):
        return QueueStatus.SWITCHED_OFF
    if due and not serving:
        return QueueStatus.NO_WORKER
    if stalled and counts[JobState.RUNNING] < slots:
        return QueueStatus.STALLED
    if failed >= FAILING and (counts[JobState.FAILED] or counts[JobState.QUARANTINED]):
        return QueueStatus.FAILING
    if due and counts[JobState.RUNNING] >= slots:
        return QueueStatus.FULL
    if counts[JobState.PENDING] and not due:
        return QueueStatus.WAITING
    if not due and not counts[JobState.RUNNING]:
        return QueueStatus.IDLE
    return QueueStatus.KEEPS_UP


def _words(status: QueueStatus, ahead: datetime | None, now: datetime) -> str:
    if status is QueueStatus.WAITING and ahead is not None:
        return f"next due {clock(ahead, now, parts='minutes')}"
    return status.value


def percentiles(seconds: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the median and the 95th percentile; None for both without values."""
    if not seconds:
        return None, None
    if len(seconds) == 1:
        return seconds[0], seconds[0]
    cuts = quantiles(seconds, n=20, method="inclusive")
    return cuts[9], cuts[18]
