"""The diagnosis of the attempts of one job: which of them ended without success, and how their rows must be.

Invariants: nothing is written here; a sound journal of an attempt is right, and the columns that it does not have are
those of the stored row that the same move wrote; fencing tokens grow with the attempt.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from holdfast.audit.check.context import RuleContext
from holdfast.audit.check.job_rules import is_fit
from holdfast.audit.repair.record import (
    EPOCH,
    EVENT,
    ExaminedRecord,
    RepairAct,
    is_sound,
    record_times,
    repair_move_id,
    time_or_none,
    written_at,
)
from holdfast.core.machines import COMMITTED, EXEC_IDS, EXECUTION, JOB, OPEN, ExecutionStatus, JobState
from holdfast.core.pairing import DEPTH
from holdfast.core.records import LOSSES_EXCUSED, time_text
from holdfast.store.transaction import Reading
from holdfast.store.verbs.evidence import Evidence
from holdfast.store.verbs.histories import Entry

LOST, UNSOUND = "lost", "integrity"
_DEPTH = {str(status): depth for status, depth in DEPTH.items()}
EXCUSES = "give_back"  # the event that ends an attempt without counting it
LOSES = "expire"  # the event that ends an attempt whose lease was lost; the first losses of a job are excused


class ExaminedJob(ExaminedRecord):
    """A job with its call, its attempts, and its journal."""

    def __init__(self, reading: Reading, job_id: int) -> None:
        super().__init__(reading, JOB, job_id)
        evidence = Evidence(reading)
        self.context = RuleContext(evidence, limit=1, batch=1)
        stored = reading.maintenance.images("holdfast_aborted", job_id=job_id)
        self.aborted: dict[int, dict[str, Any]] = {image["attempt"]: image for image in stored}
        attempt = self.image["attempts"] if self.image else 0
        self.steps = evidence.steps_of(job_id, self.kept, attempt=attempt, whole=self.begins == 1)
        self.ends = {row.seq: row for row in self.kept if row.source == JobState.RUNNING}
        self.sound = self.sound and self._runs_where_it_steps()

    @property
    def signed_by(self) -> Entry | None:
        """The last move of the row: that of the job, or a later start or commit of its attempt."""
        lone = [row for _, rows in self.steps.values() for row in rows if row.record == row.subject]
        return max((row for row in (self.last, *lone) if row is not None), key=lambda row: row.seq, default=None)

    def _runs_where_it_steps(self) -> bool:
        """Return whether the last start or commit was made by the attempt that the last row of the job claimed."""
        last, signed = self.last, self.signed_by
        if last is None or signed is None or signed is last:
            return True
        return last.target == JobState.RUNNING and signed.subject == self.id * EXEC_IDS + (last.attempt or 0)

    def journalled_status(self, attempt: int) -> str | None:
        """Return the last status of an attempt by its journal, or None if that is not sound."""
        begins, rows = self.steps.get(attempt, (1, []))
        return rows[-1].target if is_sound(EXECUTION, rows, begins, self.context) else None

    @property
    def committed_attempt(self) -> int | None:
        """The attempt whose commit is in the journal, if the journal and the stored attempts do not contradict it."""
        attempt = max((*self.steps, *self.aborted), default=0)
        if attempt in self.aborted or attempt not in self.steps:
            return None
        last = self.steps[attempt][1][-1]
        if last.target == ExecutionStatus.COMMITTED and last is self.signed_by and self._signed(last):
            return attempt  # the commit was the last to write the row
        end = self.ends.get(last.seq)
        alone = last.record == last.subject
        if self.journalled_status(attempt) not in COMMITTED:
            return None
        return attempt if alone or (end is not None and end.target == JobState.SUCCEEDED) else None


class Verdict(NamedTuple):
    """The state that a repair gives to a job and its current attempt, and why."""

    state: JobState
    status: ExecutionStatus | None
    restart: bool  # the history begins again
    why: str


def attempts_of(job: ExaminedJob, verdict: Verdict) -> int:
    """Return the number of attempts: by a sound journal, by the attempt that committed, or the greatest known."""
    if job.sound and job.last is not None:
        return job.last.attempt or 0
    if verdict.state == JobState.SUCCEEDED and job.committed_attempt is not None:
        return job.committed_attempt
    return max(int((job.image or {})["attempts"]), *job.aborted, 0)


def ended_attempts(job: ExaminedJob, attempts: int, verdict: Verdict) -> tuple[dict[int, dict[str, Any]], bool]:
    """Return the attempts that ended without success as they must be stored, and whether the journal contradicts them.

    The row of an attempt is the stored one that its last move wrote, or else that with its number.
    """
    current = attempts if verdict.status else None
    by_move = {image["move_id"]: image for image in job.aborted.values()}
    ended: dict[int, dict[str, Any]] = {}
    contradicts = False
    for attempt in sorted({*job.aborted, *job.steps, attempts}):
        if attempt == current or not 0 < attempt <= attempts:
            continue
        status, rows = job.journalled_status(attempt), job.steps.get(attempt, (1, []))[1]
        end = job.ends.get(rows[-1].seq) if status == ExecutionStatus.ABORTED else None
        image = job.aborted.get(attempt)
        if end is not None:
            ended[attempt] = _ended_by(job, attempt, end, by_move.get(end.move_id, image))
        elif image is not None:
            ended[attempt] = {**image, **readable(image)}
            # A repair may have written the end; then its row is not the end of a running job.
            contradicts = contradicts or (bool(rows) and status != ExecutionStatus.ABORTED)
        elif attempt == attempts and status_before(job, attempts) in OPEN | COMMITTED:
            ended[attempt] = _aborted_now(job, attempts, verdict)
    order_tokens(ended)
    return ended, contradicts


def _ended_by(job: ExaminedJob, attempt: int, end: Entry, image: dict[str, Any] | None) -> dict[str, Any]:
    """Return the row of an attempt with the values that its journal has; the others are those of `image`, if any."""
    rows = job.steps[attempt][1]
    claim = rows[0] if rows[0].version == 1 else None
    begun = next((written_at(row) for row in rows if row.target == ExecutionStatus.IN_PROGRESS), None)
    at = written_at(end) or time_text(EPOCH)
    known = image or {
        "lease_owner": claim.actor if claim else LOST, "lease_token": 0, "lease_expires_at": at, "error_code": LOST,
        "error_message": None, "progress": None, "progress_note": None, "cancel_requested_at": None,
        "started_at": begun, "created_at": (written_at(claim) if claim else None) or at, "finished_at": at,
    }  # fmt: skip
    row = {**known, **readable(known), "job_id": job.id, "attempt": attempt, "version": rows[-1].version}
    if end.maintenance_id is None:
        signature = {"event": end.event, "actor": end.actor, "reason": end.reason, "move_id": end.move_id}
        row |= {**signature, "excused": end.event == EXCUSES or attempt in _excused_losses(job)}
    if claim is not None and _began_elsewhere(job, claim, row["created_at"]):
        row["created_at"] = written_at(claim)
    if image is not None and known["started_at"] is not None and time_or_none(known["started_at"]) is None:
        row["started_at"] = begun
    row["finished_at"] = max(row["finished_at"], at)
    return row


def _excused_losses(job: ExaminedJob) -> list[int]:
    """Return the attempts whose lost lease is excused: the first ones of those that the job counts as lost.

    The journal says which attempts lost their lease; where it is archived, the stored rows do. Losses from before the
    job counted them are not excused.
    """
    ends = {attempt: job.ends.get(rows[-1].seq) for attempt, (_, rows) in job.steps.items() if rows}
    events = {attempt: row["event"] for attempt, row in job.aborted.items() if attempt not in ends}
    events |= {attempt: end.event for attempt, end in ends.items() if end is not None}
    losses = sorted(attempt for attempt, event in events.items() if event == LOSES)
    uncounted = max(0, len(losses) - ((job.image or {}).get("lost") or 0))
    return losses[uncounted : uncounted + LOSSES_EXCUSED]


def _began_elsewhere(job: ExaminedJob, claim: Entry, created_at: str) -> bool:
    """Return whether an attempt has another time than its claim; the claim is later only if the clock went back."""
    before = [row.at for row in job.rows if row.seq < claim.seq]
    behind = bool(before) and before[-1] == claim.at and (time_or_none(created_at) or claim.at) < claim.at
    return time_or_none(created_at) != claim.at and not behind


def readable(image: dict[str, Any]) -> dict[str, Any]:
    """Return new values for the columns of an attempt with values that Holdfast never writes."""
    finished = image["finished_at"] if time_or_none(image["finished_at"]) else time_text(EPOCH)
    needed = ("finished_at", "lease_expires_at", "created_at")
    fixed: dict[str, Any] = {name: finished for name in needed if time_or_none(image[name]) is None}
    for name in ("started_at", "cancel_requested_at"):
        if image[name] is not None and time_or_none(image[name]) is None:
            fixed[name] = None
    return fixed if is_fit(image["error_message"]) else {**fixed, "error_message": None}


def status_before(job: ExaminedJob, attempt: int) -> str | None:
    """Return the status of the current attempt before the repair: by its journal, or by the row."""
    image = job.image or {}
    return job.journalled_status(attempt) or (image["status"] if image["attempts"] == attempt else None)


def _aborted_now(job: ExaminedJob, attempt: int, verdict: Verdict) -> dict[str, Any]:
    """Return the row of the current attempt, which the repair ends."""
    image, at = job.image or {}, str(record_times(job)["updated_at"])
    row = {
        "job_id": job.id, "attempt": attempt, "version": 1 + _DEPTH.get(status_before(job, attempt) or "", 0),
        "lease_owner": image["lease_owner"] or LOST, "lease_token": image["lease_token"] or 0,
        "lease_expires_at": image["lease_expires_at"] or at, "created_at": image["last_attempt_at"] or at,
        "finished_at": at, "started_at": image["started_at"], "cancel_requested_at": image["cancel_requested_at"],
        "progress": image["progress"], "progress_note": image["progress_note"], "excused": False,
        "error_code": UNSOUND, "error_message": None, "event": EVENT, "actor": LOST, "reason": verdict.why,
        "move_id": own_move_id(job),
    }  # fmt: skip
    return row | readable(row)


def own_move_id(job: ExaminedJob) -> str:
    """Return the id of the move that a repair of this job journals."""
    return repair_move_id(JOB.name, job.id, job.base + 1)


def order_tokens(ended: dict[int, dict[str, Any]]) -> None:
    """Give the attempts the tokens of their claims again, unless the stored ones grow."""
    tokens = [row["lease_token"] for row in ended.values()]
    if tokens == sorted(set(tokens)) and 0 not in tokens:
        return
    before = 0
    for row in ended.values():
        row["lease_token"] = before = next_token(before, row["created_at"])


def next_token(before: int, claimed_at: object) -> int:
    claimed = time_or_none(claimed_at)
    return max(before + 1, int(claimed.timestamp() * 1_000_000) if claimed else 0)


def attempt_acts(job: ExaminedJob, ended: dict[int, dict[str, Any]]) -> Iterator[RepairAct]:
    """Yield the acts that correct the stored attempts."""
    moved = {row["move_id"]: attempt for attempt, row in ended.items() if attempt not in job.aborted}
    for attempt, image in sorted(job.aborted.items()):
        place = attempt if attempt in ended else moved.pop(image["move_id"], None)
        if place is None:
            yield attempt_act("forget", "the journal does not have this attempt", image, {})
        elif changed := {name: value for name, value in ended[place].items() if image[name] != value}:
            yield attempt_act("mend", "the journal of the attempt differs", image, changed)
    for attempt in moved.values():
        yield attempt_act("put_back", "the row is missing", None, ended[attempt])


def attempt_act(kind: str, why: str, before: dict[str, Any] | None, after: dict[str, Any]) -> RepairAct:
    """Return the act that changes the row of an attempt that ended without success; an empty `after` removes it."""
    row = before or after
    exec_id = row["job_id"] * EXEC_IDS + row["attempt"]
    subject = f"{EXECUTION.name} {exec_id}"
    return RepairAct(
        kind=kind, subject=subject, why=why, machine=EXECUTION.name, id=exec_id, before=before, after=after
    )
