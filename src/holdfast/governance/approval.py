"""Approval: who may approve a grant, how an approver is identified, and whether a recorded approval is valid.

Invariants: who may approve depends only on the ledger's environment: in dev every person, in stage every person except
the requester, in prod a person other than the requester, identified by a key, a database role or the console. An
approval is bound to every field of its grant, by its signature and by the mark in the journal. Each registration or
revocation of an approver has a grant, which names the approver and the digest of the key. In prod only the first
approver is registered without an approval, by an explicit bootstrap that the journal records. A key belongs to one
name, and a name has one key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.audit.seals.keys import verified
from holdfast.core.authority import (
    AUTHENTIC,
    BOOTSTRAP,
    CLAIMED,
    FREE,
    ROLE,
    SELF,
    SIGNED,
    TEXT_BYTES_MAX,
    Act,
    ApprovalDoubt,
    Doubt,
    Reject,
    Wanted,
    approval_mark,
    approval_text,
    is_exact,
    recorded_via,
    registration_doubt,
    require_words,
    via_of,
)
from holdfast.core.digest import Json, canonical, sha256
from holdfast.core.environments import DEV, PROD, STAGE
from holdfast.core.errors import ApprovalError, AuthorityError, InputError, RecordNotFoundError
from holdfast.core.governed import Approver, Grant
from holdfast.core.machines import GRANT, GrantState

if TYPE_CHECKING:
    from holdfast.store import Store
    from holdfast.store.transaction import Reading, Transaction

KEY_BYTES = 32


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """An approver, and how they are identified: by their own claim, a database role, a key, or the console."""

    name: str
    method: str = CLAIMED  # or one of AUTHENTIC
    signature: str | None = None  # of `approval_text`, made with the key that is registered under the name


def environment_of(reading: Reading) -> str:
    """Return the ledger's environment: dev, stage or prod. A missing or unknown value counts as prod."""
    stored = reading.settings.read().get("environment")
    return stored if stored in (DEV, STAGE) else PROD


def wanted_here(
    reading: Reading, act: Act, target: str, executor: str, *, plan: str | None = None, manifest: str | None = None
) -> Wanted:
    """Return what a grant for an act in this ledger must permit."""
    environment = environment_of(reading)
    return Wanted(act=act, target=target, environment=environment, executor=executor, plan=plan, manifest=manifest)


# ---------------------------------------------------------------------------------------------------------------------
# Approving


def approval_record(reading: Reading, grant: Grant, approver: Identity) -> dict[str, Json]:
    """Return what the grant stores about an approval; raise ApprovalError if this approver may not approve it."""
    environment = environment_of(reading)
    own = approver.name == grant.requested_by
    if approver.method not in (CLAIMED, *AUTHENTIC):
        raise InputError(
            f"Unknown approval method {approver.method!r}; known: {', '.join((CLAIMED, *sorted(AUTHENTIC)))}.",
            context={"field": "method"},
        )
    if own and environment != DEV:
        raise ApprovalError(
            f"Grant {grant.grant_id} must be approved by a person other than its requester, {grant.requested_by}.",
            code="self_approval",
        )
    if approver.method == ROLE:
        _require_role(reading, grant, approver, environment)
    if approver.method in SIGNED:
        _require_signature(reading, grant, approver.name, approver.signature)
    if environment == PROD and approver.method not in AUTHENTIC:
        raise ApprovalError(
            f"In prod the approval of grant {grant.grant_id} must be signed, or come from a database role or the"
            " console.",
            code="approver_not_authenticated",
        )
    method = SELF if own and approver.method == CLAIMED else approver.method
    return {"method": method, "signature": approver.signature} if approver.method in SIGNED else {"method": method}


def _require_role(reading: Reading, grant: Grant, approver: Identity, environment: str) -> None:
    role = reading.grants.session_role()
    if role is None:
        raise ApprovalError(
            "This database has no roles: approve with a signature instead.", code="approver_not_authenticated"
        )
    if approver.name != role:
        raise ApprovalError(
            f"This session has the database role {role}, not {approver.name}.", code="approver_not_authenticated"
        )
    if environment != DEV and role == via_of(grant.requested_via).get("role"):
        raise ApprovalError(
            f"Grant {grant.grant_id} was requested by the database role {role}: another role must approve it.",
            code="self_approval",
        )


def _require_signature(reading: Reading, grant: Grant, name: str, signature: object) -> None:
    approver = active_approver(reading, name)
    text = text_to_approve(reading, grant)
    if not isinstance(signature, str) or not verified(text, signature, approver.public_key):
        raise ApprovalError(
            f"The signature on grant {grant.grant_id} is not valid for the key of {name}.",
            code="signature_invalid",
            context={"approver": name, "doubt": str(Doubt.SIGNATURE_INVALID)},
            next_step=f"Sign the grant again: `holdfast grant sign {grant.grant_id} --key FILE`.",
        )


