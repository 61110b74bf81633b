"""Surgery: carries out what a diagnosis asks for, record by record, and says which it could do nothing for.

Invariants: everything is written under one open door, and noted there before it is done; a unit (a job with its
executions, or any other record) is mended whole or not touched: whoever finds one in `failed` undoes the round.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from holdfast.audit.check.findings import Violation
from holdfast.audit.repair.job_diagnosis import has_committed, repair_job, restored_execution
from holdfast.audit.repair.record import GUARDED_BY_NAME, ExaminedRecord, RepairAct, is_torn
from holdfast.audit.repair.record_diagnosis import repair_record, restore_history_start
from holdfast.core.decide import Refused
from holdfast.core.errors import HoldfastError, RefusedByDatabaseError
from holdfast.core.machines import EXECUTION, JOB, MACHINES, ExecutionStatus, JobState
from holdfast.store import Store, Transaction
from holdfast.store.tables import MAINTENANCE
from holdfast.store.transaction import Reading

EVENT = "repair"
LEASES = "LEASES"
BROKEN_BY_MISPLACED_EXECUTIONS = frozenset({"no_orphans", "attempts_monotonic", "running_has_lease", "one_commit"})
DIAGNOSIS_ERRORS = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)
"""What a diagnosis can stumble over in data that nobody wrote; errors of the database are none of these."""


def unit_of(reading: Reading, violation: Violation) -> str:
    """Return what is mended together with the subject of a violation, or left as it is."""
    if violation.invariant == "lease_overdue":
        return LEASES
    if violation.machine in MACHINES and violation.id is not None:
        return unit(reading, violation.machine or "", violation.id)
    return violation.subject


def unit(reading: Reading, machine: str, subject: int) -> str:
    """Return the job of an execution that is there, and any other record itself."""
    if machine == EXECUTION.name:
        for image in reading.maintenance.images("holdfast_executions", exec_id=subject):
            return f"{JOB.name} {image['job_id']}"
    return f"{machine} {subject}"


class Surgeon:
    """Carries out one repair under one open door."""

    def __init__(
        self, store: Store[Any], transaction: Transaction, door: int, who: str, left_out: Collection[str]
    ) -> None:
        self.acts: list[RepairAct] = []
        self.failed: dict[str, str] = {}  # what could not be mended, and why: then the whole round counts for nothing
        self._store = store
        self._transaction = transaction
        self._door = door
        self._who = who
        self._left_out = left_out

    def shut(self, doors: Iterable[int]) -> None:
        """Tell the end of maintenance that somebody left without one."""
        for subject in doors:
            rows = self._transaction.maintenance.images("holdfast_journal", machine=MAINTENANCE, subject=subject)
            last = max(rows, key=lambda row: row["version"], default=None)
            if last is not None and last["target"] == "open":
                why = "its door was found open"
                self._note(RepairAct(kind="tell", subject=f"{MAINTENANCE} {subject}", why=why, before=None))
                row = {
                    "machine": MAINTENANCE, "subject": subject, "version": last["version"] + 1, "source": "open",
                    "target": "shut", "event": "shut", "reason": why, "attempt": None, "move_id": last["move_id"],
                    "at": last["at"],
                }  # fmt: skip
                self._transaction.maintenance.record_repair(self._door, row)

    def mend(self, violations: Sequence[Violation]) -> None:
        """Do all that the violations ask for: lost rows first, because the others are judged by them."""
        overdue = [v for v in violations if v.invariant == "lease_overdue"]
        violations = [v for v in violations if unit_of(self._transaction, v) not in self._left_out]
        self._drop_rows(violations)
        named = {(v.machine, v.id) for v in violations if v.machine in MACHINES and v.id is not None and v.id > 0}
        for violation in violations:
            if violation.invariant == "no_orphans" and (violation.machine, violation.id) in named:
                machine, subject = violation.machine or "", violation.id or 0
                self._on(self._unit(machine, subject), self._rename, machine, subject)
        self._bring_home(violations)
        for violation in violations:
            if violation.evidence.get("kind") == "cut" and (violation.machine, violation.id) in named:
                machine, subject = violation.machine or "", violation.id or 0
                self._on(self._unit(machine, subject), self._uncut, machine, subject)
        self._mend_jobs(violations, named)
        for machine, subject in sorted((machine or "", subject or 0) for machine, subject in named):
            if machine not in (JOB.name, EXECUTION.name):
                self._on(self._unit(machine, subject), self._mend_record, machine, subject)
        # As a worker would; but that ends all of them, and what is left out must not be touched.
        if overdue and not any(self._unit(v.machine or "", v.id or 0) in self._left_out for v in overdue):
            self._on(LEASES, self._end_leases)
        self._forget_orphans(violations)
        self._recount()

    def _mend_jobs(self, violations: Sequence[Violation], named: Collection[tuple[str | None, int | None]]) -> None:
        exec_ids = {subject or 0 for machine, subject in named if machine == EXECUTION.name}
        jobs = {subject or 0 for machine, subject in named if machine == JOB.name} | set(self._jobs_of(exec_ids))
        for job_id in sorted(jobs):
            if not self._transaction.maintenance.images("holdfast_jobs", job_id=job_id):
                self._on(f"{JOB.name} {job_id}", self._mend_job, job_id)
        taken = self._taken_keys(violations)
        loose = {v.id for v in violations if v.evidence.get("kind") == "replaces"}
        doubts = self._find_executions(exec_ids) | taken
        for job_id in sorted(jobs | doubts.keys() | set(self._jobs_of(exec_ids))):
            without = [name for name, of in (("key", taken.keys()), ("replaces", loose)) if job_id in of]
            self._on(f"{JOB.name} {job_id}", self._mend_job, job_id, doubts.get(job_id), without)

    def _mend_job(self, job_id: int, doubt: str | None = None, without: Iterable[str] = ()) -> None:
        self._do(repair_job(self._transaction, job_id, doubt=doubt, without=without))

    def _mend_record(self, machine: str, subject: int) -> None:
        self._do(repair_record(self._transaction, MACHINES[machine], subject) or ())

    def _uncut(self, machine: str, subject: int) -> None:
        self._do(restore_history_start(self._transaction, MACHINES[machine], subject))

    # -- what cannot be done ------------------------------------------------------------------------------------------

    def _unit(self, machine: str, subject: int) -> str:
        return unit(self._transaction, machine, subject)

    def _on(self, unit: str, work: Callable[..., None], *given: Any) -> None:
        """Do something to one unit, unless it is left out; what it stumbles over is undone and kept as a reason."""
        if unit in self._left_out or unit in self.failed:
            return
        done = len(self.acts)
        try:
            with self._transaction.savepoint():
                work(*given)
        except Exception as error:
            known = error if isinstance(error, HoldfastError) else self._store.translate(error)
            if not isinstance(known, RefusedByDatabaseError) and not isinstance(error, DIAGNOSIS_ERRORS):
                raise
            del self.acts[done:]
            refused = f"the database refuses what would mend it: {known.message}" if known else None
            self.failed[unit] = refused or f"what it holds cannot be reckoned with ({type(error).__name__})"

    # -- what is lost -------------------------------------------------------------------------------------------------

    def _rename(self, machine: str, subject: int) -> None:
        """Give a record its id back, if the journal knows it by that id, and the record has no journal of its own."""
        lost = ExaminedRecord(self._transaction, MACHINES[machine], subject)
        if lost.image is not None or not lost.rows:
            return
        last, guarded = lost.rows[-1], lost.guarded
        signed = {"event": last.event, "move_id": last.move_id, "version": last.version, guarded.state: last.target}
        found = []
        for image in self._transaction.maintenance.images(guarded.table, **signed):
            other = ExaminedRecord(self._transaction, lost.machine, image[guarded.id])
            if not other.rows and self._unit(machine, other.id) not in self._left_out:
                found.append(other)
        if len(found) == 1:
            why = f"its journal is that of {machine} {subject}, and that one is not there"
            self._do([found[0].act("mend", why, **{guarded.id: subject})])

    def _bring_home(self, violations: Iterable[Violation]) -> None:
        """Give executions back to the job whose claim they were, if they stand with another, or with none."""
        wrong = [v for v in violations if v.invariant in BROKEN_BY_MISPLACED_EXECUTIONS]
        exec_ids = {v.id or 0 for v in wrong if v.machine == EXECUTION.name}
        for job_id in {v.id for v in wrong if v.machine == JOB.name}:
            exec_ids |= {
                image["exec_id"] for image in self._transaction.maintenance.images("holdfast_executions", job_id=job_id)
            }
        for exec_id in sorted(exec_ids):
            self._on(self._unit(EXECUTION.name, exec_id), self._bring_one_home, exec_id)

    def _bring_one_home(self, exec_id: int) -> None:
        record = ExaminedRecord(self._transaction, EXECUTION, exec_id)
        if record.image is None or not record.vouched or record.kept[0].version != 1:
            return
        first = record.kept[0]
        if record.image["job_id"] in self._claimed(first.move_id, first.attempt or 0):
            return
        jobs = self._without_attempt(first.move_id, first.attempt or 0)
        if len(jobs) == 1 and f"{JOB.name} {jobs[0]}" not in self._left_out:
            why = f"the journal tells of it as attempt {first.attempt} of job {jobs[0]}"
            self._do([record.act("mend", why, job_id=jobs[0])])

    def _find_executions(self, exec_ids: Iterable[int]) -> dict[int, str]:
        """Put back executions that only the journal knows; return the jobs for which that was a guess, and why."""
        lost: dict[tuple[str, int], list[ExaminedRecord]] = defaultdict(list)
        for exec_id in sorted(exec_ids):
            record = ExaminedRecord(self._transaction, EXECUTION, exec_id)
            if record.image is None and record.rows:
                lost[record.rows[0].move_id, record.rows[0].attempt or 0].append(record)
        doubts: dict[int, str] = {}
        for (move_id, attempt), records in lost.items():
            jobs = self._without_attempt(move_id, attempt)
            # One claim may have leased many jobs: which of them was whose, only their ends can tell.
            records.sort(key=lambda record: (record.rows[-1].target != ExecutionStatus.DONE, record.id))
            for record, job_id in zip(records, jobs, strict=False):
                if f"{JOB.name} {job_id}" not in self._left_out:
                    self._on(f"{EXECUTION.name} {record.id}", self._put_back_execution, record, job_id)
                if len(jobs) > 1:
                    doubts[job_id] = f"which execution was its attempt {attempt} cannot be told"
        return doubts

    def _put_back_execution(self, record: ExaminedRecord, job_id: int) -> None:
        self._do([restored_execution(record, job_id)])

    def _without_attempt(self, move_id: str, attempt: int) -> list[int]:
        """Return the jobs that a move claimed for an attempt of which no execution is there; the succeeded first."""
        open_jobs = [
            job_id
            for job_id in self._claimed(move_id, attempt)
            if self._transaction.maintenance.images("holdfast_jobs", job_id=job_id)
            and not self._transaction.maintenance.images("holdfast_executions", job_id=job_id, attempt=attempt)
        ]
        ends = {job_id: ExaminedRecord(self._transaction, JOB, job_id).rows[-1].target for job_id in open_jobs}
        return sorted(open_jobs, key=lambda job_id: (ends[job_id] != JobState.SUCCEEDED, job_id))

    def _claimed(self, move_id: str, attempt: int) -> set[int]:
        claims = self._transaction.maintenance.images(
            "holdfast_journal", machine=JOB.name, move_id=move_id, attempt=attempt
        )
        return {row["subject"] for row in claims if row["target"] == JobState.RUNNING}

    def _taken_keys(self, violations: Iterable[Violation]) -> dict[int, str]:
        """Return the jobs that have their key from nowhere, or from another job, and why that is."""
        doubts: dict[int, str] = {}
        for violation in violations:
            kind, job_id = violation.evidence.get("kind"), violation.id
            if job_id is None or (violation.invariant, kind) not in (
                ("keys_unique", "key"),
                ("commits_equal_effects", "followup"),
            ):
                continue
            parent = violation.evidence.get("parent")
            if parent is not None and has_committed(self._transaction, int(parent)):
                continue  # it is the parent that was wrong, and that is put right by itself
            doubts[job_id] = violation.detail
        return doubts

    def _drop_rows(self, violations: Iterable[Violation]) -> None:
        """Remove journal rows that tell a version a second time, that cannot be read, or that no record can have."""
        for machine, subject in sorted({(v.machine or "", v.id or 0) for v in violations if v.machine in MACHINES}):
            self._on(self._unit(machine, subject), self._drop_rows_of, machine, subject)

    def _drop_rows_of(self, machine: str, subject: int) -> None:
        rows = self._transaction.maintenance.images("holdfast_journal", machine=machine, subject=subject)
        rows.sort(key=lambda row: row["seq"])
        name = f"{machine} {subject}"
        if subject < 1:
            self._forget_rows(name, "no record has such an id", rows)
            return
        first = {row["version"]: row["seq"] for row in reversed(rows)}
        twins = [row for row in rows if row["seq"] != first[row["version"]]]
        self._forget_rows(name, "that version is told already", twins)
        self._forget_rows(name, "it cannot be read", [row for row in rows if row not in twins and is_torn(row)])

    def _jobs_of(self, exec_ids: Iterable[int]) -> Iterator[int]:
        for exec_id in exec_ids:
            for image in self._transaction.maintenance.images("holdfast_executions", exec_id=exec_id):
                yield image["job_id"]

    def _forget_orphans(self, violations: Iterable[Violation]) -> None:
        """Drop what belongs to nothing, and nothing can be made of; what it said is noted."""
        for violation in violations:
            kind, evidence, subject = violation.evidence.get("kind"), violation.evidence, violation.subject
            of = unit_of(self._transaction, violation)
            if kind == "checkpoint":
                self._on(of, self._forget_checkpoints, subject, violation.detail, int(evidence["job_id"]))
            elif kind == "kept" and violation.id is not None:
                self._on(of, self._forget_checkpoints, subject, violation.detail, violation.id)
            elif kind == "maintenance" or (kind == "journal" and violation.machine is None):
                self._on(of, self._forget_history, subject, violation.detail)

    def _forget_history(self, subject: str, why: str) -> None:
        machine, _, number = subject.rpartition(" ")
        rows = self._transaction.maintenance.images("holdfast_journal", machine=machine, subject=int(number))
        self._forget_rows(subject, why, rows)
        if machine == MAINTENANCE and rows:
            # What was written under it names it still: that there was such an act stays told.
            row = {**rows[-1], "version": 1, "source": "open", "target": "shut", "event": "shut", "reason": why}
            names = ("machine", "subject", "version", "source", "target", "event", "reason", "attempt", "move_id", "at")
            self._transaction.maintenance.record_repair(self._door, {name: row[name] for name in names})

    def _forget_checkpoints(self, subject: str, why: str, job_id: int) -> None:
        before = self._transaction.maintenance.images("holdfast_checkpoints", job_id=job_id)
        if before:
            self._note(RepairAct(kind="forget", subject=subject, why=why, before={"checkpoints": before}))
            self._transaction.retention.forget_checkpoints([job_id])

    def _forget_rows(self, subject: str, why: str, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            self._note(RepairAct(kind="forget", subject=subject, why=why, before=row))
        if rows:
            self._transaction.maintenance.forget_journal_rows([row["seq"] for row in rows])

    # -- the acts -----------------------------------------------------------------------------------------------------

    def _do(self, acts: Iterable[RepairAct]) -> None:
        for act in acts:
            self._note(act)
            guarded = GUARDED_BY_NAME[act.machine or ""]
            if act.kind == "put_back":
                self._transaction.maintenance.put_back(guarded, act.after)
            elif act.kind == "mend":
                self._transaction.maintenance.mend(guarded, act.id or 0, act.after)
            else:
                self._settle(act)
            if act.machine == JOB.name and act.id is not None and "payload" in act.after and not act.after["payload"]:
                self._forget_checkpoints(act.subject, act.why, act.id)

    def _settle(self, act: RepairAct) -> None:
        """Move a record, or say that it stays; either is a journal row, marked as written under this door."""
        guarded = GUARDED_BY_NAME[act.machine or ""]
        [now] = self._transaction.maintenance.images(guarded.table, **{guarded.id: act.id})
        source, target = now[guarded.state], act.after[guarded.state]
        path = guarded.machine.between(source, target)
        version = now["version"] + (len(path.edges) if path else 1)
        move_id = f"{EVENT}-{act.machine}-{act.id}-{version}"
        signature = {"event": EVENT, "actor": self._who, "move_id": move_id}
        columns = {"reason": act.why, **act.after, **signature, "version": version}
        if act.kind == "tell":
            row = {
                "machine": act.machine, "subject": act.id, "version": version, "source": source, "target": target,
                "event": EVENT, "reason": act.why, "attempt": columns.get("attempts", now.get(guarded.attempt)),
                "move_id": columns["move_id"], "at": columns.get("updated_at", now["updated_at"]),
            }  # fmt: skip
            self._transaction.maintenance.record_repair(self._door, row)
        self._transaction.maintenance.mend(guarded, act.id or 0, columns)

    def _note(self, act: RepairAct) -> None:
        self.acts.append(act)
        note = {"act": act.kind, "subject": act.subject, "why": act.why, "before": act.before, "after": act.after}
        self._transaction.maintenance.note(self._door, EVENT, **note)

    def _end_leases(self) -> None:
        while ended := self._transaction.executions.recover(actor=self._who):
            moved = [attempt for attempt, answer in ended if not isinstance(answer, Refused)]
            for attempt in moved:
                exec_id = attempt.execution.exec_id
                why, job = "its lease has run out", {"job_id": attempt.job.job_id}
                self._note(RepairAct(kind="recover", subject=f"EXECUTION {exec_id}", why=why, before=job))
            if not moved:
                break

    def _recount(self) -> None:
        columns, rows = ("operation", "queue", "state", "n"), self._transaction.counts.raw()
        before = [dict(zip(columns, row, strict=True)) for row in rows]
        self._transaction.counts.recount()
        after = [dict(zip(columns, row, strict=True)) for row in self._transaction.counts.raw()]
        if before != after:
            self._note(RepairAct(kind="recount", subject="COUNTS", why="counted anew", before={"counts": before}))
