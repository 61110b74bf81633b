"""Decides whether a grant permits an act: one verdict, and one code for each reason to refuse.

`judge(named, grants, wanted, now, doubts)` is pure and total. The checks run in a fixed order, from "does a grant
exist" to "does it permit exactly this act"; the first check that fails gives the code.

Invariants: a grant permits one exact act: no field of its scope may be open, or cover more than the act needs; the set
of actions must be equal, a superset is refused; a verdict depends on its arguments alone and never raises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any
from unicodedata import normalize

import msgspec

from holdfast.core.digest import canonical, is_storable, sha256
from holdfast.core.environments import PROD
from holdfast.core.errors import InputError, PayloadNotJsonError
from holdfast.core.governed import Approver, Grant
from holdfast.core.machines import GRANT, GrantState
from holdfast.core.records import time_text

ANY = "*"
# How an approver was identified: by their own claim, a database role, a signing key or the console. The last three mark
# grants that were not approved by another person: self-approved, approval not required, or the first approver of all.
CLAIMED, ROLE, KEY, CONSOLE, SELF, FREE, BOOTSTRAP = (
    "claimed", "role", "key", "console", "self", "free", "bootstrap",
)  # fmt: skip
AUTHENTIC = frozenset({ROLE, KEY, CONSOLE})
SIGNED = frozenset({KEY, CONSOLE})  # the console signs too, with the key of its user: a name alone proves nothing
TTL = timedelta(hours=2)
TTL_MAX = timedelta(days=30)
WORD_BYTES_MAX = 1024  # of a name or a target: an action and a target must fit into one index entry of PostgreSQL
TEXT_BYTES_MAX = 1 << 14  # of a reason or a plan


class Act(StrEnum):
    """The acts that need a grant."""

    RELEASE = "job.release"
    RELEASE_MANY = "quarantine.release"
    REPLAY = "replay.run"
    REPLACE = "replay.replace"
    REPAIR = "ledger.repair"
    RESTORE = "snapshot.restore"
    BUILD = "registry.build"
    SUPERSEDE = "registry.supersede"
    RETIRE = "registry.retire"
    DISMANTLE = "registry.dismantle"
    LIFT = "switch.lift"
    APPROVER = "approver.add"
    DISMISS = "approver.revoke"
    PROCEDURE = "procedure.run"
    ERASE = "erase"


def act_named(text: str) -> Act:
    """Return the act of a name; raise InputError if there is none."""
    if text not in list(Act):
        raise InputError(
            f"Unknown action {text!r}.",
            next_step=f"Give one of: {', '.join(Act)}.",
            context={"field": "action", "action": text},
        )
    return Act(text)


class Reject(StrEnum):
    """Why a grant does not permit an act, in the order of the checks. AMBIGUOUS: several grants permit it."""

    MISSING = "REJECT_AUTH_MISSING"
    NOT_FOUND = "REJECT_AUTH_NOT_FOUND"
    REVOKED = "REJECT_AUTH_REVOKED"
    ALREADY_CONSUMED = "REJECT_AUTH_ALREADY_CONSUMED"
    EXPIRED = "REJECT_AUTH_EXPIRED"
    NOT_ACTIVE = "REJECT_AUTH_NOT_ACTIVE"
    FORGED = "REJECT_AUTH_FORGED"
    GENERIC_SCOPE = "REJECT_AUTH_GENERIC_SCOPE"
    WRONG_CARRIER = "REJECT_AUTH_WRONG_CARRIER"
    WRONG_ENVIRONMENT = "REJECT_AUTH_WRONG_ENVIRONMENT"
    WRONG_EXECUTOR = "REJECT_AUTH_WRONG_EXECUTOR"
    WRONG_PLAN = "REJECT_AUTH_WRONG_PLAN"
    MANIFEST_MISMATCH = "REJECT_AUTH_MANIFEST_MISMATCH"
    LOOSE_SUPERSET = "REJECT_AUTH_LOOSE_SUPERSET"
    ACTIONS_MISSING = "REJECT_AUTH_ACTIONS_MISSING"
    ROLLBACK_PLAN_ABSENT = "REJECT_AUTH_ROLLBACK_PLAN_ABSENT"
    AMBIGUOUS = "REJECT_AUTH_AMBIGUOUS"


_ORDER = {code: place for place, code in enumerate(Reject)}


class Doubt(StrEnum):
    """Why the recorded approval of an active grant is not valid."""

    NO_APPROVER = "no_approver"
    SELF_APPROVED = "self_approved"
    NO_METHOD = "no_method"
    ROLE_NOT_APART = "role_not_apart"
    CLAIM_ONLY = "claim_only"
    APPROVER_UNKNOWN = "approver_unknown"
    APPROVER_KEY_DIFFERS = "approver_key_differs"
    APPROVER_UNPROVEN = "approver_unproven"
    APPROVER_REVOKED = "approver_revoked"
    SIGNATURE_INVALID = "signature_invalid"
    JOURNAL_DIFFERS = "journal_differs"


class ApprovalDoubt(msgspec.Struct, frozen=True):
    """A doubt about one grant: its code, the approver and the method that the grant records, and what differs."""

    code: Doubt
    approver: str | None
    method: object
    message: str


_NO_DOUBTS: Mapping[int, ApprovalDoubt] = MappingProxyType({})


class Scope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a grant permits beyond its action and target. A field that is None was not part of the request."""

    environment: str
    executor: str
    actions: tuple[str, ...]
    rollback_plan: str
    plan: str | None = None  # digest of the plan
    manifest: str | None = None  # digest of the manifest

    @property
    def text(self) -> str:
        """Return the scope as a grant stores it: canonical JSON, so that equal scopes are equal text."""
        return canonical(
            {
                "actions": sorted({normalize("NFC", word) for word in self.actions}),
                "environment": self.environment,
                "executor": self.executor,
                "manifest": self.manifest,
                "plan": self.plan,
                "rollback_plan": self.rollback_plan,
            }
        )


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """An act that needs a grant: what is done, to which target, by which executor, in which environment."""

    act: Act
    target: str
    environment: str
    executor: str
    actions: tuple[str, ...] = ()
    plan: str | None = None
    manifest: str | None = None

    @property
    def exact_actions(self) -> tuple[str, ...]:
        """Return the set of actions that a grant must permit, exactly."""
        return self.actions or (str(self.act),)

    def scope(self, rollback_plan: str) -> Scope:
        """Return the scope of a grant that permits exactly this act."""
        return Scope(
            environment=self.environment,
            executor=self.executor,
            actions=self.exact_actions,
            rollback_plan=rollback_plan,
            plan=self.plan,
            manifest=self.manifest,
        )


