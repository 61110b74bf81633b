"""Repeats one recorded history: `decide` gets the record as its earlier rows left it, and must return the next row.

Invariants: no rule is repeated here: `decide` and the machines alone say what is possible. Facts that the journal does
not have (the time of a lease; the budget, if the trace has no calls) are assumed to be as the move needs them. After
the first wrong step of a record its later rows are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from holdfast.core import commands
from holdfast.core.decide import CANCELLED, REPLAY_REASONS, Move, Refused, decide
from holdfast.core.machine import NOTHING
from holdfast.core.machines import COMMITTED, EXEC_IDS, EXECUTION, JOB, MACHINES, REQUEST, ExecutionStatus, JobState
from holdfast.core.records import Attempt
from holdfast.core.rulings import Lapse, Revoke
from holdfast.model.rules import Budget, Try, Work, at, execution_of, job_of

BOUNDLESS = Budget(1 << 40)  # of a job whose budget is not in the trace
NOW, BEFORE, AFTER = 1, 0, 2
OF_A_JOB = frozenset({JOB.name, EXECUTION.name, REQUEST.name})


class Row(NamedTuple):
    """A journal row as it is sealed and exported."""

    seq: int
    epoch: int
    xid: int
    machine: str
    subject: int
    version: int
    source: str | None
    target: str
    event: str
    actor: str
    reason: str | None
    attempt: int | None
    move_id: str
    grant_id: int | None
    maintenance_id: int | None
    at: str
    status_from: str | None
    status_to: str | None


class WrongStep(msgspec.Struct, frozen=True):
    """The first step of a record that the model does not allow."""

    code: str
    machine: str
    subject: int
    version: int
    detail: str
    seq: int | None = None  # the number of the journal row; None if a row is missing
    job_id: int | None = None


def wrong_row(row: Row, code: str, detail: str) -> WrongStep:
    return wrong_step(code, row.machine, row.subject, row.version, detail, seq=row.seq)


def wrong_step(
    code: str, machine: str, subject: int, version: int, detail: str, *, seq: int | None = None
) -> WrongStep:
    job_id = subject // EXEC_IDS if machine == EXECUTION.name else subject if machine in OF_A_JOB else None
    return WrongStep(code, machine, subject, version, detail, seq, job_id)


class LastRecord(NamedTuple):
    """A record as it is at the end of the trace."""

    state: str
    version: int
    history_from: int
    attempts: int | None
    status: str | None


class _WrongError(Exception):
    """The model does not allow a row: a code and the reason."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(code, detail)
        self.code, self.detail = code, detail


