"""The surgeon: carries out the acts of a diagnosis, unit by unit, and collects the units that cannot be repaired.

Invariants: everything is written under one open maintenance, and journalled there before it is done; a unit (a job with
its executions, or any other record) is repaired completely or not at all: if `failed` names one, the round is undone.
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
"""The errors that a diagnosis can raise on data that Holdfast did not write; database errors are not among them."""


def unit_of(reading: Reading, violation: Violation) -> str:
    """Return the unit that is repaired or skipped together with the subject of a violation."""
    if violation.invariant == "lease_overdue":
        return LEASES
    if violation.machine in MACHINES and violation.id is not None:
        return unit(reading, violation.machine or "", violation.id)
    return violation.subject


def unit(reading: Reading, machine: str, subject: int) -> str:
    """Return the job of an execution that exists; for any other record, the record itself."""
    if machine == EXECUTION.name:
        for image in reading.maintenance.images("holdfast_executions", exec_id=subject):
            return f"{JOB.name} {image['job_id']}"
    return f"{machine} {subject}"


class Surgeon:
    """Carries out one repair under one open maintenance."""

    def __init__(
        self, store: Store[Any], transaction: Transaction, door: int, who: str, left_out: Collection[str]
    ) -> None:
        self.acts: list[RepairAct] = []
        self.failed: dict[str, str] = {}  # units that cannot be repaired, and why: then the round is undone
        self._store = store
        self._transaction = transaction
        self._door = door
        self._who = who
        self._left_out = left_out

    def shut(self, doors: Iterable[int]) -> None:
        """Journal the end of maintenance that was left open."""
        for subject in doors:
            rows = self._transaction.maintenance.images("holdfast_journal", machine=MAINTENANCE, subject=subject)
            last = max(rows, key=lambda row: row["version"], default=None)
            if last is not None and last["target"] == "open":
                why = "the maintenance was left open"
                self._note(RepairAct(kind="tell", subject=f"{MAINTENANCE} {subject}", why=why, before=None))
                row = {
                    "machine": MAINTENANCE, "subject": subject, "version": last["version"] + 1, "source": "open",
                    "target": "shut", "event": "shut", "reason": why, "attempt": None, "move_id": last["move_id"],
                    "at": last["at"],
                }  # fmt: skip
                self._transaction.maintenance.record_repair(self._door, row)

    def repair(self, violations: Sequence[Violation]) -> None:
        """Repair every unit that has a violation: lost rows first, because the others are judged by them."""
        overdue = [v for v in violations if v.invariant == "lease_overdue"]
        violations = [v for v in violations if unit_of(self._transaction, v) not in self._left_out]
        self._drop_rows(violations)
        named = {(v.machine, v.id) for v in violations if v.machine in MACHINES and v.id is not None and v.id > 0}
        for violation in violations:
            if violation.invariant == "no_orphans" and (violation.machine, violation.id) in named:
                machine, subject = violation.machine or "", violation.id or 0
                self._try(self._unit(machine, subject), self._rename, machine, subject)
        self._reassign_executions(violations)
        for violation in violations:
            if violation.evidence.get("kind") == "cut" and (violation.machine, violation.id) in named:
                machine, subject = violation.machine or "", violation.id or 0
                self._try(self._unit(machine, subject), self._uncut, machine, subject)
        self._repair_jobs(violations, named)
        for machine, subject in sorted((machine or "", subject or 0) for machine, subject in named):
            if machine not in (JOB.name, EXECUTION.name):
                self._try(self._unit(machine, subject), self._repair_record, machine, subject)
        # As a worker does; but that ends every expired lease, and skipped units must not be changed.
        if overdue and not any(self._unit(v.machine or "", v.id or 0) in self._left_out for v in overdue):
            self._try(LEASES, self._end_leases)
        self._forget_orphans(violations)
        self._recount()

    def _repair_jobs(self, violations: Sequence[Violation], named: Collection[tuple[str | None, int | None]]) -> None:
        exec_ids = {subject or 0 for machine, subject in named if machine == EXECUTION.name}
        jobs = {subject or 0 for machine, subject in named if machine == JOB.name} | set(self._jobs_of(exec_ids))
        for job_id in sorted(jobs):
            if not self._transaction.maintenance.images("holdfast_jobs", job_id=job_id):
                self._try(f"{JOB.name} {job_id}", self._repair_job, job_id)
        taken = self._taken_keys(violations)
        loose = {v.id for v in violations if v.evidence.get("kind") == "replaces"}
        doubts = self._find_executions(exec_ids) | taken
        for job_id in sorted(jobs | doubts.keys() | set(self._jobs_of(exec_ids))):
            without = [name for name, of in (("key", taken.keys()), ("replaces", loose)) if job_id in of]
            self._try(f"{JOB.name} {job_id}", self._repair_job, job_id, doubts.get(job_id), without)

    def _repair_job(self, job_id: int, doubt: str | None = None, without: Iterable[str] = ()) -> None:
        self._do(repair_job(self._transaction, job_id, doubt=doubt, without=without))

    def _repair_record(self, machine: str, subject: int) -> None:
        self._do(repair_record(self._transaction, MACHINES[machine], subject) or ())

    def _uncut(self, machine: str, subject: int) -> None:
        self._do(restore_history_start(self._transaction, MACHINES[machine], subject))

    # -- units that cannot be repaired --------------------------------------------------------------------------------

    def _unit(self, machine: str, subject: int) -> str:
        return unit(self._transaction, machine, subject)

    def _try(self, unit: str, work: Callable[..., None], *given: Any) -> None:
        """Change one unit, unless it is skipped; on an error undo the change, and keep the reason."""
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
            refused = f"the database refuses the repair: {known.message}" if known else None
            self.failed[unit] = refused or f"the diagnosis fails on its values ({type(error).__name__})"

    # -- lost records --------------------------------------------------------------------------------------------------

    def _rename(self, machine: str, subject: int) -> None:
        """Restore the id of a record, if the journal has it under that id and the record has no journal of its own."""
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
            why = f"the record has the journal of {machine} {subject}, which does not exist"
            self._do([found[0].act("mend", why, **{guarded.id: subject})])

    def _reassign_executions(self, violations: Iterable[Violation]) -> None:
        """Reassign executions to the job whose claim created them, if they belong to another job or to none."""
        wrong = [v for v in violations if v.invariant in BROKEN_BY_MISPLACED_EXECUTIONS]
        exec_ids = {v.id or 0 for v in wrong if v.machine == EXECUTION.name}
        for job_id in {v.id for v in wrong if v.machine == JOB.name}:
            exec_ids |= {
                image["exec_id"] for image in self._transaction.maintenance.images("holdfast_executions", job_id=job_id)
            }
        for exec_id in sorted(exec_ids):
            self._try(self._unit(EXECUTION.name, exec_id), self._reassign_execution, exec_id)

    def _reassign_execution(self, exec_id: int) -> None:
        record = ExaminedRecord(self._transaction, EXECUTION, exec_id)
        if record.image is None or not record.vouched or record.kept[0].version != 1:
            return
        first = record.kept[0]
        if record.image["job_id"] in self._claimed(first.move_id, first.attempt or 0):
            return
        jobs = self._without_attempt(first.move_id, first.attempt or 0)
        if len(jobs) == 1 and f"{JOB.name} {jobs[0]}" not in self._left_out:
            why = f"by the journal this is attempt {first.attempt} of job {jobs[0]}"
            self._do([record.act("mend", why, job_id=jobs[0])])

    def _find_executions(self, exec_ids: Iterable[int]) -> dict[int, str]:
        """Insert executions that only the journal has; return the jobs for which that was a guess, and why."""
        lost: dict[tuple[str, int], list[ExaminedRecord]] = defaultdict(list)
        for exec_id in sorted(exec_ids):
            record = ExaminedRecord(self._transaction, EXECUTION, exec_id)
            if record.image is None and record.rows:
                lost[record.rows[0].move_id, record.rows[0].attempt or 0].append(record)
        doubts: dict[int, str] = {}
        for (move_id, attempt), records in lost.items():
            jobs = self._without_attempt(move_id, attempt)
            # One claim may have leased many jobs: only their last states show which execution belongs to which job.
            records.sort(key=lambda record: (record.rows[-1].target != ExecutionStatus.DONE, record.id))
            for record, job_id in zip(records, jobs, strict=False):
                if f"{JOB.name} {job_id}" not in self._left_out:
                    self._try(f"{EXECUTION.name} {record.id}", self._put_back_execution, record, job_id)
                if len(jobs) > 1:
                    doubts[job_id] = f"it is not known which execution was attempt {attempt}"
        return doubts

    def _put_back_execution(self, record: ExaminedRecord, job_id: int) -> None:
        self._do([restored_execution(record, job_id)])

    def _without_attempt(self, move_id: str, attempt: int) -> list[int]:
        """Return the jobs that a move claimed for an attempt whose execution is missing; succeeded jobs first."""
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
        """Return the jobs whose key belongs to another job or to a parent that is not committed, and why."""
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
                continue  # the parent is damaged, and is repaired as a unit of its own
            doubts[job_id] = violation.detail
        return doubts

    def _drop_rows(self, violations: Iterable[Violation]) -> None:
        """Remove journal rows that repeat a version, cannot be read, or have an impossible id."""
        for machine, subject in sorted({(v.machine or "", v.id or 0) for v in violations if v.machine in MACHINES}):
            self._try(self._unit(machine, subject), self._drop_rows_of, machine, subject)

    def _drop_rows_of(self, machine: str, subject: int) -> None:
        rows = self._transaction.maintenance.images("holdfast_journal", machine=machine, subject=subject)
        rows.sort(key=lambda row: row["seq"])
        name = f"{machine} {subject}"
        if subject < 1:
            self._forget_rows(name, f"{subject} is not a possible id", rows)
            return
        first = {row["version"]: row["seq"] for row in reversed(rows)}
        twins = [row for row in rows if row["seq"] != first[row["version"]]]
        self._forget_rows(name, "the journal has this version already", twins)
        self._forget_rows(name, "the row cannot be read", [row for row in rows if row not in twins and is_torn(row)])

    def _jobs_of(self, exec_ids: Iterable[int]) -> Iterator[int]:
        for exec_id in exec_ids:
            for image in self._transaction.maintenance.images("holdfast_executions", exec_id=exec_id):
                yield image["job_id"]

    def _forget_orphans(self, violations: Iterable[Violation]) -> None:
        """Delete rows that belong to no record and cannot be restored; their contents are journalled."""
        for violation in violations:
            kind, evidence, subject = violation.evidence.get("kind"), violation.evidence, violation.subject
            of = unit_of(self._transaction, violation)
            if kind == "checkpoint":
                self._try(of, self._forget_checkpoints, subject, violation.detail, int(evidence["job_id"]))
            elif kind == "kept" and violation.id is not None:
                self._try(of, self._forget_checkpoints, subject, violation.detail, violation.id)
            elif kind == "maintenance" or (kind == "journal" and violation.machine is None):
                self._try(of, self._forget_history, subject, violation.detail)

    def _forget_history(self, subject: str, why: str) -> None:
        machine, _, number = subject.rpartition(" ")
        rows = self._transaction.maintenance.images("holdfast_journal", machine=machine, subject=int(number))
        self._forget_rows(subject, why, rows)
        if machine == MAINTENANCE and rows:
            # Rows written under this maintenance still name it, so one row of it must remain.
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

    # -- acts ----------------------------------------------------------------------------------------------------------

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
        """Move a record, or journal that it stays; either is a journal row that names this maintenance."""
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
                why, job = "the lease has expired", {"job_id": attempt.job.job_id}
                self._note(RepairAct(kind="recover", subject=f"EXECUTION {exec_id}", why=why, before=job))
            if not moved:
                break

    def _recount(self) -> None:
        columns, rows = ("operation", "queue", "state", "n"), self._transaction.counts.raw()
        before = [dict(zip(columns, row, strict=True)) for row in rows]
        self._transaction.counts.recount()
        after = [dict(zip(columns, row, strict=True)) for row in self._transaction.counts.raw()]
        if before != after:
            self._note(
                RepairAct(
                    kind="recount",
                    subject="COUNTS",
                    why="the counts differ from the number of jobs",
                    before={"counts": before},
                )
            )
