"""Approvals: who may approve a grant where, how that is known, and whether an approval on record is to be believed.

Invariants: who may approve depends on the ledger's environment alone: in dev anybody, in stage anybody but the
requester, in prod only somebody else who is known by a key, a role of the database or the console; an approval is bound
to every word of its grant, by its signature and by the mark that the journal keeps; nothing here writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.audit.seals.signing import verified
from holdfast.core.authority import (
    AUTHENTIC,
    CLAIMED,
    DEV,
    KEY,
    PROD,
    ROLE,
    SELF,
    STAGE,
    Act,
    approval_mark,
    approval_text,
    scope_of,
)
from holdfast.core.digest import Json, canonical, sha256
from holdfast.core.errors import ApprovalError, InputError, RecordNotFoundError
from holdfast.core.machines import GRANT, GrantState
from holdfast.core.records import Approver, Grant

if TYPE_CHECKING:
    from holdfast.store.reading import Reading


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who approves, and how that is known: by their word, a role of the database, a key, or the console."""

    name: str
    method: str = CLAIMED  # or one of AUTHENTIC
    signature: str | None = None  # of `approval_text`, by the key that is registered under the name


def environment_of(reading: Reading) -> str:
    """Return what the ledger is for: dev, stage or prod. One that does not say so is treated as prod."""
    said = reading.meta().get("environment")
    return said if said in (DEV, STAGE) else PROD


# ---------------------------------------------------------------------------------------------------------------------
# Approving


def approval_of(reading: Reading, grant: Grant, approver: Identity) -> dict[str, Json]:
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
    role = reading.session_role()
    if role is None:
        raise ApprovalError("this database knows its sessions by no role", code="approver_not_authenticated")
    if approver.name != role:
        raise ApprovalError(
            f"the database knows this session as {role}, not as {approver.name}", code="approver_not_authenticated"
        )
    if environment != DEV and role == _decoded(grant.requested_via).get("role"):
        raise ApprovalError(f"grant {grant.grant_id} was asked for by the role {role} itself", code="self_approval")


def _require_signature(reading: Reading, grant: Grant, name: str, signature: object) -> None:
    approver = registered(reading, name)
    told = approval_text(grant, reading.meta()["ledger_id"])
    if not isinstance(signature, str) or not verified(told, signature, approver.public_key):
        raise ApprovalError(
            f"this is not the signature of {name} under grant {grant.grant_id}",
            code="signature_invalid",
            next_step=f"Sign it anew: `holdfast grant sign {grant.grant_id} --key FILE`.",
        )


def registered(reading: Reading, name: str) -> Approver:
    """Return somebody who may approve by a key, or raise ApprovalError.

    The key is that of a grant, which is in the journal: a row that somebody wrote or changed by hand has none.
    """
    approver = reading.approvers().get(name)
    if approver is None or approver.revoked_at is not None:
        raise ApprovalError(f"{name} is not registered to approve", code="approver_unknown")
    grant = reading.grant(approver.grant_id) if approver.grant_id is not None else None
    scope = scope_of(grant) if grant else None
    if (
        grant is None
        or scope is None
        or (grant.state, grant.action, grant.target) != (GrantState.CONSUMED, Act.APPROVER, name)
        or scope.manifest != sha256(approver.public_key)
    ):
        raise ApprovalError(f"{name} was not registered under a grant for that key", code="approver_unknown")
    dismissed = reading.grants(action=str(Act.DISMISS), target=name, state=GrantState.CONSUMED, limit=1)
    if dismissed and dismissed[0].grant_id > grant.grant_id:
        raise ApprovalError(f"{name} was revoked, whatever the table says", code="approver_unknown")
    return approver


# ---------------------------------------------------------------------------------------------------------------------
# Believing


def doubt_of(reading: Reading, grant: Grant) -> str | None:
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
    if method == ROLE and (reading.session_role() is None or grant.approved_by == _role_of(grant)):
        return "the database could not have told the approver from the requester"
    if environment == PROD and method not in AUTHENTIC:
        return "nothing but a word speaks for its approval"
    if method == KEY:
        try:
            _require_signature(reading, grant, grant.approved_by, via.get("signature"))
        except ApprovalError as error:
            return error.message
    last = reading.journal(grant.grant_id, GRANT.name)[-1:]
    mark = approval_mark(grant, reading.meta().get("ledger_id", ""))
    if [(row.event, row.actor, row.move_id) for row in last] != [("approve", grant.approved_by, mark)]:
        return "it is not what the journal says was approved"
    return None


def known(reading: Reading, grant_id: int) -> Grant:
    """Return a grant, or raise RecordNotFoundError."""
    grant = reading.grant(grant_id)
    if grant is None:
        raise RecordNotFoundError(f"there is no grant {grant_id}", context={"grant_id": grant_id})
    return grant


def method_of(grant: Grant) -> str | None:
    """Return how the approver of a grant was known, as it was recorded; None if nobody has approved it."""
    method = _decoded(grant.approved_via).get("method")
    return method if isinstance(method, str) else None


def asked_via(reading: Reading) -> str | None:
    """Return how whoever asks is known to the database, as it is kept; None if by nothing."""
    role = reading.session_role()
    return None if role is None else canonical({"role": role})


def _role_of(grant: Grant) -> object:
    return _decoded(grant.requested_via).get("role")


def _decoded(via: str | None) -> dict[str, Any]:
    try:
        told = msgspec.json.decode(via or "{}")
    except (msgspec.DecodeError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}
