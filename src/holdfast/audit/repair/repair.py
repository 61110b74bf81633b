"""Repair: mends what can be recomputed, quarantines the rest, and keeps what was there before.

A dry run is the real run, rolled back: what it shows is what applying does, and its digest says whether it still is.
What can be neither mended nor quarantined is found by trying: then the round is undone, and the next one leaves it out.

Invariants: everything happens in one transaction under the maintenance door, with every before-image in the journal;
the door has the number of a grant for this very plan, used up by the same transaction; a unit is mended so that `check`
finds nothing more, or it is as it was and is named in `left`; whatever else would still be broken, nothing has changed.
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
from holdfast.store.migrations import require_ledger, rewrite_enforcement
from holdfast.store.verbs.seals import SEQ_MAX

ConsumeGrant = Callable[[Transaction], int]  # consumes a grant in a transaction and returns its id, or raises
UNREPAIRABLE = frozenset({"database", "governance_whole", "seals_chained", "settings_readable"})
"""What no repair can mend: damaged pages, governance that is missing, and seals that are not what they were."""
ALL = 1 << 62  # a repair that knew of a part only could not say what is left
ROUNDS_MAX = 20


class Unrepaired(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a repair leaves as it is, why, and what to restore by hand."""

    subject: str
    why: str
    restore: str


class RepairReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a repair found, did or would do, and what is left."""

    applied: bool
    digest: str
    violations: tuple[Violation, ...]
    acts: tuple[RepairAct, ...]
    left: tuple[Violation, ...]
    given_up: tuple[Unrepaired, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the ledger is, or would be, as it should."""
        return not self.left


class _DryRunDone(Exception):  # not an error: the way out of a transaction that must leave nothing
    def __init__(self, repair: RepairReport) -> None:
        super().__init__()
        self.repair = repair


def plan(store: Store[Any]) -> RepairReport:
    """Return what a repair would do; nothing is changed."""
    try:
        with store.transaction() as transaction:
            raise _DryRunDone(_repaired(store, transaction, who="plan", why="dry run", permit=None))
    except _DryRunDone as undone:
        return undone.repair


def repair(store: Store[Any], *, operator: str, reason: str, expected: str, permit: ConsumeGrant) -> RepairReport:
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


def _repaired(
    store: Store[Any], transaction: Transaction, *, who: str, why: str, permit: ConsumeGrant | None
) -> RepairReport:
    connection = transaction.connection
    require_ledger(store, connection)
    if store.journal_is_full(connection):
        raise StoreDamagedError(
            f"row {SEQ_MAX} of holdfast_journal has the last number there is: nothing can be journalled after it",
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
            "what is left out of a repair breaks ever more of the rest", context={"violations": sorted(rounds.given_up)}
        )
    return RepairReport(
        applied=permit is not None,
        digest=_digest(acts),
        violations=violations,
        acts=tuple(acts),
        left=left,
        given_up=tuple(_given_up(subject, reason) for subject, reason in sorted(rounds.given_up.items())),
    )


class _RoundUndone(Exception):  # not an error: the way out of a round that must leave nothing
    pass


class _RepairRounds:
    """One repair, tried until what it leaves out is all that cannot be mended."""

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
        self._caused: list[Violation] = []  # by mending the others: to be mended with them
        self._who = who
        self._why = why
        self._permit = permit

    def carry_out(self) -> tuple[list[RepairAct], tuple[Violation, ...]]:
        """Mend what was not given up; return what was done and what is left. Raise _RoundUndone to do it otherwise."""
        acts = self._mend()
        left = check_in(self._transaction, limit=ALL).violations if acts else self._violations
        found, tried = set(map(_name, self._violations)), set(map(_name, self._caused))
        stubborn: dict[str, str] = {}
        caused, worse = [], []
        for violation in left:
            unit = unit_of(self._transaction, violation)
            if violation.invariant in UNREPAIRABLE or violation.severity is not Severity.ERROR:
                continue
            if unit in self.given_up:
                worse += [violation] if _name(violation) not in found else []
            elif _name(violation) in found | tried:
                stubborn.setdefault(unit, f"it would still break {violation.invariant}: {violation.detail}")
            else:
                caused.append(violation)
        if caused or stubborn:
            self._caused += caused
            self._give_up(stubborn)
        if worse:
            raise RepairIncompleteError(
                f"{worse[0].subject} would break {worse[0].invariant}: {worse[0].detail}",
                context={"violations": [f"{v.invariant}: {v.subject}" for v in worse[:20]]},
            )
        return acts, left

    def _give_up(self, units: dict[str, str]) -> None:
        self.given_up |= units
        raise _RoundUndone

    def _mend(self) -> list[RepairAct]:
        store, transaction = self._store, self._transaction
        acts: list[RepairAct] = []
        found = (*self._violations, *self._caused)
        wanted = [v for v in found if unit_of(transaction, v) not in self.given_up and v.invariant not in UNREPAIRABLE]
        differs = sorted(v.subject for v in wanted if v.invariant == "enforcement")
        standing = [int(door) for (door,) in transaction.execute("SELECT maintenance_id FROM holdfast_maintenance")]
        if standing:
            differs.append("DOOR")  # which a check inside a transaction takes for that transaction's own
        if differs:
            # First, so that what follows is guarded and journalled; the unique indexes last, when nothing is doubled.
            why = "what it enforces differs"
            acts.append(RepairAct(kind="rewrite", subject="LEDGER", why=why, before={"differs": differs}))
            rewrite_enforcement(store, transaction)
        if standing or wanted:
            acts += self._operate(found, standing)
        if differs:
            self._index_again()
        return acts

    def _operate(self, violations: Sequence[Violation], standing: Iterable[int]) -> list[RepairAct]:
        transaction = self._transaction
        grant_id = self._permit(transaction) if self._permit else None
        with transaction.maintenance.open(who=self._who, why=self._why, grant_id=grant_id) as door:
            surgeon = Surgeon(self._store, transaction, door, self._who, self.given_up)
            surgeon.shut(standing)
            surgeon.mend(violations)
        if surgeon.failed:
            self._give_up(surgeon.failed)
        return surgeon.acts

    def _index_again(self) -> None:
        """Write the unique indexes that are gone; what is left out of the repair may stand in the way of one."""
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
    restore = f"what a snapshot has of {subject}"
    if machine == JOB.name:
        restore += " in holdfast_jobs, holdfast_executions and holdfast_journal"
    elif machine in GUARDED_BY_NAME:
        restore += f" in {GUARDED_BY_NAME[machine].table} and holdfast_journal"
    return Unrepaired(subject=subject, why=why, restore=restore)


def _digest(acts: Iterable[RepairAct]) -> str:
    """Return what tells one plan from another; who carries it out does not, nor what was counted until then."""
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