def active_approver(reading: Reading, name: str) -> Approver:
    """Return an approver who is registered and not revoked, or raise ApprovalError.

    The key must be the one that the grant of the registration names. A row that was written or changed by hand has no
    such grant, and is refused.
    """
    approver = reading.grants.approvers().get(name)
    if approver is None or approver.revoked_at is not None:
        raise _unknown(f"{name} is not a registered approver.", name, Doubt.APPROVER_UNKNOWN)
    unproven = _unproven(reading, approver)
    if unproven is not None:
        code, message = unproven
        raise _unknown(f"{message[0].upper()}{message[1:]}.", name, code)
    dismissed = reading.grants.page(action=str(Act.DISMISS), target=name, state=GrantState.CONSUMED, limit=1)
    if dismissed and dismissed[0].grant_id > (approver.grant_id or 0):
        revoked = f"{name} was revoked as an approver, but the table of approvers does not show it."
        raise _unknown(revoked, name, Doubt.APPROVER_REVOKED)
    return approver


def _unproven(reading: Reading, approver: Approver) -> tuple[Doubt, str] | None:
    """Return why the registration of an approver does not count in this environment; None if it does.

    A registration that another approver has signed counts only if that signature and their own registration do.
    """
    grant = None if approver.grant_id is None else reading.grants.get(approver.grant_id)
    environment = environment_of(reading)
    doubt = registration_doubt(approver, grant, environment, reading.grants.bootstrap())
    if doubt is not None or grant is None or environment != PROD:
        return doubt
    via = recorded_via(grant)
    if via.get("method") not in SIGNED:
        return None
    by = reading.grants.approvers().get(grant.approved_by or "")
    if by is not None and (by.grant_id or 0) > grant.grant_id:
        return None  # registered again later, with another key: the key that signed is not stored any more
    signature = via.get("signature")
    text = text_to_approve(reading, grant)
    if by is None or not isinstance(signature, str) or not verified(text, signature, by.public_key):
        unsigned = f"the registration of {approver.name} was not signed by {grant.approved_by}"
        return Doubt.APPROVER_UNPROVEN, unsigned
    return _unproven(reading, by)


def _unknown(message: str, name: str, doubt: Doubt) -> ApprovalError:
    return ApprovalError(message, code="approver_unknown", context={"approver": name, "doubt": str(doubt)})


# ---------------------------------------------------------------------------------------------------------------------
# Validating recorded approvals


def approval_doubt(reading: Reading, grant: Grant) -> ApprovalDoubt | None:
    """Return why the approval of an active grant is not valid in this ledger's environment; None if it is valid."""
    method = recorded_via(grant).get("method")
    found = _doubt(reading, grant, method)
    return None if found is None else ApprovalDoubt(found[0], grant.approved_by, method, found[1])


def _doubt(reading: Reading, grant: Grant, method: object) -> tuple[Doubt, str] | None:
    environment = environment_of(reading)
    if not grant.approved_by:
        return Doubt.NO_APPROVER, "the grant is active, but no approver is recorded"
    if environment == DEV:
        return None
    if grant.approved_by == grant.requested_by:
        return Doubt.SELF_APPROVED, "only its requester approved it"
    if method not in (CLAIMED, *AUTHENTIC):
        return Doubt.NO_METHOD, "it does not record how the approver was identified"
    if method == ROLE and (
        reading.grants.session_role() is None or grant.approved_by == via_of(grant.requested_via).get("role")
    ):
        same = "the database role of the approver is that of the requester, or the database has no roles"
        return Doubt.ROLE_NOT_APART, same
    if environment == PROD and method not in AUTHENTIC:
        return Doubt.CLAIM_ONLY, "the approver was identified by their own claim only"
    if method in SIGNED:
        try:
            _require_signature(reading, grant, grant.approved_by, recorded_via(grant).get("signature"))
        except ApprovalError as error:
            return Doubt(str(error.context["doubt"])), error.message.removesuffix(".")
    last = reading.journal.of(grant.grant_id, GRANT.name)[-1:]
    mark = approval_mark(grant, reading.settings.read().get("ledger_id", ""))
    if [(row.event, row.actor, row.move_id) for row in last] != [("approve", grant.approved_by, mark)]:
        return Doubt.JOURNAL_DIFFERS, "the grant differs from what the journal says was approved"
    return None


def existing_grant(reading: Reading, grant_id: int) -> Grant:
    """Return a grant, or raise RecordNotFoundError."""
    grant = reading.grants.get(grant_id)
    if grant is None:
        raise RecordNotFoundError(f"Grant {grant_id} does not exist.", context={"grant_id": grant_id})
    return grant


def text_to_approve(reading: Reading, grant: Grant) -> bytes:
    """Return the exact words that an approval of a grant signs."""
    return approval_text(grant, reading.settings.read()["ledger_id"])


def approval_method(grant: Grant) -> str | None:
    """Return how the approver of a grant was identified, as recorded; None if the grant is not approved."""
    method = recorded_via(grant).get("method")
    return method if isinstance(method, str) else None


def requested_via(reading: Reading) -> str | None:
    """Return how the database identifies the requester, as a grant stores it; None if it does not."""
    role = reading.grants.session_role()
    return None if role is None else canonical({"role": role})


