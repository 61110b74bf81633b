"""One job: the verdict, whether it took effect, where the time went, its attempts and its history.

Invariants: everything is read from one snapshot; secrets in payload, result and checkpoints are hidden; the statement
about effects follows from the status of the attempts alone; nothing here writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise

import msgspec

from holdfast.audit.as_of import PastExecution, PastJob, job_at
from holdfast.console.views.charts import JobGraph, Ribbon, Span, job_graph, ribbon
from holdfast.console.views.journal import sealed_to
from holdfast.console.views.next_steps import NextStep, next_step
from holdfast.console.views.words import clock, size_text
from holdfast.core.errors import InputError
from holdfast.core.frames import where
from holdfast.core.journal import JournalRow
from holdfast.core.machines import COMMITTED, JOB, OPEN, REQUEST, JobState
from holdfast.core.records import Execution, Job
from holdfast.core.redaction import redacted_json, redacted_lines
from holdfast.core.secret_kinds import HIDDEN
from holdfast.core.spans import counted
from holdfast.explain.explain import explain
from holdfast.explain.explanation import Explanation, FindingCode, JobVerdict
from holdfast.explain.values import PAYLOAD_SHOWN_MAX, payload_value, tries_in_words
from holdfast.governance.approval import environment_of
from holdfast.store.transaction import Reading
from holdfast.store.verbs.tracebacks import tracebacks_of

PARENTS_SHOWN = 5  # jobs that it follows and that have not succeeded
ROWS = 200  # entries of the journal on one page
VERDICTS = {
    JobVerdict.FINISHED: "This job is finished",
    JobVerdict.RUNNING: "This job is running",
    JobVerdict.WAITING: "This job waits, and will run",
    JobVerdict.BLOCKED: "This job needs action",
}
TONES = {
    JobVerdict.FINISHED: "succeeded",
    JobVerdict.RUNNING: "running",
    JobVerdict.WAITING: "pending",
    JobVerdict.BLOCKED: "attention",
}
HELD = {
    FindingCode.KILL_SWITCH: "due, held by the switch",
    FindingCode.QUEUE_PAUSED: "due, held by the pause",
    FindingCode.NO_WORKER: "due, no worker",
    FindingCode.OPERATION_NOT_SERVED: "due, no handler",
}


class Effect(msgspec.Struct, frozen=True):
    """Whether a job took effect: the answer, and what it rests on."""

    applied: bool
    title: str
    text: str


class Document(msgspec.Struct, frozen=True):
    """A JSON value as text, with secrets hidden, and how long the stored one is."""

    text: str
    note: str


class AttemptRow(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a job, and where its handler failed."""

    execution: Execution | PastExecution
    took_s: float | None
    place: str | None
    traceback: str | None


class HistoryRow(msgspec.Struct, frozen=True, kw_only=True):
    """One move in the history of a job, with the states that it went through."""

    at: datetime
    of: str
    states: tuple[str, ...]
    event: str
    by: str
    why: str | None
    grant_id: int | None
    maintenance_id: int | None
    sealed: bool


