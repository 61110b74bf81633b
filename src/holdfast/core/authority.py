"""Whether a grant permits what is about to be done: one verdict, and one code for each way to be refused.

`judge(named, grants, wanted, now, doubts)` is pure and total. The checks stand in one order, from "is there a grant at
all" to "does it say exactly this"; the first that fails gives the code.

Invariants: a grant permits one exact thing: no field of its scope may be left open or stand for more than was asked;
an action set must be equal, a superset is refused; a verdict reads nothing but its arguments, and never raises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from unicodedata import normalize

import msgspec

from holdfast.core.digest import canonical, is_storable, sha256
from holdfast.core.errors import InputError, PayloadNotJsonError
from holdfast.core.governed import Grant
from holdfast.core.machines import GRANT, GrantState
from holdfast.core.records import time_text

ANY = "*"
# How somebody who approves is known: by their word, a role of the database, a key, the console; or that it was nobody
# else, that it needed nobody, or that nobody was known yet.
CLAIMED, ROLE, KEY, CONSOLE, SELF, FREE, BOOTSTRAP = (
    "claimed", "role", "key", "console", "self", "free", "bootstrap",
)  # fmt: skip
AUTHENTIC = frozenset({ROLE, KEY, CONSOLE})
TTL = timedelta(hours=2)
TTL_MAX = timedelta(days=30)
WORD_BYTES_MAX = 1024  # of a name or a target: an action and a target fit into one index entry of PostgreSQL
TEXT_BYTES_MAX = 1 << 14  # of a reason or a plan
_NO_DOUBTS: Mapping[int, str] = MappingProxyType({})


class Act(StrEnum):
    """What needs a grant."""

    RELEASE = "job.release"
    RELEASE_MANY = "quarantine.release"
    REPLAY = "replay.run"
    REPLACE = "replay.replace"
    REPAIR = "ledger.repair"
    RESTORE = "snapshot.restore"
    BUILD = "registry.build"
    SUPERSEDE = "registry.supersede"
    RETIRE = "registry.retire"
    LIFT = "switch.lift"
    APPROVER = "approver.add"
    DISMISS = "approver.revoke"
    PROCEDURE = "procedure.run"


class Reject(StrEnum):
    """Why a grant does not permit an act. The order is the order of the checks; the last is of several that all do."""

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


class Scope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a grant is good for beyond its action and target. An absent field was not part of the request."""

    environment: str
    executor: str
    actions: tuple[str, ...]
    rollback_plan: str
    plan: str | None = None  # the digest of what is to be done
    manifest: str | None = None  # the digest of what it is to be done with

    @property
    def text(self) -> str:
        """Return the scope as a grant keeps it: canonical JSON, so that two alike are the same text."""
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
    """One act that is about to happen: what, to what, by whom, where, and exactly how."""

    act: Act
    target: str
    environment: str
    executor: str
    actions: tuple[str, ...] = ()
    plan: str | None = None
    manifest: str | None = None

    @property
    def exact_actions(self) -> tuple[str, ...]:
        """Return the set of actions that a grant must permit, no more and no less."""
        return self.actions or (str(self.act),)

    def scope(self, rollback_plan: str) -> Scope:
        """Return the scope that a grant for exactly this has."""
        return Scope(
            environment=self.environment,
            executor=self.executor,
            actions=self.exact_actions,
            rollback_plan=rollback_plan,
            plan=self.plan,
            manifest=self.manifest,
        )


class Rejected(msgspec.Struct, frozen=True):
    """The act may not happen: the code, and the reason in words."""

    code: Reject
    message: str


def judge(
    named: int | None,
    grants: Sequence[Grant],
    wanted: Wanted,
    now: datetime,
    doubts: Mapping[int, str] = _NO_DOUBTS,
) -> Grant | Rejected:
    """Return the one grant that permits an act, or why there is none.

    `grants` are those that could be meant: all active ones for this act and target, or the one that was named. `doubts`
    says of a grant, by its id, why its approval is not to be believed.
    """
    meant = [grant for grant in grants if named in (None, grant.grant_id)]
    if not meant:
        if named is None:
            return Rejected(Reject.MISSING, f"{wanted.act} of {wanted.target} needs a grant, and there is none")
        return Rejected(Reject.NOT_FOUND, f"there is no grant {named}")
    refusals = {i: _refusal(grant, wanted, now, doubts.get(grant.grant_id)) for i, grant in enumerate(meant)}
    fitting = [grant for i, grant in enumerate(meant) if refusals[i] is None]
    if len(fitting) > 1:
        numbers = ", ".join(str(grant.grant_id) for grant in fitting)
        return Rejected(Reject.AMBIGUOUS, f"{wanted.act} of {wanted.target} could go by any of the grants {numbers}")
    if fitting:
        return fitting[0]
    # Of several that do not fit, the one that came closest tells most.
    return max((refusal for refusal in refusals.values() if refusal), key=lambda refusal: _ORDER[refusal.code])


def effective_state(grant: Grant, now: datetime) -> GrantState:
    """Return where a grant stands by now: one that has run out is expired, whether or not anybody wrote that down."""
    runs_out = grant.state not in GRANT.final and grant.expires_at <= now
    return GrantState.EXPIRED if runs_out else grant.state


def is_exact(*words: str) -> bool:
    """Tell whether words name one thing each: none is blank, and none stands for many."""
    return all(word.strip() and ANY not in word for word in words)


