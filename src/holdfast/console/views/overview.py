"""The overview: what needs attention, what is fine, and how the ledger does. One snapshot serves all viewers.

Invariants: everything is read from one reading and judged at one time; the most decisive finding comes first; each
finding has its cause and a link to the next step.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from enum import IntEnum
from pathlib import PurePosixPath
from urllib.parse import urlsplit

import msgspec

from holdfast.console.views.activity import RETRY_MINUTES, Activity, Alike, last_hour
from holdfast.console.views.charts import Sparkline, binned, sparkline
from holdfast.console.views.failures import FailedGroups, Group
from holdfast.console.views.limits import LimitRow, limit_rows
from holdfast.console.views.links import job_list, path, replay_draft
from holdfast.console.views.queues import Fleet, QueueRow, QueueStatus, fleet_of, queue_rows
from holdfast.console.views.recent import RecentAct, recent_acts
from holdfast.console.views.words import clock, number
from holdfast.core.governed import Grant, ProcedureRun
from holdfast.core.machines import GrantState, JobState, ProcedureState
from holdfast.core.records import time_from
from holdfast.core.spans import age, counted, span
from holdfast.governance.approval import environment_of
from holdfast.governance.replay.guards import PROCEDURE
from holdfast.governance.replay.record import ReplayReport, report_of
from holdfast.governance.switches import OPERATION
from holdfast.scheduling.schedules import active
from holdfast.store.transaction import Reading

GROUPS_SHOWN = 6
RUNS_SHOWN = 3
STILL = timedelta(minutes=10)  # a group that failed within this time still fails
RETRIED_MANY = 30  # attempts of one operation that failed alike and are retried, within RETRY_MINUTES
MANY = 10  # failed jobs of one group in the last hour that need attention
SEAL_LATE = timedelta(minutes=5)
TICK_LATE = timedelta(minutes=2)
LATE_S = 60.0  # a due job that has waited for longer while all slots are taken needs attention


class Weight(IntEnum):
    """How decisive a finding is."""

    STOPPED = 0  # work does not go on
    FAILING = 1
    HELD = 2  # a person stopped it
    DECISION = 3  # a person has to decide
    SLOW = 4


class Link(msgspec.Struct, frozen=True):
    """A link with its words; a governed one leads to an act that needs a grant."""

    words: str
    href: str
    governed: bool = False


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """Something that needs attention: what, the cause, and where to go."""

    weight: Weight
    code: str
    title: str
    text: str
    detail: str = ""
    mono: str = ""
    links: tuple[Link, ...] = ()

    @property
    def tone(self) -> str:
        """Return the colour: failed for what does not work, attention for what waits for a person."""
        return "failed" if self.weight <= Weight.FAILING else "attention"


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


def overview(
    reading: Reading, groups: FailedGroups, ledger: Ledger, now: datetime, activity: Activity | None = None
) -> Overview:
    """Return the overview at `now`; `groups` and `activity` may be some seconds older."""
    fleet, activity = fleet_of(reading, now), activity or last_hour(reading, now)
    queues = queue_rows(reading, fleet, activity)
    drafts = [grant for grant in reading.grants.page(state=GrantState.DRAFT, limit=100) if grant.expires_at > now]
    runs = reading.runs.page(procedure=PROCEDURE, state=ProcedureState.RUNNING, limit=RUNS_SHOWN)
    stopped = reading.runs.page(procedure=PROCEDURE, state=ProcedureState.STOPPED, limit=RUNS_SHOWN)
    lost = reading.lists.lost_by_owner(now)
    counts = {state.value: fleet.total(state) for state in JobState}
    needs = [
        *_of_queues(queues, fleet),
        *_of_leases(lost, fleet),
        *_of_groups(groups.groups, now),
        *_of_taken_out(activity.taken_out()),
        *_of_retries(activity.retries()),
        *_of_switches(fleet),
        *_of_grants(drafts, now),
        *_of_stopped(stopped),
        *_of_schedules(reading, now),
        *_of_seals(reading, now),
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
# What needs attention


def _of_queues(queues: Sequence[QueueRow], fleet: Fleet) -> Iterator[Need]:
    for row in queues:
        due = number(row.due) + (" or more" if row.due_more else "")
        waited = "" if row.oldest_s is None else f" The oldest has waited for {span(row.oldest_s)}."
        if row.status is QueueStatus.NO_WORKER:
            last = max((w.seen_at for w in fleet.workers if row.name in w.queues), default=None)
            seen = (
                f"A worker of this queue was last seen at {clock(last, fleet.now)} ({age(last, fleet.now)})."
                if last
                else "No worker has ever served this queue."
            )
            yield Need(
                weight=Weight.STOPPED,
                code="no_worker",
                title=f"{row.name} has no running worker.",
                text=f"{due} {'job is' if row.due == 1 else 'jobs are'} due.{waited}",
                detail=f"{seen} Nothing is lost: the jobs wait. Start one:",
                mono=f"holdfast worker MODULE:LEDGER --queue {shlex.quote(row.name)}",
                links=(Link("Workers", path("/workers", queue=row.name)), Link("Queue", path("/queues", row.name))),
            )
        elif row.status is QueueStatus.PAUSED and row.pause is not None:
            yield Need(
                weight=Weight.HELD,
                code="queue_paused",
                title=f"Queue {row.name} is paused",
                text=f"by {row.pause.by}, {age(row.pause.at, fleet.now)}: “{row.pause.reason}”",
                detail=f"{counted(row.counts[JobState.PENDING], 'job waits', 'jobs wait')} in it."
                " Running jobs continue.",
                links=(Link("Resume…", path("/queues", row.name, "resume"), governed=True),),
            )
        elif row.status is QueueStatus.FULL and row.oldest_s is not None and row.oldest_s > LATE_S:
            yield Need(
                weight=Weight.SLOW,
                code="falls_behind",
                title=f"{row.name} falls behind.",
                text=f"All {row.slots} slots are taken and {due} jobs are due.{waited}",
                detail=f"It does {row.rate:.0f} jobs a minute. More workers or slots would help.",
                links=(Link("Queue", path("/queues", row.name)),),
            )


def _of_leases(lost: dict[str, datetime], fleet: Fleet) -> Iterator[Need]:
    if lost and not fleet.alive:
        owners = ", ".join(sorted(lost)[:3])
        yield Need(
            weight=Weight.STOPPED,
            code="leases_expired",
            title=f"Leases of {counted(len(lost), 'worker')} expired, and no worker runs to recover them.",
            text="Their jobs stay running until a worker starts.",
            detail="They can be recovered now. Held by",
            mono=owners,
            links=(Link("Recover…", "/recover"), Link("Workers", "/workers")),
        )


def _of_groups(groups: Sequence[Group], now: datetime) -> Iterator[Need]:
    for group in groups:
        if group.last_hour < MANY or now - group.last_at > STILL:
            continue
        where = group.queues[0] if len(group.queues) == 1 else f"{len(group.queues)} queues"
        yield Need(
            weight=Weight.FAILING,
            code="failing",
            title=f"{counted(group.jobs, 'job')} of {where} failed with the same error",
            text=f"since {clock(group.first_at, now, parts='minutes')}, and they still do:"
            f" {group.last_hour} in the last hour.",
            detail=group.pattern,
            mono=group.code,
            links=(
                Link("Look at the group", path("/failures", group.hash)),
                Link("Prepare a replay", replay_draft(operation=group.operation, code=group.code)),
            ),
        )


def _of_taken_out(taken_out: Sequence[Alike]) -> Iterator[Need]:
    for one in taken_out:
        if one.n < MANY:
            continue
        jobs = job_list(operation=one.operation, code=one.code, state=JobState.QUARANTINED)
        yield Need(
            weight=Weight.FAILING,
            code="taken_out",
            title=f"{counted(one.n, 'job')} of {one.operation} went to quarantine",
            text="in the last hour with the same error. They do not run until they are released.",
            detail="Mend the cause, then choose all of them in the list and release them.",
            mono=one.code,
            links=(
                Link("Its jobs", jobs),
                Link("Switch it off…", path("/switches", OPERATION + one.operation, "throw")),
            ),
        )


def _of_retries(retries: Sequence[Alike]) -> Iterator[Need]:
    for one in retries:
        if one.n < RETRIED_MANY:
            continue
        yield Need(
            weight=Weight.FAILING,
            code="retrying",
            title=f"{one.operation} fails and is retried:",
            text=f"{counted(one.n, 'attempt')} in the last {RETRY_MINUTES} minutes ended with the same error.",
            detail="Its jobs run again until their attempts are used. If the cause lasts, stop it for now.",
            mono=one.code,
            links=(
                Link("Its jobs", job_list(operation=one.operation, code=one.code, state=JobState.PENDING)),
                *(Link(f"Pause {queue}…", path("/queues", queue, "pause")) for queue in one.queues[:2]),
                Link("Switch it off…", path("/switches", OPERATION + one.operation, "throw")),
            ),
        )


def _of_switches(fleet: Fleet) -> Iterator[Need]:
    for name, switch in sorted(fleet.switches.items()):
        stops = name.removeprefix(OPERATION) if name.startswith(OPERATION) else None
        held = sum(c.n for c in fleet.counts if c.operation == stops and c.state is JobState.PENDING)
        yield Need(
            weight=Weight.HELD,
            code="switch_on",
            title=f"{stops or name} is switched off" if stops else f"The switch {name} is on",
            text=f"by {switch.thrown_by}, {age(switch.created_at, fleet.now)}: “{switch.reason}”",
            detail=f"{counted(held, 'pending job stays', 'pending jobs stay')} as they are." if stops else "",
            links=(
                *((Link("Its jobs", job_list(operation=stops, state=JobState.PENDING)),) if stops else ()),
                Link("Lift…", path("/switches", name, "lift"), governed=True),
            ),
        )


def _of_grants(drafts: Sequence[Grant], now: datetime) -> Iterator[Need]:
    if drafts:
        first = min(grant.expires_at for grant in drafts)
        shown = " · ".join(f"{g.grant_id}: {g.action} of {g.target} by {g.requested_by}" for g in drafts[:3])
        yield Need(
            weight=Weight.DECISION,
            code="grants_wait",
            title=f"{counted(len(drafts), 'grant waits', 'grants wait')} for an approver.",
            text=f"The first expires {age(first, now)}.",
            detail=shown,
            links=(Link("Grants", "/grants"),),
        )


def _of_stopped(runs: Sequence[ProcedureRun]) -> Iterator[Need]:
    for run in runs:
        yield Need(
            weight=Weight.DECISION,
            code="replay_stopped",
            title=f"Replay {run.idempotency_root} has stopped:",
            text=f"{run.stop_state or 'no reason given'}. It can be continued after its last batch.",
            detail=run.failure or "",
            links=(Link("Replay", path("/replays", run.idempotency_root)),),
        )


def _of_schedules(reading: Reading, now: datetime) -> Iterator[Need]:
    found = active(reading)
    last = reading.schedules.last_ticks([one.name for one in found])
    for one in found:
        since = last[one.name].tick_at if one.name in last else one.setting.created_at
        missed = None if one.schedule.paused else one.schedule.times.next_after(since)
        if missed is not None and missed < now - TICK_LATE:
            yield Need(
                weight=Weight.SLOW,
                code="schedule_late",
                title=f"The schedule {one.name} is late.",
                text=f"Its tick of {clock(missed, now, parts='minutes')} has not fired ({age(missed, now)}).",
                detail="A running worker fires ticks; see whether one runs.",
                links=(Link("Schedules", "/schedules"), Link("Workers", "/workers")),
            )


def _of_seals(reading: Reading, now: datetime) -> Iterator[Need]:
    seal = reading.seals.last()
    if seal is None or now - time_from(seal.sealed_at) < SEAL_LATE or reading.seals.next_row(seal.high_seq) is None:
        return
    at = time_from(seal.sealed_at)
    yield Need(
        weight=Weight.SLOW,
        code="seal_late",
        title="The journal has entries that are not sealed.",
        text=f"The last seal, {seal.seal_id}, was made at {clock(at, now)} ({age(at, now)}).",
        detail="A running worker seals every minute. To seal now:",
        mono="holdfast audit head",
        links=(Link("Checks", "/checks"),),
    )


# ---------------------------------------------------------------------------------------------------------------------
# What is fine


def _fine(
    reading: Reading, queues: Sequence[QueueRow], fleet: Fleet, lost: dict[str, datetime], now: datetime
) -> Iterator[str]:
    well = sum(row.tone in ("succeeded", "pending") for row in queues)
    if well:
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
