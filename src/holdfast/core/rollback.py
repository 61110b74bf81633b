"""May this rollback be reviewed at all? One verdict from a closed set, and why a successor will not do.

A `Contract` says what somebody wants done to a value of the registry; `Facts` say what the registry knows of it.
`rollback_verdict` is pure and total: it tries RBP-0 to RBP-10 in that order, and the first that matches is the verdict;
it passes if none does. A verdict authorises nothing: that takes a lease, a grant and the act's own transaction.

Invariants: exactly one verdict for any input; a lower number always wins; going back is going forward: a value is only
ever followed by a value in force, never edited, never deleted, and never by what it has itself followed.
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
    """What is to become of the value."""

    SUPERSEDE = "supersede"
    RETIRE = "retire"
    DELETE = "delete"


class RollbackVerdict(StrEnum):
    """What can be said of a contract. The order is the order of precedence."""

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
    PASS = "ROLLBACK_CONTRACT_VALID_FOR_REVIEW"  # noqa: S105 - no secret: what an oracle says

    @property
    def number(self) -> str:
        """Return what the verdict is called in short: RBP-0 to RBP-10, or PASS."""
        return "PASS" if self is RollbackVerdict.PASS else f"RBP-{list(RollbackVerdict).index(self)}"


class SuccessorFault(StrEnum):
    """Why a value will not do as the successor of another. The order is the order of the checks."""

    UNKNOWN = "SUCCESSOR_UNKNOWN"
    ITSELF = "SUCCESSOR_IS_ITSELF"
    CYCLE = "SUCCESSOR_CYCLE"
    NOT_ACTIVE = "SUCCESSOR_NOT_ACTIVE"
    VERSION_LOWER = "SUCCESSOR_VERSION_LOWER"
    OTHER_ACT = "SUCCESSOR_OF_ANOTHER_ACT"


class Contract(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is wanted, as its author wrote it down. What is left out was not provided for."""

    disposition: Disposition
    target: str = ""  # CODE@VERSION, or a vocab_id
    successor: str = ""  # CODE@VERSION
    plan: str = ""  # where it is written how this would be undone
    audit: str = ""  # the kind of audit row that goes with it, in its own transaction
    executes: bool = False  # whether to be found valid is to set it going
    drops_handlers: bool = False  # whether workers give up the old version before its last job has ended
    erases: tuple[str, ...] = ()  # what of the history it removes or rewrites
    semantics: str | None = None  # SHA-256 of what the target is to have meant from then on; None: what it meant
    authority: str | None = None  # who is to govern from then on; None: who governed
    collections: tuple[str, ...] = ()  # what else it touches


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the registry knows, at one moment."""

    target: RegistryValue | None = None
    successor: RegistryValue | None = None
    follows: Mapping[ValueName, ValueName] = {}  # which value each superseded one was followed by
    open_jobs: int = 0  # jobs of the target that have not ended


def rollback_verdict(contract: Contract, facts: Facts) -> RollbackVerdict:
    """Return the one verdict on a contract: the first that matches, or PASS."""
    return next((verdict for verdict, matches in _ORACLE if matches(contract, facts)), RollbackVerdict.PASS)


def successor_fault(facts: Facts) -> SuccessorFault | None:
    """Return why the successor will not follow the target; None if it will."""
    target, successor = facts.target, facts.successor
    if target is None or successor is None:
        return SuccessorFault.UNKNOWN
    if ValueName.of(successor) == ValueName.of(target):
        return SuccessorFault.ITSELF
    if ValueName.of(target) in _line(ValueName.of(successor), facts.follows):
        return SuccessorFault.CYCLE
    if successor.state != ValueState.ACTIVE or successor.standing != RegistryStatus.IN_FORCE:
        return SuccessorFault.NOT_ACTIVE
    if successor.operation_code == target.operation_code and not _at_least(successor, target):
        return SuccessorFault.VERSION_LOWER
    return SuccessorFault.OTHER_ACT if successor.act_type != target.act_type else None


def _at_least(successor: RegistryValue, target: RegistryValue) -> bool:
    new, old = ranked(successor.protocol_version), ranked(target.protocol_version)
    return new is not None and old is not None and new >= old  # what does not rank does not follow


def _line(first: ValueName, follows: Mapping[ValueName, ValueName]) -> Iterator[ValueName]:
    """Yield a value and all that have followed it, one after the other."""
    seen: set[ValueName] = set()
    here: ValueName | None = first
    while here is not None and here not in seen:
        yield here
        seen.add(here)
        here = follows.get(here)


# ---------------------------------------------------------------------------------------------------------------------
# The oracle


def _runs_by_itself(contract: Contract, _facts: Facts) -> bool:
    return contract.executes


def _has_no_plan(contract: Contract, facts: Facts) -> bool:
    """A plan is one only if it is written down, and about a value that exists, at its version."""
    return not contract.plan.strip() or facts.target is None


def _deletes(contract: Contract, _facts: Facts) -> bool:
    """Whatever was in the registry is referred to, by its journal if by nothing else."""
    return contract.disposition == Disposition.DELETE


def _orphans(contract: Contract, facts: Facts) -> bool:
    points_nowhere = ValueName.parsed(contract.successor) is not None and facts.successor is None
    return points_nowhere or (contract.drops_handlers and facts.open_jobs > 0)


def _erases(contract: Contract, _facts: Facts) -> bool:
    return bool(contract.erases)


def _means_otherwise(contract: Contract, facts: Facts) -> bool:
    return contract.semantics is not None and (
        facts.target is None or contract.semantics != sha256(facts.target.semantics)
    )


def _weakens(contract: Contract, facts: Facts) -> bool:
    """Nobody can say which of two authorities is the weaker: another one is refused."""
    governed_by = facts.target.authority_ref if facts.target else None
    others = (contract.authority, facts.successor.authority_ref if facts.successor else None)
    return any(other is not None and other != governed_by for other in others)


def _is_followed_by_nothing(contract: Contract, _facts: Facts) -> bool:
    return contract.disposition == Disposition.SUPERSEDE and ValueName.parsed(contract.successor) is None


def _goes_back(contract: Contract, facts: Facts) -> bool:
    """A value moves once, and forward: while it is active itself, to what is in force."""
    stands = (
        facts.target and facts.target.state == ValueState.ACTIVE and facts.target.standing == RegistryStatus.IN_FORCE
    )
    return not stands or (contract.disposition == Disposition.SUPERSEDE and successor_fault(facts) is not None)


def _is_not_told(contract: Contract, _facts: Facts) -> bool:
    return not contract.audit.strip()


def _reaches_out(contract: Contract, facts: Facts) -> bool:
    touched = {*contract.collections, *(value.collection for value in (facts.target, facts.successor) if value)}
    return len(touched) > 1


_ORACLE: tuple[tuple[RollbackVerdict, Callable[[Contract, Facts], bool]], ...] = (
    (RollbackVerdict.RUNTIME_MUTATION_REJECTED, _runs_by_itself),
    (RollbackVerdict.PLAN_ABSENT, _has_no_plan),
    (RollbackVerdict.DELETES_REFERENCED_IDENTITY, _deletes),
    (RollbackVerdict.ORPHANS_DEPENDENCY, _orphans),
    (RollbackVerdict.ERASES_HISTORY, _erases),
    (RollbackVerdict.CHANGES_HISTORICAL_SEMANTICS, _means_otherwise),
    (RollbackVerdict.WEAKENS_AUTHORITY, _weakens),
    (RollbackVerdict.SUCCESSOR_RULE_ABSENT, _is_followed_by_nothing),
    (RollbackVerdict.FORWARD_FAIL_CLOSED_VIOLATED, _goes_back),
    (RollbackVerdict.AUDIT_TRAIL_ABSENT, _is_not_told),
    (RollbackVerdict.NOT_LOCAL, _reaches_out),
)


# ---------------------------------------------------------------------------------------------------------------------
# The successors of all values


def successor_faults(rows: Iterable[RegistryValue]) -> list[str]:
    """Return what is wrong with who follows whom: nobody there, an older version, or a circle."""
    known = {ValueName.of(row): row for row in rows}
    follows = {name: follower for name, row in known.items() if (follower := _follower(row)) is not None}
    faults = []
    for name, row in known.items():
        follower = follows.get(name)
        if follower is None:
            if row.state == ValueState.SUPERSEDED:
                faults.append(f"{name} is superseded, and nothing follows it")
        elif follower not in known:
            faults.append(f"{name} is followed by {follower}, which does not exist")
        elif follower.code == name.code and not _at_least(known[follower], row):
            faults.append(f"{name} is followed by an older version, {follower.version}")
        elif name in _line(follower, follows):
            faults.append(f"{name} follows itself in the end")
    return faults


def _follower(row: RegistryValue) -> ValueName | None:
    if row.successor_code is None or row.successor_version is None:
        return None
    return ValueName(row.successor_code, row.successor_version)
