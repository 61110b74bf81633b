"""The overview: what needs attention, what is fine, and how the ledger does. One snapshot serves all viewers.

Invariants: everything is read from one reading and judged at one time; the most decisive finding comes first; each
finding has its cause and a link to the next step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import PurePosixPath
from urllib.parse import urlsplit

import msgspec

from holdfast.console.views.activity import Activity, last_hour
from holdfast.console.views.charts import Sparkline, binned, sparkline
from holdfast.console.views.failures import FailedGroups
from holdfast.console.views.limits import LimitRow, limit_rows
from holdfast.console.views.needs import SEAL_LATE, Need, needs_of, needs_of_people
from holdfast.console.views.queues import Fleet, QueueRow, fleet_of, queue_rows
from holdfast.console.views.recent import RecentAct, recent_acts
from holdfast.console.views.words import clock, number
from holdfast.core.machines import GrantState, JobState, ProcedureState
from holdfast.core.records import time_from
from holdfast.core.spans import age, counted, span
from holdfast.governance.approval import environment_of
from holdfast.governance.replay.guards import PROCEDURE
from holdfast.governance.replay.record import ReplayReport, report_of
from holdfast.store.transaction import Reading

GROUPS_SHOWN = 6
RUNS_SHOWN = 3


class StateTile(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs in one state, and their last hour."""

    state: JobState
    n: int
    note: str
    trend: Sparkline


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """Which ledger this is."""

    name: str
    environment: str
    database: str


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The whole overview at one time."""

    at: datetime
    ledger: Ledger
    jobs: int
    counts: dict[str, int]
    needs: tuple[Need, ...]
    fine: tuple[str, ...]
    tiles: tuple[StateTile, ...]
    queues: tuple[QueueRow, ...]
    limits: tuple[LimitRow, ...]
    groups: FailedGroups
    runs: tuple[ReplayReport, ...]
    acts: tuple[RecentAct, ...]
    drafts: int
    switches_on: int
    runs_open: int
    workers_alive: int


def overview(reading: Reading, groups: FailedGroups, ledger: Ledger, now: datetime) -> Overview:
    """Return the overview at `now`; `groups` may be some seconds older."""
    fleet, activity = fleet_of(reading, now), last_hour(reading, now)
    queues = queue_rows(reading, fleet, activity)
    drafts = reading.grants.page(state=GrantState.DRAFT, limit=100)  # without those past their expiry
    approved = reading.grants.page(state=GrantState.ACTIVE, limit=100)
    runs = reading.runs.page(procedure=PROCEDURE, state=ProcedureState.RUNNING, limit=RUNS_SHOWN)
    stopped = reading.runs.page(procedure=PROCEDURE, state=ProcedureState.STOPPED, limit=RUNS_SHOWN)
    lost = reading.lists.lost_by_owner(now)
    counts = {state.value: fleet.total(state) for state in JobState}
    needs = [
        *needs_of(reading, fleet, queues, groups.groups, activity),
        *needs_of_people(reading, [*drafts, *approved], stopped, now),
    ]
    return Overview(
        at=now,
        ledger=ledger,
        jobs=sum(counts.values()),
        counts=counts,
        needs=tuple(sorted(needs, key=lambda need: need.weight)),
        fine=tuple(_fine(reading, queues, fleet, lost, now)),
        tiles=_tiles(fleet, activity, queues),
        queues=tuple(queues),
        limits=tuple(limit_rows(reading)),
        groups=msgspec.structs.replace(groups, groups=groups.groups[:GROUPS_SHOWN], total=len(groups.groups)),
        runs=tuple(report_of(reading, run.idempotency_root) for run in runs),
        acts=tuple(recent_acts(reading)),
        drafts=len(drafts),
        switches_on=len(fleet.switches),
        runs_open=len(runs),
        workers_alive=len(fleet.alive),
    )


def ledger_of(reading: Reading, url: str) -> Ledger:
    """Return which ledger a reading is of; its name is that of the file or the database in its URL."""
    database = "PostgreSQL" if reading.dialect == "postgres" else "SQLite"
    name = PurePosixPath(urlsplit(url).path).stem or url
    return Ledger(name=name, environment=environment_of(reading), database=database)


# ---------------------------------------------------------------------------------------------------------------------
# What is fine


def _fine(
    reading: Reading, queues: Sequence[QueueRow], fleet: Fleet, lost: dict[str, datetime], now: datetime
) -> Iterator[str]:
    well = sum(row.tone in ("succeeded", "pending") for row in queues)
    if well and fleet.alive:
        yield f"{well} of {counted(len(queues), 'queue')} {'keeps' if well == 1 else 'keep'} up"
    if fleet.alive:
        yield counted(len(fleet.alive), "worker runs", "workers run")
    if not lost:
        yield "no lease has expired"
    seal = reading.seals.last()
    if seal is not None and now - time_from(seal.sealed_at) < SEAL_LATE:
        yield f"journal sealed at {clock(time_from(seal.sealed_at), now)} (seal {number(seal.seal_id)})"
    checked = reading.settings.read().get("duty:check")
    if checked is not None and now - time_from(checked) < timedelta(hours=2):
        yield f"last full check began {age(time_from(checked), now)}"


def _tiles(fleet: Fleet, activity: Activity, queues: Sequence[QueueRow]) -> tuple[StateTile, ...]:
    slots = sum(worker.concurrency for worker in fleet.alive)
    due, oldest = sum(row.due for row in queues), max((row.oldest_s or 0 for row in queues), default=0)
    notes = {
        JobState.PENDING: f"{number(due)} due" + (f" · oldest {span(oldest)}" if due else ""),
        JobState.RUNNING: f"of {counted(slots, 'slot')} · {counted(len(fleet.alive), 'worker')}",
    }
    span_of = "in the last hour" if activity.since is None else f"since {clock(activity.since, activity.now)}"
    tiles = []
    for state in JobState:
        n = fleet.total(state)
        level = state in notes
        minutes = activity.level(state, n) if level else activity.into(state)
        entered = sum(minutes)
        bars = [max(group) for group in zip(*[iter(minutes)] * 2, strict=True)] if level else binned(minutes)
        words = f"{state}, last hour: now {n}" if level else f"{state}, last hour: {entered}"
        bad = state in (JobState.FAILED, JobState.QUARANTINED)
        trend = sparkline([0] * len(bars), words, bars) if bad else sparkline(bars, words)
        tiles.append(StateTile(state=state, n=n, note=notes.get(state, f"+ {number(entered)} {span_of}"), trend=trend))
    return tuple(tiles)
