"""A change to a value of the registry, evaluated: its successor, its grant, its verdict, and whether it is valid.

Invariants: nothing is written here; a change is evaluated against the registry at one time, and evaluated again under
the lease before it is made; a change that is not valid has one code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.core.authority import Act, Wanted
from holdfast.core.digest import Json, canonical, digest
from holdfast.core.errors import RegistryError
from holdfast.core.governed import RegistryValue
from holdfast.core.machines import ValueState
from holdfast.core.rollback import (
    Contract,
    Disposition,
    Facts,
    RollbackVerdict,
    SuccessorFault,
    rollback_verdict,
    successor_fault,
)
from holdfast.core.vocabulary import RegistryCode, RegistryStatus, Value, ValueName, refusal, stored_value, vocab_id
from holdfast.governance.approval import environment_of
from holdfast.governance.registry.preflight import registration_hold
from holdfast.governance.switches import REGISTRATION_HOLD

if TYPE_CHECKING:
    from holdfast.store.transaction import Reading

AUDIT = {Disposition.SUPERSEDE: "supersession", Disposition.RETIRE: "retirement"}
_ACTS = {Disposition.SUPERSEDE: Act.SUPERSEDE, Disposition.RETIRE: Act.RETIRE}
NOT_ACTIVE = "VALUE_NOT_ACTIVE"


class ValueChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change to a value that was made, or would be made in a dry run."""

    value: str
    disposition: Disposition
    successor: str | None
    admits: bool  # whether the successor is admitted with it
    plan: str  # the digest of exactly this change, which its grant names
    verdict: RollbackVerdict
    authority: str  # GO, or the code of the refusal
    grant_id: int | None = None
    rollback_ref: str | None = None  # the audit row
    changed: bool = False  # False: a dry run, or the change was already made


class ChangeRequest(NamedTuple):
    """A change to a value: the change, its actor, its reason, and its grant."""

    disposition: Disposition
    value: ValueName
    successor: ValueName | None
    actor: str
    reason: str
    grant_id: int | None
    semantics: Json | msgspec.UnsetType = msgspec.UNSET
    semantics_of: str | None = None


