"""Judges whether a rollback contract is valid for review, and whether a value can succeed another.

A `Contract` describes a change to a value of the registry; `Facts` are what the registry knows about it.
`rollback_verdict` is pure and total: it tests RBP-0 to RBP-10 in that order and returns the first match, or PASS. A
verdict authorises nothing: the act itself needs a lease, a grant and its own transaction.

Invariants: every input has exactly one verdict; the lowest number wins. A value is never edited or deleted, and is
superseded only by a value in force that it did not itself supersede: a rollback is a new version with old semantics.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum

import msgspec

from holdfast.core.digest import sha256
from holdfast.core.governed import RegistryValue
from holdfast.core.machines import ValueState
from holdfast.core.protocol import ranked
from holdfast.core.vocabulary import RegistryStatus, ValueName


class Disposition(StrEnum):
    """What a contract does with the value."""

    SUPERSEDE = "supersede"
    RETIRE = "retire"
    DELETE = "delete"


class RollbackVerdict(StrEnum):
    """The verdicts on a contract, in order of precedence."""

    RUNTIME_MUTATION_REJECTED = "RUNTIME_MUTATION_REJECTED"
    PLAN_ABSENT = "ROLLBACK_PLAN_ABSENT"
    DELETES_REFERENCED_IDENTITY = "ROLLBACK_DELETES_REFERENCED_IDENTITY"
    ORPHANS_DEPENDENCY = "ROLLBACK_ORPHANS_DEPENDENCY"
    ERASES_HISTORY = "ROLLBACK_ERASES_HISTORY"
    CHANGES_HISTORICAL_SEMANTICS = "ROLLBACK_CHANGES_HISTORICAL_SEMANTICS"
    WEAKENS_AUTHORITY = "ROLLBACK_WEAKENS_AUTHORITY"
    SUCCESSOR_RULE_ABSENT = "ROLLBACK_SUCCESSOR_RULE_ABSENT"
    FORWARD_FAIL_CLOSED_VIOLATED = "ROLLBACK_FORWARD_FAIL_CLOSED_VIOLATED"
    AUDIT_TRAIL_ABSENT = "ROLLBACK_AUDIT_TRAIL_ABSENT"
    NOT_LOCAL = "ROLLBACK_NOT_LOCAL"
    PASS = "ROLLBACK_CONTRACT_VALID_FOR_REVIEW"  # noqa: S105 - not a secret: a verdict

    @property
    def number(self) -> str:
        """Return the short name of the verdict: RBP-0 to RBP-10, or PASS."""
        return "PASS" if self is RollbackVerdict.PASS else f"RBP-{list(RollbackVerdict).index(self)}"


class SuccessorFault(StrEnum):
    """Why a value cannot succeed another, in the order of the checks."""

    UNKNOWN = "SUCCESSOR_UNKNOWN"
    ITSELF = "SUCCESSOR_IS_ITSELF"
    CYCLE = "SUCCESSOR_CYCLE"
    NOT_ACTIVE = "SUCCESSOR_NOT_ACTIVE"
    VERSION_LOWER = "SUCCESSOR_VERSION_LOWER"
    OTHER_ACT = "SUCCESSOR_OF_ANOTHER_ACT"


class Contract(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A proposed change to a value. A field that is left out means that the author did not provide for it."""

    disposition: Disposition
    target: str = ""  # CODE@VERSION, or a vocab_id
    successor: str = ""  # CODE@VERSION
    plan: str = ""  # how the change would be undone
    audit: str = ""  # the kind of the audit row in the same transaction
    executes: bool = False  # whether a valid verdict alone would start it
    drops_handlers: bool = False  # whether workers drop the old version before its last job ended
    erases: tuple[str, ...] = ()  # history that it removes or rewrites
    semantics: str | None = None  # SHA-256 of changed semantics of the target; None: unchanged
    authority: str | None = None  # the new authority; None: unchanged
    collections: tuple[str, ...] = ()  # the collections that it touches


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the registry knows at one time."""

    target: RegistryValue | None = None
    successor: RegistryValue | None = None
    follows: Mapping[ValueName, ValueName] = {}  # the successor of each superseded value
    open_jobs: int = 0  # unfinished jobs of the target


def rollback_verdict(contract: Contract, facts: Facts) -> RollbackVerdict:
    """Return the verdict on a contract: the first that matches, or PASS."""
    return next((verdict for verdict, matches in _RULES if matches(contract, facts)), RollbackVerdict.PASS)


def successor_fault(facts: Facts) -> SuccessorFault | None:
    """Return why the successor cannot succeed the target; None if it can."""
    target, successor = facts.target, facts.successor
    if target is None or successor is None:
        return SuccessorFault.UNKNOWN
    if ValueName.of(successor) == ValueName.of(target):
        return SuccessorFault.ITSELF
    if ValueName.of(target) in _chain(ValueName.of(successor), facts.follows):
        return SuccessorFault.CYCLE
    if successor.state != ValueState.ACTIVE or successor.status != RegistryStatus.IN_FORCE:
        return SuccessorFault.NOT_ACTIVE
    if successor.operation_code == target.operation_code and not _at_least(successor, target):
        return SuccessorFault.VERSION_LOWER
    return SuccessorFault.OTHER_ACT if successor.act_type != target.act_type else None


def _at_least(successor: RegistryValue, target: RegistryValue) -> bool:
    new, old = ranked(successor.protocol_version), ranked(target.protocol_version)
    return new is not None and old is not None and new >= old  # a version that is not SemVer cannot be compared


def _chain(first: ValueName, follows: Mapping[ValueName, ValueName]) -> Iterator[ValueName]:
    """Yield a value and its chain of successors."""
    seen: set[ValueName] = set()
    here: ValueName | None = first
    while here is not None and here not in seen:
        yield here
        seen.add(here)
        here = follows.get(here)


# ---------------------------------------------------------------------------------------------------------------------
# The rules RBP-0 to RBP-10


def _executes(contract: Contract, _facts: Facts) -> bool:
    return contract.executes


def _plan_absent(contract: Contract, facts: Facts) -> bool:
    """A plan counts only if it has text and its target exists at that version."""
    return not contract.plan.strip() or facts.target is None


def _deletes(contract: Contract, _facts: Facts) -> bool:
    """Every value in the registry is referenced, at least by the journal."""
    return contract.disposition == Disposition.DELETE


def _orphans_jobs(contract: Contract, facts: Facts) -> bool:
    points_nowhere = ValueName.parsed(contract.successor) is not None and facts.successor is None
    return points_nowhere or (contract.drops_handlers and facts.open_jobs > 0)


def _erases(contract: Contract, _facts: Facts) -> bool:
    return bool(contract.erases)


def _changes_semantics(contract: Contract, facts: Facts) -> bool:
    return contract.semantics is not None and (
        facts.target is None or contract.semantics != sha256(facts.target.semantics)
    )


def _changes_authority(contract: Contract, facts: Facts) -> bool:
    """Authorities cannot be compared, so any other authority is refused."""
    governed_by = facts.target.authority_ref if facts.target else None
    others = (contract.authority, facts.successor.authority_ref if facts.successor else None)
    return any(other is not None and other != governed_by for other in others)


def _successor_absent(contract: Contract, _facts: Facts) -> bool:
    return contract.disposition == Disposition.SUPERSEDE and ValueName.parsed(contract.successor) is None


def _not_forward(contract: Contract, facts: Facts) -> bool:
    """A value moves once, while it is active and in force, to a successor in force."""
    in_force = (
        facts.target and facts.target.state == ValueState.ACTIVE and facts.target.status == RegistryStatus.IN_FORCE
    )
    return not in_force or (contract.disposition == Disposition.SUPERSEDE and successor_fault(facts) is not None)


def _audit_absent(contract: Contract, _facts: Facts) -> bool:
    return not contract.audit.strip()


def _touches_other_collections(contract: Contract, facts: Facts) -> bool:
    touched = {*contract.collections, *(value.collection for value in (facts.target, facts.successor) if value)}
    return len(touched) > 1


_RULES: tuple[tuple[RollbackVerdict, Callable[[Contract, Facts], bool]], ...] = (
    (RollbackVerdict.RUNTIME_MUTATION_REJECTED, _executes),
    (RollbackVerdict.PLAN_ABSENT, _plan_absent),
    (RollbackVerdict.DELETES_REFERENCED_IDENTITY, _deletes),
    (RollbackVerdict.ORPHANS_DEPENDENCY, _orphans_jobs),
    (RollbackVerdict.ERASES_HISTORY, _erases),
    (RollbackVerdict.CHANGES_HISTORICAL_SEMANTICS, _changes_semantics),
    (RollbackVerdict.WEAKENS_AUTHORITY, _changes_authority),
    (RollbackVerdict.SUCCESSOR_RULE_ABSENT, _successor_absent),
    (RollbackVerdict.FORWARD_FAIL_CLOSED_VIOLATED, _not_forward),
    (RollbackVerdict.AUDIT_TRAIL_ABSENT, _audit_absent),
    (RollbackVerdict.NOT_LOCAL, _touches_other_collections),
)


# ---------------------------------------------------------------------------------------------------------------------
# The successors of all values


def successor_faults(rows: Iterable[RegistryValue]) -> list[str]:
    """Return what is wrong with the successors of values: missing, unknown, older, or circular."""
    known = {ValueName.of(row): row for row in rows}
    follows = {name: follower for name, row in known.items() if (follower := _follower(row)) is not None}
    faults = []
    for name, row in known.items():
        follower = follows.get(name)
        if follower is None:
            if row.state == ValueState.SUPERSEDED:
                faults.append(f"{name} is superseded, but has no successor")
        elif follower not in known:
            faults.append(f"the successor of {name}, {follower}, does not exist")
        elif follower.code == name.code and not _at_least(known[follower], row):
            faults.append(f"the successor of {name} is an older version, {follower.version}")
        elif name in _chain(follower, follows):
            faults.append(f"the successors of {name} form a circle")
    return faults


def _follower(row: RegistryValue) -> ValueName | None:
    if row.successor_code is None or row.successor_version is None:
        return None
    return ValueName(row.successor_code, row.successor_version)
