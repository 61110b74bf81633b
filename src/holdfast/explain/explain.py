"""Explains why a job is not running: the causes, the evidence, and the next command.

Invariants: everything is read from one snapshot and judged at one time; the most decisive finding comes first and gives
the verdict; codes are stable; `next` is a command that exists; nothing here writes.
"""

import shlex
from collections.abc import Iterator
from datetime import datetime

from holdfast.core.commands import Expire
from holdfast.core.decide import CANCELLED, DEADLINE_PASSED, Move, decide
from holdfast.core.machines import OPEN, ExecutionStatus, JobState
from holdfast.core.records import Attempt, Execution, Job
from holdfast.core.spans import counted
from holdfast.engine.worker.pace import POLL_S
from holdfast.explain.explanation import Explanation, Finding, FindingCode, verdict_of
from holdfast.explain.pending import pending_findings, suspect_finding
from holdfast.explain.values import tries_left
from holdfast.explain.view import JobView, moment_text
from holdfast.governance.reasons import Reason
from holdfast.store.transaction import Reading
from holdfast.store.verbs.alive import is_silent
from holdfast.store.verbs.erasures import erasure_of

MANY_FAILED = 10  # from so many failed jobs of one operation on, the next command is for all of them


def explain(reading: Reading, job_id: int, now: datetime) -> Explanation:
    """Return why a job is not running at `now`; raise JobNotFoundError if it does not exist."""
    job = reading.jobs.get(job_id)
    seen = JobView(reading, job, now)
    found = tuple(sorted(_FINDERS[job.state](seen), key=lambda finding: list(FindingCode).index(finding.code)))
    return Explanation(job_id, job.state, verdict_of(found[0]), found)


# ---------------------------------------------------------------------------------------------------------------------
# Running jobs


def _of_running(seen: JobView) -> Iterator[Finding]:
    executions = [e for e in seen.reading.lists.executions(seen.job.job_id) if e.status in OPEN]
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
    if execution.cancel_requested_at is not None:
        request, evidence = _request(seen, execution)
        words = f"{request}; the job is cancelled when attempt {execution.attempt} ends, unless it commits first."
        yield seen.finding(FindingCode.CANCEL_REQUESTED, words, evidence)
    if seen.suspect:
        yield suspect_finding(seen)


def _request(seen: JobView, execution: Execution) -> tuple[str, dict[str, object]]:
    """Return the words and the evidence of a request to cancel an attempt."""
    requested_at = execution.cancel_requested_at or execution.updated_at
    row = next((r for r in seen.requests if r.attempt == execution.attempt), None)
    by, reason = (row.actor, row.reason) if row else (None, None)
    words = (
        f"{by or 'An operator'} requested at {seen.when(requested_at)} to cancel it{f': {reason}' if reason else ''}"
    )
    return words, {
        "cancel_requested_at": moment_text(requested_at),
        "by": by,
        "reason": reason,
        "attempt": execution.attempt,
    }


def _held(seen: JobView, execution: Execution) -> Iterator[Finding]:
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
    if owner is not None and (owner not in seen.workers or is_silent(owner, seen.now)):
        last = owner.stopped_at or owner.seen_at
        seen_last = f"{'stopped' if owner.stopped_at else 'was last seen'} at {seen.when(last)}"
        yield seen.finding(
            FindingCode.OWNER_SILENT,
            f"Its worker {seen_last}; if it has crashed, the lease expires and the job is recovered automatically.",
            {
                "worker_id": owner.worker_id,
                "seen_at": moment_text(owner.seen_at),
                "stopped_at": moment_text(owner.stopped_at),
            },
            "holdfast stalled",
        )


def _expired(seen: JobView, execution: Execution) -> Finding:
    """Return the finding for an expired lease: who recovers the attempt, when, and the job's state after that."""
    ended = f"The lease of {execution.lease_owner} on attempt {execution.attempt} expired"
    ended += f" at {seen.when(execution.lease_expires_at)}"
    if execution.status == ExecutionStatus.COMMITTED:
        then: str = JobState.SUCCEEDED  # a committed attempt can only succeed
    else:
        answer = decide(Attempt(seen.job, execution), Expire(seen.now), seen.now)
        then = answer.steps[-1].target if isinstance(answer, Move) else seen.job.state
    reapers = [worker.worker_id for worker in seen.workers if not is_silent(worker, seen.now)]
    evidence = {**_lease(execution), "reapers": reapers, "reaped_within_s": POLL_S if reapers else None, "then": then}
    if reapers:
        who = f"{reapers[0]} or another running worker" if len(reapers) > 1 else reapers[0]
        words = f"{ended}; {who} recovers it within about {POLL_S:g} s, and the job is then {then}."
        return seen.finding(FindingCode.LEASE_EXPIRED, words, evidence, "holdfast stalled")
    words = f"{ended}, and no worker is running to recover it; the job is {then} after recovery."
    return seen.finding(FindingCode.LEASE_EXPIRED_UNSEEN, words, evidence, "holdfast recover")


def _lease(execution: Execution) -> dict[str, object]:
    named = ("exec_id", "attempt", "status", "lease_owner", "progress", "progress_note")
    times = {
        "started_at": moment_text(execution.started_at),
        "lease_expires_at": moment_text(execution.lease_expires_at),
    }
    return {**{name: getattr(execution, name) for name in named}, **times}


# ---------------------------------------------------------------------------------------------------------------------
# Failed, quarantined and succeeded jobs


