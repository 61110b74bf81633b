"""Rules about one job: its state, its attempts, its effects, its columns.

No rule here repeats what the schema enforces. A job and its current attempt are one row, so a job has at most one open
execution and commits at most once. The CHECKs of holdfast_jobs tie status, lease, due_at and resting to the state: a
running job has a lease, no other job has one, and a job is succeeded exactly if its attempt is DONE. A CHECK that was
dropped, or a row that breaks one, violates `database`.

Invariants: the expected state of a job comes from `core.project`, and which states are open, final or committed from
the machines; rows that were archived are never counted as missing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from holdfast.audit.check import record_rules
from holdfast.audit.check.context import RuleContext
from holdfast.audit.check.findings import Finding, of_execution, of_job
from holdfast.core.machines import COMMITTED, JOB, OPEN, ExecutionStatus, JobState
from holdfast.core.project import project, rulings_of
from holdfast.store.requests import digest_of
from holdfast.store.verbs.histories import Case, Entry, History

FOLLOWUP_CLIENT = "holdfast"
MESSAGE_MAX = 4096
NAMED_MAX = record_rules.NAMED_MAX
_FOLLOWUP = re.compile(r"([1-9]\d{0,18})/\d+", re.ASCII)
_TRACEBACK = "Traceback (most recent call last)"


# ---------------------------------------------------------------------------------------------------------------------
# The state


def projected(case: Case, _context: RuleContext) -> Iterator[Finding]:
    """Yield a state that does not follow from the executions and the rulings."""
    executions, job = case.executions, case.job
    latest = executions[-1] if executions else None
    settled = latest is not None and (latest.status in OPEN or latest.status == ExecutionStatus.DONE)
    if job.state not in JOB.states or not (settled or _rulings_known_since_claim(case)):
        return
    expected = project(executions, rulings_of((*case.requests, *case.history.kept)))
    if expected != job.state:
        detail = f"the job is {job.state}; by its executions and rulings it should be {expected}"
        yield of_job(case, "state", detail, state=str(job.state), projected=str(expected))


def _rulings_known_since_claim(case: Case) -> bool:
    """Return whether every ruling since the latest attempt is still in the journal."""
    if case.history.whole:
        return True
    attempts = case.job.attempts
    if max((execution.attempt for execution in case.executions), default=0) != attempts:
        return False
    return any(
        row.attempt == attempts and (row.target == JobState.RUNNING or row.maintenance_id is not None)
        for row in case.history.kept
    )


def cut(case: Case, context: RuleContext) -> Iterator[Finding]:
    """Yield a job whose journal rows are missing without an archive: a job is slimmed before its rows are archived."""
    first = case.history.history_from
    archives = context.evidence.archived_until is not None  # without archives, `continuous` reports each record
    if archives and not case.job.slimmed and record_rules.lacks_rows(case.history.rows, first):
        detail = f"the journal rows before version {first} are missing, and the job was never archived"
        yield of_job(case, "taken", detail, first=first)


# ---------------------------------------------------------------------------------------------------------------------
# Commits


def immutable(case: Case, _context: RuleContext) -> Iterator[Finding]:
    """Yield moves after `succeeded`."""
    kept = case.history.kept
    ended = next((row for row in kept if row.target == JobState.SUCCEEDED), None)
    for row in kept if ended else ():
        if ended and row.version > ended.version and not _restored(row):
            detail = f"the job succeeded at version {ended.version}, but version {row.version} moved it to {row.target}"
            yield of_job(case, "moved", detail, seq=row.seq, version=row.version)


def _restored(row: Entry) -> bool:
    """Return whether a repair moved the job back to succeeded."""
    return row.maintenance_id is not None and row.target == JobState.SUCCEEDED


def commits_equal_effects(case: Case, context: RuleContext) -> Iterator[Finding]:
    """Yield commits that are not in the journal or not in the record, and follow-ups of uncommitted jobs."""
    for tried in case.tried:
        execution = tried.execution
        commits = _journalled_commits(tried.history)
        if commits is not None and commits != (execution.status in COMMITTED):
            detail = f"the execution is {execution.status}, but its journal has {commits} commits"
            yield of_execution(case, tried.history, "journal", detail, commits=commits)
    parent = parent_of(case)
    if parent is not None and parent not in context.committed:
        yield of_job(case, "followup", f"the job is a follow-up of job {parent}, which is not committed", parent=parent)


def _journalled_commits(history: History) -> int | None:
    """Return the number of commits in the journal, counted from the last repair; None if rows are missing."""
    kept = history.kept
    repaired = max((index for index, row in enumerate(kept) if row.maintenance_id is not None), default=None)
    if repaired is not None:
        since: tuple[Entry, ...] = kept[repaired + 1 :]
        return int(kept[repaired].target in COMMITTED) + sum(row.target == ExecutionStatus.COMMITTED for row in since)
    return sum(row.target == ExecutionStatus.COMMITTED for row in kept) if history.whole and kept else None


def parent_of(case: Case) -> int | None:
    """Return the id of the job whose commit submitted this one, if there is one."""
    followup = _FOLLOWUP.fullmatch(case.job.key or "") if case.job.client == FOLLOWUP_CLIENT else None
    return int(followup[1]) if followup else None


# ---------------------------------------------------------------------------------------------------------------------
# Attempts


def attempts(case: Case, _context: RuleContext) -> Iterator[Finding]:
    """Yield attempts that decrease, differ from the claims, or are not stored exactly once; and tokens that shrink."""
    job, kept = case.job, case.history.kept
    most = 0
    for row in kept:
        if row.maintenance_id is None and (row.attempt or 0) < most:
            yield of_job(case, "shrinks", f"the number of attempts decreases at version {row.version}", seq=row.seq)
        most = row.attempt or 0
    claims = _claims(kept)
    if claims is not None and claims != job.attempts:
        detail = f"the job counts {job.attempts} attempts, but its journal has {claims} claims"
        yield of_job(case, "claims", detail, attempts=job.attempts, claims=claims)
    yield from _each_once(case)
    excused = sum(execution.excused for execution in case.executions)
    all_there = len(case.tried) == job.attempts or case.history.whole
    if job.excused > job.attempts or excused > job.excused or (all_there and excused != job.excused):
        detail = (
            f"the job counts {job.excused} of {job.attempts} attempts as excused, but {excused} executions are excused"
        )
        yield of_job(case, "excused", detail, excused=job.excused, executions=excused)
    yield from _tokens(case)


def _each_once(case: Case) -> Iterator[Finding]:
    """Yield attempts that are stored twice, that the job never made, or that are missing and not archived."""
    stored = Counter(execution.attempt for execution in case.executions)
    expected = range(1, case.job.attempts + 1)
    twice = [attempt for attempt, n in stored.items() if n > 1][:NAMED_MAX]
    unknown = [attempt for attempt in stored if attempt not in expected][:NAMED_MAX]
    # An attempt is archived together with the journal row of its end, so every attempt of a kept row must be stored.
    due: Iterable[int] = expected if case.history.whole else sorted(case.journalled)
    lost = list(islice((attempt for attempt in due if attempt not in stored), NAMED_MAX))
    for kind, named, what in (
        ("twice", twice, "are stored more than once"),
        ("unknown", unknown, "are stored, but the job never made them"),
        ("lost", lost, "are missing"),
    ):
        if named:
            detail = f"the job counts {case.job.attempts} attempts; attempts {', '.join(map(str, named))} {what}"
            yield of_job(case, kind, detail, attempts=case.job.attempts, named=named)


def _tokens(case: Case) -> Iterator[Finding]:
    """Yield fencing tokens that do not grow with the attempt: a worker of an old attempt could write again."""
    before = None
    for tried in case.tried:
        execution, token = tried.execution, tried.execution.lease_token
        if before is not None and token <= before.lease_token:
            detail = f"the lease token {token} is not above {before.lease_token}, that of attempt {before.attempt}"
            yield of_execution(case, tried.history, "token", detail, token=token, before=before.lease_token)
        before = execution
    if before is not None and (case.lease_token is None or case.lease_token < before.lease_token):
        detail = f"the job's lease token is {case.lease_token}, below {before.lease_token} of attempt {before.attempt}"
        yield of_job(case, "token", detail, token=case.lease_token, attempt=before.attempt)


def _claims(kept: tuple[Entry, ...]) -> int | None:
    """Return the number of claims in the journal, counted from its start or from the last repair."""
    if not kept:
        return None
    start = max((index for index, row in enumerate(kept) if row.maintenance_id is not None), default=0)
    later = sum(row.target == JobState.RUNNING for row in kept[start + 1 :])
    return (kept[start].attempt or 0) + later


# ---------------------------------------------------------------------------------------------------------------------
# Results and columns


def results(case: Case, _context: RuleContext) -> Iterator[Finding]:
    """Yield results that are missing, are not JSON, come before a commit, or were not dropped with the payload."""
    job = case.job
    committed = job.state == JobState.SUCCEEDED or any(e.status in COMMITTED for e in case.executions)
    if job.slimmed:
        if job.state not in JOB.final:
            yield of_job(case, "slimmed", f"the job is {job.state}, but its payload was dropped")
        if job.result is not None:
            yield of_job(case, "kept", "the job's payload was dropped, but its result was not")
        if case.checkpoints:
            yield of_job(case, "kept", f"the job's payload was dropped, but {case.checkpoints} checkpoints were not")
    elif job.state == JobState.SUCCEEDED and job.result is None:
        yield of_job(case, "missing", "the job is succeeded, but has no result")
    if job.result is not None and not committed:
        yield of_job(case, "early", f"the job is {job.state} and has a result, but no committed execution")
    if job.result is not None and not is_json(job.result):
        yield of_job(case, "not_json", "the job's result is not JSON")


def is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True


def fields(case: Case, _context: RuleContext) -> Iterator[Finding]:
    """Yield values of the job and its executions that Holdfast never writes."""
    job = case.job
    for name, least in (("attempts", 0), ("excused", 0), ("max_attempts", 1), ("replay_attempts", 0)):
        if getattr(job, name) < least:
            yield of_job(case, name, f"{name} is {getattr(job, name)}; the least is {least}")
    if job.payload is not None and digest_of(job.operation, job.payload) != job.digest:
        yield of_job(case, "digest", "the stored digest differs from the digest of operation and payload")
    yield from _error_fields(case)
    if (job.state == JobState.QUARANTINED) != (job.quarantine_code is not None):
        code = "no quarantine code" if job.quarantine_code is None else f"the quarantine code {job.quarantine_code!r}"
        yield of_job(case, "quarantine_code", f"the job is {job.state} and has {code}", code=job.quarantine_code)
    ended = {row.seq: row for row in case.history.kept if row.source == JobState.RUNNING}
    for tried in case.tried:
        execution, steps = tried.execution, tried.history.kept
        end = ended.get(steps[-1].seq) if steps and execution.status == ExecutionStatus.ABORTED else None
        signed = (end.event, end.actor, end.reason, end.move_id) if end else tried.signature
        if signed != tried.signature:
            detail = (
                f"the execution was ended by {tried.signature.event}, but row {steps[-1].seq} of the journal differs"
            )
            yield of_execution(case, tried.history, "signature", detail, seq=steps[-1].seq)
        if not is_fit(execution.error_message):
            yield of_execution(
                case,
                tried.history,
                "error_message",
                f"error_message is longer than {MESSAGE_MAX} characters, or a stack trace",
            )


def _error_fields(case: Case) -> Iterator[Finding]:
    job, kept = case.job, case.history.kept
    rests = job.state in (JobState.FAILED, JobState.QUARANTINED)
    failed = any(e.status not in OPEN | COMMITTED and not e.excused for e in case.executions)
    if job.last_error_code is None and (rests or failed):
        yield of_job(case, "last_error_code", "an attempt failed, but last_error_code is empty")
    whole = case.history.whole and len(case.executions) == job.attempts
    ruled_out = any(row.target == JobState.QUARANTINED for row in kept)
    if job.last_error_code is not None and whole and not (failed or ruled_out):
        yield of_job(
            case,
            "last_error_code",
            f"no attempt failed, but last_error_code is {job.last_error_code!r}",
            code=job.last_error_code,
        )
    if job.last_error_message is not None and job.last_error_code is None:
        yield of_job(case, "last_error_message", "last_error_message is set, but last_error_code is empty")
    if not is_fit(job.last_error_message):
        yield of_job(
            case, "last_error_message", f"last_error_message is longer than {MESSAGE_MAX} characters, or a stack trace"
        )


def is_fit(message: str | None) -> bool:
    """Return whether Holdfast could have written an error message: short enough, and no stack trace."""
    return message is None or (len(message) <= MESSAGE_MAX and _TRACEBACK not in message)
