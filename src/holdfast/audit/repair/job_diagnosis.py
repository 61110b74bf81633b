"""What is wrong with one job or one execution, and what would put it right.

Invariants: nothing is written here; what a sound journal says of a record is right if the record's last move vouches
for it, and so is what a committed execution says of its job; where neither can tell, the job is quarantined; a payload
that is not what was submitted is never run.
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
    """An execution as it will be once it is repaired."""

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
    """Return an execution as it will be, and what makes it so.

    `succeeded` if its job is known to have; `alone` if nothing but the execution can tell whether it has.
    """
    image, last = record.image or {}, record.last
    if record.vouched and last is not None:
        status, anew, why = last.target, False, f"its journal says {last.target}"
    else:
        status = record.state if record.state in EXECUTION.final else ExecutionStatus.ABORTED
        anew, why = True, "its journal cannot be believed"
    committed_here = ExecutionStatus.COMMITTED in (status, record.state)
    if succeeded and committed_here and record.state != ExecutionStatus.DONE:
        status, why = ExecutionStatus.DONE, "it has committed, and its job has succeeded"
    elif alone and status == ExecutionStatus.COMMITTED:
        status, why = ExecutionStatus.DONE, "it has committed, and its job cannot be believed"
    columns = _execution_columns(record, status)
    attempt = int(str(columns.get("attempt", image["attempt"])))
    settled = RepairedExecution(
        record.id, attempt, ExecutionStatus(status), bool(image["excused"]), image["error_code"]
    )
    return settled, list(record.put(status, why, anew=anew, **columns))


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
    for name, told in (("started_at", written_at(begun[0]) if begun else None), ("cancel_asked_at", None)):
        if image[name] is not None and time_or_none(image[name]) is None:
            columns[name] = told
    if time_or_none(image["lease_expires_at"]) is None:
        columns["lease_expires_at"] = columns["updated_at"]
    if not is_fit(image["error_message"]):
        columns["error_message"] = None
    return columns


def restored_execution(record: ExaminedRecord, job_id: int) -> RepairAct:
    """Return what puts back an execution whose row is gone, from what the journal says of it."""
    first, last = record.rows[0], record.rows[-1]
    ended = last.target in EXECUTION.final
    return record.act(
        "put_back",
        f"its row is gone; the journal tells of it, as attempt {first.attempt} of job {job_id}",
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
    """Return what puts a job and its executions right.

    `doubt` is a reason to quarantine it in any case; `without` are columns that it must lose.
    """
    job = ExaminedRecord(reading, JOB, job_id)
    if job.image is None:
        return [*_tombstone(reading, job)]
    executions, acts = _settled(reading, job)
    if job.archived:
        return acts + _slimmed(job, executions)
    target, anew, why = _verdict(job, executions, doubt)
    past = [execution.status for execution in executions if execution.status in COMMITTED]
    if target == JobState.QUARANTINED and past == [ExecutionStatus.COMMITTED]:
        # Its effects are there: it is finished, whatever is wrong with its job.
        executions, acts = _settled(reading, job, alone=True)
        target, anew, why = _verdict(job, executions, doubt)
    if target == JobState.QUARANTINED:
        acts += _stopped(reading, executions)
    anew = anew or _contradicts_itself(job, executions, target)
    columns = _columns(job, executions, target, why) | dict.fromkeys(without)
    acts += job.put(target, why, anew=anew, **columns)
    return acts


def _settled(
    reading: Reading, job: ExaminedRecord, *, alone: bool = False
) -> tuple[list[RepairedExecution], list[RepairAct]]:
    """Return the executions of a job as they will be, first attempt first, and what makes them so."""
    executions: list[RepairedExecution] = []
    acts: list[RepairAct] = []
    succeeded = job.vouched and job.last is not None and job.last.target == JobState.SUCCEEDED
    for image in reading.maintenance.images("holdfast_executions", job_id=job.id):
        record = ExaminedRecord(reading, EXECUTION, image["exec_id"])
        settled, mended = repair_execution(record, succeeded=succeeded, alone=alone)
        executions.append(settled)
        acts += mended
    return sorted(executions, key=lambda execution: execution.attempt), acts


def has_committed(reading: Reading, job_id: int) -> bool:
    """Tell whether the journal of one of a job's executions says that it committed."""
    for image in reading.maintenance.images("holdfast_executions", job_id=job_id):
        record = ExaminedRecord(reading, EXECUTION, image["exec_id"])
        if record.vouched and record.last is not None and record.last.target in COMMITTED:
            return True
    return False


