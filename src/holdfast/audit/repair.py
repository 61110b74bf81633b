"""Repair: mends what can be recomputed, quarantines the rest, and keeps what was there before.

A dry run is the real run, rolled back: what it shows is what applying does, and its digest says whether it still is.

Invariants: everything happens in one transaction under the maintenance door, with every before-image in the journal;
the door has the number of a grant for this very plan, used up by the same transaction; either `check` is clean
afterwards, but for what no repair can mend, or nothing has changed, and the grant is as good as it was.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from holdfast.audit.check import check_in
from holdfast.audit.diagnosis import (
    GUARDED_BY_NAME,
    Act,
    Record,
    committed,
    is_time,
    job_acts,
    rebuilt_execution,
)
from holdfast.audit.invariants import Violation
from holdfast.audit.mending import record_acts, uncut
from holdfast.core.digest import digest
from holdfast.core.errors import InputError, PlanStaleError, RepairIncompleteError
from holdfast.core.machines import EXECUTION, JOB, MACHINES, ExecutionStatus, JobState
from holdfast.store import Store, Transaction
from holdfast.store.enforcement import MAINTENANCE
from holdfast.store.migrations import require_ledger, rewrite_enforcement

EVENT = "repair"
Permit = Callable[[Transaction], int]  # consumes a grant in a transaction and returns its id, or raises
HOPELESS = frozenset({"database", "governance_whole", "seals_chained"})
"""What no repair can mend: damaged pages, governance that is missing, and seals that are not what they were."""


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """What a repair found, did or would do, and what is left."""

    applied: bool
    digest: str
    violations: tuple[Violation, ...]
    acts: tuple[Act, ...]
    left: tuple[Violation, ...]

    @property
    def ok(self) -> bool:
        """Whether the ledger is, or would be, as it should."""
        return not self.left


class _Undone(Exception):  # not an error: the way out of a transaction that must leave nothing
    def __init__(self, repair: Repair) -> None:
        super().__init__()
        self.repair = repair


def plan(store: Store[Any]) -> Repair:
    """Return what a repair would do; nothing is changed."""
    try:
        with store.transaction() as transaction:
            raise _Undone(_repaired(store, transaction, who="plan", why="dry run", permit=None))
    except _Undone as undone:
        return undone.repair


def repair(store: Store[Any], *, operator: str, reason: str, expected: str, permit: Permit) -> Repair:
    """Carry out the plan whose digest is `expected`; raise PlanStaleError if it is another one by now.

    `permit` is asked once there is something to do: `engine.grants.permission` makes one.
    """
    if not operator.strip() or not reason.strip():
        raise InputError("a repair names its operator and its reason")
    with store.transaction() as transaction:
        done = _repaired(store, transaction, who=operator, why=reason, permit=permit)
        if done.digest != expected:
            raise PlanStaleError(
                "the ledger has changed since the plan was made", context={"expected": expected, "found": done.digest}
            )
    return done


def _repaired(store: Store[Any], transaction: Transaction, *, who: str, why: str, permit: Permit | None) -> Repair:
    require_ledger(store, transaction._connection)  # noqa: SLF001 - the schema lives below the verbs
    transaction.lock_records()
    violations = tuple(check_in(transaction).violations)
    acts: list[Act] = []
    differs = sorted(v.subject for v in violations if v.invariant == "enforcement")
    standing = [int(door) for (door,) in transaction.execute("SELECT maintenance_id FROM holdfast_maintenance")]
    if standing:
        differs.append("DOOR")  # which a check inside a transaction takes for that transaction's own
    if differs:
        # First, so that what follows is guarded and journalled; the unique indexes last, when nothing is there twice.
        acts.append(Act(kind="rewrite", subject="LEDGER", why="what it enforces differs", before={"differs": differs}))
        rewrite_enforcement(store, transaction)
    if standing or any(violation.invariant not in HOPELESS for violation in violations):
        grant_id = permit(transaction) if permit else None
        with transaction.maintenance(who=who, why=why, grant_id=grant_id) as door:
            surgeon = _Surgeon(transaction, door, who, acts)
            surgeon.shut(standing)
            surgeon.mend(violations)
    if acts and acts[0].kind == "rewrite":
        rewrite_enforcement(store, transaction, indexes=True)
    left = tuple(check_in(transaction).violations)
    stubborn = [violation for violation in left if violation.invariant not in HOPELESS]
    if stubborn:
        raise RepairIncompleteError(
            f"{stubborn[0].subject} would still break {stubborn[0].invariant}: {stubborn[0].detail}",
            context={"violations": [f"{v.invariant}: {v.subject}" for v in stubborn[:20]]},
        )
    return Repair(applied=permit is not None, digest=_digest(acts), violations=violations, acts=tuple(acts), left=left)


def _digest(acts: Iterable[Act]) -> str:
    """Return what tells one plan from another; who carries it out does not."""
    return digest([[act.kind, act.subject, act.why, act.after, {**(act.before or {}), "actor": None}] for act in acts])


class _Surgeon:
    """Carries out one repair under one open door."""

    def __init__(self, transaction: Transaction, door: int, who: str, acts: list[Act]) -> None:
        self._transaction = transaction
        self._door = door
        self._who = who
        self._acts = acts

    def shut(self, doors: Iterable[int]) -> None:
        """Tell the end of maintenance that somebody left without one."""
        for subject in doors:
            rows = self._transaction.images("holdfast_journal", machine=MAINTENANCE, subject=subject)
            last = max(rows, key=lambda row: row["version"], default=None)
            if last is not None and last["target"] == "open":
                why = "its door was found open"
                self._note(Act(kind="tell", subject=f"{MAINTENANCE} {subject}", why=why, before=None))
                row = {
                    "machine": MAINTENANCE, "subject": subject, "version": last["version"] + 1, "source": "open",
                    "target": "shut", "event": "shut", "reason": why, "attempt": None, "move_id": last["move_id"],
                    "at": last["at"],
                }  # fmt: skip
                self._transaction.tell_repair(self._door, row)

    def mend(self, violations: Sequence[Violation]) -> None:
        """Do all that the violations ask for: lost rows first, because the others are judged by them."""
        self._drop_rows(violations)
        for violation in violations:
            if violation.evidence.get("kind") == "cut" and violation.machine in MACHINES and violation.id is not None:
                self._do(uncut(self._transaction, MACHINES[violation.machine], violation.id))
        named = {(v.machine, v.id) for v in violations if v.machine in MACHINES and v.id is not None}
        exec_ids = {subject for machine, subject in named if machine == EXECUTION.name}
        jobs = {subject for machine, subject in named if machine == JOB.name} | set(self._jobs_of(exec_ids))
        for job_id in sorted(jobs):
            if not self._transaction.images("holdfast_jobs", job_id=job_id):
                self._do(job_acts(self._transaction, job_id))
        taken = self._taken_keys(violations)
        loose = {v.id for v in violations if v.evidence.get("kind") == "replaces"}
        doubts = self._find_executions(exec_ids) | taken
        for job_id in sorted(jobs | doubts.keys() | set(self._jobs_of(exec_ids))):
            without = [name for name, of in (("key", taken.keys()), ("replaces", loose)) if job_id in of]
            self._do(job_acts(self._transaction, job_id, doubt=doubts.get(job_id), without=without))
        for machine, subject in sorted((machine or "", subject or 0) for machine, subject in named):
            if machine not in (JOB.name, EXECUTION.name):
                self._do(record_acts(self._transaction, MACHINES[machine], subject) or ())
        if any(violation.invariant == "lease_overdue" for violation in violations):
            self._recover()
        self._forget_orphans(violations)
        self._recount()

    # -- what is lost -------------------------------------------------------------------------------------------------

    def _find_executions(self, exec_ids: Iterable[int]) -> dict[int, str]:
        """Put back executions that only the journal knows; return the jobs for which that was a guess, and why."""
        lost: dict[tuple[str, int], list[Record]] = defaultdict(list)
        for exec_id in sorted(exec_ids):
            record = Record(self._transaction, EXECUTION, exec_id)
            if record.image is None and record.rows:
                lost[record.rows[0].move_id, record.rows[0].attempt or 0].append(record)
        doubts: dict[int, str] = {}
        for (move_id, attempt), records in lost.items():
            jobs = self._without_attempt(move_id, attempt)
            # One claim may have leased many jobs: which of them was whose, only their ends can tell.
            records.sort(key=lambda record: (record.rows[-1].target != ExecutionStatus.DONE, record.id))
            for record, job_id in zip(records, jobs, strict=False):
                self._do([rebuilt_execution(record, job_id)])
                if len(jobs) > 1:
                    doubts[job_id] = f"which execution was its attempt {attempt} cannot be told"
        return doubts

    def _without_attempt(self, move_id: str, attempt: int) -> list[int]:
        """Return the jobs that a move claimed for an attempt of which no execution is there; the succeeded first."""
        claims = self._transaction.images("holdfast_journal", machine=JOB.name, move_id=move_id, attempt=attempt)
        jobs = {row["subject"] for row in claims if row["target"] == JobState.RUNNING}
        open_jobs = [
            job_id
            for job_id in jobs
            if self._transaction.images("holdfast_jobs", job_id=job_id)
            and not self._transaction.images("holdfast_executions", job_id=job_id, attempt=attempt)
        ]
        ends = {job_id: Record(self._transaction, JOB, job_id).rows[-1].target for job_id in open_jobs}
        return sorted(open_jobs, key=lambda job_id: (ends[job_id] != JobState.SUCCEEDED, job_id))

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
            if parent is not None and committed(self._transaction, int(parent)):
                continue  # it is the parent that was wrong, and that is put right by itself
            doubts[job_id] = violation.detail
        return doubts

    def _drop_rows(self, violations: Iterable[Violation]) -> None:
        """Remove journal rows that tell a version a second time, and rows that cannot be read."""
        for machine, subject in sorted({(v.machine or "", v.id or 0) for v in violations if v.machine in MACHINES}):
            rows = self._transaction.images("holdfast_journal", machine=machine, subject=subject)
            rows.sort(key=lambda row: row["seq"])
            first = {row["version"]: row["seq"] for row in reversed(rows)}
            twins = [row for row in rows if row["seq"] != first[row["version"]]]
            self._forget_rows(f"{machine} {subject}", "that version is told already", twins)
            torn = [row for row in rows if row not in twins and not is_time(row["at"])]
            self._forget_rows(f"{machine} {subject}", "it cannot be read", torn)

    def _jobs_of(self, exec_ids: Iterable[int]) -> Iterator[int]:
        for exec_id in exec_ids:
            for image in self._transaction.images("holdfast_executions", exec_id=exec_id):
                yield image["job_id"]

    def _forget_orphans(self, violations: Iterable[Violation]) -> None:
        """Drop what belongs to nothing, and nothing can be made of; what it said is noted."""
        for violation in violations:
            kind, evidence = violation.evidence.get("kind"), violation.evidence
            if kind == "checkpoint":
                self._forget_checkpoints(violation.subject, violation.detail, int(evidence["job_id"]))
            elif kind == "kept" and violation.id is not None:
                self._forget_checkpoints(violation.subject, violation.detail, violation.id)
            elif kind == "maintenance" or (kind == "journal" and violation.machine is None):
                machine, _, subject = violation.subject.rpartition(" ")
                rows = self._transaction.images("holdfast_journal", machine=machine, subject=int(subject))
                self._forget_rows(violation.subject, violation.detail, rows)

    def _forget_checkpoints(self, subject: str, why: str, job_id: int) -> None:
        before = self._transaction.images("holdfast_checkpoints", job_id=job_id)
        if before:
            self._note(Act(kind="forget", subject=subject, why=why, before={"checkpoints": before}))
            self._transaction.forget_checkpoints([job_id])

    def _forget_rows(self, subject: str, why: str, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            self._note(Act(kind="forget", subject=subject, why=why, before=row))
        if rows:
            self._transaction.forget_journal_rows([row["seq"] for row in rows])

    # -- the acts -----------------------------------------------------------------------------------------------------

    def _do(self, acts: Iterable[Act]) -> None:
        for act in acts:
            self._note(act)
            guarded = GUARDED_BY_NAME[act.machine or ""]
            if act.kind == "put_back":
                self._transaction.put_back(guarded, act.after)
            elif act.kind == "mend":
                self._transaction.mend(guarded, act.id or 0, act.after)
            else:
                self._settle(act)
            if act.machine == JOB.name and act.id is not None and "payload" in act.after and not act.after["payload"]:
                self._forget_checkpoints(act.subject, act.why, act.id)

    def _settle(self, act: Act) -> None:
        """Move a record, or say that it stays; either is a journal row, marked as written under this door."""
        guarded = GUARDED_BY_NAME[act.machine or ""]
        [now] = self._transaction.images(guarded.table, **{guarded.id: act.id})
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
            self._transaction.tell_repair(self._door, row)
        self._transaction.mend(guarded, act.id or 0, columns)

    def _note(self, act: Act) -> None:
        self._acts.append(act)
        note = {"act": act.kind, "subject": act.subject, "why": act.why, "before": act.before, "after": act.after}
        self._transaction.note(self._door, EVENT, **note)

    def _recover(self) -> None:
        ended = self._transaction.recover(actor=self._who)
        for attempt, _ in ended:
            exec_id = attempt.execution.exec_id
            why, job = "its lease has run out", {"job_id": attempt.job.job_id}
            self._note(Act(kind="recover", subject=f"EXECUTION {exec_id}", why=why, before=job))

    def _recount(self) -> None:
        columns, rows = ("operation", "queue", "state", "n"), self._transaction.raw_counts()
        before = [dict(zip(columns, row, strict=True)) for row in rows]
        self._transaction.recount()
        after = [dict(zip(columns, row, strict=True)) for row in self._transaction.raw_counts()]
        if before != after:
            self._note(Act(kind="recount", subject="COUNTS", why="counted anew", before={"counts": before}))