class Rejected(msgspec.Struct, frozen=True):
    """The act is refused: the code, the reason as a sentence, and for FORGED what is wrong with the approval."""

    code: Reject
    message: str
    doubt: ApprovalDoubt | None = None


def judge(
    named: int | None,
    grants: Sequence[Grant],
    wanted: Wanted,
    now: datetime,
    doubts: Mapping[int, ApprovalDoubt] = _NO_DOUBTS,
) -> Grant | Rejected:
    """Return the grant that permits an act, or why none does.

    `grants` holds the candidates: the named grant, or all active grants for this act and target. `doubts` maps the id
    of a grant to why its approval is not valid.
    """
    meant = [grant for grant in grants if named in (None, grant.grant_id)]
    if not meant:
        if named is None:
            return Rejected(Reject.MISSING, f"{wanted.act} of {wanted.target} needs a grant, and none is active.")
        return Rejected(Reject.NOT_FOUND, f"Grant {named} does not exist.")
    refusals = {i: _refusal(grant, wanted, now, doubts.get(grant.grant_id)) for i, grant in enumerate(meant)}
    fitting = [grant for i, grant in enumerate(meant) if refusals[i] is None]
    if len(fitting) > 1:
        numbers = ", ".join(str(grant.grant_id) for grant in fitting)
        return Rejected(Reject.AMBIGUOUS, f"Several grants permit {wanted.act} of {wanted.target}: {numbers}.")
    if fitting:
        return fitting[0]
    # Several grants, none of which fits: report the one that passed the most checks.
    return max((refusal for refusal in refusals.values() if refusal), key=lambda refusal: _ORDER[refusal.code])


