"""The diagnosis of one job and its call: which acts repair them.

A job and its current attempt are one row, so that they are corrected together.

Invariants: nothing is written here; a sound journal is right if its last move is the job's, and so is a commit in it;
where neither decides, the job is quarantined; a payload that differs from what was submitted is never run.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from holdfast.audit.check.job_rules import is_fit, is_json
from holdfast.audit.repair.attempt_diagnosis import (
    LOST,
    UNSOUND,
    ExaminedJob,
    Verdict,
    attempt_acts,
    attempts_of,
    ended_attempts,
    next_token,
    order_tokens,
    own_move_id,
    readable,
    status_before,
)
from holdfast.audit.repair.record import EPOCH, EVENT, RepairAct, record_times, time_or_none, written_at
from holdfast.core.digest import Json
from holdfast.core.machines import COMMITTED, JOB, OPEN, ExecutionStatus, JobState
from holdfast.core.records import MAX_ATTEMPTS, REPLAY_ATTEMPTS, time_text
from holdfast.store.requests import digest_of
from holdfast.store.tables import table_named
from holdfast.store.transaction import Reading
from holdfast.store.verbs.histories import Entry


def repair_job(
    reading: Reading, job_id: int, *, doubt: str | None = None, without: Iterable[str] = ()
) -> list[RepairAct]:
    """Return the acts that repair a job, its call and its attempts.

    `doubt` is a reason to quarantine the job in any case; `without` are columns to empty.
    """
    job = ExaminedJob(reading, job_id)
    acts = [] if job.image is not None else list(_put_back(reading, job))
    if job.image is None:
        return acts
    if job.call_lost:
        acts.append(_call_put_back(job))
    if job.archived:
        return acts + _slimmed(job)
    verdict = _verdict(job, doubt)
    attempts = attempts_of(job, verdict)
    ended, contradicts = ended_attempts(job, attempts, verdict)
    whole = len(ended) + (verdict.status is not None) == attempts
    restart = verdict.restart or contradicts or (job.begins == 1 and not whole) or _miscounted(job, attempts, verdict)
    columns = _columns(job, ended, attempts, verdict) | dict.fromkeys(without)
    return [*acts, *_put(job, verdict, ended, columns, restart=restart), *attempt_acts(job, ended)]


def has_committed(reading: Reading, job_id: int) -> bool:
    """Return whether the journal has a commit of a job, and the two do not contradict each other."""
    return ExaminedJob(reading, job_id).committed_attempt is not None


def _verdict(job: ExaminedJob, doubt: str | None) -> Verdict:
    last, image = job.last, job.image or {}
    doubt = doubt or _unfit(image)
    if job.vouched and last is not None:
        state = JobState(last.target)
        if job.state == JobState.QUARANTINED and state == JobState.PENDING:
            # Perhaps only the state was edited; but only a grant may move a job out of quarantine.
            why = "the job is quarantined, but its journal ends at pending"
            return Verdict(JobState.QUARANTINED, None, restart=False, why=why)
        status = ExecutionStatus.DONE if state == JobState.SUCCEEDED else None
        if state == JobState.RUNNING:
            journalled = job.journalled_status(last.attempt or 0)
            status = ExecutionStatus(journalled) if journalled in OPEN else None
            doubt = doubt or (None if status else "the journal of the current attempt is not sound")
        if state in JOB.final or doubt is None:
            return Verdict(state, status, restart=False, why=f"by its journal the job is {state}")
        if status == ExecutionStatus.COMMITTED:
            return Verdict(JobState.SUCCEEDED, ExecutionStatus.DONE, restart=False, why=doubt)
        return Verdict(JobState.QUARANTINED, None, restart=False, why=doubt)
    if job.committed_attempt is not None:
        why = doubt or "the journal is not sound; an attempt is committed"
        return Verdict(JobState.SUCCEEDED, ExecutionStatus.DONE, restart=True, why=why)
    return Verdict(JobState.QUARANTINED, None, restart=True, why=doubt or "the journal is not sound")


def _unfit(image: dict[str, Any]) -> str | None:
    """Return why a job must not be run as it is, or None."""
    if not image["payload"]:
        return "the payload is missing"
    if image["digest"] != digest_of(image["operation"], image["payload"]):
        return "the payload differs from what was submitted"
    return None


# ---------------------------------------------------------------------------------------------------------------------
# The job


def _put(
    job: ExaminedJob, verdict: Verdict, ended: dict[int, dict[str, Any]], columns: dict[str, Json], *, restart: bool
) -> Iterator[RepairAct]:
    """Yield the act that writes all columns of the job, and a journal row if the journal does not end there."""
    image, attempts = job.image or {}, int(str(columns["attempts"]))
    before = status_before(job, attempts) if attempts else None
    # Only an attempt that this repair ends has the id of its move.
    aborts = attempts in ended and ended[attempts]["move_id"] == own_move_id(job)
    after = verdict.status or (ExecutionStatus.ABORTED if aborts else None)
    steps = (before, after) if before is not None and after is not None and before != after else (None, None)
    columns |= {"state": verdict.state, "status": verdict.status}
    moves = verdict.state != job.state
    if moves or restart or steps[1] or (job.last is not None and job.last.target != verdict.state):
        history = {"history_from": job.base + 1} if restart else {}
        columns |= {**history, "version": job.base + 1}
        act = job.act("move" if moves else "tell", verdict.why, **columns)
        yield msgspec.structs.replace(act, steps=steps)
    elif changed := {name: value for name, value in columns.items() if image[name] != value}:
        yield job.act("mend", verdict.why, **changed)


def _columns(job: ExaminedJob, ended: dict[int, dict[str, Any]], attempts: int, verdict: Verdict) -> dict[str, Json]:
    """Return the columns of a job after the repair, where they are known."""
    image, columns = job.image or {}, _numbers_and_times(job, ended, attempts, verdict)
    columns |= _errors(job, ended, verdict)
    columns["quarantine_code"] = None
    if verdict.state == JobState.QUARANTINED:
        kept = image["quarantine_code"] if job.state == verdict.state else None
        columns["quarantine_code"] = kept or (columns["last_error_code"] if job.state == verdict.state else UNSOUND)
        columns |= {} if kept else {"reason": verdict.why}
    columns |= _lease(job, ended, attempts, verdict)
    columns |= {
        "due_at": columns.get("run_at", image["run_at"]) if verdict.state == JobState.PENDING else None,
        # A job that stays pending stays parked: only what it waits for may unpark it.
        **{
            name: image[name] if job.state == verdict.state == JobState.PENDING else None
            for name in ("parked", "limit_key")
        },
        "resting": verdict.state if verdict.state in (JobState.FAILED, JobState.QUARANTINED) else None,
    }
    return columns | _kept_or_dropped(image, verdict)


def _lease(job: ExaminedJob, ended: dict[int, dict[str, Any]], attempts: int, verdict: Verdict) -> dict[str, Json]:
    """Return the lease of a job: of its current attempt, or what is kept of the last one."""
    image, rows = job.image or {}, job.steps.get(attempts, (1, []))[1]
    last_token = max((row["lease_token"] for row in ended.values()), default=0)
    token, claimed_at = image["lease_token"], image["last_attempt_at"]
    if claimed_at is not None and time_or_none(claimed_at) is None:
        claimed_at = None
    if verdict.status is None:
        expected = token if not ended or (token or 0) >= last_token else last_token
        return {"lease_expires_at": None, "lease_token": expected, "last_attempt_at": claimed_at} | _started(job, rows)
    claim = next((row for row in rows if row.version == 1), None)
    at = str(record_times(job)["updated_at"])
    claimed_at = claimed_at or (written_at(claim) if claim else None) or at
    expires_at = image["lease_expires_at"] if time_or_none(image["lease_expires_at"]) else at
    return {
        "lease_owner": image["lease_owner"] or (claim.actor if claim else LOST),
        "lease_token": token if token is not None and token > last_token else next_token(last_token, claimed_at),
        "lease_expires_at": expires_at if verdict.state == JobState.RUNNING else None,
        "last_attempt_at": claimed_at,
    } | _started(job, rows)


def _started(job: ExaminedJob, rows: list[Entry]) -> dict[str, Json]:
    """Return the times of the current attempt that cannot be read, taken from the journal if it has them."""
    image = job.image or {}
    begun = next((written_at(row) for row in rows if row.target == ExecutionStatus.IN_PROGRESS), None)
    return {
        name: value
        for name, value in (("started_at", begun), ("cancel_requested_at", None))
        if image[name] is not None and time_or_none(image[name]) is None
    }


def _numbers_and_times(
    job: ExaminedJob, ended: dict[int, dict[str, Any]], attempts: int, verdict: Verdict
) -> dict[str, Json]:
    """Return the counts and times of a job that follow from its attempts and its journal."""
    image, columns = job.image or {}, record_times(job)
    excused = sum(bool(row["excused"]) for row in ended.values())
    missing = attempts - len(ended) - (verdict.status is not None)
    # Of the missing ones, as many may be excused as the job counts.
    columns |= {"attempts": attempts, "excused": max(excused, min(image["excused"], excused + missing))}
    if image["max_attempts"] < 1:
        columns["max_attempts"] = max(1, attempts)  # it gets no further attempt
    if image["replay_attempts"] < 0:
        columns["replay_attempts"] = 0
    if time_or_none(image["run_at"]) is None:
        columns["run_at"] = columns["updated_at"]
    if image["version"] != job.base:
        columns["version"] = job.base
    return columns


def _miscounted(job: ExaminedJob, attempts: int, verdict: Verdict) -> bool:
    """Return whether the last row of a history counts other attempts, although the repair would write no row."""
    last = job.last
    return last is not None and verdict.state == job.state == last.target and (last.attempt or 0) != attempts


def _errors(job: ExaminedJob, ended: dict[int, dict[str, Any]], verdict: Verdict) -> dict[str, Json]:
    """Return the error of a job: its own, or that of its last failed attempt; none if none failed."""
    image, target = job.image or {}, verdict.state
    blamed = [row for _, row in sorted(ended.items()) if not row["excused"]]
    ruled_out = target == JobState.QUARANTINED or any(row.target == JobState.QUARANTINED for row in job.kept)
    code, message = image["last_error_code"], image["last_error_message"]
    if not blamed and not ruled_out and target != JobState.FAILED:
        return {"last_error_code": None, "last_error_message": None}
    if code is None:
        code = next((row["error_code"] for row in reversed(blamed) if row["error_code"]), None)
        code = code or (UNSOUND if target == JobState.QUARANTINED and job.state != target else LOST)
    return {"last_error_code": code, "last_error_message": message if is_fit(message) else None}


def _kept_or_dropped(image: dict[str, Any], verdict: Verdict) -> dict[str, Json]:
    """Return which of payload and result must be emptied."""
    payload, result = image["payload"], image["result"]
    trusted = payload is not None and image["digest"] == digest_of(image["operation"], payload)
    whole = result is not None and is_json(result)
    if trusted and verdict.state == JobState.SUCCEEDED:
        return {} if whole else {"payload": None, "result": None}
    if trusted:
        return {} if result is None or (verdict.status in COMMITTED and whole) else {"result": None}
    return {"payload": None, "result": None}


def _slimmed(job: ExaminedJob) -> list[RepairAct]:
    """Return the acts that correct a job whose whole history is archived: a slimmed job has no payload or result."""
    image = job.image or {}
    status = ExecutionStatus.DONE if job.state == JobState.SUCCEEDED else None
    verdict = Verdict(JobState(job.state), status, restart=False, why="the history is archived")
    after = _kept_or_dropped(image, verdict)
    dropped = {name: value for name, value in after.items() if image[name] != value}
    ended = {attempt: {**row, **readable(row)} for attempt, row in job.aborted.items() if attempt <= image["attempts"]}
    order_tokens(ended)
    columns = _numbers_and_times(job, ended, image["attempts"], verdict)
    columns |= _lease(job, ended, image["attempts"], verdict)
    changed = dropped | {name: value for name, value in columns.items() if image[name] != value}
    why = "a slimmed job has no payload and no result" if dropped else verdict.why
    return [*([job.act("mend", why, **changed)] if changed else []), *attempt_acts(job, ended)]


# ---------------------------------------------------------------------------------------------------------------------
# Lost rows


def _call_put_back(job: ExaminedJob) -> RepairAct:
    """Return the act that inserts a placeholder for the call of a job; without its payload the job never runs again."""
    call = _lost_call(str(record_times(job)["created_at"]))
    act = job.act("put_back", "the call is missing", **call)
    job.image = {**(job.image or {}), **call}
    return act


def _lost_call(created_at: str) -> dict[str, Json]:
    return {
        "operation_version": "0", "client": LOST, "key": None, "payload": None, "digest": LOST, "replaces": None,
        "max_attempts": MAX_ATTEMPTS, "replay_attempts": REPLAY_ATTEMPTS, "created_at": created_at,
    }  # fmt: skip


def _put_back(reading: Reading, job: ExaminedJob) -> Iterator[RepairAct]:
    """Yield the acts that insert a missing job, which never runs again and keeps its call and its history."""
    calls = reading.maintenance.images("holdfast_calls", job_id=job.id)
    if not (job.rows or job.aborted or calls):
        return  # nothing is left of it: the record with this id was renamed
    times = [text for text in (written_at(row) for row in job.rows) if text]
    created_at = calls[0]["created_at"] if calls and time_or_none(calls[0]["created_at"]) else None
    created_at = created_at or (times[0] if times else time_text(EPOCH))
    at = max([created_at, *times])
    call = calls[0] if calls else _lost_call(created_at)
    operation = _operation_of(reading, call)
    committed = job.committed_attempt
    attempts = committed or max([*job.aborted, *(row.attempt or 0 for row in job.rows)], default=0)
    ended = {attempt: {**row, **readable(row)} for attempt, row in job.aborted.items()}
    order_tokens(ended)
    state = JobState.SUCCEEDED if committed else JobState.QUARANTINED
    verdict = Verdict(state, ExecutionStatus.DONE if committed else None, restart=True, why="the row was missing")
    row: dict[str, Any] = dict.fromkeys(table_named("jobs").names)
    row |= {
        "job_id": job.id, "operation": operation, "queue": LOST, "priority": 0, "state": state,
        "status": verdict.status, "version": job.base, "attempts": attempts, "run_at": at, "updated_at": at,
        "excused": sum(bool(one["excused"]) for one in ended.values()), "last_error_code": None if committed else LOST,
        "quarantine_code": None if committed else LOST, "reason": verdict.why, "event": EVENT, "actor": LOST,
        "move_id": f"{LOST}-{job.id}", "history_from": job.base + 1,
        "resting": None if committed else state,
    }  # fmt: skip
    job.image = {**call, **row}
    row |= _lease(job, ended, attempts, verdict) | _kept_or_dropped(job.image, verdict)
    row |= {} if calls else call
    job.image = None
    put_back = job.act("put_back", "the row is missing", **row)
    yield put_back
    job.image = {**call, **put_back.after}
    yield job.act("tell", verdict.why, version=job.base + 1, state=state, status=verdict.status)
    yield from attempt_acts(job, ended)
    job.image = None


def _operation_of(reading: Reading, call: dict[str, Any]) -> str:
    """Return the operation that a call names by its digest, if it is a known one."""
    known = [name for name, *_ in reading.run("known_operations")]
    payload = call["payload"]
    return next((name for name in known if payload and digest_of(name, payload) == call["digest"]), LOST)
