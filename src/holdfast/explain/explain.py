"""Explains why a job is not running: the causes, the evidence, and the next command.

Invariants: everything is read from one snapshot and judged at one time; the most decisive finding comes first and gives
the verdict; codes are stable; `next` is a command that exists; nothing here writes.
"""

import shlex
from collections.abc import Iterator
from datetime import datetime, timedelta

from holdfast.compat.wal_entries import log_of
from holdfast.core.commands import Expire
from holdfast.core.decide import CANCELLED, Move, decide
from holdfast.core.machines import OPEN, ExecutionStatus, JobState
from holdfast.core.protocol import ranked, speaks
from holdfast.core.records import Attempt, Execution, Job, time_text
from holdfast.engine.operations import LEASE_S
from holdfast.engine.worker.heartbeat import BEATS_A_LEASE
from holdfast.engine.worker.worker import POLL_S
from holdfast.explain.explanation import Explanation, Finding, FindingCode, verdict_of
from holdfast.governance.quarantine import release_commands
from holdfast.governance.reasons import Reason
from holdfast.governance.switches import stopping
from holdfast.store.transaction import Reading
from holdfast.store.verbs.workers import WorkerRow

MISSED_BEATS = 3
ALIVE_S = MISSED_BEATS * LEASE_S / BEATS_A_LEASE
"""A worker records a heartbeat at least every ten seconds. After three missed heartbeats, or once one of its leases has
expired since it was last seen, it counts as stopped."""

AHEAD_MAX = 10_000


def explain(reading: Reading, job_id: int, now: datetime) -> Explanation:
    """Return why a job is not running at `now`; raise JobNotFoundError if it does not exist."""
    job = reading.jobs.get(job_id)
    seen = _Seen(reading, job, now)
    found = tuple(sorted(_FINDERS[job.state](seen), key=lambda finding: list(FindingCode).index(finding.code)))
    return Explanation(job_id, job.state, verdict_of(found[0]), found)


class _Seen:
    """A job at one time, and what the ledger knows about it."""

    def __init__(self, reading: Reading, job: Job, now: datetime) -> None:
        self.reading = reading
        self.job = job
        self.now = now
        self.all_workers = reading.workers.all()
        since, lost = now - timedelta(seconds=ALIVE_S), reading.executions.lost_by_owner(now)
        # Live workers. A worker that let a lease expire and was not seen since is not one.
        self.workers = [
            worker
            for worker in self.all_workers
            if worker.stopped_at is None and worker.seen_at >= max(since, lost.get(worker.worker_id, since))
        ]

    def finding(self, code: FindingCode, message: str, evidence: dict[str, object], then: str | None = None) -> Finding:
        """Return a finding. Without a better next command, it is `holdfast show`."""
        return Finding(code, message, evidence, then or f"holdfast show {self.job.job_id}")

    def queue_jobs(self, state: JobState) -> str:
        return f"holdfast jobs --state {state} --queue {shlex.quote(self.job.queue)}"

    def when(self, moment: datetime) -> str:
        """Return a time as text, with its distance from now."""
        return f"{moment.replace(tzinfo=None).isoformat(' ', 'seconds')} UTC ({_distance(moment, self.now)})"


def _distance(moment: datetime, now: datetime) -> str:
    seconds = abs((moment - now).total_seconds())
    size, unit = next(((size, unit) for size, unit in _SPANS if seconds >= size), (1, "s"))
    return f"in {seconds // size:.0f} {unit}" if moment > now else f"{seconds // size:.0f} {unit} ago"


