"""Rules about approvals: whether each grant that permits something was approved as its environment demands.

Invariants: in dev everything is accepted; a grant of an application, whose action is not an act of Holdfast, is not
judged; a signature is verified with the key that was registered before the grant, and only where that key is known; a
grant for a milder environment counts only if the ledger was raised after it was used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from holdfast.audit.check.context import RuleContext
from holdfast.audit.check.findings import Finding
from holdfast.audit.seals.keys import verified
from holdfast.core import authority
from holdfast.core.authority import Act, Doubt
from holdfast.core.candidates import unpacked
from holdfast.core.digest import canonical
from holdfast.core.environments import ENVIRONMENTS, PROD, STAGE
from holdfast.core.governed import Approver, Grant
from holdfast.core.machines import GRANT, GrantState
from holdfast.core.selection import candidates_hash
from holdfast.store.verbs.approvals import approval_of, grant_named, last_acts, raised_after

UNDER = "grant"  # approved by another grant, which covers many acts
MANY, ONE = "quarantine:", "job:"  # and the hash of the job ids, or the id: the targets of grants to release jobs
_SPEND = (GrantState.ACTIVE, GrantState.CONSUMED)


class _Ledger(NamedTuple):
    """The facts of one ledger by which its approvals are judged."""

    environment: str
    ledger_id: str
    approvers: Mapping[str, Approver]
    bootstrap: int | None
    has_roles: bool


def authentic(context: RuleContext) -> Iterator[Finding]:
    """Yield active and consumed grants with an approval that the environment in their scope does not accept."""
    ledger = _ledger(context)
    if ledger.environment not in (STAGE, PROD):
        return
    released: dict[int, list[Grant]] = defaultdict(list)  # by the grant for several jobs
    before = None
    while grants := context.reading.grants.page(before=before, limit=context.batch):
        before = grants[-1].grant_id
        for grant in grants:
            if (
                grant.action not in set(Act)
                or grant.state not in _SPEND
                or (not grant.approved_by and grant.state == GrantState.ACTIVE)  # another rule finds it
            ):
                continue
            doubt = _doubt(context, grant, ledger)
            if doubt:
                yield _of_grant(grant, doubt)
            elif authority.recorded_via(grant).get("method") == UNDER:
                released[authority.recorded_via(grant)["grant_id"]].append(grant)
    for parent, children in released.items():
        yield from _beyond(context, parent, children)


def registered(context: RuleContext) -> Iterator[Finding]:
    """Yield approvers whose key no grant has registered, or who are not revoked although a grant has revoked them."""
    ledger = _ledger(context)
    for approver in ledger.approvers.values():
        grant = grant_named(context.reading, approver.grant_id)
        flaw = authority.registration_doubt(approver, grant, ledger.environment, ledger.bootstrap)
        if flaw is None or (flaw[0] is Doubt.APPROVER_UNPROVEN and _before_raise(context, grant, ledger)):
            continue
        yield _of_approver(approver.name, *flaw)
    for used in last_acts(context.reading):
        name = used.target
        known = ledger.approvers.get(name)
        if known is None:
            yield _of_approver(name, Doubt.APPROVER_UNKNOWN, f"grant {used.grant_id} names {name}, who is not stored")
        elif (known.revoked_at is not None) != (used.action == Act.DISMISS):
            is_, was = ("revoked", "registered") if known.revoked_at else ("not revoked", "revoked")
            detail = f"{name} is {is_}, but grant {used.grant_id} {was} the approver last"
            yield _of_approver(name, Doubt.APPROVER_REVOKED, detail)


def rewrites(context: RuleContext) -> Iterator[Finding]:
    """Yield maintenance that rewrote or deleted records outside dev without a grant to repair or to restore."""
    if context.evidence.meta().get("environment") not in (STAGE, PROD):
        return
    for door, actor, event, first, n in context.reading.run("rewrites_to_doubt", n=context.limit):
        detail = f"{actor} changed {n} records without a grant to repair or to restore; one of them: {event} of {first}"
        yield Finding(f"MAINTENANCE {door}", detail, evidence={"kind": "rewrite", "rows": n})


def _of_grant(grant: Grant, detail: str) -> Finding:
    evidence = {"kind": "approval", "approved_by": grant.approved_by}
    return Finding(f"{GRANT.name} {grant.grant_id}", detail, GRANT.name, grant.grant_id, evidence)


def _of_approver(name: str, code: str, detail: str) -> Finding:
    return Finding(f"APPROVER {name}", detail, evidence={"kind": "approver", "name": name, "doubt": str(code)})


def _ledger(context: RuleContext) -> _Ledger:
    settings, grants = context.evidence.meta(), context.reading.grants
    return _Ledger(
        settings.get("environment", ""),
        settings.get("ledger_id", ""),
        grants.approvers(),
        grants.bootstrap(),
        context.reading.dialect == "postgres",
    )


def _doubt(context: RuleContext, grant: Grant, ledger: _Ledger) -> str | None:
    """Return why the approval of a grant is not valid; None if it is."""
    scope, via = authority.scope_of(grant), authority.recorded_via(grant)
    if not grant.approved_by:
        return "the grant was used, but no approver is recorded"
    environment = ledger.environment if scope is None else scope.environment
    if environment != ledger.environment and _milder(environment, ledger.environment):
        if not raised_after(context.reading, grant.grant_id):
            return f"it is for {environment}, but the ledger is for {ledger.environment} and was not raised since"
        if environment not in (STAGE, PROD):
            return None
    method = via.get("method")
    if method not in _accepted(grant, environment, ledger):
        return f"the approver {grant.approved_by} was identified by {method!r}, which this environment does not accept"
    if method == authority.ROLE and grant.action != Act.RESTORE and (why := _not_a_role(grant, ledger)):
        return why
    approved = approval_of(context.reading, grant.grant_id)
    if approved is not None and approved[:2] != (grant.approved_by, authority.approval_mark(grant, ledger.ledger_id)):
        return "the grant differs from what the journal says was approved"
    if approved is not None and approved.maintenance_id is not None and grant.action != Act.RESTORE:
        return f"it was approved under maintenance {approved.maintenance_id}"
    if method == UNDER:
        return _orphan(context, grant, via.get("grant_id"))
    if method not in authority.SIGNED or grant.action == Act.RESTORE:  # a slip is verified before it is used
        return None
    return _badly_signed(context, grant, ledger, via.get("signature"))


def _before_raise(context: RuleContext, grant: Grant | None, ledger: _Ledger) -> bool:
    scope = authority.scope_of(grant) if grant else None
    milder = scope is not None and _milder(scope.environment, ledger.environment)
    return milder and grant is not None and raised_after(context.reading, grant.grant_id)


def _milder(one: str, other: str) -> bool:
    return one in ENVIRONMENTS and (other not in ENVIRONMENTS or ENVIRONMENTS.index(one) < ENVIRONMENTS.index(other))


def _accepted(grant: Grant, environment: str, ledger: _Ledger) -> frozenset[str]:
    """Return how the approver of a grant may have been identified."""
    accepted = {UNDER} if grant.action == Act.RELEASE else set()
    accepted |= authority.AUTHENTIC if environment == PROD else {authority.CLAIMED, *authority.AUTHENTIC}
    match grant.action:
        case Act.RESTORE:
            accepted |= {authority.BOOTSTRAP, authority.FREE}
        case Act.DISMISS:
            accepted.add(authority.FREE)
        case Act.APPROVER if environment != PROD:
            accepted.add(authority.FREE)
        case Act.APPROVER if grant.grant_id == ledger.bootstrap:
            accepted.add(authority.BOOTSTRAP)
    return frozenset(accepted)


def _not_a_role(grant: Grant, ledger: _Ledger) -> str | None:
    if not ledger.has_roles:
        return "it was approved by a database role, but this database has no roles"
    if grant.requested_via == canonical({"role": grant.approved_by}):
        return f"the database role {grant.approved_by} requested and approved it"
    # The triggers compare the role with the session for exactly this text.
    as_written = grant.approved_via == canonical({"method": authority.ROLE})
    return None if as_written else "its approved_via is not the text that an approval by a database role has"


def _orphan(context: RuleContext, grant: Grant, parent_id: object) -> str | None:
    parent = grant_named(context.reading, parent_id) if isinstance(parent_id, int) else None
    if parent is None:
        return f"it was approved under grant {parent_id!r}, which does not exist"
    theirs, ours = authority.scope_of(parent), authority.scope_of(grant)
    if (
        (parent.action, parent.state) != (Act.RELEASE_MANY, GrantState.CONSUMED)
        or parent.grant_id >= grant.grant_id
        or theirs is None
        or ours is None
        or theirs.environment != ours.environment
    ):
        return f"it was approved under grant {parent_id}, which does not permit it"
    return None


def _beyond(context: RuleContext, parent_id: int, children: list[Grant]) -> Iterator[Finding]:
    """Yield releases under a grant for several jobs, of jobs that the grant does not include."""
    parent = grant_named(context.reading, parent_id)
    if parent is None:
        return
    numbers = {child.grant_id: child.target.removeprefix(ONE) for child in children}
    meant = {int(number) for number in numbers.values() if number.isdecimal() and number.isascii()}
    if MANY + candidates_hash(sorted(meant)) == parent.target and len(meant) == len(children):
        return
    permitted = _of_run(context, parent)
    seen: set[str] = set()
    for child in sorted(children, key=lambda child: child.grant_id):
        number = numbers[child.grant_id]
        if number in seen or permitted is None or number not in permitted:
            yield _of_grant(child, f"grant {parent_id}, under which it was approved, does not permit job {number}")
        seen.add(number)


def _of_run(context: RuleContext, parent: Grant) -> set[str] | None:
    """Return the jobs that the run of a grant may release; None if there is no such run."""
    for content in context.reading.grants.evidence(parent.grant_id, "candidates"):
        job_ids, _ = unpacked(content)
        if MANY + candidates_hash(job_ids) == parent.target:
            return {str(job_id) for job_id in job_ids}
    return None


def _badly_signed(context: RuleContext, grant: Grant, ledger: _Ledger, signature: Any) -> str | None:
    known = ledger.approvers.get(grant.approved_by or "")
    registration = grant_named(context.reading, known.grant_id) if known else None
    if known is None or authority.registration_doubt(known, registration, ledger.environment, ledger.bootstrap):
        return f"{grant.approved_by} is not an approver that a grant has registered with this key"
    if (known.grant_id or 0) > grant.grant_id:
        return None  # registered again later, with another key: the key that signed is not stored any more
    text = authority.approval_text(grant, ledger.ledger_id)
    if not isinstance(signature, str) or not verified(text, signature, known.public_key):
        return f"the signature on the grant is not valid for the key of {grant.approved_by}"
    return None
