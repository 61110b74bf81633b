"""Grants: requested, approved, and consumed inside the transaction of the act that they permit.

Invariants: `authorise` is the only way to use a grant; its caller writes the act in the same transaction, so both are
committed or neither; a grant that does not permit an act stays unchanged; who may approve depends only on the ledger's
environment. In dev an act without a grant gets a new one, requested and approved by its executor and recorded as such.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from holdfast.core.authority import (
    SELF,
    TEXT_BYTES_MAX,
    TTL,
    TTL_MAX,
    Act,
    Reject,
    Rejected,
    Wanted,
    approval_mark,
    is_exact,
    judge,
    require_words,
)
from holdfast.core.decide import Refused
from holdfast.core.digest import Json, canonical
from holdfast.core.environments import DEV
from holdfast.core.errors import ApprovalError, AuthorityError, InputError, RefusedByDatabaseError, invariant
from holdfast.core.governed import Grant, GrantEvent
from holdfast.core.machines import GrantState
from holdfast.governance.acts import stored_text
from holdfast.governance.approval import (
    Identity,
    approval_doubt,
    approval_record,
    environment_of,
    existing_grant,
    requested_via,
    wanted_here,
)

if TYPE_CHECKING:
    from holdfast.core.selection import Selection
    from holdfast.store import Store
    from holdfast.store.transaction import Reading, Transaction

SELECTION = "selection"  # the kind of the evidence that says what a replay selects
SELF_ROLLBACK = "undo by hand: a dev ledger"


# ---------------------------------------------------------------------------------------------------------------------
# Requesting, approving, revoking


def request(
    store: Store[Any],
    wanted: Wanted,
    *,
    requester: str,
    rollback_plan: str,
    reason: str,
    ttl: timedelta = TTL,
    selection: Selection | None = None,
) -> Grant:
    """Request a grant and return the draft; raise AuthorityError if a draft or active grant for the same act exists.

    `selection` is what a replay selects; it is stored for the approver.
    """
    with _one_of_a_kind(store, wanted, wanted.scope(rollback_plan).text), store.transaction() as transaction:
        made = request_in(transaction, wanted, requester=requester, rollback_plan=rollback_plan, reason=reason, ttl=ttl)
        if selection is not None:
            content = stored_text(selection)
            transaction.runs.add_evidence(SELECTION, made.target, content, actor=requester, grant_id=made.grant_id)
        return made


def request_in(
    transaction: Transaction, wanted: Wanted, *, requester: str, rollback_plan: str, reason: str, ttl: timedelta = TTL
) -> Grant:
    """Request a grant in a transaction of the caller, and return the draft."""
    require_words(requester=requester, executor=wanted.executor, target=wanted.target)
    require_words(TEXT_BYTES_MAX, reason=reason, rollback_plan=rollback_plan)
    require_words(**{f"action {number}": word for number, word in enumerate(wanted.exact_actions, 1)})
    require_words(**{name: text for name, text in (("plan", wanted.plan), ("manifest", wanted.manifest)) if text})
    require_ttl(ttl)
    if not is_exact(wanted.target, wanted.executor, *wanted.exact_actions):
        raise AuthorityError(
            "A grant names exactly what it permits: wildcards are not allowed.", code=Reject.GENERIC_SCOPE
        )
    here = environment_of(transaction)
    if wanted.environment != here:
        raise AuthorityError(
            f"This ledger is a {here} ledger, not {wanted.environment}.", code=Reject.WRONG_ENVIRONMENT
        )
    return _drafted(transaction, wanted, rollback_plan, requester=requester, reason=reason, ttl=ttl)


def _drafted(
    transaction: Transaction, wanted: Wanted, rollback_plan: str, *, requester: str, reason: str, ttl: timedelta
) -> Grant:
    """Write the draft of a grant, after ending an expired one for the same act."""
    scope = wanted.scope(rollback_plan).text
    _make_room(transaction, wanted, scope)
    grant_id = transaction.grants.request(
        action=str(wanted.act),
        target=wanted.target,
        scope=scope,
        actor=requester,
        reason=reason,
        expires_at=transaction.now() + ttl,
        via=requested_via(transaction),
    )
    return existing_grant(transaction, grant_id)


def require_ttl(ttl: timedelta) -> None:
    """Raise InputError unless a grant may be valid for this long."""
    if not timedelta(0) < ttl <= TTL_MAX:
        raise InputError(
            f"A grant is valid for more than 0 seconds and at most {TTL_MAX.days} days.", context={"field": "ttl"}
        )


def _make_room(transaction: Transaction, wanted: Wanted, scope: str) -> None:
    """End an expired grant for the same act; raise AuthorityError if one is still valid."""
    now = transaction.now()
    for grant in transaction.grants.open_for(str(wanted.act), wanted.target):
        if grant.scope != scope:
            continue
        if grant.expires_at > now:
            raise _exists(grant)
        event = "expire" if grant.state == GrantState.ACTIVE else "revoke"
        answer = transaction.grants.move(grant, GrantEvent(event, "holdfast"), reason="expired unused")
        if isinstance(answer, Refused):
            raise _changed(grant, answer)


@contextmanager
def _one_of_a_kind(store: Store[Any], wanted: Wanted, scope: str) -> Iterator[None]:
    """Raise AuthorityError with the id of the other grant if two requests for the same grant met."""
    try:
        yield
    except RefusedByDatabaseError:
        with store.reading() as reading:
            same = [g for g in reading.grants.open_for(str(wanted.act), wanted.target) if g.scope == scope]
        if same:
            raise _exists(same[0]) from None
        raise


def _exists(grant: Grant) -> AuthorityError:
    return AuthorityError(
        f"Grant {grant.grant_id} already exists for exactly this act; it is {grant.state}.",
        code="grant_exists",
        next_step=f"Use it, or revoke it: `holdfast grant revoke {grant.grant_id} --reason TEXT`.",
        context={"grant_id": grant.grant_id},
    )


def approve(store: Store[Any], grant_id: int, approver: Identity, *, reason: str | None = None) -> Grant:
    """Approve a draft and return it; raise ApprovalError if this approver may not approve it in this environment."""
    require_words(approver=approver.name)
    if reason is not None:
        require_words(TEXT_BYTES_MAX, reason=reason)
    with store.transaction() as transaction:
        grant = existing_grant(transaction, grant_id)
        via = canonical(approval_record(transaction, grant, approver))
        command = GrantEvent("approve", approver.name, may_self_approve=environment_of(transaction) == DEV)
        mark = approval_mark(grant, transaction.settings.read()["ledger_id"])
        answer = transaction.grants.move(grant, command, reason=reason, via=via, move_id=mark)
        if isinstance(answer, Refused):
            raise _changed(grant, answer)
        return existing_grant(transaction, grant_id)


def revoke(store: Store[Any], grant_id: int, *, actor: str, reason: str) -> Grant:
    """Revoke a draft or active grant and return it; raise ApprovalError if it is neither."""
    require_words(actor=actor)
    require_words(TEXT_BYTES_MAX, reason=reason)
    with store.transaction() as transaction:
        grant = existing_grant(transaction, grant_id)
        answer = transaction.grants.move(grant, GrantEvent("revoke", actor), reason=reason)
        if isinstance(answer, Refused):
            raise _changed(grant, answer)
        return existing_grant(transaction, grant_id)


def _changed(grant: Grant, refused: Refused) -> ApprovalError:
    number = grant.grant_id
    return ApprovalError(
        refused.message,
        code=refused.code,
        next_step=f"Show the grant: `holdfast grant show {number}`.",
        context={"grant_id": number, "state": str(grant.state)},
    )


# ---------------------------------------------------------------------------------------------------------------------
# Using


def authorise(
    transaction: Transaction, wanted: Wanted, *, grant_id: int | None, reason: str, move_id: str | None = None
) -> int:
    """Consume the grant that permits an act, in the act's transaction, and return its id; or raise AuthorityError.

    `move_id` is that of the governed move: the database requires both moves to have the same one.
    """
    verdict = verdict_on(transaction, wanted, grant_id)
    if isinstance(verdict, Rejected):
        if grant_id is None and verdict.code != Reject.AMBIGUOUS and environment_of(transaction) == DEV:
            return issue(transaction, wanted, reason=reason, move_id=move_id)
        raise rejection(verdict, wanted)
    _consume(transaction, verdict, wanted, reason, move_id)
    return verdict.grant_id


def permission(
    act: Act,
    target: str,
    *,
    executor: str,
    reason: str,
    plan: str | None = None,
    manifest: str | None = None,
    grant_id: int | None = None,
) -> Callable[[Transaction], int]:
    """Return a function that consumes a grant for one act in a given transaction, for layers below governance."""

    def consume(transaction: Transaction) -> int:
        wanted = wanted_here(transaction, act, target, executor, plan=plan, manifest=manifest)
        return authorise(transaction, wanted, grant_id=grant_id, reason=reason)

    return consume


def verdict_on(reading: Reading, wanted: Wanted, grant_id: int | None) -> Grant | Rejected:
    """Return the grant that permits an act now, or why none does. Nothing is consumed."""
    while True:
        found = _named(reading, wanted, grant_id)
        doubts = {
            grant.grant_id: doubt
            for grant in found
            if grant.state == GrantState.ACTIVE and (doubt := approval_doubt(reading, grant)) is not None
        }
        # A grant that changed between two statements may look forged: read it again.
        if not doubts or _named(reading, wanted, grant_id) == found:
            return judge(grant_id, found, wanted, reading.now(), doubts)


def _named(reading: Reading, wanted: Wanted, grant_id: int | None) -> list[Grant]:
    if grant_id is None:
        return [g for g in reading.grants.open_for(str(wanted.act), wanted.target) if g.state == GrantState.ACTIVE]
    named = reading.grants.get(grant_id)
    return [named] if named else []


def rejection(rejected: Rejected, wanted: Wanted) -> AuthorityError:
    """Return the error for an act that no grant permits, with the command that requests a grant."""
    scope: dict[str, object] = {
        "executor": wanted.executor,
        "plan": wanted.plan,
        "manifest": wanted.manifest,
        "actions": ",".join(wanted.actions) or None,
    }
    options = " ".join(f"--{name} {shlex.quote(str(value))}" for name, value in scope.items() if value is not None)
    what = f"{wanted.act} {shlex.quote(wanted.target)}"
    next_step = {
        Reject.AMBIGUOUS: "Name one of them with --grant ID.",
        Reject.NOT_ACTIVE: "Have it approved: `holdfast grant approve --help`.",
    }.get(
        rejected.code,
        f"Request a grant: `holdfast grant request {what} {options} --rollback-plan TEXT --reason TEXT`,"
        " then approve it.",
    )
    return AuthorityError(
        rejected.message,
        code=rejected.code,
        next_step=next_step,
        context={"action": str(wanted.act), "target": wanted.target, "environment": wanted.environment, **scope},
    )


def issue(
    transaction: Transaction,
    wanted: Wanted,
    *,
    reason: str,
    move_id: str | None = None,
    under: int | None = None,
    method: str = SELF,
) -> int:
    """Request, approve and consume a grant in one step, and return its id.

    For an executor's own grant in dev, and for each of many acts `under` one grant for all of them. `method` is
    recorded as the way it was approved.
    """
    via: dict[str, Json] = {"method": method} if under is None else {"method": "grant", "grant_id": under}
    executor = wanted.executor
    rollback = SELF_ROLLBACK if under is None else f"as grant {under} says"
    draft = _drafted(transaction, wanted, rollback, requester=executor, reason=reason, ttl=TTL)
    command = GrantEvent("approve", executor, may_self_approve=True)
    mark = approval_mark(draft, transaction.settings.read().get("ledger_id", ""))
    answer = transaction.grants.move(draft, command, via=canonical(via), move_id=mark)
    invariant(not isinstance(answer, Refused), "an issued grant could not be approved")
    _consume(transaction, existing_grant(transaction, draft.grant_id), wanted, reason, move_id)
    return draft.grant_id


def _consume(transaction: Transaction, grant: Grant, wanted: Wanted, reason: str, move_id: str | None) -> None:
    command = GrantEvent("consume", wanted.executor)
    answer = transaction.grants.move(grant, command, reason=reason, move_id=move_id or uuid4().hex)
    if isinstance(answer, Refused):
        # It was valid a moment ago: another executor used it first, or it expired.
        verdict = verdict_on(transaction, wanted, grant.grant_id)
        invariant(isinstance(verdict, Rejected), f"grant {grant.grant_id} is valid, but could not be used")
        raise rejection(verdict, wanted) if isinstance(verdict, Rejected) else _changed(grant, answer)
