"""Rules about one job: its state, its attempts, its effects, its columns.

Invariants: the state that a job should have comes from `core.project`, and which states are open, final or committed
from the machines; where evidence was archived, nothing is held against a job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from holdfast.audit.check import record_rules
from holdfast.audit.check.context import RuleContext
from holdfast.audit.check.findings import Finding, of_execution, of_job
from holdfast.core.machines import COMMITTED, EXECUTION, JOB, OPEN, ExecutionStatus, JobState
from holdfast.core.project import project, rulings_of
from holdfast.store.requests import digest_of
from holdfast.store.verbs.evidence import Case, Entry, History

FOLLOWUP_CLIENT = "holdfast"
MESSAGE_MAX = 4096
_FOLLOWUP = re.compile(r"([1-9]\d{0,18})/\d+", re.ASCII)
_TRACEBACK = "Traceback (most recent call last)"


# ---------------------------------------------------------------------------------------------------------------------
# The state, and the leases


def projected(case: Case, _context: RuleContext) -> Iterator[Finding]:
    """Yield a state that the executions and the rulings do not add up to."""
    executions, job = case.executions, case.job
    latest = executions[-1] if executions else None
    settled = latest is not None and (latest.status in OPEN or latest.status == ExecutionStatus.DONE)
    if job.state not in JOB.states or not (settled or _rulings_known_since_claim(case)):
        return
    expected = project(executions, rulings_of(case.history.told))
    if expected != job.state:
        detail = f"it is {job.state}, and its executions and rulings add up to {expected}"
        yield of_job(case, "state", detail, state=str(job.state), projected=str(expected))


def _rulings_known_since_claim(case: Case) -> bool:
    """Tell whether every ruling since the latest attempt is still on record."""
    if case.history.whole:
        return True
    attempts = case.job.attempts
    if max((execution.attempt for execution in case.executions), default=0) != attempts:
        return False
    return any(
        row.attempt == attempts and (row.target == JobState.RUNNING or row.maintenance_id is not None)
        for row in case.history.told
    )


def leased(case: Case, _context: RuleContext) -> Iterator[Finding]:
    """Yield a running job without exactly one open execution, and open executions of a job that is not running."""
    held = [tried for tried in case.tried if tried.execution.status in OPEN]
    if case.job.state == JobState.RUNNING:
        if len(held) != 1:
            ids = [tried.execution.exec_id for tried in held]
            yield of_job(case, "leases", f"it is running under {len(held)} open executions", executions=ids)
        return
    for tried in held:
        execution = tried.execution
        detail = f"it is {execution.status}, and its job {case.job.job_id} is {case.job.state}"
        yield of_execution(case, tried.history, "open", detail, status=str(execution.status), state=str(case.job.state))


def cut(case: Case, context: RuleContext) -> Iterator[Finding]:
    """Yield a job whose rows are gone although no archive can have them: what is archived is slimmed first."""
    first = case.history.history_from
    archives = context.evidence.archived_until is not None  # if there are none, that is said of every record
    if archives and not case.job.slimmed and record_rules.lacks_rows(case.history.rows, first):
        detail = f"its history is cut at version {first}, the rows before that are gone, and it was never archived"
        yield of_job(case, "taken", detail, first=first)


# ---------------------------------------------------------------------------------------------------------------------
# Commits


def immutable(case: Case, _context: RuleContext) -> Iterator[Finding]:
    """Yield what follows `succeeded`, and a success without a commit."""
    told = case.history.told
    ended = next((row for row in told if row.target == JobState.SUCCEEDED), None)
    for row in told if ended else ():
        if ended and row.version > ended.version and not _restored(row):
            detail = f"it succeeded at version {ended.version}, and version {row.version} leads to {row.target}"
            yield of_job(case, "moved", detail, seq=row.seq, version=row.version)
    committed = any(execution.status in COMMITTED for execution in case.executions)
    if case.job.state == JobState.SUCCEEDED and not committed and not _archived(case):
        yield of_job(case, "uncommitted", "it has succeeded without a committed execution")


def _restored(row: Entry) -> bool:
    """Tell whether a repair put the job back to where it had succeeded."""
    return row.maintenance_id is not None and row.target == JobState.SUCCEEDED


def one_commit(case: Case, _context: RuleContext) -> Iterator[Finding]:
    """Yield a job that was committed twice."""
    ids = [execution.exec_id for execution in case.executions if execution.status in COMMITTED]
    if len(ids) > 1:
        yield of_job(case, "commits", f"it has {len(ids)} committed executions", executions=ids)


def commits_equal_effects(case: Case, context: RuleContext) -> Iterator[Finding]:
    """Yield commits that did not count, commits that the journal does not tell of, follow-ups of nothing."""
    for tried in case.tried:
        execution = tried.execution
        if execution.status in COMMITTED:
            due = JobState.SUCCEEDED if execution.status == ExecutionStatus.DONE else JobState.RUNNING
            if case.job.state != due:
                detail = f"execution {execution.exec_id} is {execution.status}, and the job is {case.job.state}"
                yield of_job(case, "commit", detail, execution=execution.exec_id, state=str(case.job.state))
        told = _journalled_commits(tried.history)
        if told is not None and told != (execution.status in COMMITTED):
            detail = f"it is {execution.status}, and its journal tells of {told} commits"
            yield of_execution(case, tried.history, "journal", detail, commits=told)
    parent = parent_of(case)
    if parent is not None and parent not in context.committed:
        yield of_job(case, "followup", f"it was staged by job {parent}, which never committed", parent=parent)


def _journalled_commits(history: History) -> int | None:
    """Return how many commits the journal tells of since a repair last settled the matter; None if it cannot tell."""
    told = history.told
    repaired = max((index for index, row in enumerate(told) if row.maintenance_id is not None), default=None)
    if repaired is not None:
        since: tuple[Entry, ...] = told[repaired + 1 :]
        return int(told[repaired].target in COMMITTED) + sum(row.target == ExecutionStatus.COMMITTED for row in since)
    return sum(row.target == ExecutionStatus.COMMITTED for row in told) if history.whole and told else None


def parent_of(case: Case) -> int | None:
    """Return the job that staged this one for after its commit, if one did."""
    followup = _FOLLOWUP.fullmatch(case.job.key or "") if case.job.client == FOLLOWUP_CLIENT else None
    return int(followup[1]) if followup else None


def _archived(case: Case) -> bool:
    """Tell whether the job's attempts may be in an archive."""
    return case.job.slimmed and not case.history.whole


