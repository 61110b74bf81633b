"""The diagnosis of one job and its executions: which acts repair them.

Invariants: nothing is written here; a sound journal is right if its last move is the record's, and so is a committed
execution; where neither decides, the job is quarantined; a payload that differs from what was submitted is never run.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from holdfast.audit.check.job_rules import is_fit, is_json
from holdfast.audit.repair.record import EPOCH, ExaminedRecord, RepairAct, record_times, time_or_none, written_at
from holdfast.core.digest import Json
from holdfast.core.machines import COMMITTED, EXECUTION, JOB, OPEN, ExecutionStatus, JobState
from holdfast.core.project import project, rulings_of
from holdfast.core.records import MAX_ATTEMPTS, REPLAY_ATTEMPTS, time_text
from holdfast.store.requests import digest_of
from holdfast.store.transaction import Reading

LOST, UNSOUND = "lost", "integrity"


class RepairedExecution(msgspec.Struct, frozen=True):
    """An execution as it is after the repair."""

    exec_id: int
    attempt: int
    status: ExecutionStatus
    excused: bool
    error_code: str | None


# ---------------------------------------------------------------------------------------------------------------------
# Executions


def repair_execution(
    record: ExaminedRecord, *, succeeded: bool = False, alone: bool = False
) -> tuple[RepairedExecution, list[RepairAct]]:
    """Return an execution as it is after the repair, and the acts that repair it.

    `succeeded`: its job is known to have succeeded. `alone`: only this execution shows whether it has.
    """
    image, last = record.image or {}, record.last
    if record.vouched and last is not None:
        status, restart, why = last.target, False, f"the journal ends at {last.target}"
    else:
        status = record.state if record.state in EXECUTION.final else ExecutionStatus.ABORTED
        restart, why = True, "the journal is not sound"
    committed_here = ExecutionStatus.COMMITTED in (status, record.state)
    if succeeded and committed_here and record.state != ExecutionStatus.DONE:
        status, why = ExecutionStatus.DONE, "the execution is committed, and its job succeeded"
    elif alone and status == ExecutionStatus.COMMITTED:
        status, why = ExecutionStatus.DONE, "the execution is committed, and the journal of its job is not sound"
    columns = _execution_columns(record, status)
    attempt = int(str(columns.get("attempt", image["attempt"])))
    settled = RepairedExecution(
        record.id, attempt, ExecutionStatus(status), bool(image["excused"]), image["error_code"]
    )
    return settled, list(record.put(status, why, restart=restart, **columns))


def _execution_columns(record: ExaminedRecord, status: str) -> dict[str, Json]:
    image, columns = record.image or {}, record_times(record)
    if record.vouched and record.kept[0].version == 1 and record.kept[0].attempt:
        columns["attempt"] = record.kept[0].attempt
    ended = status in EXECUTION.final
    if not ended:
        columns["finished_at"] = None
    elif time_or_none(image["finished_at"]) is None:
        columns["finished_at"] = columns["updated_at"]
    begun = [row for row in record.kept if row.target == ExecutionStatus.IN_PROGRESS] if record.sound else []
    for name, value in (("started_at", written_at(begun[0]) if begun else None), ("cancel_asked_at", None)):
        if image[name] is not None and time_or_none(image[name]) is None:
            columns[name] = value
    if time_or_none(image["lease_expires_at"]) is None:
        columns["lease_expires_at"] = columns["updated_at"]
    if not is_fit(image["error_message"]):
        columns["error_message"] = None
    return columns


def restored_execution(record: ExaminedRecord, job_id: int) -> RepairAct:
    """Return the act that inserts a missing execution again, with the values that its journal has."""
    first, last = record.rows[0], record.rows[-1]
    ended = last.target in EXECUTION.final
    return record.act(
        "put_back",
        f"the row is missing; by the journal it was attempt {first.attempt} of job {job_id}",
        exec_id=record.id, job_id=job_id, attempt=first.attempt, status=last.target, version=last.version,
        lease_owner=first.actor, lease_expires_at=written_at(last), excused=last.event == "give_back",
        error_code=LOST if last.target == ExecutionStatus.ABORTED else None, created_at=written_at(first),
        updated_at=written_at(last), finished_at=written_at(last) if ended else None, event=last.event,
        actor=last.actor, move_id=last.move_id, history_from=1 if record.sound else last.version + 1,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------
# Jobs


def repair_job(
    reading: Reading, job_id: int, *, doubt: str | None = None, without: Iterable[str] = ()
) -> list[RepairAct]:
    """Return the acts that repair a job and its executions.

    `doubt` is a reason to quarantine the job in any case; `without` are columns to empty.
    """
    job = ExaminedRecord(reading, JOB, job_id)
    if job.image is None:
        return [*_tombstone(reading, job)]
    executions, acts = _settled(reading, job)
    if job.archived:
        return acts + _slimmed(job, executions)
    target, restart, why = _verdict(job, executions, doubt)
    past = [execution.status for execution in executions if execution.status in COMMITTED]
    if target == JobState.QUARANTINED and past == [ExecutionStatus.COMMITTED]:
        # The effects are applied, so the execution is finished even if its job is damaged.
        executions, acts = _settled(reading, job, alone=True)
        target, restart, why = _verdict(job, executions, doubt)
    if target == JobState.QUARANTINED:
        acts += _stopped(reading, executions)
    restart = restart or _contradicts_itself(job, executions, target)
    columns = _columns(job, executions, target, why) | dict.fromkeys(without)
    acts += job.put(target, why, restart=restart, **columns)
    return acts


def _settled(
    reading: Reading, job: ExaminedRecord, *, alone: bool = False
) -> tuple[list[RepairedExecution], list[RepairAct]]:
    """Return the executions of a job after the repair, first attempt first, and the acts that repair them."""
    executions: list[RepairedExecution] = []
    acts: list[RepairAct] = []
    succeeded = job.vouched and job.last is not None and job.last.target == JobState.SUCCEEDED
    for image in reading.maintenance.images("holdfast_executions", job_id=job.id):
        record = ExaminedRecord(reading, EXECUTION, image["exec_id"])
        settled, repairs = repair_execution(record, succeeded=succeeded, alone=alone)
        executions.append(settled)
        acts += repairs
    return sorted(executions, key=lambda execution: execution.attempt), acts


def has_committed(reading: Reading, job_id: int) -> bool:
    """Return whether a job has an execution whose trusted journal ends with a commit."""
    for image in reading.maintenance.images("holdfast_executions", job_id=job_id):
        record = ExaminedRecord(reading, EXECUTION, image["exec_id"])
        if record.vouched and record.last is not None and record.last.target in COMMITTED:
            return True
    return False


def _verdict(job: ExaminedRecord, executions: Sequence[RepairedExecution], doubt: str | None) -> tuple[str, bool, str]:
    """Return the state of the job after the repair, whether its history must restart, and why."""
    past = [execution for execution in executions if execution.status in COMMITTED]
    if len(past) > 1:
        return JobState.QUARANTINED, not job.vouched, f"{len(past)} executions of the job are committed"
    done = past and past[0].status == ExecutionStatus.DONE
    last = job.last
    doubt = doubt or _unfit(job, executions)
    if job.vouched and last is not None:
        projected = project(executions, rulings_of(job.kept))
        if job.state == JobState.QUARANTINED and last.target == JobState.PENDING:
            # Perhaps only the state was edited; but only a grant may move a job out of quarantine.
            return JobState.QUARANTINED, False, "the job is quarantined, but its journal ends at pending"
        if projected == last.target and (doubt is None or last.target in JOB.final):
            return last.target, False, f"by its journal and its executions the job is {last.target}"
        doubt = doubt or f"by its journal the job is {last.target}, by its executions {projected}"
    if done:
        return JobState.SUCCEEDED, not job.vouched, doubt or "the journal is not sound; an execution is done"
    return JobState.QUARANTINED, not job.vouched, doubt or "the journal is not sound"


def _unfit(job: ExaminedRecord, executions: Sequence[RepairedExecution]) -> str | None:
    """Return why a job must not be run as it is, or None."""
    image = job.image or {}
    if not image["payload"]:
        return "the payload is missing"
    if image["digest"] != digest_of(image["operation"], image["payload"]):
        return "the payload differs from what was submitted"
    if image["history_from"] == 1 and not _all_there(executions):
        return "executions of earlier attempts are missing"
    return None


def _stopped(reading: Reading, executions: Iterable[RepairedExecution]) -> Iterator[RepairAct]:
    """Yield the acts that abort executions of a job to quarantine: open ones, and committed ones after the first."""
    past = 0
    for execution in executions:
        past += execution.status in COMMITTED
        if execution.status in OPEN or (execution.status in COMMITTED and past > 1):
            record = ExaminedRecord(reading, EXECUTION, execution.exec_id)
            yield _aborted(record, "the job is quarantined")


def _columns(job: ExaminedRecord, executions: Sequence[RepairedExecution], target: str, why: str) -> dict[str, Json]:
    """Return the other columns of a job after the repair, where they are known."""
    image, columns = job.image or {}, _numbers_and_times(job, executions)
    columns |= _errors(job, executions, target)
    columns["quarantine_code"] = None
    if target == JobState.QUARANTINED:
        kept = image["quarantine_code"] if job.state == target else None
        columns["quarantine_code"] = kept or (columns["last_error_code"] if job.state == target else UNSOUND)
        columns |= {} if kept else {"reason": why}
    return columns | _kept_or_dropped(image, target, committed=any(e.status in COMMITTED for e in executions))


def _numbers_and_times(job: ExaminedRecord, executions: Sequence[RepairedExecution]) -> dict[str, Json]:
    """Return the counts and times of a job that follow from its executions and its journal."""
    image, columns = job.image or {}, record_times(job)
    attempts, excused = _attempts(job, executions), sum(execution.excused for execution in executions)
    if attempts != len(executions):  # of the missing ones, as many may be excused as the job counts
        most = attempts - len(executions) + excused
        excused = max(excused, min(image["excused"], most))
    columns |= {"attempts": attempts, "excused": excused}
    if image["max_attempts"] < 1:
        columns["max_attempts"] = max(1, len(executions))  # it gets no further attempt
    if image["replay_attempts"] < 0:
        columns["replay_attempts"] = 0
    if time_or_none(image["run_at"]) is None:
        columns["run_at"] = columns["updated_at"]
    if image["last_attempt_at"] is not None and time_or_none(image["last_attempt_at"]) is None:
        columns["last_attempt_at"] = None
    return columns


def _attempts(job: ExaminedRecord, executions: Sequence[RepairedExecution]) -> int:
    """Return the number of attempts: the executions if none is missing, else what the journal counts."""
    image, greatest = job.image or {}, max((execution.attempt for execution in executions), default=0)
    if image["history_from"] == 1 and _all_there(executions):
        return len(executions)
    journalled = job.last.attempt if job.vouched and job.last is not None else None
    return max(greatest, len(executions), image["attempts"] if journalled is None else journalled)


def _all_there(executions: Sequence[RepairedExecution]) -> bool:
    return [execution.attempt for execution in executions] == list(range(1, len(executions) + 1))


def _contradicts_itself(job: ExaminedRecord, executions: Sequence[RepairedExecution], target: str) -> bool:
    """Return whether a sound history counts other attempts than exist, although the repair would not journal it."""
    image, last = job.image or {}, job.last
    if image["history_from"] == 1 and not _all_there(executions):
        return True
    unmoved = last is not None and target == job.state == last.target
    return unmoved and last is not None and (last.attempt or 0) != _attempts(job, executions)


def _errors(job: ExaminedRecord, executions: Sequence[RepairedExecution], target: str) -> dict[str, Json]:
    """Return the error of a job: its own, or that of its last failed attempt; none if none failed."""
    image = job.image or {}
    blamed = [e for e in executions if e.status == ExecutionStatus.ABORTED and not e.excused]
    ruled_out = target == JobState.QUARANTINED or any(row.target == JobState.QUARANTINED for row in job.kept)
    code, message = image["last_error_code"], image["last_error_message"]
    if not blamed and not ruled_out and target != JobState.FAILED:
        return {"last_error_code": None, "last_error_message": None}
    if code is None:
        code = next((e.error_code for e in reversed(blamed) if e.error_code), None)
        code = code or (UNSOUND if target == JobState.QUARANTINED and job.state != target else LOST)
    if not is_fit(message):
        message = None
    return {"last_error_code": code, "last_error_message": message}


def _kept_or_dropped(image: dict[str, Any], target: str, *, committed: bool) -> dict[str, Json]:
    """Return which of payload and result must be emptied."""
    payload, result = image["payload"], image["result"]
    trusted = payload is not None and image["digest"] == digest_of(image["operation"], payload)
    whole = result is not None and is_json(result)
    if trusted and target == JobState.SUCCEEDED:
        return {} if whole else {"payload": None, "result": None}
    if trusted:
        return {} if result is None or (committed and whole) else {"result": None}
    return {"payload": None, "result": None}


def _slimmed(job: ExaminedRecord, executions: Sequence[RepairedExecution]) -> list[RepairAct]:
    """Return the act that corrects a job whose whole history is archived: a slimmed job has no payload or result."""
    image = job.image or {}
    after = _kept_or_dropped(image, job.state, committed=job.state == JobState.SUCCEEDED)
    dropped = {name: value for name, value in after.items() if image[name] != value}
    counted = _numbers_and_times(job, executions)
    changed = dropped | {name: value for name, value in counted.items() if image[name] != value}
    why = "a slimmed job has no payload and no result" if dropped else "the history is archived"
    return [job.act("mend", why, **changed)] if changed else []


def _tombstone(reading: Reading, job: ExaminedRecord) -> Iterator[RepairAct]:
    """Yield the acts that insert a placeholder for a missing job, which never runs again and keeps the history."""
    last = job.rows[-1] if job.rows else None
    state = last.target if last and last.target in JOB.states else JobState.PENDING
    at = (written_at(last) if last else None) or time_text(EPOCH)
    created_at = (written_at(job.rows[0]) if job.rows and job.rows[0].version == 1 else None) or at
    at = max(at, created_at)
    executions = reading.maintenance.images("holdfast_executions", job_id=job.id)
    if not job.rows and not executions:
        return  # no journal row is left: the record with this id was renamed
    claimed = [row.attempt or 0 for row in job.rows]
    put_back = job.act(
        "put_back",
        "the row is missing",
        job_id=job.id, operation=LOST, operation_version="0", client=LOST, key=None, queue=LOST, state=state,
        version=job.base, attempts=max([image["attempt"] for image in executions] + claimed, default=0),
        excused=sum(row.event == "give_back" and row.target == JobState.FAILED for row in job.rows),
        max_attempts=MAX_ATTEMPTS, replay_attempts=REPLAY_ATTEMPTS, run_at=at, payload=None, digest=LOST,
        last_error_code=LOST, created_at=created_at, updated_at=at, event="repair", actor=LOST,
        move_id=f"{LOST}-{job.id}", history_from=job.base + 1,
    )  # fmt: skip
    yield put_back
    job.image = {**put_back.after, "quarantine_code": None}
    done = False
    for image in executions:
        record = ExaminedRecord(reading, EXECUTION, image["exec_id"])
        settled, acts = repair_execution(record)
        yield from acts
        done = done or settled.status == ExecutionStatus.DONE
        if settled.status in OPEN:
            yield _aborted(record, "the job's row is missing")
    target = JobState.SUCCEEDED if done else JobState.QUARANTINED
    code = None if done else LOST
    yield from job.put(target, "the row was missing", restart=True, quarantine_code=code, reason="the row was missing")


def _aborted(record: ExaminedRecord, why: str) -> RepairAct:
    at = record_times(record)["updated_at"]
    return record.act("move", why, status=ExecutionStatus.ABORTED, error_code=UNSOUND, finished_at=at, updated_at=at)
