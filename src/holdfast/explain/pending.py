"""Explains why a pending job is not running: switches, pauses, limits, its due time, its workers, the jobs before it.

Invariants: everything is read from the snapshot of the view; nothing here writes.
"""

import shlex
from collections.abc import Iterator
from datetime import timedelta

from holdfast.core.limit_texts import rate_text
from holdfast.core.limits import DEPTH, KEY, KIND, RATE, Tokens, rule_of
from holdfast.core.log_names import log_of
from holdfast.core.machines import JobState
from holdfast.core.protocol import ranked, speaks
from holdfast.core.records import LOSSES_EXCUSED, Job
from holdfast.core.spans import counted
from holdfast.engine.worker.pace import POLL_S
from holdfast.explain.explanation import Finding, FindingCode
from holdfast.explain.values import tries_in_words
from holdfast.explain.view import JobView, moment_text
from holdfast.store.verbs.alive import is_silent
from holdfast.store.verbs.flow import Wait
from holdfast.store.verbs.lists import WorkerRow

AHEAD_MAX = 10_000
HOLDERS_MAX = 10  # of the slots of a limit
STALLED = timedelta(minutes=2)  # a free worker claims a due job within POLL_S


def pending_findings(seen: JobView) -> Iterator[Finding]:
    """Yield the causes that keep a pending job from running, in any order."""
    job = seen.job
    switch = seen.reading.switches.on().get(f"operation:{job.operation}")
    if switch is not None:
        yield seen.finding(
            FindingCode.KILL_SWITCH,
            f"Operation {job.operation} was switched off by {switch.thrown_by} at {seen.when(switch.created_at)}:"
            f" {switch.reason}",
            {"switch": switch.name, "thrown_at": moment_text(switch.created_at), "thrown_by": switch.thrown_by,
             "reason": switch.reason},
            f"holdfast switch lift {shlex.quote(switch.name)} --reason TEXT",
        )  # fmt: skip
    log = log_of(job)
    if log is not None:
        yield _log_entry(seen, log)
        return
    pause = seen.reading.lists.pause_of(job.queue)
    if pause is not None:
        yield seen.finding(
            FindingCode.QUEUE_PAUSED,
            f"Queue {job.queue} was paused by {pause.by} at {seen.when(pause.at)}: {pause.reason}",
            {"queue": job.queue, "paused_at": moment_text(pause.at), "paused_by": pause.by, "reason": pause.reason},
            f"holdfast resume --queue {shlex.quote(job.queue)}",
        )
    limited = _limited(seen)
    if limited is not None:
        yield limited
    if job.run_at > seen.now:
        yield _not_due(seen)
    elif job.last_error_code is not None:
        yield seen.finding(
            FindingCode.FAILED_BEFORE,
            f"Attempts used: {tries_in_words(job)}; last error: {seen.last_error}",
            seen.failure_evidence,
        )
    wait = seen.reading.flow.wait_of(job.job_id)
    holding = seen.reading.flow.holding(wait.wait_id, AHEAD_MAX) if wait and wait.awaited is not None else []
    if wait is not None and holding:
        yield _follows(seen, wait, holding)
    deadline = seen.reading.flow.deadline_of(job.job_id)
    if deadline is not None:
        yield seen.finding(
            FindingCode.DEADLINE,
            f"If no attempt begins before {seen.when(deadline)}, the job ends as deadline_passed.",
            {"deadline_at": moment_text(deadline)},
        )
    if seen.suspect:
        yield suspect_finding(seen)
    yield from _service(seen, may_start=not (pause or switch or holding or limited) and job.run_at <= seen.now)


