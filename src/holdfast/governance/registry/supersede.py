"""Supersession: a value of the registry is superseded by another, or retired. It is never edited or deleted.

    supersede(store, "thumbnail", "1.0.0", "2.0.0", semantics={...}, actor="ann", reason="WebP")
    supersede(store, "thumbnail", "2.0.0", "2.0.1", semantics_of="1.0.0", …)      # back to earlier semantics
    supersede(store, "thumb", "1.0.0", "2.0.0", by="thumbnail", …)                # replaced by another operation
    retire(store, "thumbnail", "2.0.1", actor="ann", reason="no longer used")

Invariants: moving the old value, admitting the new one, consuming the grant and writing the audit row are one
transaction, under the lease of the collection; a refusal has one code and has written nothing; a change that was
already made is reported as it is, and uses no grant; `dry_run` writes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import msgspec

from holdfast.core.authority import Act, Rejected, Wanted, require_words, scope_of
from holdfast.core.decide import Refused
from holdfast.core.digest import Json, canonical, digest
from holdfast.core.errors import RegistryError, RuntimeLeaseError, StateTransitionRaceError
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
from holdfast.core.vocabulary import (
    RegistryCode,
    RegistryStatus,
    Value,
    ValueName,
    precedence,
    refusal,
    stored_value,
    vocab_id,
)
from holdfast.governance.acts import actor_and_reason, retry_races
from holdfast.governance.grants import authorise, environment_of, verdict_on
from holdfast.governance.registry.build_proof import target as lease_of
from holdfast.governance.registry.preflight import registration_hold
from holdfast.governance.switches import REGISTRATION_HOLD

if TYPE_CHECKING:
    from holdfast.store import Store
    from holdfast.store.transaction import Reading, Transaction

LEASE_S = 60.0
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


class _Request(NamedTuple):
    """A change to a value: the change, its actor, its reason, and its grant."""

    disposition: Disposition
    value: ValueName
    successor: ValueName | None
    actor: str
    reason: str
    grant_id: int | None
    semantics: Json | msgspec.UnsetType = msgspec.UNSET
    semantics_of: str | None = None


def supersede(
    store: Store[Any],
    code: str,
    version: str,
    to: str,
    *,
    by: str | None = None,
    semantics: Json | msgspec.UnsetType = msgspec.UNSET,
    semantics_of: str | None = None,
    actor: str,
    reason: str,
    grant_id: int | None = None,
    dry_run: bool = False,
) -> ValueChange:
    """Supersede a value by version `to`: a new version of the same code, or a value in force of the code `by`.

    A new version gets `semantics`, or those of the version `semantics_of`, or else those of the old value. Raise
    RegistryError if the change is not valid, AuthorityError if no grant permits it.
    """
    require_words(code=code, by=by or code)
    precedence(version)
    precedence(to)
    value, successor = ValueName(code, version), ValueName(by or code, to)
    who, why = actor_and_reason(actor, reason)
    request = _Request(Disposition.SUPERSEDE, value, successor, who, why, grant_id, semantics, semantics_of)
    return _performed(store, request, dry_run=dry_run)


def retire(
    store: Store[Any],
    code: str,
    version: str,
    *,
    actor: str,
    reason: str,
    grant_id: int | None = None,
    dry_run: bool = False,
) -> ValueChange:
    """Retire a value without a successor: new jobs cannot use it. Raises as `supersede` does."""
    require_words(code=code)
    precedence(version)
    who, why = actor_and_reason(actor, reason)
    request = _Request(Disposition.RETIRE, ValueName(code, version), None, who, why, grant_id)
    return _performed(store, request, dry_run=dry_run)


def review(reading: Reading, contract: Contract) -> tuple[RollbackVerdict, Facts]:
    """Return the verdict on a rollback contract, and the facts behind it. It authorises nothing."""
    named, follower = ValueName.parsed(contract.target), ValueName.parsed(contract.successor)
    known = (
        reading.registry.value(named.code, named.version) if named else reading.registry.value_named(contract.target)
    )
    facts = Facts(
        target=known,
        successor=reading.registry.value(follower.code, follower.version) if follower else None,
        follows=reading.registry.successions(),
        open_jobs=reading.registry.open_jobs_of(known.operation_code, known.protocol_version) if known else 0,
    )
    return rollback_verdict(contract, facts), facts


# ---------------------------------------------------------------------------------------------------------------------
# Evaluating a change


class _Change:
    """A request, evaluated against the registry at one time."""

    def __init__(self, reading: Reading, request: _Request) -> None:
        self.request = request
        self.target = _known(reading, request.value)
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
            semantics = stored_value(_known(reading, ValueName(named.code, self.request.semantics_of))).semantics_frozen
        canonical(semantics)  # raises if it is not JSON
        return msgspec.structs.replace(
            old, operation_code=named.code, protocol_version=named.version, semantics_frozen=semantics
        )

    @property
    def plan(self) -> str:
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
        if self.target.standing != RegistryStatus.IN_FORCE:
            raise refusal(RegistryCode.VALUE_ABSENT, f"{value} is {self.target.standing}, not in force.")
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
        return ValueChange(
            value=str(self.request.value),
            disposition=self.request.disposition,
            successor=str(self.request.successor) if self.request.successor else None,
            admits=self.new is not None,
            plan=self.plan,
            verdict=verdict,
            **more,
        )


def _known(reading: Reading, named: ValueName) -> RegistryValue:
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
        standing=RegistryStatus.IN_FORCE,
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


# ---------------------------------------------------------------------------------------------------------------------
# Making a change


def _performed(store: Store[Any], request: _Request, *, dry_run: bool) -> ValueChange:
    if dry_run:
        with store.reading() as reading:
            return _dry_run(reading, request)

    def once() -> ValueChange:
        with store.transaction() as transaction:
            return _carried_out(transaction, request)

    return retry_races(once)


def _dry_run(reading: Reading, request: _Request) -> ValueChange:
    change = _Change(reading, request)
    if change.done_before():
        return _unchanged(change)
    change.require_sound(reading)
    permitted = verdict_on(reading, change.wanted, request.grant_id)
    if isinstance(permitted, Rejected):
        return change.result(change.judged("given by the grant"), authority=str(permitted.code))
    scope = scope_of(permitted)
    verdict = change.judged(scope.rollback_plan if scope else "")
    return change.result(verdict, authority="GO", grant_id=permitted.grant_id)


def _unchanged(change: _Change) -> ValueChange:
    target = change.target
    return change.result(
        RollbackVerdict.PASS, authority="GO", grant_id=target.grant_id, rollback_ref=target.rollback_ref
    )


def _carried_out(transaction: Transaction, request: _Request) -> ValueChange:
    move_id = uuid4().hex
    lease, holder = lease_of(_known(transaction, request.value).collection), f"{request.actor}/{move_id}"
    token = transaction.leases.acquire(lease, holder, LEASE_S)
    if token is None:
        by = transaction.leases.all()[lease].holder
        raise RuntimeLeaseError(f"The lease {lease} is held by {by}.", context={"lease": lease, "holder": by})
    transaction.registry.lock()
    change = _Change(transaction, request)  # evaluated again under the lease
    if change.done_before():
        transaction.leases.release(lease, holder, token)
        return _unchanged(change)
    change.require_sound(transaction)
    used = authorise(transaction, change.wanted, grant_id=request.grant_id, reason=request.reason, move_id=move_id)
    verdict = change.judged(_rollback_plan(transaction, used))
    if verdict is not RollbackVerdict.PASS:
        raise RegistryError(
            f"The {request.disposition} of {request.value} is refused: {verdict.number} {verdict}.",
            code=verdict,
            context={"value": str(request.value), "verdict": verdict.number},
        )
    reference = _move(transaction, change, used, verdict, move_id)
    transaction.leases.release(lease, holder, token)
    return change.result(verdict, authority="GO", grant_id=used, rollback_ref=reference, changed=True)


def _rollback_plan(transaction: Transaction, grant_id: int) -> str:
    grant = transaction.grants.get(grant_id)
    scope = scope_of(grant) if grant else None
    return scope.rollback_plan if scope else ""


def _move(transaction: Transaction, change: _Change, grant_id: int, verdict: RollbackVerdict, move_id: str) -> str:
    """Write the audit row, move the old value, admit the new one; return the reference to the audit row."""
    request = change.request
    content = {
        "act": str(request.disposition),
        "value": str(request.value),
        "successor": str(request.successor) if request.successor else None,
        "admits": change.new.fields if change.new else None,
        "plan": change.plan,
        "rollback_plan": _rollback_plan(transaction, grant_id),
        "verdict": f"{verdict.number} {verdict}",
        "reason": request.reason,
    }
    kind, subject = AUDIT[request.disposition], f"value:{request.value}"
    evidence = transaction.runs.add_evidence(kind, subject, canonical(content), actor=request.actor, grant_id=grant_id)
    reference = f"evidence:{evidence}"
    answer = transaction.registry.move_value(
        change.target,
        str(request.disposition),
        successor=request.successor,
        rollback_ref=reference,
        grant_id=grant_id,
        actor=request.actor,
        reason=request.reason,
        move_id=move_id,
    )
    if isinstance(answer, Refused):
        raise StateTransitionRaceError(answer.message, context={"value": str(request.value)})
    if change.new is not None:
        transaction.registry.admit(
            change.target.collection,
            change.new,
            standing=RegistryStatus.IN_FORCE,
            grant_id=grant_id,
            actor=request.actor,
            reason=request.reason,
            move_id=move_id,
        )
    return reference


__all__ = ["ValueChange", "retire", "review", "supersede"]