def _of_failed(seen: JobView) -> Iterator[Finding]:
    job = seen.job
    if not job.may_replay:
        yield _budget_gone(seen)
        return
    code = FindingCode.NOT_RETRIED if job.may_retry else FindingCode.ATTEMPTS_SPENT
    words = f"The job failed and is not retried automatically ({tries_left(job)}); last error: {seen.last_error}"
    yield seen.finding(code, words, seen.failure_evidence, _again(seen))


def _again(seen: JobView) -> str:
    """Return the command that runs a failed job again; with many failures of its operation, the one for all."""
    job = seen.job
    failed = sum(
        count.n
        for count in seen.reading.counts.current()
        if count.operation == job.operation and count.state == JobState.FAILED
    )
    if failed < MANY_FAILED:
        return f"holdfast retry {job.job_id}"
    code = f" --error-code {shlex.quote(job.last_error_code)}" if job.last_error_code else ""
    return f"holdfast replay dry-run --operation {shlex.quote(job.operation)}{code} --created-after '30d ago'"


def _of_quarantined(seen: JobView) -> Iterator[Finding]:
    job = seen.job
    rows = [row for row in seen.reading.journal.of(job.job_id) if row.target == JobState.QUARANTINED]
    row = rows[-1] if rows else None
    by, at, reason = (row.actor, row.at, row.reason) if row else (None, job.updated_at, None)
    request = next((r for r in seen.requests if r.attempt == job.attempts), None)
    if request is not None and row is not None and row.attempt == job.attempts and row.event == "cancel":
        by, reason = request.actor, request.reason  # the worker only carried it out
    who = f"by {by} " if by else ""
    why = f": {reason}" if reason else ""
    evidence: dict[str, object] = {
        "code": job.quarantine_code, "reason": reason, "by": by, "at": moment_text(at), **seen.failure_evidence
    }  # fmt: skip
    if job.quarantine_code == CANCELLED:
        yield seen.finding(FindingCode.CANCELLED, f"The job was cancelled {who}at {seen.when(at)}{why}", evidence)
    elif job.quarantine_code == Reason.SUPERSEDED:
        # A release would not help: the handler would find the newer job again, and quarantine this one.
        successor = _successor(job) or reason
        words = f"The job was superseded {who}at {seen.when(at)}{f': {successor}' if successor else ''}"
        yield seen.finding(FindingCode.SUPERSEDED, f"{words}; no action is needed.", evidence)
    elif job.quarantine_code == DEADLINE_PASSED:
        deadline = seen.reading.flow.deadline_of(job.job_id)
        evidence["deadline_at"] = moment_text(deadline)
        until = f" at {seen.when(deadline)}" if deadline else ""
        words = f"The deadline of the job passed{until} before an attempt began; to do the work still, submit it anew."
        yield seen.finding(FindingCode.DEADLINE_PASSED, words, evidence)
    else:
        from holdfast.engine.worker.raised import HOPELESS  # noqa: PLC0415 - the engine, and all of governance
        from holdfast.governance.quarantine import release_commands  # noqa: PLC0415 - see above

        error = f"; last error: {seen.last_error}" if job.last_error_code else ""
        hopeless = job.quarantine_code in HOPELESS
        again = "; it would end the same way again: submit it anew with other arguments" if hopeless else ""
        yield seen.finding(
            FindingCode.QUARANTINED,
            f"The job was quarantined as {job.quarantine_code} {who}at {seen.when(at)}{why}{error}{again}",
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


def _of_succeeded(seen: JobView) -> Iterator[Finding]:
    job = seen.job
    yield seen.finding(
        FindingCode.SUCCEEDED,
        f"The job succeeded at {seen.when(job.updated_at)}, after {counted(job.attempts, 'attempt')}.",
        {"succeeded_at": moment_text(job.updated_at), "attempts": job.attempts, "has_result": job.result is not None},
    )
    last = next((e for e in seen.reading.lists.executions(job.job_id) if e.attempt == job.attempts), None)
    if last is not None and last.cancel_requested_at is not None:
        request, evidence = _request(seen, last)
        yield seen.finding(FindingCode.CANCEL_TOO_LATE, f"{request}; too late: the attempt committed first.", evidence)
    if job.slimmed:
        yield _slimmed(seen)


def _budget_gone(seen: JobView) -> Finding:
    job = seen.job
    return seen.finding(
        FindingCode.BUDGET_GONE,
        f"The job has used all {job.max_attempts} automatic attempts and all {job.replay_attempts} replays:"
        f" {counted(job.spent, 'attempt')} in total.",
        seen.failure_evidence,
    )


def _slimmed(seen: JobView) -> Finding:
    erasure = erasure_of(seen.reading, seen.job.job_id)
    if erasure is not None:
        return seen.finding(
            FindingCode.ERASED,
            f"The data of the job were erased by {erasure.actor} at {seen.when(erasure.erased_at)}: {erasure.reason};"
            " the idempotency key stays reserved.",
            {
                "at": moment_text(erasure.erased_at),
                "by": erasure.actor,
                "reason": erasure.reason,
                "grant_id": erasure.grant_id,
                "digest": seen.job.digest,
            },
        )
    return seen.finding(
        FindingCode.SLIMMED,
        "Retention dropped the payload and the result; the idempotency key stays reserved.",
        {"digest": seen.job.digest, "key": seen.job.key},
    )


_FINDERS = {
    JobState.PENDING: pending_findings,
    JobState.RUNNING: _of_running,
    JobState.FAILED: _of_failed,
    JobState.QUARANTINED: _of_quarantined,
    JobState.SUCCEEDED: _of_succeeded,
}