class Following(msgspec.Struct, frozen=True):
    """What a job follows: how many jobs, and those that have not succeeded, as far as they are shown."""

    parents: int
    name: str | None  # of the batch
    open: tuple[tuple[int, str], ...]  # ids and states


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the page of a job shows."""

    job: Job | PastJob
    now: datetime
    at: datetime | None  # the past time that is shown; None for the present
    move: int  # the number of the move that is shown, from 1
    moves: tuple[datetime, ...]  # the times of all moves
    explanation: Explanation | None  # of the present only
    verdict: str
    tone: str
    steps: tuple[NextStep | None, ...]  # the next step of each finding
    effect: Effect
    tries: str
    ribbon: Ribbon
    lived_s: float
    graph: JobGraph
    payload: Document | None
    result: Document | None
    checkpoints: tuple[tuple[str, Document], ...]
    attempts: tuple[AttemptRow, ...]
    history: tuple[HistoryRow, ...]  # newest first
    history_left_out: int
    unknown: tuple[str, ...]  # of the past: the fields whose value then is not known
    acts: tuple[NextStep, ...]  # what can be done with the job
    follows: Following | None
    deadline_at: datetime | None  # until when it may start
    environment: str


def job_view(
    reading: Reading, job_id: int, now: datetime, *, at: datetime | None = None, move: int | None = None
) -> JobView:
    """Return a job at `now`, or as it was at a past time or after one of its moves; raise JobNotFoundError."""
    present = reading.jobs.get(job_id)
    first, kept = reading.journal.kept(job_id)
    rows = [row for row in kept if row.machine in (JOB.name, REQUEST.name)]
    moves = tuple(dict.fromkeys(row.at for row in rows))
    if move is not None:
        if not 1 <= move <= len(moves):
            raise InputError(f"Job {job_id} has the moves 1 to {len(moves)}.", context={"field": "move"})
        at = None if move == len(moves) else moves[move - 1]
    if at is not None and at >= now:
        at = None
    past = None if at is None else job_at(reading, job_id, at, now)
    job = past.job if past is not None else present
    executions: Sequence[Execution | PastExecution] = (
        past.executions if past is not None else reading.lists.executions(job_id)
    )
    moment = now if at is None else at
    history = [row for row in kept if row.at <= moment]
    explanation = None if past is not None else explain(reading, job_id, now)
    walked = [(row.source, row.target) for row in history if row.machine == JOB.name]
    spans = list(_spans(job, history, explanation, moment))
    lines = _history(history, sealed_to(reading))
    return JobView(
        job=job,
        now=now,
        at=at,
        move=sum(1 for one in moves if one <= moment),
        moves=moves,
        explanation=explanation,
        verdict=VERDICTS[explanation.verdict] if explanation else f"As it was at {clock(moment, now)} UTC",
        tone=TONES[explanation.verdict] if explanation else "pending",
        steps=tuple(next_step(present, f) for f in explanation.findings) if explanation else (),
        effect=_effect(executions, now, whole=first <= 1),
        tries=tries_in_words(job),
        ribbon=ribbon(spans),
        lived_s=sum(span.seconds for span in spans),
        graph=job_graph(walked, job.state),
        payload=_payload(present),
        result=_document(job.result),
        checkpoints=tuple(
            (name, document)
            for name, value in sorted(reading.run("checkpoints_of", job_id=job_id))
            if (document := _document(value))
        ),
        attempts=tuple(_attempts(executions, tracebacks_of(reading, job_id))),
        history=tuple(reversed(lines[-ROWS:])),
        history_left_out=max(0, len(lines) - ROWS),
        unknown=past.unknown if past is not None else (),
        acts=() if past is not None else tuple(_acts(present)),
        follows=_follows(reading, job_id),
        deadline_at=reading.flow.deadline_of(job_id),
        environment=environment_of(reading),
    )


def _follows(reading: Reading, job_id: int) -> Following | None:
    wait = reading.flow.wait_of(job_id)
    if wait is None:
        return None
    holding = reading.flow.holding(wait.wait_id, PARENTS_SHOWN)
    return Following(wait.parents, wait.name, tuple((parent, str(state)) for parent, state, _ in holding))


def _acts(job: Job) -> Iterator[NextStep]:
    """Yield what a person can do with a job in its state."""
    if job.state is JobState.FAILED and job.may_replay:
        yield NextStep("Retry…", f"/jobs/{job.job_id}/retry")
    if job.state in (JobState.PENDING, JobState.RUNNING, JobState.FAILED):
        yield NextStep("Cancel…", f"/jobs/{job.job_id}/cancel")
    if job.state is JobState.RUNNING:
        yield NextStep("End the attempt…", f"/jobs/{job.job_id}/revoke")
    if job.state in (JobState.PENDING, JobState.FAILED):
        yield NextStep("Quarantine…", f"/jobs/{job.job_id}/quarantine")
    if job.state is JobState.QUARANTINED and not job.slimmed:
        yield NextStep("Release…", f"/jobs/{job.job_id}/release", governed=True)


# ---------------------------------------------------------------------------------------------------------------------
# Did it take effect?


def _effect(executions: Sequence[Execution | PastExecution], now: datetime, *, whole: bool) -> Effect:
    committed = next((one for one in executions if one.status in COMMITTED), None)
    if committed is not None:
        at = committed.finished_at or committed.updated_at
        return Effect(
            True,
            f"It took effect once, at {clock(at, now)} UTC.",
            f"Attempt {committed.attempt} passed the commit boundary: its effects, its follow-up jobs and its result"
            " were written in one transaction.",
        )
    tail = (
        ""
        if whole
        else " Archived rows of its journal were not read; an attempt that commits is never archived as open."
    )
    if not executions:
        return Effect(False, "No effect has been applied.", f"It has not been attempted yet.{tail}")
    if executions[-1].status in OPEN:
        text = "An attempt runs. Until it passes its commit boundary, the ledger writes nothing of it."
        return Effect(False, "No effect has been applied.", text + tail)
    return Effect(
        False,
        "No effect has been applied.",
        "No attempt has passed its commit boundary, so the ledger wrote nothing. A handler may have done something"
        f" outside the ledger before it failed.{tail}",
    )


# ---------------------------------------------------------------------------------------------------------------------
# Where the time went


def _spans(
    job: Job | PastJob, history: Sequence[JournalRow], explanation: Explanation | None, now: datetime
) -> Iterator[Span]:
    rows = [row for row in history if row.machine == JOB.name]
    ends = [*((row.at, row) for row in rows), (now, None)]
    attempt, waited = 0, False
    for (at, row), (until, following) in pairwise(ends):
        if row is None:
            continue
        attempt += row.target == JobState.RUNNING
        seconds = (until - at).total_seconds()
        if following is not None and seconds <= 0:
            continue
        state, last = JobState(row.target), following is None
        if last and state in (JobState.SUCCEEDED, JobState.QUARANTINED, JobState.FAILED):
            if state is not JobState.SUCCEEDED:
                yield Span("f", f"rests, {state}", seconds, clock(at, now))
            return
        if state is JobState.RUNNING:
            failed = following is not None and following.target != JobState.SUCCEEDED
            yield Span("r", f"attempt {attempt}", seconds, clock(at, now), failed)
        elif state is JobState.PENDING:
            yield from _waits(job, explanation, (at, until), now, again=waited, last=last)
            waited = True
        else:
            yield Span("f", f"rested, {state}", seconds, clock(at, now))


def _waits(
    job: Job | PastJob,
    explanation: Explanation | None,
    ends: tuple[datetime, datetime],
    now: datetime,
    *,
    again: bool,
    last: bool,
) -> Iterator[Span]:
    """Yield the parts of a wait: until it was due, and since then."""
    begins, until = ends
    label = "backoff" if again else "waited"
    if not last:
        yield Span("w", label, (until - begins).total_seconds(), clock(begins, now))
        return
    due = job.run_at if job.run_at is not None and begins < job.run_at < until else begins
    if due > begins:
        yield Span("w", label if again else "not due", (due - begins).total_seconds(), clock(begins, now))
    codes = {finding.code for finding in explanation.findings} if explanation else set()
    held = next((words for code, words in HELD.items() if code in codes), None)
    not_due = job.run_at is not None and job.run_at > until
    words = "not due yet" if not_due else held or "due, waits"
    yield Span("k" if held and not not_due else "w", words, (until - due).total_seconds(), clock(due, now))


# ---------------------------------------------------------------------------------------------------------------------
# Documents, attempts, history


def _payload(job: Job) -> Document | None:
    if job.payload is None:
        return None
    shown = payload_value(job)
    text = shown if isinstance(shown, str) and len(job.payload) > PAYLOAD_SHOWN_MAX else _pretty(shown)
    return Document(text, _note(text, len(job.payload)))


def _document(stored: str | None) -> Document | None:
    if stored is None:
        return None
    if len(stored) > PAYLOAD_SHOWN_MAX:
        text = redacted_lines(stored[:PAYLOAD_SHOWN_MAX], PAYLOAD_SHOWN_MAX) + "…"
    else:
        text = _pretty(redacted_json(json.loads(stored)))
    return Document(text, _note(text, len(stored)))


def _pretty(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _note(text: str, length: int) -> str:
    hidden = text.count(HIDDEN)
    parts = [counted(hidden, "value hidden", "values hidden")] if hidden else []
    parts += ["cut"] if length > PAYLOAD_SHOWN_MAX else []
    return " · ".join([*parts, size_text(length)])


def _attempts(executions: Sequence[Execution | PastExecution], traces: dict[int, str]) -> Iterator[AttemptRow]:
    for one in executions:
        trace = traces.get(one.attempt) if one.error_code else None
        place = where(trace)
        yield AttemptRow(
            execution=one,
            took_s=None if one.finished_at is None else (one.finished_at - one.created_at).total_seconds(),
            place=None if place is None else str(place),
            traceback=trace,
        )


def _history(rows: Sequence[JournalRow], sealed_to: int) -> list[HistoryRow]:
    """Return the moves of a job and its attempts; the edges of one write are one move."""
    found: list[HistoryRow] = []
    keys: list[tuple[int, str, int]] = []
    for row in rows:
        key = row.seq, row.machine, row.subject
        if keys and keys[-1] == key:
            last = found[-1]
            found[-1] = msgspec.structs.replace(last, states=(*last.states, row.target))
            continue
        keys.append(key)
        found.append(
            HistoryRow(
                at=row.at,
                of="job" if row.machine == JOB.name else "request" if row.machine == REQUEST.name else "attempt",
                states=(row.source or "∅", row.target),
                event=row.event,
                by=row.actor,
                why=row.reason,
                grant_id=row.grant_id,
                maintenance_id=row.maintenance_id,
                sealed=row.seq <= sealed_to,
            )
        )
    return found