def effective_state(grant: Grant, now: datetime) -> GrantState:
    """Return the state of a grant at a time: expired once its time has passed, even if that was not recorded yet."""
    expired = grant.state not in GRANT.final and grant.expires_at <= now
    return GrantState.EXPIRED if expired else grant.state


def is_exact(*words: str) -> bool:
    """Return whether each word names one thing: it is not blank and has no wildcard."""
    return all(word.strip() and ANY not in word for word in words)


def require_words(limit: int = WORD_BYTES_MAX, /, **words: str) -> None:
    """Raise InputError unless every text is non-empty, storable in both databases, and at most `limit` bytes long."""
    for name, word in words.items():
        field = name.replace("_", " ")
        if not is_storable(word):
            raise InputError(f"The {field} contains characters that a database cannot store.", context={"field": name})
        if not word.strip():
            raise InputError(f"The {field} is required.", context={"field": name})
        size = len(word.encode())
        if size > limit:
            raise InputError(f"The {field} has {size} bytes; the limit is {limit}.", context={"field": name})


def _refusal(grant: Grant, wanted: Wanted, now: datetime, doubt: ApprovalDoubt | None) -> Rejected | None:
    number = f"Grant {grant.grant_id}"
    match effective_state(grant, now):
        case GrantState.REVOKED:
            return Rejected(Reject.REVOKED, f"{number} was revoked.")
        case GrantState.CONSUMED:
            return Rejected(Reject.ALREADY_CONSUMED, f"{number} was already used, by {grant.consumed_by}.")
        case GrantState.EXPIRED:
            return Rejected(Reject.EXPIRED, f"{number} expired at {grant.expires_at.isoformat()}.")
        case GrantState.DRAFT:
            return Rejected(Reject.NOT_ACTIVE, f"{number} is a draft: it is not approved yet.")
        case GrantState.ACTIVE:
            pass
    if doubt is not None:
        message = f"The approval of grant {grant.grant_id} is not valid: {doubt.message}."
        return Rejected(Reject.FORGED, message, doubt)
    scope = scope_of(grant)
    if scope is None:
        return Rejected(Reject.FORGED, f"{number} has a scope that `grant request` does not write.")
    return _difference(grant, scope, wanted)


def scope_of(grant: Grant) -> Scope | None:
    """Return the scope of a grant; None unless its text is exactly what a request writes."""
    try:
        scope = msgspec.json.decode(grant.scope, type=Scope)
        return scope if scope.text == grant.scope else None
    except (msgspec.MsgspecError, PayloadNotJsonError, UnicodeError, RecursionError):
        return None


def _difference(grant: Grant, scope: Scope, wanted: Wanted) -> Rejected | None:
    number = f"Grant {grant.grant_id}"
    exact = (grant.action, grant.target, scope.environment, scope.executor, *scope.actions)
    if not scope.actions or not is_exact(*exact):
        return Rejected(Reject.GENERIC_SCOPE, f"{number} does not name exactly what it permits.")
    if not _equal_text(grant.action, wanted.act) or not _equal_text(grant.target, wanted.target):
        return Rejected(
            Reject.WRONG_CARRIER,
            f"{number} is for {grant.action} of {grant.target}, not for {wanted.act} of {wanted.target}.",
        )
    for code, what, has, needs in (
        (Reject.WRONG_ENVIRONMENT, "environment", scope.environment, wanted.environment),
        (Reject.WRONG_EXECUTOR, "executor", scope.executor, wanted.executor),
        (Reject.WRONG_PLAN, "plan", scope.plan, wanted.plan),
        (Reject.MANIFEST_MISMATCH, "manifest", scope.manifest, wanted.manifest),
    ):
        if not _equal_text(has, needs):
            return Rejected(code, f"{number} is for the {what} {has}, not {needs}.")
    permitted, needed = ({normalize("NFC", word) for word in words} for words in (scope.actions, wanted.exact_actions))
    if permitted > needed:
        more = ", ".join(sorted(permitted - needed))
        return Rejected(Reject.LOOSE_SUPERSET, f"{number} permits more than this act needs: {more}.")
    if permitted != needed:
        less = ", ".join(sorted(needed - permitted))
        return Rejected(Reject.ACTIONS_MISSING, f"{number} does not permit {less}.")
    if not scope.rollback_plan.strip():
        return Rejected(Reject.ROLLBACK_PLAN_ABSENT, f"{number} has no rollback plan.")
    return None


