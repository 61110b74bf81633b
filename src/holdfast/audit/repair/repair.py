"""Repair: recomputes what can be recomputed, quarantines the rest, and journals every row as it was before.

A dry run is the real run, rolled back: it shows what applying does, and its digest shows whether that is still so.
Records that can be neither repaired nor quarantined are found by trying: the round is undone, and the next skips them.

Invariants: everything happens in one transaction under maintenance, with every row as it was before in the journal; the
maintenance names a grant for this plan, consumed by the same transaction; a unit is repaired so that `check` finds no
violation, or it is unchanged and listed in `left`; if anything else would be broken, nothing is changed.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from holdfast.audit.check.findings import Severity, Violation
from holdfast.audit.check.runner import check_in
from holdfast.audit.repair.record import GUARDED_BY_NAME, RepairAct
from holdfast.audit.repair.surgeon import Surgeon, unit_of
from holdfast.core.digest import digest
from holdfast.core.errors import (
    InputError,
    PlanStaleError,
    RefusedByDatabaseError,
    RepairIncompleteError,
    StoreDamagedError,
)
from holdfast.core.machines import JOB
from holdfast.store import Store, Transaction
from holdfast.store.migrations import require_ledger
from holdfast.store.reinstall import rewrite_enforcement
from holdfast.store.verbs.seals import SEQ_MAX

ConsumeGrant = Callable[[Transaction], int]  # consumes a grant in a transaction and returns its id, or raises
UNREPAIRABLE = frozenset({"database", "erasures_hold", "governance_whole", "seals_chained", "settings_readable"})
"""Invariants that no repair can restore: damaged pages, missing governance, settings, changed seals."""
ALL = 1 << 62  # a repair must know every violation to report which are left
ROUNDS_MAX = 20


class Unrepaired(msgspec.Struct, frozen=True, kw_only=True):
    """A unit that a repair does not change, why, and what to restore by hand."""

    subject: str
    why: str
    restore: str


class RepairReport(msgspec.Struct, frozen=True, kw_only=True):
    """The violations that a repair found, the acts that it did or would do, and the violations that are left."""

    applied: bool
    digest: str
    violations: tuple[Violation, ...]
    acts: tuple[RepairAct, ...]
    left: tuple[Violation, ...]
    given_up: tuple[Unrepaired, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.left


class _DryRunDone(Exception):  # not an error: rolls back the transaction of a dry run
    def __init__(self, repair: RepairReport) -> None:
        super().__init__()
        self.repair = repair


def plan(store: Store[Any]) -> RepairReport:
    """Return the report of what a repair would do; nothing is changed."""
    try:
        with store.transaction() as transaction:
            raise _DryRunDone(_repaired(store, transaction, who="plan", why="dry run", permit=None))
    except _DryRunDone as undone:
        return undone.repair


def repair(store: Store[Any], *, operator: str, reason: str, expected: str, permit: ConsumeGrant) -> RepairReport:
    """Carry out the plan with the digest `expected`, and return the report.

    `permit` consumes the grant, once there is something to do: `governance.grants.permission` makes one.
    Raise PlanStaleError if the plan has changed, and InputError without an operator or a reason.
    """
    if not operator.strip() or not reason.strip():
        raise InputError("operator and reason of a repair must not be empty")
    with store.transaction() as transaction:
        done = _repaired(store, transaction, who=operator, why=reason, permit=permit)
        if done.digest != expected:
            raise PlanStaleError(
                f"the ledger has changed since the plan {expected} was made; the plan is now {done.digest}",
                context={"expected": expected, "found": done.digest},
            )
    return done


def _repaired(
    store: Store[Any], transaction: Transaction, *, who: str, why: str, permit: ConsumeGrant | None
) -> RepairReport:
    connection = transaction.connection
    require_ledger(store, connection)
    if store.upkeep.journal_is_full(connection):
        raise StoreDamagedError(
            f"row {SEQ_MAX} of holdfast_journal has the greatest possible number: no row can follow it",
            context={"table": "holdfast_journal", "seq": SEQ_MAX},
        )
    transaction.maintenance.lock_records()
    violations = check_in(transaction, limit=ALL).violations
    rounds = _RepairRounds(store, transaction, violations, who=who, why=why, permit=permit)
    for _ in range(ROUNDS_MAX):
        try:
            with transaction.savepoint():
                acts, left = rounds.carry_out()
        except _RoundUndone:
            continue
        break
    else:
        raise RepairIncompleteError(
            f"no consistent repair found after {ROUNDS_MAX} rounds", context={"violations": sorted(rounds.given_up)}
        )
    return RepairReport(
        applied=permit is not None,
        digest=_digest(acts),
        violations=violations,
        acts=tuple(acts),
        left=left,
        given_up=tuple(_given_up(subject, reason) for subject, reason in sorted(rounds.given_up.items())),
    )


class _RoundUndone(Exception):  # not an error: undoes a round, so that the next one skips more units
    pass


class _RepairRounds:
    """One repair, tried in rounds until only the units that cannot be repaired are skipped."""

    def __init__(
        self,
        store: Store[Any],
        transaction: Transaction,
        violations: tuple[Violation, ...],
        *,
        who: str,
        why: str,
        permit: ConsumeGrant | None,
    ) -> None:
        self.given_up: dict[str, str] = {}
        self._store = store
        self._transaction = transaction
        self._violations = violations
        self._caused: list[Violation] = []  # by the repair itself: to be repaired with the others
        self._who = who
        self._why = why
        self._permit = permit

    def carry_out(self) -> tuple[list[RepairAct], tuple[Violation, ...]]:
        """Repair all units but the skipped ones; return the acts and the violations left, or raise _RoundUndone."""
        acts = self._repair()
        left = check_in(self._transaction, limit=ALL).violations if acts else self._violations
        found, tried = set(map(_name, self._violations)), set(map(_name, self._caused))
        unrepaired: dict[str, str] = {}
        caused, worse = [], []
        for violation in left:
            unit = unit_of(violation)
            if violation.invariant in UNREPAIRABLE or violation.severity is not Severity.ERROR:
                continue
            if unit in self.given_up:
                worse += [violation] if _name(violation) not in found else []
            elif _name(violation) in found | tried:
                unrepaired.setdefault(
                    unit, f"after the repair it would still break {violation.invariant}: {violation.detail}"
                )
            else:
                caused.append(violation)
        if caused or unrepaired:
            self._caused += caused
            self._give_up(unrepaired)
        if worse:
            raise RepairIncompleteError(
                f"the repair would make {worse[0].subject} break {worse[0].invariant}: {worse[0].detail}",
                context={"violations": [f"{v.invariant}: {v.subject}" for v in worse[:20]]},
            )
        return acts, left

    def _give_up(self, units: dict[str, str]) -> None:
        self.given_up |= units
        raise _RoundUndone

    def _repair(self) -> list[RepairAct]:
        store, transaction = self._store, self._transaction
        acts: list[RepairAct] = []
        found = (*self._violations, *self._caused)
        wanted = [v for v in found if unit_of(v) not in self.given_up and v.invariant not in UNREPAIRABLE]
        differs = sorted(v.subject for v in wanted if v.invariant == "enforcement")
        left_open = [int(door) for (door,) in transaction.execute("SELECT maintenance_id FROM holdfast_maintenance")]
        if left_open:
            differs.append("DOOR")  # inside a transaction, check takes an open maintenance for the transaction's own
        if differs:
            # First, so that the acts below are guarded and journalled; the unique indexes last, without duplicates.
            why = "triggers, indexes or machines differ from this version"
            acts.append(RepairAct(kind="rewrite", subject="LEDGER", why=why, before={"differs": differs}))
            rewrite_enforcement(store, transaction)
        if left_open or wanted:
            acts += self._operate(found, left_open)
        if differs:
            self._index_again()
        return acts

    def _operate(self, violations: Sequence[Violation], left_open: Iterable[int]) -> list[RepairAct]:
        transaction = self._transaction
        grant_id = self._permit(transaction) if self._permit else None
        with transaction.maintenance.open(who=self._who, why=self._why, grant_id=grant_id) as door:
            surgeon = Surgeon(self._store, transaction, door, self._who, self.given_up)
            surgeon.shut(left_open)
            surgeon.repair(violations)
        if surgeon.failed:
            self._give_up(surgeon.failed)
        return surgeon.acts

    def _index_again(self) -> None:
        """Write the missing unique indexes; a skipped unit may have duplicates that prevent one."""
        try:
            with self._transaction.savepoint():
                rewrite_enforcement(self._store, self._transaction, indexes=True)
        except Exception as error:
            if not isinstance(self._store.translate(error), RefusedByDatabaseError):
                raise


def _name(violation: Violation) -> tuple[str, str]:
    return violation.invariant, violation.subject


def _given_up(subject: str, why: str) -> Unrepaired:
    machine = subject.partition(" ")[0]
    restore = f"the rows of {subject} from a snapshot"
    if machine == JOB.name:
        restore += ": holdfast_calls, holdfast_jobs, holdfast_aborted, holdfast_journal"
    elif machine in GUARDED_BY_NAME:
        restore += f": {GUARDED_BY_NAME[machine].table}, holdfast_journal"
    return Unrepaired(subject=subject, why=why, restore=restore)


def _digest(acts: Iterable[RepairAct]) -> str:
    """Return the digest of a plan, which does not depend on the operator or on the counts before it."""
    return digest(
        [
            [
                act.kind,
                act.subject,
                act.why,
                act.after,
                None if act.kind == "recount" else {**(act.before or {}), "actor": None},
            ]
            for act in acts
        ]
    )