class EvaluatedChange:
    """A request, evaluated against the registry at one time."""

    def __init__(self, reading: Reading, request: ChangeRequest) -> None:
        self.request = request
        self.target = known_value(reading, request.value)
        self.new: Value | None = None  # the value to admit, if the successor does not exist yet
        self.successor = self._find_successor(reading)
        self.facts = Facts(target=self.target, successor=self.successor, follows=reading.registry.successions())
        self.environment = environment_of(reading)

    def _find_successor(self, reading: Reading) -> RegistryValue | None:
        named = self.request.successor
        if named is None:
            return None
        there = reading.registry.value(named.code, named.version)
        given = self.request.semantics is not msgspec.UNSET or self.request.semantics_of is not None
        if there is None and named.code == self.request.value.code:
            self.new = self._new_value(reading, named)
            return _drafted(self.target, self.new)
        if there is not None and given and self._new_value(reading, named).digest != there.digest:
            raise refusal(RegistryCode.WRITE_ONCE, f"{named} exists with other semantics.", value=str(named))
        return there

    def _new_value(self, reading: Reading, named: ValueName) -> Value:
        """Return the new value, with the act type and the authority of the old one."""
        old = stored_value(self.target)
        semantics = old.semantics_frozen if self.request.semantics is msgspec.UNSET else self.request.semantics
        if self.request.semantics_of is not None:
            semantics = stored_value(
                known_value(reading, ValueName(named.code, self.request.semantics_of))
            ).semantics_frozen
        canonical(semantics)  # raises if it is not JSON
        return msgspec.structs.replace(
            old, operation_code=named.code, protocol_version=named.version, semantics_frozen=semantics
        )

    @property
    def plan(self) -> str:
        """Return the digest of exactly this change, which its grant names."""
        return digest(
            {
                "act": str(self.request.disposition),
                "value": str(self.request.value),
                "value_digest": self.target.digest,
                "successor": str(self.request.successor) if self.request.successor else None,
                "successor_digest": self.successor.digest if self.successor else None,
            }
        )

    @property
    def wanted(self) -> Wanted:
        """Return the act that a grant must permit."""
        return Wanted(
            act=_ACTS[self.request.disposition],
            target=f"value:{self.request.value}",
            environment=self.environment,
            executor=self.request.actor,
            plan=self.plan,
        )

    def done_before(self) -> bool:
        """Return whether the change was already made."""
        if self.request.disposition == Disposition.RETIRE:
            return self.target.state == ValueState.RETIRED
        follower = self.facts.follows.get(self.request.value)
        return self.target.state == ValueState.SUPERSEDED and follower == self.request.successor

    def require_sound(self, reading: Reading) -> None:
        """Raise RegistryError, with one code per reason, unless the change is valid."""
        value, disposition = self.request.value, self.request.disposition
        if self.target.status != RegistryStatus.IN_FORCE:
            raise refusal(RegistryCode.VALUE_ABSENT, f"{value} is {self.target.status}, not in force.")
        if self.target.state != ValueState.ACTIVE:
            raise RegistryError(
                f"{value} is already {self.target.state}.",
                code=NOT_ACTIVE,
                context={"value": str(value), "verdict": RollbackVerdict.FORWARD_FAIL_CLOSED_VIOLATED.number},
            )
        if disposition == Disposition.SUPERSEDE and (fault := successor_fault(self.facts)) is not None:
            raise _faulty(fault, value, self.request.successor, self.judged("…"))
        if self.new is not None and registration_hold(reading):
            raise refusal(RegistryCode.REAL_RUN_BLOCKED, f"{REGISTRATION_HOLD} is on: no new value can be admitted.")

    def judged(self, rollback_plan: str) -> RollbackVerdict:
        """Return the rollback verdict on this change."""
        contract = Contract(
            disposition=self.request.disposition,
            target=str(self.request.value),
            successor=str(self.request.successor or ""),
            plan=rollback_plan,
            audit=AUDIT[self.request.disposition],
            collections=(self.target.collection,),
        )
        return rollback_verdict(contract, self.facts)

    def result(self, verdict: RollbackVerdict, **more: Any) -> ValueChange:
        """Return the result of this change, made or not."""
        return ValueChange(
            value=str(self.request.value),
            disposition=self.request.disposition,
            successor=str(self.request.successor) if self.request.successor else None,
            admits=self.new is not None,
            plan=self.plan,
            verdict=verdict,
            **more,
        )


def known_value(reading: Reading, named: ValueName) -> RegistryValue:
    """Return a value of the registry; raise RegistryError if it does not exist."""
    found = reading.registry.value(named.code, named.version)
    if found is None:
        raise refusal(RegistryCode.VALUE_ABSENT, f"The registry has no value {named}.", value=str(named))
    return found


def _drafted(target: RegistryValue, new: Value) -> RegistryValue:
    """Return the row that a new value will have."""
    return msgspec.structs.replace(
        target,
        value_id=0,
        vocab_id=vocab_id(target.collection, new.operation_code, new.protocol_version),
        operation_code=new.operation_code,
        protocol_version=new.protocol_version,
        semantics=new.semantics_text,
        digest=new.digest,
        status=RegistryStatus.IN_FORCE,
        state=ValueState.ACTIVE,
        version=1,
        successor_code=None,
        successor_version=None,
        rollback_ref=None,
        run_id=None,
    )


_GO_BACK = "to return to old semantics, create a new version with --semantics-of"
_WORDS = {
    SuccessorFault.UNKNOWN: "The successor {successor} is not in the registry.",
    SuccessorFault.ITSELF: "{value} cannot supersede itself.",
    SuccessorFault.CYCLE: "{successor} was itself superseded by {value}: " + _GO_BACK + ".",
    SuccessorFault.NOT_ACTIVE: "The successor {successor} is not active and in force.",
    SuccessorFault.VERSION_LOWER: "{successor} is older than {value}: " + _GO_BACK + ".",
    SuccessorFault.OTHER_ACT: "{successor} has another act type than {value}.",
}


def _faulty(
    fault: SuccessorFault, value: ValueName, successor: ValueName | None, verdict: RollbackVerdict
) -> RegistryError:
    return RegistryError(
        _WORDS[fault].format(value=value, successor=successor),
        code=fault,
        next_step="List the values in force: `holdfast registry list`. Rolling back: docs/registry.md.",
        context={"value": str(value), "successor": str(successor), "verdict": verdict.number},
    )
