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

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from holdfast.core.authority import Rejected, require_words, scope_of
from holdfast.core.decide import Refused
from holdfast.core.digest import Json, canonical
from holdfast.core.errors import RegistryError, RuntimeLeaseError, StateTransitionRaceError
from holdfast.core.rollback import Contract, Disposition, Facts, RollbackVerdict, rollback_verdict
from holdfast.core.vocabulary import RegistryCode, RegistryStatus, ValueName, precedence, refusal
from holdfast.governance.acts import actor_and_reason, retried
from holdfast.governance.grants import authorise, verdict_on
from holdfast.governance.registry.build_proof import target as lease_of
from holdfast.governance.registry.change import AUDIT, ChangeRequest, EvaluatedChange, ValueChange, known_value
from holdfast.governance.registry.preflight import all_values

if TYPE_CHECKING:
    from holdfast.store import Store
    from holdfast.store.transaction import Reading, Transaction

LEASE_S = 60.0


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
    request = ChangeRequest(Disposition.SUPERSEDE, value, successor, who, why, grant_id, semantics, semantics_of)
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
    request = ChangeRequest(Disposition.RETIRE, ValueName(code, version), None, who, why, grant_id)
    return _performed(store, request, dry_run=dry_run)


def review(reading: Reading, contract: Contract) -> tuple[RollbackVerdict, Facts]:
    """Return the verdict on a rollback contract, and the facts behind it. It authorises nothing.

    Raise RegistryError if the target is neither CODE@VERSION nor a vocab_id: no verdict is about such a contract.
    """
    named, follower = ValueName.parsed(contract.target), ValueName.parsed(contract.successor)
    known = (
        reading.registry.value(named.code, named.version) if named else reading.registry.value_named(contract.target)
    )
    if named is None and known is None:
        raise refusal(
            RegistryCode.TARGET_UNVERSIONED,
            f"The target {contract.target!r} of the contract names no version.",
            target=contract.target,
            versions=[row.protocol_version for row in all_values(reading, operation_code=contract.target)],
        )
    facts = Facts(
        target=known,
        successor=reading.registry.value(follower.code, follower.version) if follower else None,
        follows=reading.registry.successions(),
        open_jobs=reading.registry.open_jobs_of(known.operation_code, known.protocol_version) if known else 0,
    )
    return rollback_verdict(contract, facts), facts


# ---------------------------------------------------------------------------------------------------------------------
# Making a change


def _performed(store: Store[Any], request: ChangeRequest, *, dry_run: bool) -> ValueChange:
    if dry_run:
        with store.reading() as reading:
            return _dry_run(reading, request)
    return retried(store, lambda transaction: _carried_out(transaction, request))


def _dry_run(reading: Reading, request: ChangeRequest) -> ValueChange:
    change = EvaluatedChange(reading, request)
    if change.done_before():
        return _unchanged(change)
    change.require_sound(reading)
    permitted = verdict_on(reading, change.wanted, request.grant_id)
    if isinstance(permitted, Rejected):
        return change.result(change.judged("given by the grant"), authority=str(permitted.code))
    scope = scope_of(permitted)
    verdict = change.judged(scope.rollback_plan if scope else "")
    return change.result(verdict, authority="GO", grant_id=permitted.grant_id)


def _unchanged(change: EvaluatedChange) -> ValueChange:
    target = change.target
    return change.result(
        RollbackVerdict.PASS, authority="GO", grant_id=target.grant_id, rollback_ref=target.rollback_ref
    )


def _carried_out(transaction: Transaction, request: ChangeRequest) -> ValueChange:
    move_id = uuid4().hex
    lease, holder = lease_of(known_value(transaction, request.value).collection), f"{request.actor}/{move_id}"
    token = transaction.leases.acquire(lease, holder, LEASE_S)
    if token is None:
        by = transaction.leases.all()[lease].holder
        raise RuntimeLeaseError(f"The lease {lease} is held by {by}.", context={"lease": lease, "holder": by})
    transaction.registry.lock()
    change = EvaluatedChange(transaction, request)  # evaluated again under the lease
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


def _move(
    transaction: Transaction, change: EvaluatedChange, grant_id: int, verdict: RollbackVerdict, move_id: str
) -> str:
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
            status=RegistryStatus.IN_FORCE,
            grant_id=grant_id,
            actor=request.actor,
            reason=request.reason,
            move_id=move_id,
        )
    return reference
