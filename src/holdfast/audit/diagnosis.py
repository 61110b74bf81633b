"""What is wrong with one job or one execution, and what would put it right; and the record that any diagnosis is of.

Invariants: nothing is written here; what a sound journal says of a record is right if the record's last move vouches
for it, and so is what a committed execution says of its job; where neither can tell, the job is quarantined; a payload
that is not what was submitted is never run.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from enum import Enum
from itertools import chain, pairwise
from typing import Any

import msgspec

from holdfast.audit import histories
from holdfast.audit.faults import Page
from holdfast.audit.jobs import is_fit, is_json
from holdfast.core.digest import Json
from holdfast.core.machine import Machine
from holdfast.core.machines import COMMITTED, EXECUTION, JOB, OPEN, ExecutionStatus, JobState
from holdfast.core.project import project, rulings_of
from holdfast.core.records import MAX_ATTEMPTS, REPLAY_ATTEMPTS, time_from, time_text
from holdfast.store.enforcement import GUARDED
from holdfast.store.evidence import Entry, Evidence, History
from holdfast.store.reading import Reading
from holdfast.store.requests import digest_of

GUARDED_BY_NAME = {guarded.machine.name: guarded for guarded in GUARDED}
LOST, UNSOUND = "lost", "integrity"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a repair does, with what stands there before."""

    kind: str  # mend, move, tell, put_back, forget; and for the whole ledger: recount, rewrite, recover
    subject: str
    why: str
    machine: str | None = None
    id: int | None = None
    before: dict[str, Json] | None = None
    after: dict[str, Json] = {}


class Settled(msgspec.Struct, frozen=True):
    """An execution as it will be once it is repaired."""

    exec_id: int
    attempt: int
    status: ExecutionStatus
    excused: bool
    error_code: str | None


class Record:
    """One record, its journal, and whether the two can be believed."""

    def __init__(self, reading: Reading, machine: Machine, subject: int) -> None:
        self.guarded, self.machine, self.id = GUARDED_BY_NAME[machine.name], machine, subject
        images = reading.images(self.guarded.table, **{self.guarded.id: subject})
        self.image: dict[str, Any] | None = images[0] if images else None
        evidence = Evidence(reading)
        self.rows, readable = evidence.told(machine, subject)
        begins = 1 if self.image is None else self.image["history_from"]
        self.kept = [row for row in self.rows if row.version >= begins]
        self.archived = begins > 1 and not self.kept
        self.sound = self.archived or (
            readable and is_sound(machine, self.kept, begins, Page(evidence, limit=1, batch=1))
        )

    @property
    def last(self) -> Entry | None:
        return self.kept[-1] if self.kept else None

    @property
    def vouched(self) -> bool:
        """Whether the record was last written by the move that its journal ends with: then the journal is believed."""
        last = self.last
        return (
            self.sound
            and last is not None
            and self.image is not None
            and (self.image["event"], self.image["move_id"]) == (last.event, last.move_id)
        )

    @property
    def state(self) -> str:
        return "" if self.image is None else str(self.image[self.guarded.state])

    @property
    def base(self) -> int:
        """The version that the next move follows: the journal's, where there is one."""
        if self.rows:
            return max(row.version for row in self.rows)
        return 1 if self.image is None else int(self.image["version"])

    def act(self, kind: str, why: str, **after: Json) -> Act:
        words = {name: value.value if isinstance(value, Enum) else value for name, value in after.items()}
        return Act(
            kind=kind,
            subject=f"{self.machine.name} {self.id}",
            why=why,
            machine=self.machine.name,
            id=self.id,
            before=self.image,
            after=words,
        )

    def put(self, state: str, why: str, *, anew: bool = False, **columns: Json) -> Iterator[Act]:
        """Yield what brings the record to a state and its journal's version; `anew` begins its history here."""
        if self.image is None:
            return
        if self.image["version"] != self.base:
            # With all the rest: a row that breaks a constraint of the table takes no change but to a whole one.
            yield self.act("mend", f"its journal ends at version {self.base}", version=self.base, **columns)
        history = {"history_from": self.base + 1} if anew else {}
        if state != self.state:
            yield self.act("move", why, **{self.guarded.state: state}, **history, **columns)
        elif anew or (self.last is not None and self.last.target != state):
            yield self.act("tell", why, **{self.guarded.state: state}, **history, **columns)
        elif changed := {name: value for name, value in columns.items() if self.image[name] != value}:
            yield self.act("mend", why, **changed)


def is_sound(machine: Machine, rows: Sequence[Entry], begins: int, page: Page) -> bool:
    """Tell whether rows make a whole history, as `check` would judge a record that stands where they end."""
    if not rows:
        return False
    history = History(
        machine=machine, subject=rows[0].subject, state=rows[-1].target, version=rows[-1].version, history_from=begins,
        created_at=rows[0].at, updated_at=rows[-1].at, rows=tuple(rows),
    )  # fmt: skip
    faults = chain(histories.continuous(history, page), histories.legal(history, page))
    return next(faults, None) is None and rows[-1].target in machine.states and _counts_up(machine, rows)


