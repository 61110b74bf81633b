"""Approval: who may approve a grant where, how that is known, and whether an approval on record is to be believed.

Invariants: who may approve depends on the ledger's environment alone: in dev anybody, in stage anybody but the
requester, in prod only somebody else who is known by a key, a role of the database or the console; an approval is bound
to every word of its grant, by its signature and by the mark that the journal keeps. Everybody who is registered or
revoked as an approver is so under a grant, which names them and the digest of their key; in prod only the first one
ever is registered without an approval, recorded as bootstrap; a key speaks for one name, and a name has one key.
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
    KEY,
    ROLE,
    SELF,
    TEXT_BYTES_MAX,
    Act,
    Reject,
    Wanted,
    approval_mark,
    approval_text,
    is_exact,
    require_words,
    scope_of,
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
    """Somebody who approves, and how that is known: by their word, a role of the database, a key, or the console."""

    name: str
    method: str = CLAIMED  # or one of AUTHENTIC
    signature: str | None = None  # of `approval_text`, by the key that is registered under the name


def environment_of(reading: Reading) -> str:
    """Return what the ledger is for: dev, stage or prod. One that does not say so is treated as prod."""
    said = reading.settings.read().get("environment")
    return said if said in (DEV, STAGE) else PROD


# ---------------------------------------------------------------------------------------------------------------------
# Approving


def approval_record(reading: Reading, grant: Grant, approver: Identity) -> dict[str, Json]:
    """Return what is kept of an approval, or raise ApprovalError."""
    environment, number = environment_of(reading), f"grant {grant.grant_id}"
    own = approver.name == grant.requested_by
    if approver.method not in (CLAIMED, *AUTHENTIC):
        raise InputError(f"nobody is known by {approver.method!r}", context={"field": "method"})
    if own and environment != DEV:
        raise ApprovalError(f"{number} needs the approval of somebody else", code="self_approval")
    if approver.method == ROLE:
        _require_role(reading, grant, approver, environment)
    if approver.method == KEY:
        _require_signature(reading, grant, approver.name, approver.signature)
    if environment == PROD and approver.method not in AUTHENTIC:
        raise ApprovalError(
            f"in prod a word is not enough: {number} needs somebody who is known by a key, a role of the database, or"
            " the console",
            code="approver_not_authenticated",
        )
    method = SELF if own and approver.method == CLAIMED else approver.method
    return {"method": method, "signature": approver.signature} if approver.method == KEY else {"method": method}


def _require_role(reading: Reading, grant: Grant, approver: Identity, environment: str) -> None:
    role = reading.grants.session_role()
    if role is None:
        raise ApprovalError("this database knows its sessions by no role", code="approver_not_authenticated")
    if approver.name != role:
        raise ApprovalError(
            f"the database knows this session as {role}, not as {approver.name}", code="approver_not_authenticated"
        )
    if environment != DEV and role == _decoded(grant.requested_via).get("role"):
        raise ApprovalError(f"grant {grant.grant_id} was asked for by the role {role} itself", code="self_approval")


def _require_signature(reading: Reading, grant: Grant, name: str, signature: object) -> None:
    approver = active_approver(reading, name)
    told = approval_text(grant, reading.settings.read()["ledger_id"])
    if not isinstance(signature, str) or not verified(told, signature, approver.public_key):
        raise ApprovalError(
            f"this is not the signature of {name} under grant {grant.grant_id}",
            code="signature_invalid",
            next_step=f"Sign it anew: `holdfast grant sign {grant.grant_id} --key FILE`.",
        )


def active_approver(reading: Reading, name: str) -> Approver:
    """Return somebody who may approve by a key, or raise ApprovalError.

    The key is that of a grant, which is in the journal: a row that somebody wrote or changed by hand has none.
    """
    approver = reading.grants.approvers().get(name)
    if approver is None or approver.revoked_at is not None:
        raise ApprovalError(f"{name} is not registered to approve", code="approver_unknown")
    grant = reading.grants.get(approver.grant_id) if approver.grant_id is not None else None
    scope = scope_of(grant) if grant else None
    if (
        grant is None
        or scope is None
        or (grant.state, grant.action, grant.target) != (GrantState.CONSUMED, Act.APPROVER, name)
        or scope.manifest != sha256(approver.public_key)
    ):
        raise ApprovalError(f"{name} was not registered under a grant for that key", code="approver_unknown")
    dismissed = reading.grants.page(action=str(Act.DISMISS), target=name, state=GrantState.CONSUMED, limit=1)
    if dismissed and dismissed[0].grant_id > grant.grant_id:
        raise ApprovalError(f"{name} was revoked, whatever the table says", code="approver_unknown")
    return approver


# ---------------------------------------------------------------------------------------------------------------------
# Believing


def approval_doubt(reading: Reading, grant: Grant) -> str | None:
    """Return why an active grant was not approved as this ledger's environment demands; None if it was."""
    environment, via = environment_of(reading), _decoded(grant.approved_via)
    method = via.get("method")
    if not grant.approved_by:
        return "it was activated, and nobody has approved it"
    if environment == DEV:
        return None
    if grant.approved_by == grant.requested_by:
        return "nobody else than its requester has approved it"
    if method not in (CLAIMED, *AUTHENTIC):
        return "its approval does not say how the approver was known"
    if method == ROLE and (reading.grants.session_role() is None or grant.approved_by == _role_of(grant)):
        return "the database could not have told the approver from the requester"
    if environment == PROD and method not in AUTHENTIC:
        return "nothing but a word speaks for its approval"
    if method == KEY:
        try:
            _require_signature(reading, grant, grant.approved_by, via.get("signature"))
        except ApprovalError as error:
            return error.message
    last = reading.journal.of(grant.grant_id, GRANT.name)[-1:]
    mark = approval_mark(grant, reading.settings.read().get("ledger_id", ""))
    if [(row.event, row.actor, row.move_id) for row in last] != [("approve", grant.approved_by, mark)]:
        return "it is not what the journal says was approved"
    return None


