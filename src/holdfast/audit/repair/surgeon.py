"""The surgeon: carries out the acts of a diagnosis, unit by unit, and collects the units that cannot be repaired.

Invariants: everything is written under one open maintenance, and journalled there before it is done; a unit (a job with
its executions, or any other record) is repaired completely or not at all: if `failed` names one, the round is undone.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from holdfast.audit.check.context import RuleContext
from holdfast.audit.check.findings import Violation
from holdfast.audit.check.ledger_rules import overdue
from holdfast.audit.check.runner import UNLIMITED
from holdfast.audit.repair.attempt_diagnosis import attempt_act
from holdfast.audit.repair.job_diagnosis import has_committed, repair_job
from holdfast.audit.repair.record import EVENT, GUARDED_BY_NAME, ExaminedRecord, RepairAct, is_torn, repair_move_id
from holdfast.audit.repair.record_diagnosis import repair_record, restore_history_start
from holdfast.core.decide import Refused
from holdfast.core.errors import HoldfastError, RefusedByDatabaseError
from holdfast.core.machines import EXEC_IDS, EXECUTION, JOB, MACHINES, ExecutionStatus
from holdfast.store import Store, Transaction
from holdfast.store.tables import MAINTENANCE
from holdfast.store.verbs.evidence import Evidence

LEASES = "LEASES"
ABORTED = "holdfast_aborted"
BROKEN_BY_MISPLACED_ATTEMPTS = frozenset({"no_orphans", "attempts_monotonic", "state_is_projected"})
DIAGNOSIS_ERRORS = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)
"""The errors that a diagnosis can raise on data that Holdfast did not write; database errors are not among them."""


def unit_of(violation: Violation) -> str:
    """Return the unit that is repaired or skipped together with the subject of a violation."""
    if violation.invariant == "lease_overdue":
        return LEASES
    if violation.machine in MACHINES and violation.id is not None:
        return unit(violation.machine or "", violation.id)
    return violation.subject


def unit(machine: str, subject: int) -> str:
    """Return the job of an execution; for any other record, the record itself."""
    return f"{JOB.name} {subject // EXEC_IDS}" if machine == EXECUTION.name else f"{machine} {subject}"


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
        violations = [v for v in violations if unit_of(v) not in self._left_out]
        self._drop_rows(violations)
        named = {(v.machine, v.id) for v in violations if v.machine in MACHINES and v.id is not None and v.id > 0}
        attempts = {(machine, subject) for machine, subject in named if machine == EXECUTION.name}
        others = [v for v in violations if (v.machine, v.id) in named - attempts]
        self._try_each([v for v in others if v.invariant == "no_orphans"], self._rename)
        self._reassign_attempts(violations)
        self._try_each([v for v in others if v.evidence.get("kind") == "cut"], self._uncut)
        self._repair_jobs(violations, named)
        for machine, subject in sorted((machine or "", subject or 0) for machine, subject in named):
            if machine not in (JOB.name, EXECUTION.name):
                self._try(unit(machine, subject), self._repair_record, machine, subject)
        # This ends every expired lease, as a worker does. It is left out if one belongs to a skipped unit, which must
        # not change. A lease whose time of expiry was lost counts as expired.
        late = list(overdue(RuleContext(Evidence(self._transaction), limit=UNLIMITED, batch=1)))
        if late and not any(unit(v.machine or "", v.id or 0) in self._left_out for v in late):
            self._try(LEASES, self._end_leases)
        self._forget_orphans(violations)
        self._recount()
        self._sweep_slots([v for v in violations if v.invariant == "slots_true"])

    def _repair_jobs(self, violations: Sequence[Violation], named: Collection[tuple[str | None, int | None]]) -> None:
        jobs = {subject or 0 for machine, subject in named if machine == JOB.name}
        jobs |= {(subject or 0) // EXEC_IDS for machine, subject in named if machine == EXECUTION.name}
        taken = self._taken_keys(violations)
        loose = {v.id for v in violations if v.evidence.get("kind") == "replaces"}
        for job_id in sorted(jobs | taken.keys()):
            without = [name for name, of in (("key", taken.keys()), ("replaces", loose)) if job_id in of]
            self._try(f"{JOB.name} {job_id}", self._repair_job, job_id, taken.get(job_id), without)

    def _repair_job(self, job_id: int, doubt: str | None = None, without: Iterable[str] = ()) -> None:
        self._do(repair_job(self._transaction, job_id, doubt=doubt, without=without))

    def _repair_record(self, machine: str, subject: int) -> None:
        self._do(repair_record(self._transaction, MACHINES[machine], subject) or ())

    def _uncut(self, machine: str, subject: int) -> None:
        self._do(restore_history_start(self._transaction, MACHINES[machine], subject))

    # -- units that cannot be repaired --------------------------------------------------------------------------------

    def _try(self, name: str, work: Callable[..., None], *given: Any) -> None:
        """Change one unit, unless it is skipped; on an error undo the change, and keep the reason."""
        if name in self._left_out or name in self.failed:
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
            self.failed[name] = refused or f"the diagnosis fails on its values ({type(error).__name__})"

    def _try_each(self, violations: Iterable[Violation], work: Callable[[str, int], None]) -> None:
        for violation in violations:
            machine, subject = violation.machine or "", violation.id or 0
            self._try(unit(machine, subject), work, machine, subject)

    # -- lost records --------------------------------------------------------------------------------------------------

    def _rename(self, machine: str, subject: int) -> None:
        """Give a record its old id, if the journal knows it by that id and has no rows for its present one."""
        lost = ExaminedRecord(self._transaction, MACHINES[machine], subject)
        if lost.image is not None or not lost.rows:
            return
        last, guarded = lost.rows[-1], lost.guarded
        signed = {"event": last.event, "move_id": last.move_id, "version": last.version, guarded.state: last.target}
        found = []
        for image in self._transaction.maintenance.images(guarded.table, **signed):
            other = ExaminedRecord(self._transaction, lost.machine, image[guarded.id])
            if not other.rows and unit(machine, other.id) not in self._left_out:
                found.append(other)
        if len(found) == 1:
            why = f"the record has the journal of {machine} {subject}, which does not exist"
            self._do([found[0].act("mend", why, **{guarded.id: subject})])

    def _reassign_attempts(self, violations: Iterable[Violation]) -> None:
        """Give attempts that ended back to the job whose journal has their last move, if it lacks them."""
        wrong = [v for v in violations if v.invariant in BROKEN_BY_MISPLACED_ATTEMPTS and v.id is not None]
        jobs = {v.id if v.machine == JOB.name else (v.id or 0) // EXEC_IDS for v in wrong}
        for job_id in sorted(number for number in jobs if number is not None):
            for image in self._transaction.maintenance.images(ABORTED, job_id=job_id):
                self._try(f"{JOB.name} {job_id}", self._reassign_attempt, image)

    def _reassign_attempt(self, image: dict[str, Any]) -> None:
        images = self._transaction.maintenance.images
        ends = images("holdfast_journal", machine=JOB.name, move_id=image["move_id"], status_to=ExecutionStatus.ABORTED)
        if any(end["subject"] == image["job_id"] for end in ends):
            return  # its own job: then the diagnosis of the job finds its number
        free = [end for end in ends if not images(ABORTED, job_id=end["subject"], attempt=end["attempt"])]
        # One move may have ended the attempts of many jobs: the number of the attempt may tell which one it was.
        alike = [end for end in free if end["attempt"] == image["attempt"]] or free
        if len(alike) == 1 and f"{JOB.name} {alike[0]['subject']}" not in self._left_out:
            place = {"job_id": alike[0]["subject"], "attempt": alike[0]["attempt"]}
            why = f"by the journal this is an attempt of job {place['job_id']}"
            self._do([attempt_act("mend", why, image, place)])

    def _forget_attempts(self, why: str, job_id: int) -> None:
        """Remove the attempts of a job that neither exists nor has journal rows."""
        if not self._transaction.maintenance.images("holdfast_jobs", job_id=job_id):
            images = self._transaction.maintenance.images(ABORTED, job_id=job_id)
            self._do(attempt_act("forget", why, image, {}) for image in images)

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
            self._try(unit(machine, subject), self._drop_rows_of, machine, subject)

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

    def _forget_orphans(self, violations: Iterable[Violation]) -> None:
        """Delete rows that belong to no record and cannot be restored; their contents are journalled."""
        for violation in violations:
            kind, evidence, subject = violation.evidence.get("kind"), violation.evidence, violation.subject
            of = unit_of(violation)
            if kind == "checkpoint":
                self._try(of, self._forget_checkpoints, subject, violation.detail, int(evidence["job_id"]))
            elif kind == "kept" and violation.id is not None:
                self._try(of, self._forget_checkpoints, subject, violation.detail, violation.id)
            elif kind == "maintenance" or (kind == "journal" and violation.machine is None):
                self._try(of, self._forget_history, subject, violation.detail)
            elif kind == "execution":
                self._try(of, self._forget_attempts, violation.detail, int(evidence["job_id"]))

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
            if act.machine == EXECUTION.name:
                self._write_attempt(act)
            elif act.machine == JOB.name:
                self._write_job(act)
            elif act.kind == "mend":
                self._transaction.maintenance.mend(GUARDED_BY_NAME[act.machine or ""], act.id or 0, act.after)
            else:
                self._settle(act)

    def _write_attempt(self, act: RepairAct) -> None:
        """Delete the row of an attempt that ended, and write it as it must be; such rows are never updated."""
        before, row = act.before or {}, {**(act.before or {}), **act.after}
        if before:
            self._transaction.maintenance.forget(ABORTED, job_id=before["job_id"], attempt=before["attempt"])
        if act.kind != "forget":
            row |= {"actor": self._who} if row["event"] == EVENT and "event" in act.after else {}
            self._transaction.maintenance.forget(ABORTED, job_id=row["job_id"], attempt=row["attempt"])
            self._transaction.maintenance.put_back(ABORTED, row)

    def _write_job(self, act: RepairAct) -> None:
        """Write a job with its call and its current attempt; a move is one journal row that names this maintenance."""
        job_id, columns = act.id or 0, dict(act.after)
        if act.kind in ("move", "tell"):
            before, version = act.before or {}, act.after["version"]
            signature = {"event": EVENT, "move_id": repair_move_id(JOB.name, job_id, int(str(version)))}
            now = {**before, **columns}
            row = {
                "machine": act.machine, "subject": job_id, "version": version, "source": before["state"],
                "target": now["state"], "status_from": act.steps[0], "status_to": act.steps[1], "reason": act.why,
                "attempt": now["attempts"], "at": now["updated_at"], **signature,
            }  # fmt: skip
            self._transaction.maintenance.record_repair(self._door, row)
            columns = {"reason": act.why, **columns, **signature, "actor": self._who}
        renamed = int(str(columns.pop("job_id", job_id)))
        self._transaction.maintenance.write_job(renamed, columns, was=job_id)
        if "payload" in act.after and not act.after["payload"]:
            self._forget_checkpoints(act.subject, act.why, job_id)

    def _settle(self, act: RepairAct) -> None:
        """Move a record, or journal that it stays; either is a journal row that names this maintenance."""
        guarded = GUARDED_BY_NAME[act.machine or ""]
        [now] = self._transaction.maintenance.images(guarded.table, **{guarded.id: act.id})
        source, target = now[guarded.state], act.after[guarded.state]
        version = now["version"] + 1
        move_id = repair_move_id(guarded.machine.name, act.id or 0, version)
        signature = {"event": EVENT, "actor": self._who, "move_id": move_id}
        columns = {"reason": act.why, **act.after, **signature, "version": version}
        if act.kind == "tell":
            row = {
                "machine": act.machine, "subject": act.id, "version": version, "source": source, "target": target,
                "event": EVENT, "reason": act.why, "attempt": None, "move_id": columns["move_id"],
                "at": columns.get("updated_at", now["updated_at"]),
            }  # fmt: skip
            self._transaction.maintenance.record_repair(self._door, row)
        self._transaction.maintenance.mend(guarded, act.id or 0, columns)

    def _note(self, act: RepairAct) -> None:
        self.acts.append(act)
        note = {"act": act.kind, "subject": act.subject, "why": act.why, "before": act.before, "after": act.after}
        self._transaction.maintenance.note(self._door, EVENT, **note)

    def _end_leases(self) -> None:
        while ended := self._transaction.recovery.recover(actor=self._who):
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

    def _sweep_slots(self, violations: Sequence[Violation]) -> None:
        if violations:
            before = {"slots": [violation.evidence for violation in violations]}
            why = "slots of limits do not belong to the jobs that run"
            self._note(RepairAct(kind="sweep", subject="SLOTS", why=why, before=before))
            self._transaction.limits.sweep(whole=True)