def require_words(limit: int = WORD_BYTES_MAX, /, **words: str) -> None:
    """Raise InputError unless every word says something that both databases can hold; names are the fields."""
    for name, word in words.items():
        field = name.replace("_", " ")
        if not is_storable(word):
            raise InputError(f"the {field} is not text that a database can hold", context={"field": name})
        if not word.strip():
            raise InputError(f"the {field} is missing", context={"field": name})
        size = len(word.encode())
        if size > limit:
            raise InputError(f"the {field} has {size} bytes; the limit is {limit}", context={"field": name})


def _refusal(grant: Grant, wanted: Wanted, now: datetime, doubt: str | None) -> Rejected | None:
    number = f"grant {grant.grant_id}"
    match effective_state(grant, now):
        case GrantState.REVOKED:
            return Rejected(Reject.REVOKED, f"{number} was revoked")
        case GrantState.CONSUMED:
            return Rejected(Reject.ALREADY_CONSUMED, f"{number} was used already, by {grant.consumed_by}")
        case GrantState.EXPIRED:
            return Rejected(Reject.EXPIRED, f"{number} expired at {grant.expires_at.isoformat()}")
        case GrantState.DRAFT:
            return Rejected(Reject.NOT_ACTIVE, f"{number} is a draft: nobody has approved it")
        case GrantState.ACTIVE:
            pass
    if doubt is not None:
        return Rejected(Reject.FORGED, f"{number} is not to be believed: {doubt}")
    scope = scope_of(grant)
    if scope is None:
        return Rejected(Reject.FORGED, f"{number} has a scope that was never requested through this gateway")
    return _difference(grant, scope, wanted)


def scope_of(grant: Grant) -> Scope | None:
    """Return the scope of a grant; None unless it is written exactly as a request writes it."""
    try:
        scope = msgspec.json.decode(grant.scope, type=Scope)
        return scope if scope.text == grant.scope else None
    except (msgspec.MsgspecError, PayloadNotJsonError, UnicodeError, RecursionError):
        return None


def _difference(grant: Grant, scope: Scope, wanted: Wanted) -> Rejected | None:
    number = f"grant {grant.grant_id}"
    exact = (grant.action, grant.target, scope.environment, scope.executor, *scope.actions)
    if not scope.actions or not is_exact(*exact):
        return Rejected(Reject.GENERIC_SCOPE, f"{number} does not say exactly what it permits")
    if not _alike(grant.action, wanted.act) or not _alike(grant.target, wanted.target):
        return Rejected(
            Reject.WRONG_CARRIER,
            f"{number} is for {grant.action} of {grant.target}, not for {wanted.act} of {wanted.target}",
        )
    for code, what, has, needs in (
        (Reject.WRONG_ENVIRONMENT, "the environment", scope.environment, wanted.environment),
        (Reject.WRONG_EXECUTOR, "the executor", scope.executor, wanted.executor),
        (Reject.WRONG_PLAN, "the plan", scope.plan, wanted.plan),
        (Reject.MANIFEST_MISMATCH, "the manifest", scope.manifest, wanted.manifest),
    ):
        if not _alike(has, needs):
            return Rejected(code, f"{number} names {what} {has}, and this is {needs}")
    permitted, asked = ({normalize("NFC", word) for word in words} for words in (scope.actions, wanted.exact_actions))
    if permitted > asked:
        more = ", ".join(sorted(permitted - asked))
        return Rejected(Reject.LOOSE_SUPERSET, f"{number} permits more than is to be done: {more}")
    if permitted != asked:
        less = ", ".join(sorted(asked - permitted))
        return Rejected(Reject.ACTIONS_MISSING, f"{number} does not permit {less}")
    if not scope.rollback_plan.strip():
        return Rejected(Reject.ROLLBACK_PLAN_ABSENT, f"{number} does not say how its act would be undone")
    return None


def _alike(one: str | None, other: str | None) -> bool:
    # A scope is kept as canonical text, in NFC: a name typed elsewhere may be made of other code points.
    return one == other if one is None or other is None else normalize("NFC", one) == normalize("NFC", other)


# ---------------------------------------------------------------------------------------------------------------------
# What is signed


def approval_text(grant: Grant, ledger_id: str) -> bytes:
    """Return what an approver signs: this grant of this ledger, every word of it."""
    told = canonical(
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
    return f"holdfast approval v1\n{told}".encode()


def approval_mark(grant: Grant, ledger_id: str) -> str:
    """Return what the journal keeps of an approval, as its move: whatever was changed since has another mark."""
    return f"approve-{grant.grant_id}-{sha256(approval_text(grant, ledger_id).decode())}"


class Slip(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A permission that travels as a file, to where there is no ledger yet: a grant in words, signed or not."""

    holdfast_slip: int = 1
    action: str
    target: str
    executor: str
    rollback_plan: str
    reason: str
    approved_by: str
    issued_at: str
    expires_at: str
    nonce: str  # so that two slips alike are two
    public_key: str | None = None
    signature: str | None = None

    @property
    def text(self) -> bytes:
        """Return what is signed: every word of it but the signature."""
        told = {name: value for name, value in msgspec.structs.asdict(self).items() if name != "signature"}
        return f"holdfast slip v1\n{canonical(told)}".encode()