def _follows(seen: JobView, wait: Wait, holding: list[tuple[int, JobState, str | None]]) -> Finding:
    """Return the job that a job waits for: one that needs action if there is one, otherwise the first."""
    at_rest = [one for one in holding if one[1] in (JobState.FAILED, JobState.QUARANTINED) and wait.policy != "run"]
    parent, state, code = (at_rest or holding)[0]
    evidence: dict[str, object] = {
        "job_id": parent, "state": state, "quarantine_code": code, "holding": len(holding), "parents": wait.parents,
        "if_unsuccessful": wait.policy, "batch_id": wait.wait_id if wait.kind == "batch" else None,
    }  # fmt: skip
    whom = f"batch {wait.wait_id}" if wait.kind == "batch" else counted(wait.parents, "job")
    said = f"{state} ({code})" if code else state
    return seen.finding(
        FindingCode.HELD_BY_JOB if at_rest else FindingCode.AFTER_JOB,
        f"The job follows {whom}; {len(holding)} of {wait.parents} have not succeeded: job {parent} is {said}.",
        evidence,
        f"holdfast explain {parent}",
    )


def suspect_finding(seen: JobView) -> Finding:
    """Return that a job runs alone, and why."""
    lost = seen.job.lost or 0
    return seen.finding(
        FindingCode.SUSPECT,
        f"{counted(lost, 'lease')} of the job were lost, {LOSSES_EXCUSED} of them excused: it may kill its worker."
        " It runs alone in a child process; if it dies there, that attempt counts.",
        {"lost": lost, "excused": LOSSES_EXCUSED, **seen.failure_evidence},
    )


def _log_entry(seen: JobView, name: str) -> Finding:
    return seen.finding(
        FindingCode.LOG_ENTRY,
        f"The job is an entry of the write-ahead log {name}: the log executes it, at the latest when it recovers.",
        {"log": name, "operation": seen.job.operation, **seen.failure_evidence},
    )


def _not_due(seen: JobView) -> Finding:
    job = seen.job
    executions = seen.reading.lists.executions(job.job_id)
    last = executions[-1] if executions else None
    why = ""
    if last is not None and last.excused:
        excuse = ": ".join(filter(None, (last.error_code, last.error_message))) or "no reason given"
        why = f" Attempt {last.attempt} was returned without using an attempt ({excuse})."
    elif last is not None and last.error_code is not None:
        why = f" Attempt {last.attempt} failed ({last.error_code}); attempts used: {tries_in_words(job)}."
    evidence = {
        "run_at": moment_text(job.run_at),
        "seconds": (job.run_at - seen.now).total_seconds(),
        **seen.failure_evidence,
    }
    evidence["excuse"] = last.error_code if last is not None and last.excused else None
    return seen.finding(FindingCode.NOT_DUE, f"The job is due at {seen.when(job.run_at)}.{why}", evidence)