# ---------------------------------------------------------------------------------------------------------------------
# Approvers


def register_approver(
    store: Store[Any],
    name: str,
    public_key: str,
    *,
    actor: str,
    reason: str,
    grant_id: int | None = None,
    bootstrap: bool = False,
) -> Approver:
    """Register an approver and their public key, in hexadecimal digits, and return the approver.

    The first approver of a prod ledger has no one to approve the registration: it needs `bootstrap`, and the journal
    says so. Raise AuthorityError if a grant is needed and none permits it, ApprovalError if the name or the key is
    taken, or if `bootstrap` is missing or not possible.
    """
    require_words(name=name, actor=actor)
    require_words(TEXT_BYTES_MAX, reason=reason)
    if not is_exact(name):
        raise AuthorityError("The name of an approver must not contain wildcards.", code=Reject.GENERIC_SCOPE)
    key = _key(public_key)
    with store.transaction() as transaction:
        transaction.grants.lock_approvers()
        _require_free(transaction.grants.approvers(), name, key)
        wanted = wanted_here(transaction, Act.APPROVER, name, actor, manifest=sha256(key))
        first = wanted.environment == PROD and transaction.grants.bootstrap() is None
        if bootstrap or (first and grant_id is None):
            _require_bootstrap(name, first=first, bootstrap=bootstrap)
            reason = f"bootstrap of the first approver: {reason}"
        issued_as = BOOTSTRAP if bootstrap else None
        if wanted.environment == STAGE and grant_id is None:
            issued_as = FREE
        used = _consume_grant(transaction, wanted, reason=reason, issued_as=issued_as, grant_id=grant_id)
        added = transaction.grants.add_approver(name, key, actor=actor, reason=reason, grant_id=used)
        if not added:
            raise _taken(name)
        return transaction.grants.approvers()[name]


def _require_bootstrap(name: str, *, first: bool, bootstrap: bool) -> None:
    if not first:
        raise ApprovalError(
            "Only the first approver of a prod ledger can be registered by bootstrap.",
            code="bootstrap_refused",
            next_step="Remove --bootstrap; in prod request a grant for `approver.add` and have it approved.",
            context={"name": name},
        )
    if not bootstrap:
        raise ApprovalError(
            f"{name} would be the first approver of this prod ledger, and no approval confirms the key.",
            code="bootstrap_required",
            next_step="Compare the key with its owner, then add --bootstrap; the journal records it.",
            context={"name": name},
        )


def revoke_approver(store: Store[Any], name: str, *, actor: str, reason: str) -> Approver:
    """Revoke an approver and return them. This needs no approval; to approve again takes a new registration."""
    require_words(actor=actor)
    require_words(TEXT_BYTES_MAX, reason=reason)
    with store.transaction() as transaction:
        transaction.grants.lock_approvers()
        approver = transaction.grants.approvers().get(name)
        if approver is None:
            raise RecordNotFoundError(
                f"{name} is not a registered approver.",
                next_step="List the approvers: `holdfast grant approvers list`.",
                context={"name": name},
            )
        if approver.revoked_at is not None:
            raise ApprovalError(f"{name} is already revoked.", code="approver_revoked", context={"name": name})
        wanted = wanted_here(transaction, Act.DISMISS, name, actor, manifest=sha256(approver.public_key))
        _consume_grant(transaction, wanted, reason=reason, issued_as=FREE)  # the triggers require it
        transaction.grants.revoke_approver(name, actor=actor)
        return transaction.grants.approvers()[name]


def _consume_grant(
    transaction: Transaction, wanted: Wanted, *, reason: str, issued_as: str | None, grant_id: int | None = None
) -> int:
    """Consume the grant of a registration and return its id: a newly issued one, or one that was approved."""
    # `grants` imports this module to validate approvals; importing it here avoids a cycle.
    from holdfast.governance.grants import authorise, issue  # noqa: PLC0415 - see above

    if issued_as is not None:
        return issue(transaction, wanted, reason=reason, method=issued_as)
    return authorise(transaction, wanted, grant_id=grant_id, reason=reason)


def _require_free(known: dict[str, Approver], name: str, key: str) -> None:
    for approver in known.values():
        if approver.revoked_at is None and approver.name == name:
            raise _taken(name)
        if approver.revoked_at is None and approver.public_key == key:
            raise ApprovalError(
                f"This key is already registered for {approver.name}.",
                code="key_taken",
                next_step="Create another key: `holdfast audit keygen PATH`.",
                context={"name": approver.name},
            )


def _taken(name: str) -> ApprovalError:
    return ApprovalError(
        f"{name} is already registered.",
        code="approver_exists",
        next_step=f"Revoke the registered key first: `holdfast grant approvers revoke {name} --reason TEXT`.",
        context={"name": name},
    )


def _key(text: str) -> str:
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) != KEY_BYTES:
        raise InputError(
            f"A public Ed25519 key has {KEY_BYTES} bytes, written as {2 * KEY_BYTES} hexadecimal digits.",
            context={"field": "public_key"},
        )
    return raw.hex()