@dataclass
class RecordedHistory:
    """One record while its rows are taken: its state after the rows so far."""

    machine: str
    subject: int
    record: LastRecord | None
    has_records: bool = False
    may_begin_later: bool = False
    maintenance: frozenset[int] | None = None  # the numbers in the trace; None: it may begin after them
    budget: Budget = BOUNDLESS
    tokens: dict[int, int] = field(default_factory=dict)
    state: str | None = None
    version: int | None = 0  # None: it began with a row of an attempt, so the version of the job is not known
    attempts: int = 0
    excused: int = 0
    lost: int = 0
    status: ExecutionStatus | None = None
    owner: str | None = None  # the worker that claimed the attempt
    stop_requested: bool = False
    committed: int | None = None  # the attempt that crossed the commit boundary
    time: str = ""
    taken: int = 0
    begun_earlier: bool = False
    grants: set[int] = field(default_factory=set)

    def first_wrong(self, rows: Iterable[Row]) -> list[WrongStep]:
        """Take the rows until one is wrong, then compare the end with the record; return what is wrong, if anything."""
        for row in rows:
            self.taken += 1
            if self.record is not None and row.machine == self.machine and row.version < self.record.history_from:
                continue  # it was archived, or a repair has given it up
            try:
                self._take(row)
            except _WrongError as wrong:
                return [wrong_row(row, wrong.code, wrong.detail)]
        return self._wrong_end()

    def _take(self, row: Row) -> None:
        if row.maintenance_id is not None:
            self._restart(row)
        elif self.state is None and (row.source is not None or row.machine == EXECUTION.name):
            if not self.may_begin_later:
                raise _WrongError(
                    "gap", f"the first row is version {row.version}, from {row.source}; a history begins at {NOTHING}"
                )
            self._begin_later(row)
        elif row.machine == EXECUTION.name:
            self._take_attempt(row)
        elif row.machine == REQUEST.name:
            self._take_request(row)
        else:
            self._take_move(row)
        if row.machine == self.machine:  # a request has the clock of its client
            if row.at < self.time:
                raise _WrongError("time", f"version {row.version} has an earlier time than the row before it")
            self.time = row.at

    def _restart(self, row: Row) -> None:
        """Take what a repair or a restore wrote: it may begin at any state."""
        if self.maintenance is not None and row.maintenance_id not in self.maintenance:
            raise _WrongError("maintenance", f"it names maintenance {row.maintenance_id}, which is not in the trace")
        if row.target not in MACHINES[row.machine].states:
            raise _WrongError("edge", f"{row.machine} has no state {row.target}")
        self._set(row)
        self.budget = BOUNDLESS  # a repair may have counted the attempts again

    def _begin_later(self, row: Row) -> None:
        self.begun_earlier, self.budget = True, BOUNDLESS
        self._set(row)
        if row.machine == EXECUTION.name:
            self.version = None

    def _set(self, row: Row) -> None:
        if row.machine == EXECUTION.name:
            self.state, self.status, self.attempts = (
                JobState.RUNNING,
                ExecutionStatus(row.target),
                row.subject % EXEC_IDS,
            )
        elif row.machine != REQUEST.name:
            self.state, self.version, self.attempts = row.target, row.version, row.attempt or 0
            self.status = ExecutionStatus(row.status_to) if row.status_to else self.status
        self.committed = self.attempts if self.status in COMMITTED else None

    def _take_request(self, row: Row) -> None:
        if self.state != JobState.RUNNING or row.version != self.attempts:
            raise _WrongError("attempt", f"attempt {row.version} is not running, so a stop cannot be requested")
        self.stop_requested = True

    def _take_attempt(self, row: Row) -> None:
        """Take a start or a commit that the job did not move with."""
        attempt = row.subject % EXEC_IDS
        if attempt != self.attempts or self.state != JobState.RUNNING:
            raise _WrongError(
                "attempt", f"attempt {attempt} moves, but the job is {self.state} at attempt {self.attempts}"
            )
        self._require_uncommitted(row, row.target)
        if row.source != self.status:
            raise _WrongError("source", f"it starts at {row.source}, but the attempt is {self.status}")
        known = {"start": commands.Start(attempt), "commit": commands.Commit(attempt)}
        self._decided(row, [known[row.event]] if row.event in known else [], None, row.target)
        self._end_status(row.target)

    def _take_move(self, row: Row) -> None:
        machine, path = MACHINES.get(row.machine), None
        if machine is None:
            raise _WrongError("machine", f"there is no machine {row.machine}")
        if self.version is not None and row.version <= self.version:
            raise _WrongError("twice", f"version {row.version} comes after version {self.version}")
        self._require_uncommitted(row, row.status_to)
        if machine.allows(row.event, row.source):
            path = machine.path(row.event, row.source)
        edges = len(path.edges) if path else 1
        if self.version is not None and row.version - edges > self.version:
            raise _WrongError("gap", f"version {row.version} follows version {self.version}: rows are missing")
        if row.source != self.state:
            raise _WrongError("source", f"it starts at {row.source or NOTHING}, but the record is {self.state}")
        if self.version is not None and row.version - edges < self.version:
            raise _WrongError("version", f"{row.event} takes {edges} edges from version {self.version}")
        if path is None or path.target != row.target:
            edge = f"{row.source or NOTHING} → {row.target} by {row.event}"
            raise _WrongError("edge", f"{edge} is not in the table of {machine.name}")
        if path.governed and row.grant_id is None:
            raise _WrongError("grant", f"{row.event} needs a grant, and the row names none")
        if machine is JOB:
            self._take_job_move(row)
        self.state, self.version = row.target, row.version

    def _take_job_move(self, row: Row) -> None:
        claimed = row.event == "claim"
        if (row.attempt or 0) != self.attempts + claimed:
            raise _WrongError(
                "attempt", f"it is of attempt {row.attempt}, but the job has made {self.attempts} attempts"
            )
        if row.event == "release":
            if row.grant_id in self.grants:
                raise _WrongError("grant", f"grant {row.grant_id} was used before")
            self.grants.add(row.grant_id or 0)
            return
        if row.source == JobState.RUNNING and row.status_from != self.status:
            raise _WrongError("source", f"its attempt starts at {row.status_from}, but is {self.status}")
        if (
            row.event == "succeed"
            and row.status_from == ExecutionStatus.IN_PROGRESS
            and self.owner not in (None, row.actor)
        ):
            raise _WrongError("fence", f"{row.actor} completes attempt {row.attempt}, which {self.owner} has claimed")
        move = self._decided(row, _commands(row), row.target, row.status_to)
        self.attempts += claimed
        self.excused += move.excused
        self.lost += move.lost
        if claimed:
            self.owner, self.stop_requested = row.actor, False
        if row.status_to:
            self._end_status(row.status_to)

    def _require_uncommitted(self, row: Row, status: str | None) -> None:
        if self.committed is not None and ExecutionStatus.COMMITTED not in (row.source, row.status_from):
            what = "commits again" if status in COMMITTED else "moves"
            raise _WrongError("second_commit", f"the job {what}, although attempt {self.committed} has committed")

    def _end_status(self, status: str) -> None:
        self.status = ExecutionStatus(status)
        if self.status in COMMITTED:
            self.committed = self.attempts

    def _decided(self, row: Row, candidates: list[object], target: str | None, status: str | None) -> Move:
        """Return the move of the first command that `decide` answers with this row; raise _WrongError if none is."""
        refused: Refused | None = None
        for command in candidates:
            answer = decide(self._subject_of(command), command, at(NOW))
            if isinstance(answer, Refused):
                refused = refused or answer
                continue
            job, execution = answer.step(JOB), answer.step(EXECUTION)
            ends = (job.target if job else None, execution.target if execution else None)
            if ends == (target, status) and (job is None or job.event == row.event):
                return answer
        if refused is not None:
            raise _WrongError(refused.code, f"{row.event}: {refused.message}")
        raise _WrongError("edge", f"no command leads to {row.event} with {target or status} here")

    def _subject_of(self, command: object) -> object:
        """Return the job or the attempt that a command is given, with a lease as the command needs it."""
        if isinstance(command, commands.Submit):
            return None
        work = Work(JobState(self.state or ""), self.version or 0, self.attempts, self.excused)
        job = msgspec.structs.replace(job_of(work, self.budget), job_id=self.subject, lost=self.lost)
        if self.state != JobState.RUNNING:
            return job
        expired = isinstance(command, commands.Expire | commands.Finish)
        made = Try(self.status or ExecutionStatus.LEASED, 1, self.attempts, BEFORE if expired else AFTER)
        execution = execution_of(made)
        if self.stop_requested:
            execution = msgspec.structs.replace(execution, cancel_requested_at=at(BEFORE))
        return Attempt(job, execution)

    def _wrong_end(self) -> list[WrongStep]:
        """Return what is wrong with the record after all its rows."""
        record, version = self.record, self.version or 0
        if not self.has_records or (self.state is None and record is not None and record.history_from > record.version):
            return []
        if record is None:
            return [
                wrong_step("record", self.machine, self.subject, version, "the trace has its rows, but not the record")
            ]
        if (self.state, version) != (record.state, record.version):
            detail = f"the record is {record.state} at version {record.version}; its rows end at {self.state}"
            return [wrong_step("record", self.machine, self.subject, version + 1, detail)]
        if self.machine == JOB.name and record.attempts != self.attempts:
            detail = f"the record counts {record.attempts} attempts; its rows have {self.attempts}"
            return [wrong_step("attempt", self.machine, self.subject, version, detail)]
        if record.status is not None and record.status != self.status:
            detail = f"the attempt is {record.status}; its rows end at {self.status}"
            return [wrong_step("record", EXECUTION.name, self.subject * EXEC_IDS + self.attempts, version, detail)]
        greatest = 0
        for attempt, token in self.tokens.items():
            if token <= greatest:
                detail = f"the lease token of attempt {attempt} is {token}; that of an earlier attempt is {greatest}"
                return [wrong_step("token", self.machine, self.subject, version, detail)]
            greatest = token
        return []