def _counts_up(machine: Machine, rows: Sequence[Entry]) -> bool:
    """Tell whether the attempts that a job's rows name grow by one with each claim, and only then."""
    return machine is not JOB or all(
        row.maintenance_id is not None or (row.attempt or 0) == (before.attempt or 0) + (row.target == JobState.RUNNING)
        for before, row in pairwise(rows)
    )


def is_time(text: object) -> bool:
    """Tell whether a text is a time."""
    return _moment(text) is not None


def _moment(text: object) -> datetime | None:
    try:
        return time_from(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _at(row: Entry) -> str | None:
    at: Any = row.at  # None where the journal holds what is no time
    return time_text(at) if at else None


# ---------------------------------------------------------------------------------------------------------------------
# Executions


def execution_acts(record: Record, *, succeeded: bool = False) -> tuple[Settled, list[Act]]:
    """Return an execution as it will be, and what makes it so; `succeeded` if its job is known to have."""
    image, last = record.image or {}, record.last
    if record.vouched and last is not None:
        status, anew, why = last.target, False, f"its journal says {last.target}"
    else:
        status = record.state if record.state in EXECUTION.final else ExecutionStatus.ABORTED
        anew, why = True, "its journal cannot be believed"
    committed_here = ExecutionStatus.COMMITTED in (status, record.state)
    if succeeded and committed_here and record.state != ExecutionStatus.DONE:
        status, why = ExecutionStatus.DONE, "it has committed, and its job has succeeded"
    settled = Settled(
        record.id, int(image["attempt"]), ExecutionStatus(status), bool(image["excused"]), image["error_code"]
    )
    return settled, list(record.put(status, why, anew=anew, **_execution_columns(record, status)))


def _execution_columns(record: Record, status: str) -> dict[str, Json]:
    image, columns = record.image or {}, times_of(record)
    ended = status in EXECUTION.final
    if ended != (_moment(image["finished_at"]) is not None):
        columns["finished_at"] = columns.get("updated_at", image["updated_at"]) if ended else None
    for name in ("started_at", "cancel_asked_at"):
        if image[name] is not None and _moment(image[name]) is None:
            columns[name] = None
    if _moment(image["lease_expires_at"]) is None:
        columns["lease_expires_at"] = columns.get("updated_at", image["updated_at"])
    if not is_fit(image["error_message"]):
        columns["error_message"] = None
    return columns


def times_of(record: Record) -> dict[str, Json]:
    """Return when a record was made and last changed, as its journal knows it."""
    image, first, last = record.image or {}, record.rows[0] if record.rows else None, record.last
    created, updated = _moment(image["created_at"]), _moment(image["updated_at"])
    if first is not None and first.version == 1 and _at(first):
        created = first.at
    latest = [moment for moment in (created, updated, last.at if last and _at(last) else None) if moment is not None]
    return {"created_at": time_text(created or EPOCH), "updated_at": time_text(max(latest, default=EPOCH))}


def rebuilt_execution(record: Record, job_id: int) -> Act:
    """Return what puts back an execution whose row is gone, from what the journal says of it."""
    first, last = record.rows[0], record.rows[-1]
    ended = last.target in EXECUTION.final
    return record.act(
        "put_back",
        f"its row is gone; the journal tells of it, as attempt {first.attempt} of job {job_id}",
        exec_id=record.id, job_id=job_id, attempt=first.attempt, status=last.target, version=last.version,
        lease_owner=first.actor, lease_expires_at=_at(last), excused=last.event == "give_back",
        error_code=LOST if last.target == ExecutionStatus.ABORTED else None, created_at=_at(first),
        updated_at=_at(last), finished_at=_at(last) if ended else None, event=last.event, actor=last.actor,
        move_id=last.move_id, history_from=1 if record.sound else last.version + 1,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------
# Jobs


def job_acts(reading: Reading, job_id: int, *, doubt: str | None = None, without: Iterable[str] = ()) -> list[Act]:
    """Return what puts a job and its executions right.

    `doubt` is a reason to quarantine it in any case; `without` are columns that it must lose.
    """
    job = Record(reading, JOB, job_id)
    acts: list[Act] = []
    if job.image is None:
        return [*_tombstone(reading, job)]
    executions: list[Settled] = []
    succeeded = job.vouched and job.last is not None and job.last.target == JobState.SUCCEEDED
    for image in reading.images("holdfast_executions", job_id=job_id):
        settled, mended = execution_acts(Record(reading, EXECUTION, image["exec_id"]), succeeded=succeeded)
        executions.append(settled)
        acts += mended
    executions.sort(key=lambda execution: execution.attempt)
    if job.archived:
        return acts + _slimmed(job)
    target, anew, why = _verdict(job, executions, doubt)
    if target == JobState.QUARANTINED:
        acts += _stopped(reading, executions)
    columns = _columns(job, executions, target, why) | dict.fromkeys(without)
    acts += job.put(target, why, anew=anew, **columns)
    return acts


def committed(reading: Reading, job_id: int) -> bool:
    """Tell whether the journal of one of a job's executions says that it committed."""
    for image in reading.images("holdfast_executions", job_id=job_id):
        record = Record(reading, EXECUTION, image["exec_id"])
        if record.vouched and record.last is not None and record.last.target in COMMITTED:
            return True
    return False


def _verdict(job: Record, executions: Sequence[Settled], doubt: str | None) -> tuple[str, bool, str]:
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


def _unfit(job: Record, executions: Sequence[Settled]) -> str | None:
    """Return why a job cannot be run as it stands, if it cannot."""
    image = job.image or {}
    attempts = [execution.attempt for execution in executions]
    if not image["payload"]:
        return "its payload is gone"
    if image["digest"] != digest_of(image["operation"], image["payload"]):
        return "its payload is not what was submitted"
    if image["history_from"] == 1 and attempts != list(range(1, len(attempts) + 1)):
        return "not all of its attempts are there"
    return None


def _stopped(reading: Reading, executions: Iterable[Settled]) -> Iterator[Act]:
    """Yield what ends the executions of a job that is being quarantined: the open ones, and commits after the first."""
    past = 0
    for execution in executions:
        past += execution.status in COMMITTED
        if execution.status in OPEN or (execution.status in COMMITTED and past > 1):
            record = Record(reading, EXECUTION, execution.exec_id)
            yield _aborted(record, "its job is quarantined")


def _columns(job: Record, executions: Sequence[Settled], target: str, why: str) -> dict[str, Json]:
    """Return what the other columns of a job must be, where that can be told."""
    image, columns = job.image or {}, times_of(job)
    if image["history_from"] == 1:
        columns |= {"attempts": len(executions), "excused": sum(execution.excused for execution in executions)}
    if image["max_attempts"] < 1:
        columns["max_attempts"] = max(1, len(executions))  # no attempt more than it has had
    if image["replay_attempts"] < 0:
        columns["replay_attempts"] = 0
    if _moment(image["run_at"]) is None:
        columns["run_at"] = columns["updated_at"]
    if image["last_attempt_at"] is not None and _moment(image["last_attempt_at"]) is None:
        columns["last_attempt_at"] = None
    columns |= _errors(job, executions, target)
    columns["quarantine_code"] = None
    if target == JobState.QUARANTINED:
        kept = image["quarantine_code"] if job.state == target else None
        columns["quarantine_code"] = kept or (columns["last_error_code"] if job.state == target else UNSOUND)
        columns |= {} if kept else {"reason": why}
    return columns | _kept_or_dropped(image, target, committed=any(e.status in COMMITTED for e in executions))


def _errors(job: Record, executions: Sequence[Settled], target: str) -> dict[str, Json]:
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


def _slimmed(job: Record) -> list[Act]:
    """Return what a job of which all history is archived may not keep."""
    image = job.image or {}
    after = _kept_or_dropped(image, job.state, committed=job.state == JobState.SUCCEEDED)
    changed = {name: value for name, value in after.items() if image[name] != value}
    return [job.act("mend", "a slimmed job keeps neither payload nor result", **changed)] if changed else []


def _tombstone(reading: Reading, job: Record) -> Iterator[Act]:
    """Yield what stands in for a job whose row is gone: it can never run again, and its history is kept."""
    last = job.rows[-1] if job.rows else None
    state = last.target if last and last.target in JOB.states else JobState.PENDING
    at = (_at(last) if last else None) or time_text(EPOCH)
    created_at = (_at(job.rows[0]) if job.rows and job.rows[0].version == 1 else None) or at
    at = max(at, created_at)
    executions = reading.images("holdfast_executions", job_id=job.id)
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
        record = Record(reading, EXECUTION, image["exec_id"])
        settled, acts = execution_acts(record)
        yield from acts
        done = done or settled.status == ExecutionStatus.DONE
        if settled.status in OPEN:
            yield _aborted(record, "its job is gone")
    target = JobState.SUCCEEDED if done else JobState.QUARANTINED
    code = None if done else LOST
    yield from job.put(target, "its row was gone", anew=True, quarantine_code=code, reason="its row was gone")


def _aborted(record: Record, why: str) -> Act:
    at = times_of(record)["updated_at"]
    return record.act("move", why, status=ExecutionStatus.ABORTED, error_code=UNSOUND, finished_at=at, updated_at=at)
