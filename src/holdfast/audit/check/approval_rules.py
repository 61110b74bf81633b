"""Rules about approvals: whether each grant that permits something was approved as its environment demands.

Invariants: in dev everything is accepted; a grant of an application, whose action is not an act of Holdfast, is not
judged; a signature is verified with the key that was registered before the grant, and only where that key is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from holdfast.audit.check.context import RuleContext
from holdfast.audit.check.findings import Finding
from holdfast.audit.seals.keys import verified
from holdfast.core.authority import (
    AUTHENTIC,
    BOOTSTRAP,
    CLAIMED,
    FREE,
    KEY,
    Act,
    approval_mark,
    approval_text,
    scope_of,
)
from holdfast.core.digest import sha256
from holdfast.core.environments import DEV, PROD, STAGE
from holdfast.core.governed import Approver, Grant
from holdfast.core.machines import GRANT, GrantState

UNDER = "grant"  # approved by another grant, which covers many acts
_UNAPPROVED = frozenset({Act.APPROVER, Act.DISMISS, Act.RESTORE})  # acts that in some cases need no approval


def authentic(context: RuleContext) -> Iterator[Finding]:
    """Yield active and consumed grants whose approval is not one that the environment in their scope accepts."""
    settings = context.evidence.meta()
    if settings.get("environment") not in (STAGE, PROD):
        return
    approvers, before = context.evidence.approvers(), None
    while grants := context.evidence.grants(before, context.batch):
        before = grants[-1].grant_id
        for grant in grants:
            scope = scope_of(grant)
            if (
                grant.action not in set(Act)
                or grant.state not in (GrantState.ACTIVE, GrantState.CONSUMED)
                or (scope is not None and scope.environment == DEV)
                or (not grant.approved_by and grant.state == GrantState.ACTIVE)  # another rule finds it
            ):
                continue
            doubt = _doubt(context, grant, approvers, settings)
            if doubt:
                evidence = {"kind": "approval", "approved_by": grant.approved_by}
                yield Finding(f"{GRANT.name} {grant.grant_id}", doubt, GRANT.name, grant.grant_id, evidence)


def _doubt(
    context: RuleContext, grant: Grant, approvers: Mapping[str, Approver], settings: Mapping[str, str]
) -> str | None:
    """Return why the approval of a grant is not valid; None if it is."""
    ledger_id, via = settings.get("ledger_id", ""), _decoded(grant.approved_via)
    method = via.get("method")
    if not grant.approved_by:
        return "the grant was used, but no approver is recorded"
    allowed = {UNDER, *AUTHENTIC} if settings.get("environment") == PROD else {UNDER, CLAIMED, *AUTHENTIC}
    if grant.action in _UNAPPROVED:
        allowed |= {BOOTSTRAP, FREE}
    if method not in allowed:
        return f"the approver {grant.approved_by} was identified by {method!r}, which this environment does not accept"
    if method == UNDER and (not isinstance(via.get("grant_id"), int) or context.grant(via["grant_id"]) is None):
        return f"it was approved under grant {via.get('grant_id')!r}, which does not exist"
    approved = context.evidence.approval_of(grant.grant_id)
    if approved is not None and approved != (grant.approved_by, approval_mark(grant, ledger_id)):
        return "the grant differs from what the journal says was approved"
    if method != KEY or grant.action == Act.RESTORE:  # a restore goes by a slip, which is verified before it is used
        return None
    known, signature = approvers.get(grant.approved_by), via.get("signature")
    if known is None or not _registered(context, known):
        return f"{grant.approved_by} is not an approver whom a grant has registered with this key"
    if (known.grant_id or 0) > grant.grant_id:
        return None  # registered again since, with another key: the one that signed is not known any more
    if not isinstance(signature, str) or not verified(approval_text(grant, ledger_id), signature, known.public_key):
        return f"the signature on the grant is not valid for the key of {grant.approved_by}"
    return None


def _registered(context: RuleContext, approver: Approver) -> bool:
    """Return whether the grant of a registration names this approver and this key."""
    grant = context.evidence.grant(approver.grant_id) if approver.grant_id is not None else None
    scope = scope_of(grant) if grant else None
    return (
        grant is not None
        and scope is not None
        and (grant.state, grant.action, grant.target) == (GrantState.CONSUMED, Act.APPROVER, approver.name)
        and scope.manifest == sha256(approver.public_key)
    )


def _decoded(via: str | None) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(via or "{}")
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