_TEXT = ("code", "message")
_ENDS: dict[str, Callable[[int], list[object]]] = {
    # Of a running job. The row does not name the command that ended the attempt: any command with this end is accepted.
    "succeed": lambda token: [commands.Complete(token), commands.Finish()],
    "retry": lambda token: [commands.Fail(token, *_TEXT, retry_at=at(NOW))],
    "fail": lambda token: [commands.Fail(token, *_TEXT), commands.Expire(at(NOW)), Revoke(at(NOW), "reason")],
    "quarantine": lambda token: [commands.Fail(token, *_TEXT, permanent=True)],
    "cancel": lambda token: [commands.Fail(token, *_TEXT, permanent=True, quarantine_code=CANCELLED)],
    "expire": lambda _token: [commands.Expire(at(NOW))],
    "revoke": lambda _token: [Revoke(at(NOW), "reason")],
    "give_back": lambda token: [commands.GiveBack(token, at(NOW))],
}
_RULINGS: dict[str, list[object]] = {
    "submit": [commands.Submit()],
    "retry": [commands.Retry()],
    "replay": [commands.Replay(min(REPLAY_REASONS))],
    "quarantine": [commands.Quarantine("code")],
    "cancel": [commands.Cancel()],
    "lapse": [Lapse(at(BEFORE))],
}


def _commands(row: Row) -> list[object]:
    """Return the commands that the row of a job may be the answer to."""
    if row.event == "claim":
        return [commands.Claim(begin=row.status_to == ExecutionStatus.IN_PROGRESS)]
    if row.source == JobState.RUNNING:
        return _ENDS[row.event](row.attempt or 0) if row.event in _ENDS else []
    return _RULINGS.get(row.event, [])