def _verdict(job: ExaminedRecord, executions: Sequence[RepairedExecution], doubt: str | None) -> tuple[str, bool, str]:
    """Return where the job belongs, whether its history must begin anew, and why."""
    past = [execution for execution in executions if execution.status in COMMITTED]
    if len(past) > 1:
        return JobState.QUARANTINED, not job.vouched, f"{len(past)} of its executions have committed"
    done = past and past[0].status == ExecutionStatus.DONE
    last = job.last
    doubt = doubt or _unfit(job, executions)
    if job.vouched and last is not None:
        projected = project(executions, rulings_of(job.kept))
        if job.state == JobState.QUARANTINED and last.target == JobState.PENDING:
            # Perhaps only its state was touched; but out of quarantine leads nothing but a grant.
            return JobState.QUARANTINED, False, "it was found quarantined, against its journal"
        if projected == last.target and (doubt is None or last.target in JOB.final):
            return last.target, False, f"its journal and its executions say {last.target}"
        doubt = doubt or f"its journal says {last.target}, its executions say {projected}"
    if done:
        return JobState.SUCCEEDED, not job.vouched, doubt or "its journal cannot be believed; its execution is done"
    return JobState.QUARANTINED, not job.vouched, doubt or "its journal cannot be believed"


def _unfit(job: ExaminedRecord, executions: Sequence[RepairedExecution]) -> str | None:
    """Return why a job cannot be run as it stands, if it cannot."""
    image = job.image or {}
    if not image["payload"]:
        return "its payload is gone"
    if image["digest"] != digest_of(image["operation"], image["payload"]):
        return "its payload is not what was submitted"
    if image["history_from"] == 1 and not _all_there(executions):
        return "not all of its attempts are there"
    return None


def _stopped(reading: Reading, executions: Iterable[RepairedExecution]) -> Iterator[RepairAct]:
    """Yield what ends the executions of a job that is being quarantined: the open ones, and commits after the first."""
    past = 0
    for execution in executions:
        past += execution.status in COMMITTED
        if execution.status in OPEN or (execution.status in COMMITTED and past > 1):
            record = ExaminedRecord(reading, EXECUTION, execution.exec_id)
            yield _aborted(record, "its job is quarantined")


def _columns(job: ExaminedRecord, executions: Sequence[RepairedExecution], target: str, why: str) -> dict[str, Json]:
    """Return what the other columns of a job must be, where that can be told."""
    image, columns = job.image or {}, _numbers_and_times(job, executions)
    columns |= _errors(job, executions, target)
    columns["quarantine_code"] = None
    if target == JobState.QUARANTINED:
        kept = image["quarantine_code"] if job.state == target else None
        columns["quarantine_code"] = kept or (columns["last_error_code"] if job.state == target else UNSOUND)
        columns |= {} if kept else {"reason": why}
    return columns | _kept_or_dropped(image, target, committed=any(e.status in COMMITTED for e in executions))


def _numbers_and_times(job: ExaminedRecord, executions: Sequence[RepairedExecution]) -> dict[str, Json]:
    """Return what a job must count, and its times, as far as its executions and its journal tell."""
    image, columns = job.image or {}, record_times(job)
    attempts, excused = _attempts(job, executions), sum(execution.excused for execution in executions)
    if attempts != len(executions):  # of those that are not there, so many may have been excused as it says
        most = attempts - len(executions) + excused
        excused = max(excused, min(image["excused"], most))
    columns |= {"attempts": attempts, "excused": excused}
    if image["max_attempts"] < 1:
        columns["max_attempts"] = max(1, len(executions))  # no attempt more than it has had
    if image["replay_attempts"] < 0:
        columns["replay_attempts"] = 0
    if time_or_none(image["run_at"]) is None:
        columns["run_at"] = columns["updated_at"]
    if image["last_attempt_at"] is not None and time_or_none(image["last_attempt_at"]) is None:
        columns["last_attempt_at"] = None
    return columns