# ---------------------------------------------------------------------------------------------------------------------
# Attempts


def attempts(case: Case, context: RuleContext) -> Iterator[Finding]:
    """Yield attempts that shrink, or that claims and executions do not add up to."""
    job, told, tried = case.job, case.history.told, case.executions
    most = 0
    for row in told:
        if row.maintenance_id is None and (row.attempt or 0) < most:
            yield of_job(case, "shrinks", f"its attempts shrink at version {row.version}", seq=row.seq)
        most = row.attempt or 0
    claims = _claims(told)
    if claims is not None and claims != job.attempts:
        detail = f"it counts {job.attempts} attempts, and its journal tells of {claims} claims"
        yield of_job(case, "claims", detail, attempts=job.attempts, claims=claims)
    greatest = max((execution.attempt for execution in tried), default=0)
    if greatest != job.attempts and not (greatest < job.attempts and not case.history.whole):
        detail = f"it counts {job.attempts} attempts, and its last execution is attempt {greatest}"
        yield of_job(case, "executions", detail, attempts=job.attempts, greatest=greatest)
    lost = greatest - len({execution.attempt for execution in tried})
    if lost > 0 and case.history.whole and not (job.slimmed and context.evidence.archived_until):
        detail = f"it counts {job.attempts} attempts, and {lost} of those before the last are not on record"
        yield of_job(case, "lost", detail, attempts=job.attempts, lost=lost)
    excused = sum(execution.excused for execution in tried)
    all_there = len(tried) == job.attempts or case.history.whole
    if job.excused > job.attempts or excused > job.excused or (all_there and excused != job.excused):
        detail = f"it counts {job.excused} excused of {job.attempts} attempts, and {excused} executions were excused"
        yield of_job(case, "excused", detail, excused=job.excused, executions=excused)