def _service(seen: JobView, *, may_start: bool) -> Iterator[Finding]:
    """Yield findings about workers: does one serve this queue and operation, is a slot free, which jobs come first."""
    job = seen.job
    serving = [worker for worker in seen.workers if job.queue in worker.queues]
    knowing = [worker for worker in serving if any(_can_run(job, operation) for operation in worker.operations)]
    # The ledger does not know the module of an application, so it cannot print the whole command.
    start = "holdfast workers --all" if seen.all_workers else "holdfast worker --help"
    if not serving:
        last = max((worker.seen_at for worker in seen.all_workers if job.queue in worker.queues), default=None)
        ever = f"the last one was seen at {seen.when(last)}" if last else "none was ever started"
        yield seen.finding(
            FindingCode.NO_WORKER,
            f"No running worker serves queue {job.queue}; {ever}."
            f" Start one: holdfast worker MODULE:LEDGER --queue {shlex.quote(job.queue)}",
            {
                "queue": job.queue,
                "last_seen_at": moment_text(last),
                "living_workers": [w.worker_id for w in seen.workers],
            },
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


def _turn(seen: JobView, knowing: list[WorkerRow]) -> Iterator[Finding]:
    job = seen.job
    held = seen.reading.lists.held_by_owner(seen.now)
    slots = {worker.worker_id: worker.concurrency for worker in knowing}
    busy = {name: held.get(name, 0) for name in slots}
    full = all(busy[name] >= slots[name] for name in slots)
    ahead = seen.reading.lists.due_ahead(job, seen.now, AHEAD_MAX)
    if full:
        yield seen.finding(
            FindingCode.WORKERS_BUSY,
            f"Every worker that can run the job is busy: {counted(sum(busy.values()), 'attempt')}"
            f" in {counted(sum(slots.values()), 'slot')}.",
            {"busy": busy, "slots": slots},
            seen.queue_jobs(JobState.RUNNING),
        )
    if ahead:
        many = f"{ahead} or more" if ahead == AHEAD_MAX else str(ahead)
        yield seen.finding(
            FindingCode.BEHIND_OTHERS,
            f"Due jobs of queue {job.queue} with a higher priority or an earlier time run first: {many}.",
            {"ahead": ahead, "counted_to": AHEAD_MAX, "priority": job.priority, "run_at": moment_text(job.run_at)},
            seen.queue_jobs(JobState.PENDING),
        )
    since = max(job.run_at, min(worker.started_at for worker in knowing))
    if not full and not ahead and seen.now - since > STALLED:
        yield seen.finding(
            FindingCode.NOTHING_STARTS,
            f"The job is due since {seen.when(job.run_at)} and its workers have not claimed it, although they use"
            f" {sum(busy.values())} of {counted(sum(slots.values()), 'slot')}."
            " A worker that has free slots and claims nothing is stuck: restart it.",
            {"workers": sorted(slots), "busy": busy, "slots": slots},
            "holdfast workers",
        )
    elif not full and not ahead:
        last = max(worker.seen_at for worker in knowing)
        silent = all(is_silent(worker, seen.now) for worker in knowing)
        yield seen.finding(
            FindingCode.ABOUT_TO_START,
            f"The workers that can run the job are silent since {seen.when(last)}: they hang, or were killed."
            if silent
            else f"A worker claims the job at its next poll, within {POLL_S:g} s.",
            {
                "workers": sorted(slots),
                "free": sum(max(0, slots[name] - busy[name]) for name in slots),
                "last_seen_at": moment_text(last),
            },
            "holdfast workers" if silent else None,
        )


def _limited(seen: JobView) -> Finding | None:
    """Return which limit holds a job back; None if none does."""
    limits = seen.reading.limits
    cause, bucket = limits.cause_of(seen.job.job_id)
    if bucket is None or cause not in ("limit", "depth"):
        return None
    name = bucket.removeprefix(RATE)
    subject, _, key = name.partition("=") if name.startswith(f"{KEY}:") else (name, "", "")
    rule = rule_of(bucket, limits.rules())
    setting = seen.reading.configuration.get(KIND, subject)
    evidence: dict[str, object] = {
        "limit": subject, "bucket": bucket, "key": key or None,
        "set_by": setting and setting.actor, "reason": setting and setting.reason,
    }  # fmt: skip
    whose = f"{subject} (key {key})" if key else subject
    if rule is None:
        said = f"The job was parked for the limit {whose}, which was removed; workers can claim it within a second."
    elif bucket.startswith(DEPTH):
        evidence |= {"depth": rule.depth, "queue": seen.job.queue}
        said = (
            f"At most {counted(rule.depth or 0, 'job')} may wait in queue {seen.job.queue}; this one is parked until"
            " fewer do."
        )
    elif bucket.startswith(RATE):
        tokens = limits.tokens().get(bucket)
        at = None if tokens is None else Tokens(*tokens).next_at(seen.now, rule)
        evidence |= {"rate": rate_text(rule), "next_at": moment_text(at)}
        said = (
            f"The rate of {whose} is {rate_text(rule)}; the next job starts at {seen.when(at) if at else 'any time'}."
        )
    else:
        holders = limits.holders(bucket, HOLDERS_MAX)
        evidence |= {
            "running": rule.running,
            "holders": [{"slot": slot, "job_id": job_id, "worker": owner} for slot, job_id, owner in holders],
        }
        by = ", ".join(f"job {job_id} on {owner}" for _, job_id, owner in holders) or "no job now"
        said = f"The limit of {whose} is {counted(rule.running or 0, 'job')} at once; running: {by}."
    said += f" Set by {setting.actor}: {setting.reason}" if setting else ""
    return seen.finding(FindingCode.LIMITED, said, evidence, f"holdfast limits show {shlex.quote(subject)}")