def _attempts(job: ExaminedRecord, executions: Sequence[RepairedExecution]) -> int:
    """Return how many attempts a job has had: those that are there, where all are; else what its journal counts."""
    image, greatest = job.image or {}, max((execution.attempt for execution in executions), default=0)
    if image["history_from"] == 1 and _all_there(executions):
        return len(executions)
    told = job.last.attempt if job.vouched and job.last is not None else None
    return max(greatest, len(executions), image["attempts"] if told is None else told)


def _all_there(executions: Sequence[RepairedExecution]) -> bool:
    return [execution.attempt for execution in executions] == list(range(1, len(executions) + 1))


def _contradicts_itself(job: ExaminedRecord, executions: Sequence[RepairedExecution], target: str) -> bool:
    """Tell whether a history that is sound counts other attempts than there are, and nothing would be told of it."""
    image, last = job.image or {}, job.last
    if image["history_from"] == 1 and not _all_there(executions):
        return True
    still = last is not None and target == job.state == last.target
    return still and last is not None and (last.attempt or 0) != _attempts(job, executions)


def _errors(job: ExaminedRecord, executions: Sequence[RepairedExecution], target: str) -> dict[str, Json]:
    """Return the error that a job shows: its own, or its last attempt's; none if it never failed."""
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
    """Return payload and result as they must be: as they were, or gone."""
    payload, result = image["payload"], image["result"]
    trusted = payload is not None and image["digest"] == digest_of(image["operation"], payload)
    whole = result is not None and is_json(result)
    if trusted and target == JobState.SUCCEEDED:
        return {} if whole else {"payload": None, "result": None}
    if trusted:
        return {} if result is None or (committed and whole) else {"result": None}
    return {"payload": None, "result": None}


def _slimmed(job: ExaminedRecord, executions: Sequence[RepairedExecution]) -> list[RepairAct]:
    """Return what a job of which all history is archived may not keep, and the columns that can be told."""
    image = job.image or {}
    after = _kept_or_dropped(image, job.state, committed=job.state == JobState.SUCCEEDED)
    dropped = {name: value for name, value in after.items() if image[name] != value}
    counted = _numbers_and_times(job, executions)
    changed = dropped | {name: value for name, value in counted.items() if image[name] != value}
    why = "a slimmed job keeps neither payload nor result" if dropped else "its history is archived"
    return [job.act("mend", why, **changed)] if changed else []


def _tombstone(reading: Reading, job: ExaminedRecord) -> Iterator[RepairAct]:
    """Yield what stands in for a job whose row is gone: it can never run again, and its history is kept."""
    last = job.rows[-1] if job.rows else None
    state = last.target if last and last.target in JOB.states else JobState.PENDING
    at = (written_at(last) if last else None) or time_text(EPOCH)
    created_at = (written_at(job.rows[0]) if job.rows and job.rows[0].version == 1 else None) or at
    at = max(at, created_at)
    executions = reading.maintenance.images("holdfast_executions", job_id=job.id)
    if not job.rows and not executions:
        return  # nothing tells of it any more: what had its id has got its own back
    claimed = [row.attempt or 0 for row in job.rows]
    put_back = job.act(
        "put_back",
        "its row is gone",
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
            yield _aborted(record, "its job is gone")
    target = JobState.SUCCEEDED if done else JobState.QUARANTINED
    code = None if done else LOST
    yield from job.put(target, "its row was gone", anew=True, quarantine_code=code, reason="its row was gone")


def _aborted(record: ExaminedRecord, why: str) -> RepairAct:
    at = record_times(record)["updated_at"]
    return record.act("move", why, status=ExecutionStatus.ABORTED, error_code=UNSOUND, finished_at=at, updated_at=at)