def _equal_text(one: str | None, other: str | None) -> bool:
    # A scope is stored in NFC. A name that was typed elsewhere may use other code points for the same characters.
    return one == other if one is None or other is None else normalize("NFC", one) == normalize("NFC", other)


# ---------------------------------------------------------------------------------------------------------------------
# Approvers


def recorded_via(grant: Grant) -> dict[str, Any]:
    """Return what a grant stores about its approval; nothing if that is not a JSON object."""
    return via_of(grant.approved_via)


def via_of(text: str | None) -> dict[str, Any]:
    """Return how a person was identified, from the text that a grant stores; nothing if it is not a JSON object."""
    try:
        found = msgspec.json.decode(text or "{}")
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def registration_doubt(
    approver: Approver, grant: Grant | None, environment: str, bootstrap: int | None
) -> tuple[Doubt, str] | None:
    """Return why the grant of a registration does not prove the key of an approver; None if it does.

    `bootstrap` is the first grant that registered an approver of a prod ledger without an approval: there is one.
    """
    scope = scope_of(grant) if grant else None
    if (
        grant is None
        or scope is None
        or (grant.state, grant.action, grant.target) != (GrantState.CONSUMED, Act.APPROVER, approver.name)
        or scope.manifest != sha256(approver.public_key)
        or grant.consumed_by != approver.added_by
    ):
        return Doubt.APPROVER_KEY_DIFFERS, f"the registered key of {approver.name} is not the one that its grant names"
    if environment != PROD:
        return None
    if scope.environment != PROD:
        lower = f"{approver.name} was registered while the ledger was for {scope.environment}"
        return Doubt.APPROVER_UNPROVEN, lower
    method = recorded_via(grant).get("method")
    if method not in AUTHENTIC and (method, grant.grant_id) != (BOOTSTRAP, bootstrap):
        return Doubt.APPROVER_UNPROVEN, f"the registration of {approver.name} was approved by {method!r} only"
    return None


# ---------------------------------------------------------------------------------------------------------------------
# What is signed


def approval_text(grant: Grant, ledger_id: str) -> bytes:
    """Return the bytes that an approver signs: every field of this grant, and the id of its ledger."""
    text = canonical(
        {
            "approve": grant.grant_id,
            "action": grant.action,
            "expires_at": time_text(grant.expires_at),
            "ledger": ledger_id,
            "requested_by": grant.requested_by,
            "scope": sha256(grant.scope),
            "target": grant.target,
        }
    )
    return f"holdfast approval v1\n{text}".encode()


def approval_mark(grant: Grant, ledger_id: str) -> str:
    """Return the move id that the journal stores for an approval. A grant that was changed later has another mark."""
    return f"approve-{grant.grant_id}-{sha256(approval_text(grant, ledger_id).decode())}"


class Slip(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A grant as a file, signed or not, for acts on a database that has no ledger yet."""

    holdfast_slip: int = 1
    action: str
    target: str
    executor: str
    rollback_plan: str
    reason: str
    approved_by: str
    issued_at: str
    expires_at: str
    nonce: str  # distinguishes slips with equal content
    public_key: str | None = None
    signature: str | None = None

    @property
    def text(self) -> bytes:
        """Return the bytes that are signed: every field except the signature."""
        fields = {name: value for name, value in msgspec.structs.asdict(self).items() if name != "signature"}
        return f"holdfast slip v1\n{canonical(fields)}".encode()
