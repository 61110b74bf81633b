"""Replays: the guided flow from a selection to a run, and what a run did.

Invariants: the address of a draft is its selection, with absolute times, so that two people who open it see the same
jobs; looking writes nothing; the plan that is shown has the hash of its candidates, and a run of another set is
refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.console.selections import ReplaySelectionBody
from holdfast.console.views.jobs import filters_in, number_in, text_in
from holdfast.console.views.links import path
from holdfast.core.authority import Wanted
from holdfast.core.errors import InputError
from holdfast.core.governed import Grant, ProcedureRun
from holdfast.core.machines import GrantState, JobState
from holdfast.core.records import Job, time_text
from holdfast.core.selection import Selection
from holdfast.explain.times import past_moment
from holdfast.governance.approval import environment_of
from holdfast.governance.replay import replay as engine
from holdfast.governance.replay.guards import PROCEDURE, ReplayPolicy, policy_of
from holdfast.governance.replay.record import ReplayReport
from holdfast.governance.replay.replay import DryRun
from holdfast.governance.replay.run import wanted
from holdfast.store import Store
from holdfast.store.transaction import Reading

DEFAULT_SINCE = timedelta(days=7)
SAMPLES = 2000  # jobs that the histogram is drawn from
SHOWN = 5
BINS = 24
RUNS = 50
FIELDS = ("queue", "operation", "code", "since", "until", "limit", "jobs")
GO = "GO"


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A selection that is being prepared, as the address has it; times are absolute."""

    queue: str | None = None
    operation: str | None = None
    code: str | None = None
    since: str | None = None
    until: str | None = None
    limit: int | None = None
    jobs: str | None = None  # ids, separated by commas

    def address(self, step: str) -> str:
        return path("/replays", "new", **{name: getattr(self, name) for name in FIELDS}, step=step)

    @property
    def given(self) -> list[tuple[str, str]]:
        """Return what is set, in words."""
        return [(name, str(getattr(self, name))) for name in FIELDS if getattr(self, name) is not None]

    def selection(self, environment: str) -> Selection:
        """Return the selection of this draft; raise SpecInvalidError if it has a fault."""
        return ReplaySelectionBody(
            queues=(self.queue,) if self.queue else (),
            operations=(self.operation,) if self.operation else (),
            error_codes=(self.code,) if self.code else (),
            jobs=tuple(self.jobs.split(",")) if self.jobs else (),
            since=datetime.fromisoformat(self.since) if self.since else None,
            until=datetime.fromisoformat(self.until) if self.until else None,
            limit=self.limit,
        ).selection(environment)


def draft_of(params: Mapping[str, str], now: datetime) -> Draft:
    """Return the draft of an address; ages such as 7d ago become times. Raise InputError for a wrong value."""
    given = filters_in(params, FIELDS)
    texts = {name: text_in(given[name], name) for name in ("queue", "operation", "code") if name in given}
    ids = _ids(given["jobs"]) if "jobs" in given else None
    end = (now + timedelta(minutes=1)).replace(second=0, microsecond=0)
    since = past_moment(text_in(given["since"], "since"), "since", now) if "since" in given else None
    until = past_moment(text_in(given["until"], "until"), "until", now) if "until" in given else None
    if ids is None:
        since = since or (now - DEFAULT_SINCE).replace(second=0, microsecond=0)
        until = until or end
    if since is not None and until is not None and since >= until:
        raise InputError("The window must end after its start.", context={"field": "until"})
    return Draft(
        **texts,
        jobs=ids,
        since=None if since is None else _text(since),
        until=None if until is None else _text(until),
        limit=number_in(given["limit"], "limit", 1, 100_000) if "limit" in given else None,
    )


def draft_again(selection: Selection) -> Draft:
    """Return the draft that a selection was made from."""
    filters, created = selection.filters, selection.filters.created_at

    def only(values: tuple[str, ...]) -> str | None:
        return values[0] if values else None

    return Draft(
        queue=only(filters.queues),
        operation=only(filters.operations),
        code=only(filters.error_codes),
        jobs=",".join(filters.jobs) or None,
        since=_text(created.start) if created and created.start else None,
        until=_text(created.end) if created and created.end else None,
        limit=selection.limits.max_records,
    )


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _ids(text: str) -> str:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or len(parts) > 1000:
        raise InputError("jobs must be 1 to 1,000 ids, separated by commas.", context={"field": "jobs"})
    return ",".join(str(number_in(part, "jobs")) for part in parts)


class Bin(msgspec.Struct, frozen=True):
    """A bar of the histogram: its place, its height, and how many jobs."""

    x: float
    y: float
    height: float
    n: int


class Histogram(msgspec.Struct, frozen=True):
    """When the candidates failed."""

    bins: tuple[Bin, ...]
    first_at: datetime
    last_at: datetime
    width: float
    label: str