def _many(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


_SPANS = ((86400, "d"), (3600, "h"), (60, "min"))


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else time_text(moment)


# ---------------------------------------------------------------------------------------------------------------------
# Pending jobs


def _of_pending(seen: _Seen) -> Iterator[Finding]:
    job = seen.job
    switch = stopping(seen.reading, job.operation)
    if switch is not None:
        yield seen.finding(
            FindingCode.KILL_SWITCH,
            f"Operation {job.operation} was switched off by {switch.thrown_by} at {seen.when(switch.created_at)}:"
            f" {switch.reason}",
            {"switch": switch.name, "thrown_at": _text(switch.created_at), "thrown_by": switch.thrown_by,
             "reason": switch.reason},
            f"holdfast switch lift {shlex.quote(switch.name)} --reason TEXT",
        )  # fmt: skip
    log = log_of(job)
    if log is not None:
        yield _log_entry(seen, log)
        return
    pause = seen.reading.queues.pause_of(job.queue)
    if pause is not None:
        yield seen.finding(
            FindingCode.QUEUE_PAUSED,
            f"Queue {job.queue} was paused by {pause.by} at {seen.when(pause.at)}: {pause.reason}",
            {"queue": job.queue, "paused_at": _text(pause.at), "paused_by": pause.by, "reason": pause.reason},
            f"holdfast resume --queue {shlex.quote(job.queue)}",
        )
    if job.run_at > seen.now:
        yield _not_due(seen)
    elif job.last_error_code is not None:
        yield seen.finding(
            FindingCode.FAILED_BEFORE,
            f"{job.spent} of {_many(job.max_attempts, 'automatic attempt')} used; last error: {_error(job)}",
            _failure(job),
        )
    yield from _service(seen, may_start=pause is None and switch is None and job.run_at <= seen.now)


def _log_entry(seen: _Seen, name: str) -> Finding:
    return seen.finding(
        FindingCode.LOG_ENTRY,
        f"The job is an entry of the write-ahead log {name}: the log executes it, at the latest when it recovers.",
        {"log": name, "operation": seen.job.operation, **_failure(seen.job)},
    )


def _not_due(seen: _Seen) -> Finding:
    job = seen.job
    executions = seen.reading.executions.of_job(job.job_id)
    last = executions[-1] if executions else None
    why = ""
    if last is not None and last.excused:
        excuse = ": ".join(filter(None, (last.error_code, last.error_message))) or "no reason given"
        why = f" Attempt {last.attempt} was returned without using an attempt ({excuse})."
    elif last is not None and last.error_code is not None:
        why = f" Attempt {last.attempt} of {job.max_attempts} failed ({last.error_code})."
    evidence = {"run_at": _text(job.run_at), "seconds": (job.run_at - seen.now).total_seconds(), **_failure(job)}
    evidence["excuse"] = last.error_code if last is not None and last.excused else None
    return seen.finding(FindingCode.NOT_DUE, f"The job is due at {seen.when(job.run_at)}.{why}", evidence)


def _service(seen: _Seen, *, may_start: bool) -> Iterator[Finding]:
    """Yield findings about workers: does one serve this queue and operation, is a slot free, which jobs come first."""
    job = seen.job
    serving = [worker for worker in seen.workers if job.queue in worker.queues]
    knowing = [worker for worker in serving if any(_can_run(job, operation) for operation in worker.operations)]
    start = f"holdfast worker MODULE:LEDGER --queue {shlex.quote(job.queue)}"
    if not serving:
        last = max((worker.seen_at for worker in seen.all_workers if job.queue in worker.queues), default=None)
        ever = f"the last one was seen at {seen.when(last)}" if last else "none was ever started"
        yield seen.finding(
            FindingCode.NO_WORKER,
            f"No running worker serves queue {job.queue}; {ever}.",
            {"queue": job.queue, "last_seen_at": _text(last), "living_workers": [w.worker_id for w in seen.workers]},
            start,
        )
    elif not knowing:
        yield seen.finding(
            FindingCode.OPERATION_NOT_SERVED,
            f"No running worker of queue {job.queue} has a handler for {job.operation} {job.operation_version}.",
            {
                "operation": job.operation,
                "version": job.operation_version,
                "workers": {w.worker_id: w.operations for w in serving},
            },
            start,
        )
    elif may_start:
        yield from _turn(seen, knowing)


def _can_run(job: Job, operation: str) -> bool:
    """Return whether a handler, listed by its worker as `NAME@VERSION` or `NAME` for any version, can run a job."""
    name, _, version = operation.partition("@")
    needed = job.operation_version
    return name == job.operation and (not version or ranked(needed) is None or speaks(version, needed))


def _turn(seen: _Seen, knowing: list[WorkerRow]) -> Iterator[Finding]:
    job = seen.job
    held = seen.reading.executions.held_by_owner(seen.now)
    slots = {worker.worker_id: worker.concurrency for worker in knowing}
    busy = {name: held.get(name, 0) for name in slots}
    full = all(busy[name] >= slots[name] for name in slots)
    ahead = seen.reading.jobs.due_ahead(job, seen.now, AHEAD_MAX)
    if full:
        yield seen.finding(
            FindingCode.WORKERS_BUSY,
            f"Every worker that can run the job is busy: {_many(sum(busy.values()), 'attempt')}"
            f" in {_many(sum(slots.values()), 'slot')}.",
            {"busy": busy, "slots": slots},
            seen.queue_jobs(JobState.RUNNING),
        )
    if ahead:
        many = f"{ahead} or more" if ahead == AHEAD_MAX else str(ahead)
        yield seen.finding(
            FindingCode.BEHIND_OTHERS,
            f"Due jobs of queue {job.queue} with a higher priority or an earlier time run first: {many}.",
            {"ahead": ahead, "counted_to": AHEAD_MAX, "priority": job.priority, "run_at": _text(job.run_at)},
            seen.queue_jobs(JobState.PENDING),
        )
    if not full and not ahead:
        yield seen.finding(
            FindingCode.ABOUT_TO_START,
            f"A worker claims the job at its next poll, within {POLL_S:g} s.",
            {"workers": sorted(slots), "free": sum(max(0, slots[name] - busy[name]) for name in slots)},
        )


# ---------------------------------------------------------------------------------------------------------------------
# Running jobs


def _of_running(seen: _Seen) -> Iterator[Finding]:
    executions = [e for e in seen.reading.executions.of_job(seen.job.job_id) if e.status in OPEN]
    if not executions:
        yield seen.finding(
            FindingCode.NO_EXECUTION,
            "The job is running, but has no open attempt: the ledger is inconsistent.",
            {"open_executions": 0},
            "holdfast check",
        )
        return
    execution = executions[-1]
    if execution.lease_expires_at <= seen.now:
        yield _expired(seen, execution)
    elif execution.status == ExecutionStatus.COMMITTED:
        yield seen.finding(
            FindingCode.COMMITTED,
            f"Attempt {execution.attempt} is committed with its effects; {execution.lease_owner} has yet to finish it.",
            _lease(execution),
        )
    else:
        yield from _held(seen, execution)
    if execution.cancel_asked_at is not None:
        yield seen.finding(
            FindingCode.CANCEL_ASKED,
            f"A cancellation was requested at {seen.when(execution.cancel_asked_at)}; the handler has not stopped yet.",
            {"cancel_asked_at": _text(execution.cancel_asked_at)},
        )


def _held(seen: _Seen, execution: Execution) -> Iterator[Finding]:
    done = "" if execution.progress is None else f", {execution.progress:.0%} done"
    note = f" ({execution.progress_note})" if execution.progress_note else ""
    state = "running" if execution.status == ExecutionStatus.IN_PROGRESS else "leased"
    since, until = seen.when(execution.created_at), seen.when(execution.lease_expires_at)
    yield seen.finding(
        FindingCode.RUNNING,
        f"Attempt {execution.attempt} is {state} on {execution.lease_owner} since {since}{done}{note};"
        f" its lease expires at {until}.",
        _lease(execution),
    )
    owner = next((w for w in seen.all_workers if w.worker_id == execution.lease_owner), None)
    if owner is not None and owner not in seen.workers:
        last = owner.stopped_at or owner.seen_at
        seen_last = f"{'stopped' if owner.stopped_at else 'was last seen'} at {seen.when(last)}"
        yield seen.finding(
            FindingCode.OWNER_SILENT,
            f"Its worker {seen_last}; if it has crashed, the lease expires and the job is recovered automatically.",
            {"worker_id": owner.worker_id, "seen_at": _text(owner.seen_at), "stopped_at": _text(owner.stopped_at)},
            "holdfast stalled",
        )


def _expired(seen: _Seen, execution: Execution) -> Finding:
    """Return the finding for an expired lease: who recovers the attempt, when, and the job's state after that."""
    ended = f"The lease of {execution.lease_owner} on attempt {execution.attempt} expired"
    ended += f" at {seen.when(execution.lease_expires_at)}"
    if execution.status == ExecutionStatus.COMMITTED:
        then: str = JobState.SUCCEEDED  # a committed attempt can only succeed
    else:
        answer = decide(Attempt(seen.job, execution), Expire(seen.now), seen.now)
        then = answer.steps[-1].target if isinstance(answer, Move) else seen.job.state
    reapers = [worker.worker_id for worker in seen.workers]
    evidence = {**_lease(execution), "reapers": reapers, "reaped_within_s": POLL_S if reapers else None, "then": then}
    if reapers:
        who = f"{reapers[0]} or another running worker" if len(reapers) > 1 else reapers[0]
        words = f"{ended}; {who} recovers it within about {POLL_S:g} s, and the job is then {then}."
        return seen.finding(FindingCode.LEASE_EXPIRED, words, evidence, "holdfast stalled")
    words = f"{ended}, and no worker is running to recover it; the job is {then} after recovery."
    return seen.finding(FindingCode.LEASE_EXPIRED_UNSEEN, words, evidence, "holdfast recover")


def _lease(execution: Execution) -> dict[str, object]:
    named = ("exec_id", "attempt", "status", "lease_owner", "progress", "progress_note")
    times = {"started_at": _text(execution.started_at), "lease_expires_at": _text(execution.lease_expires_at)}
    return {**{name: getattr(execution, name) for name in named}, **times}


# ---------------------------------------------------------------------------------------------------------------------
# Failed, quarantined and succeeded jobs


def _of_failed(seen: _Seen) -> Iterator[Finding]:
    job = seen.job
    if not job.may_replay:
        yield _budget_gone(seen)
        return
    if job.may_retry:
        code, words = (
            FindingCode.NOT_RETRIED,
            f"The job failed after {job.spent} of {_many(job.max_attempts, 'automatic attempt')}",
        )
    else:
        code, words = (
            FindingCode.ATTEMPTS_SPENT,
            f"The job failed and has used {_many(job.max_attempts, 'automatic attempt')}",
        )
    words += f" and is not retried automatically; last error: {_error(job)}"
    yield seen.finding(code, words, _failure(job), f"holdfast retry {job.job_id}")


def _of_quarantined(seen: _Seen) -> Iterator[Finding]:
    job = seen.job
    rows = [row for row in seen.reading.journal.of(job.job_id) if row.target == JobState.QUARANTINED]
    row = rows[-1] if rows else None
    by, at, reason = (row.actor, row.at, row.reason) if row else (None, job.updated_at, None)
    who = f"by {by} " if by else ""
    why = f": {reason}" if reason else ""
    evidence: dict[str, object] = {
        "code": job.quarantine_code, "reason": reason, "by": by, "at": _text(at), **_failure(job)
    }  # fmt: skip
    if job.quarantine_code == CANCELLED:
        yield seen.finding(FindingCode.CANCELLED, f"The job was cancelled {who}at {seen.when(at)}{why}", evidence)
    elif job.quarantine_code == Reason.SUPERSEDED:
        # A release would not help: the handler would find the newer job again, and quarantine this one.
        successor = _successor(job) or reason
        words = f"The job was superseded {who}at {seen.when(at)}{f': {successor}' if successor else ''}"
        yield seen.finding(FindingCode.SUPERSEDED, f"{words}; no action is needed.", evidence)
    else:
        error = f"; last error: {_error(job)}" if job.last_error_code else ""
        yield seen.finding(
            FindingCode.QUARANTINED,
            f"The job was quarantined as {job.quarantine_code} {who}at {seen.when(at)}{why}{error}",
            evidence,
            release_commands(seen.reading, job)[0],
        )
        if not job.may_replay:
            yield _budget_gone(seen)
    if job.slimmed:
        yield _slimmed(seen)


def _successor(job: Job) -> str | None:
    """Return what superseded a job, from the message with which it was quarantined."""
    message = job.last_error_message if job.last_error_code == Reason.SUPERSEDED else None
    return message.partition("\n")[0].removeprefix("Quarantine: ") if message else None


def _of_succeeded(seen: _Seen) -> Iterator[Finding]:
    job = seen.job
    yield seen.finding(
        FindingCode.SUCCEEDED,
        f"The job succeeded at {seen.when(job.updated_at)}, after {_many(job.attempts, 'attempt')}.",
        {"succeeded_at": _text(job.updated_at), "attempts": job.attempts, "has_result": job.result is not None},
    )
    if job.slimmed:
        yield _slimmed(seen)


def _error(job: Job) -> str:
    """Return the last error in one line."""
    first = (job.last_error_message or "").partition("\n")[0]
    return ": ".join(filter(None, (job.last_error_code, first)))


def _failure(job: Job) -> dict[str, object]:
    named = ("attempts", "spent", "max_attempts", "replay_attempts", "last_error_code", "last_error_message")
    return {name: getattr(job, name) for name in named}


def _budget_gone(seen: _Seen) -> Finding:
    job = seen.job
    return seen.finding(
        FindingCode.BUDGET_GONE,
        f"The job has used all {job.max_attempts} automatic attempts and all {job.replay_attempts} replays:"
        f" {_many(job.spent, 'attempt')} in total.",
        _failure(job),
    )


def _slimmed(seen: _Seen) -> Finding:
    return seen.finding(
        FindingCode.SLIMMED,
        "Retention dropped the payload and the result; the idempotency key stays reserved.",
        {"digest": seen.job.digest, "key": seen.job.key},
    )


_FINDERS = {
    JobState.PENDING: _of_pending,
    JobState.RUNNING: _of_running,
    JobState.FAILED: _of_failed,
    JobState.QUARANTINED: _of_quarantined,
    JobState.SUCCEEDED: _of_succeeded,
}