def _claims(told: tuple[Entry, ...]) -> int | None:
    """Return how many claims the journal adds up to, from where it begins or a repair last settled it."""
    if not told:
        return None
    start = max((index for index, row in enumerate(told) if row.maintenance_id is not None), default=0)
    later = sum(row.target == JobState.RUNNING for row in told[start + 1 :])
    return (told[start].attempt or 0) + later


# ---------------------------------------------------------------------------------------------------------------------
# Results and columns


def results(case: Case, _context: RuleContext) -> Iterator[Finding]:
    """Yield results that are missing, unreadable, too early, or kept beyond their time."""
    job = case.job
    committed = job.state == JobState.SUCCEEDED or any(e.status in COMMITTED for e in case.executions)
    if job.slimmed:
        if job.state not in JOB.final:
            yield of_job(case, "slimmed", f"it is {job.state}, and what it was to do has been dropped")
        if job.result is not None:
            yield of_job(case, "kept", "its payload has been dropped, and its result has not")
        if case.checkpoints:
            yield of_job(case, "kept", f"its payload has been dropped, and {case.checkpoints} checkpoints have not")
    elif job.state == JobState.SUCCEEDED and job.result is None:
        yield of_job(case, "missing", "it has succeeded, and its result is not there")
    if job.result is not None and not committed:
        yield of_job(case, "early", f"it is {job.state} and has a result, and no execution has committed one")
    if job.result is not None and not is_json(job.result):
        yield of_job(case, "not_json", "its result is not JSON")


def is_json(text: str) -> bool:
    """Tell whether a text is JSON."""
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True


def fields(case: Case, _context: RuleContext) -> Iterator[Finding]:
    """Yield columns of the job and its executions that no verb could have left so."""
    job = case.job
    for name, least in (("attempts", 0), ("excused", 0), ("max_attempts", 1), ("replay_attempts", 0)):
        if getattr(job, name) < least:
            yield of_job(case, name, f"{name} is {getattr(job, name)}")
    if job.payload is not None and digest_of(job.operation, job.payload) != job.digest:
        yield of_job(case, "digest", "its digest is not the digest of its operation and payload")
    yield from _error_fields(case)
    if (job.state == JobState.QUARANTINED) != (job.quarantine_code is not None):
        code = "has no quarantine code" if job.quarantine_code is None else f"has the code {job.quarantine_code!r}"
        yield of_job(case, "quarantine_code", f"it is {job.state} and {code}", code=job.quarantine_code)
    for tried in case.tried:
        execution = tried.execution
        known = execution.status in EXECUTION.states
        if known and (execution.status in EXECUTION.final) != (execution.finished_at is not None):
            has = "no" if execution.finished_at is None else "a"
            yield of_execution(
                case, tried.history, "finished_at", f"it is {execution.status} and has {has} time of its end"
            )
        if not is_fit(execution.error_message):
            yield of_execution(case, tried.history, "error_message", "its message is too long, or a stack trace")


def _error_fields(case: Case) -> Iterator[Finding]:
    job, told = case.job, case.history.told
    rests = job.state in (JobState.FAILED, JobState.QUARANTINED)
    failed = any(e.status not in OPEN | COMMITTED and not e.excused for e in case.executions)
    if job.last_error_code is None and (rests or failed):
        yield of_job(case, "last_error_code", "it has failed, and has no error code")
    whole = case.history.whole and len(case.executions) == job.attempts
    ruled_out = any(row.target == JobState.QUARANTINED for row in told)
    if job.last_error_code is not None and whole and not (failed or ruled_out):
        yield of_job(case, "last_error_code", "it has never failed, and has an error code", code=job.last_error_code)
    if job.last_error_message is not None and job.last_error_code is None:
        yield of_job(case, "last_error_message", "it has an error message without a code")
    if not is_fit(job.last_error_message):
        yield of_job(case, "last_error_message", "its message is too long, or a stack trace")


def is_fit(message: str | None) -> bool:
    """Tell whether an error message is one that a verb could have written."""
    return message is None or (len(message) <= MESSAGE_MAX and _TRACEBACK not in message)