class ReplayLook(msgspec.Struct, frozen=True, kw_only=True):
    """A dry run of a draft: what would happen, and whether it may."""

    draft: Draft
    run: DryRun
    policy: ReplayPolicy
    histogram: Histogram | None
    examples: tuple[Job, ...]
    attempts: tuple[tuple[int, int], ...]  # attempts used, and how many jobs
    last_chance: int  # jobs whose next failure puts them into quarantine
    wanted: Wanted
    grant: Grant | None  # the draft or active grant for exactly this plan
    now: datetime

    @property
    def authorised(self) -> bool:
        """Return whether the run needs no grant, or has one."""
        return not self.run.grant_needed or self.run.authority == GO


def replay_look(store: Store[Any], draft: Draft, *, actor: str) -> ReplayLook:
    """Return a dry run of a draft; nothing is written."""
    with store.reading() as reading:
        environment = environment_of(reading)
    selection, policy = draft.selection(environment), policy_of(environment)
    made = engine.dry_run(store, selection, actor=actor, policy=policy)
    sample = engine.select(store, selection, examples=SAMPLES).examples
    needed = wanted(selection, made.candidates_hash, environment=environment, executor=actor)
    with store.reading() as reading:
        open_ = [g for g in reading.grants.open_for(str(needed.act), needed.target) if g.expires_at > reading.now()]
    spent = Counter(job.spent for job in sample)
    middle = sample[len(sample) // 2 : len(sample) // 2 + 1]
    picked = {job.job_id: job for job in [*sample[:2], *middle, *sample[-2:]]}
    return ReplayLook(
        draft=draft,
        run=made,
        policy=policy,
        histogram=histogram([job.updated_at for job in sample]),
        examples=tuple(picked.values())[:SHOWN],
        attempts=tuple(sorted(spent.items())),
        last_chance=sum(job.spent + 1 >= job.max_attempts + job.replay_attempts for job in sample),
        wanted=needed,
        grant=open_[-1] if open_ else None,
        now=store.now(),
    )


def histogram(moments: list[datetime], bins: int = BINS) -> Histogram | None:
    """Return the histogram of some times, 720 by 96; None without times."""
    if not moments:
        return None
    first, last = min(moments), max(moments)
    width = (last - first) / bins or timedelta(seconds=1)
    counts = Counter(min(bins - 1, int((moment - first) / width)) for moment in moments)
    most = max(counts.values())
    step = 720 / bins
    bars = tuple(
        Bin(round(place * step, 1), round(94 - n * 90 / most, 1), round(n * 90 / most, 1), n)
        for place, n in sorted(counts.items())
    )
    label = f"When {len(moments)} jobs failed: from {time_text(first)} to {time_text(last)}"
    return Histogram(bars, first, last, round(step - 6, 1), label)


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """A replay in the list of all."""

    run: ProcedureRun
    total: int
    tone: str


TONES = {
    "running": "running",
    "done": "succeeded",
    "stopped": "attention",
    "planned": "pending",
    "compensating": "attention",
}


class RunsView(msgspec.Struct, frozen=True, kw_only=True):
    """The replays, newest first."""

    now: datetime
    rows: tuple[RunRow, ...]
    grants: tuple[Grant, ...]  # for replays, that wait


def runs_view(reading: Reading, now: datetime) -> RunsView:
    rows = [
        RunRow(run=run, total=int(msgspec.json.decode(run.params).get("total", 0)), tone=TONES[run.state])
        for run in reading.runs.page(procedure=PROCEDURE, limit=RUNS)
    ]
    waiting = [g for g in reading.grants.page(state=GrantState.DRAFT, limit=RUNS) if g.action.startswith("replay.")]
    return RunsView(now=now, rows=tuple(rows), grants=tuple(waiting))


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """One replay: its report with its batches, and how its jobs are now."""

    now: datetime
    report: ReplayReport
    tone: str
    share: float
    outcomes: tuple[tuple[str, int], ...]  # states of the jobs that it replayed, as far as they were read
    read: int


def run_view(store: Store[Any], run_id: str, now: datetime) -> RunView:
    """Return a replay; raise RecordNotFoundError if there is none."""
    report = engine.inspect(store, text_in(run_id, "run"), limit=200)
    ids = [job_id for batch in report.touched for job_id in (*batch.replayed, *batch.replaced.values())][:SAMPLES]
    with store.reading() as reading:
        states = Counter(reading.lists.states(ids).values()) if ids else Counter()
    return RunView(
        now=now,
        report=report,
        tone=TONES.get(report.state, "pending"),
        share=report.replayed / report.total if report.total else 0.0,
        outcomes=tuple((str(state), states[state]) for state in JobState if states[state]),
        read=len(ids),
    )