def existing_grant(reading: Reading, grant_id: int) -> Grant:
    """Return a grant, or raise RecordNotFoundError."""
    grant = reading.grants.get(grant_id)
    if grant is None:
        raise RecordNotFoundError(f"there is no grant {grant_id}", context={"grant_id": grant_id})
    return grant


def approval_method(grant: Grant) -> str | None:
    """Return how the approver of a grant was known, as it was recorded; None if nobody has approved it."""
    method = _decoded(grant.approved_via).get("method")
    return method if isinstance(method, str) else None


def requested_via(reading: Reading) -> str | None:
    """Return how whoever asks is known to the database, as it is kept; None if by nothing."""
    role = reading.grants.session_role()
    return None if role is None else canonical({"role": role})


def _role_of(grant: Grant) -> object:
    return _decoded(grant.requested_via).get("role")


def _decoded(via: str | None) -> dict[str, Any]:
    try:
        told = msgspec.json.decode(via or "{}")
    except (msgspec.DecodeError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


# ---------------------------------------------------------------------------------------------------------------------
# Approvers


def register_approver(
    store: Store[Any], name: str, public_key: str, *, actor: str, reason: str, grant_id: int | None = None
) -> Approver:
    """Let somebody approve by the private half of a key, whose public half is given in hexadecimal digits."""
    require_words(name=name, actor=actor)
    require_words(TEXT_BYTES_MAX, reason=reason)
    if not is_exact(name):
        raise AuthorityError("an approver has a name of their own: no wildcards", code=Reject.GENERIC_SCOPE)
    key = _key(public_key)
    with store.transaction() as transaction:
        transaction.grants.lock_approvers()
        others = transaction.grants.approvers()
        _require_free(others, name, key)
        wanted = _wanted(transaction, Act.APPROVER, name, key, actor)
        approved = wanted.environment == DEV or grant_id is not None or (wanted.environment == PROD and others)
        issued_as = None if approved else BOOTSTRAP if wanted.environment == PROD else FREE
        used = _consume_grant(transaction, wanted, reason=reason, issued_as=issued_as, grant_id=grant_id)
        added = transaction.grants.add_approver(name, key, actor=actor, reason=reason, grant_id=used)
        if not added:
            raise _taken(name)
        return transaction.grants.approvers()[name]


def revoke_approver(store: Store[Any], name: str, *, actor: str, reason: str) -> Approver:
    """Let somebody approve no more. Anybody may, at once; it is recorded, and to come back takes a registration."""
    require_words(actor=actor)
    require_words(TEXT_BYTES_MAX, reason=reason)
    with store.transaction() as transaction:
        transaction.grants.lock_approvers()
        approver = transaction.grants.approvers().get(name)
        if approver is None:
            raise RecordNotFoundError(
                f"nobody is registered as {name}",
                next_step="List them with `holdfast grant approvers list`.",
                context={"name": name},
            )
        if not transaction.grants.revoke_approver(name, actor=actor):
            raise ApprovalError(f"{name} was revoked before", code="approver_revoked", context={"name": name})
        wanted = _wanted(transaction, Act.DISMISS, name, approver.public_key, actor)
        _consume_grant(transaction, wanted, reason=reason, issued_as=FREE)
        return transaction.grants.approvers()[name]


def _consume_grant(
    transaction: Transaction, wanted: Wanted, *, reason: str, issued_as: str | None, grant_id: int | None = None
) -> int:
    """Use the grant for a registration up, and return its id: one that is issued for it, or one that was approved."""
    # `grants` judges approvals by this module, so it is imported when it is needed.
    from holdfast.governance.grants import authorise, issue  # noqa: PLC0415 - see above

    if issued_as is not None:
        return issue(transaction, wanted, reason=reason, method=issued_as)
    return authorise(transaction, wanted, grant_id=grant_id, reason=reason)


def _wanted(transaction: Transaction, act: Act, name: str, key: str, actor: str) -> Wanted:
    environment = environment_of(transaction)
    return Wanted(act=act, target=name, environment=environment, executor=actor, manifest=sha256(key))


def _require_free(known: dict[str, Approver], name: str, key: str) -> None:
    for approver in known.values():
        if approver.revoked_at is None and approver.name == name:
            raise _taken(name)
        if approver.revoked_at is None and approver.public_key == key:
            raise ApprovalError(
                f"this is the key of {approver.name}: a key speaks for one name",
                code="key_taken",
                next_step="Make another with `holdfast audit keygen PATH`.",
                context={"name": approver.name},
            )


def _taken(name: str) -> ApprovalError:
    return ApprovalError(
        f"{name} is registered already",
        code="approver_exists",
        next_step=f"Revoke the old key first: `holdfast grant approvers revoke {name} --reason …`.",
        context={"name": name},
    )


def _key(text: str) -> str:
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) != KEY_BYTES:
        raise InputError(
            f"a public Ed25519 key has {KEY_BYTES} bytes, in hexadecimal digits", context={"field": "public_key"}
        )
    return raw.hex()
