"""Slips: permissions in files, for a restore into a place that has no ledger and so no grants.

The signed bytes are `holdfast slip v1`, a line feed, and the canonical JSON of every field but the signature.

Invariants: a slip is judged by the same rules and codes as a grant, before a database is opened; the environment and
the approvers in the snapshot decide who must have signed it; in the restored ledger it becomes a grant that is
requested, approved and consumed in the transaction of the restore.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import msgspec

from holdfast.audit.files.snapshot_verify import VerifiedSnapshot
from holdfast.audit.seals.keys import private_key, verified
from holdfast.core import authority
from holdfast.core.authority import Act, Reject, Rejected, Slip, Wanted
from holdfast.core.decide import Refused
from holdfast.core.digest import Json, canonical, sha256
from holdfast.core.environments import DEV, STAGE
from holdfast.core.errors import ApprovalError, AuthorityError, InputError, SpecInvalidError, invariant
from holdfast.core.governed import Grant, GrantEvent
from holdfast.core.machines import GRANT, GrantState
from holdfast.core.records import time_from, time_text
from holdfast.store.transaction import Transaction

SLIP_BYTES_MAX = 1 << 16
VERSION = 1


# ---------------------------------------------------------------------------------------------------------------------
# Writing and reading


def write_slip(
    *,
    action: str,
    target: str,
    executor: str,
    rollback_plan: str,
    reason: str,
    approved_by: str,
    ttl: timedelta,
    key: Path | None = None,
    now: datetime | None = None,
) -> Slip:
    """Return a slip that permits one restore, signed if a key is given.

    Raise InputError for another act or a wrong duration, and AuthorityError for wildcards.
    """
    if action != Act.RESTORE:
        raise InputError(
            f"a slip cannot permit {action}: the ledger has grants for that",
            next_step=f"Use --action {Act.RESTORE}, or a grant for {action}: `holdfast grant request --help`.",
            context={"field": "action"},
        )
    authority.require_words(target=target, executor=executor, approver=approved_by)
    authority.require_words(authority.TEXT_BYTES_MAX, reason=reason, rollback_plan=rollback_plan)
    if not timedelta(0) < ttl <= authority.TTL_MAX:
        raise InputError(
            f"the ttl of a slip must be more than 0 and at most {authority.TTL_MAX.days} days", context={"field": "ttl"}
        )
    if not authority.is_exact(target, executor):
        raise AuthorityError("target and executor of a slip must not contain wildcards", code=Reject.GENERIC_SCOPE)
    private = private_key(key) if key else None
    begun = now or datetime.now(UTC)
    slip = Slip(
        action=action,
        target=target,
        executor=executor,
        rollback_plan=rollback_plan,
        reason=reason,
        approved_by=approved_by,
        issued_at=time_text(begun),
        expires_at=time_text(begun + ttl),
        nonce=uuid4().hex,
        public_key=private.public_key().public_bytes_raw().hex() if private else None,
    )
    return msgspec.structs.replace(slip, signature=private.sign(slip.text).hex()) if private else slip


def read_slip(path: Path) -> Slip:
    """Return the slip in a file; raise SpecInvalidError with the path of the wrong field."""
    try:
        with path.open("rb") as file:
            text = file.read(SLIP_BYTES_MAX + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", context={"path": str(path)}) from None
    try:
        if len(text) > SLIP_BYTES_MAX:
            raise msgspec.ValidationError(f"it has more than {SLIP_BYTES_MAX} bytes")
        slip = msgspec.json.decode(text, type=Slip)
        _require_sound(slip)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        field = str(error).partition(" - at `$.")[2].rstrip("`") or None
        context = {"path": str(path), "field": field}
        raise SpecInvalidError(f"{path} is not a valid slip: {error}", context=context) from None
    return slip


def _require_sound(slip: Slip) -> None:
    if slip.holdfast_slip != VERSION:
        raise msgspec.ValidationError(f"this Holdfast reads version {VERSION} - at `$.holdfast_slip`")
    if (slip.signature is None) != (slip.public_key is None):
        missing = "signature" if slip.signature is None else "public_key"
        raise msgspec.ValidationError(f"it has only one of signature and public_key - at `$.{missing}`")
    for field, word in msgspec.structs.asdict(slip).items():
        if isinstance(word, str) and (not word.strip() or "\0" in word) and field != "rollback_plan":
            raise msgspec.ValidationError(f"the text must not be empty - at `$.{field}`")
    for field in ("issued_at", "expires_at"):
        try:
            moment = time_from(getattr(slip, field))
            sound = moment.tzinfo is not None and time_text(moment) == getattr(slip, field)
        except ValueError:
            sound = False
        if not sound:
            raise msgspec.ValidationError(f"a time such as 2030-01-31T12:00:00.000000Z is expected - at `$.{field}`")
    if time_from(slip.expires_at) - time_from(slip.issued_at) > authority.TTL_MAX:
        raise msgspec.ValidationError(f"it is valid for more than {authority.TTL_MAX.days} days - at `$.expires_at`")


# ---------------------------------------------------------------------------------------------------------------------
# Permitting


class RestorePermit(msgspec.Struct, frozen=True, kw_only=True):
    """A slip that permits a restore, and how its approver was authenticated."""

    slip: Slip
    wanted: Wanted
    via: dict[str, Json]


def permit_restore(
    slip: Slip | None, snapshot: VerifiedSnapshot, *, executor: str, now: datetime, bootstrap: bool = False
) -> RestorePermit | None:
    """Return the permit to restore a snapshot; None for a dev ledger without a slip.

    `bootstrap` accepts the key of a slip although the snapshot, of prod, has no approver who could confirm it.
    Raise AuthorityError or ApprovalError if the restore is not permitted.
    """
    environment = snapshot.header.environment
    wanted = Wanted(act=Act.RESTORE, target=snapshot.trailer.sha256, environment=environment, executor=executor)
    if slip is None:
        if environment == DEV:
            return None
        raise _rejection(Rejected(Reject.MISSING, f"restoring a {environment} ledger needs a slip"), wanted)
    method = _method(slip, snapshot, bootstrap=bootstrap)
    verdict = authority.judge(None, [_as_grant(slip, wanted)], wanted, now)
    if isinstance(verdict, Rejected):
        raise _rejection(Rejected(verdict.code, verdict.message.replace("grant 0", "the slip")), wanted)
    via: dict[str, Json] = {"method": method, "slip": msgspec.to_builtins(slip)}
    return RestorePermit(slip=slip, wanted=wanted, via=via)


def _method(slip: Slip, snapshot: VerifiedSnapshot, *, bootstrap: bool) -> str:
    """Return how the approver was authenticated; raise ApprovalError if that is not enough."""
    environment, name = snapshot.header.environment, slip.approved_by
    strict = environment not in (DEV, STAGE)
    if environment != DEV and name == slip.executor:
        raise ApprovalError(f"the approver of the slip must not be {slip.executor}, who restores", code="self_approval")
    if slip.signature is None or slip.public_key is None:
        if strict:
            raise ApprovalError(
                "in prod a slip must be signed",
                code="approver_not_authenticated",
                next_step="A registered approver signs it with --key FILE: `holdfast grant slip --help`.",
            )
        return authority.CLAIMED
    if not verified(slip.text, slip.signature, slip.public_key):
        raise ApprovalError(
            "the signature of the slip is wrong: the slip or its signature was changed",
            code="signature_invalid",
            next_step="Write a new slip with --key FILE: `holdfast grant slip --help`.",
        )
    if snapshot.approvers.get(name) == slip.public_key:
        return authority.KEY
    if not strict:
        return authority.CLAIMED
    if not snapshot.approvers and not bootstrap:
        raise ApprovalError(
            f"the snapshot has no approvers: nothing confirms that the key of the slip is {name}'s",
            code="bootstrap_required",
            next_step=f"Compare the key with {name}, then add --bootstrap: `holdfast snapshot restore --help`.",
            context={"public_key": slip.public_key},
        )
    if not snapshot.approvers:
        return authority.BOOTSTRAP  # as for the first approver of a ledger; it is recorded
    raise ApprovalError(
        f"the snapshot has no approver {name} with the key that signed the slip",
        code="approver_unknown",
        next_step="Use a slip signed by an approver who was registered when the snapshot was taken.",
        context={"known": sorted(who for who, key in snapshot.approvers.items() if key)},
    )


def _as_grant(slip: Slip, wanted: Wanted) -> Grant:
    """Return the grant that a slip is equivalent to."""
    begun = time_from(slip.issued_at)
    request = msgspec.structs.replace(wanted, executor=slip.executor)
    return Grant(
        grant_id=0,
        state=GrantState.ACTIVE,
        version=len(GRANT.path("request", None).edges) + len(GRANT.path("approve", GrantState.DRAFT).edges),
        action=slip.action,
        target=slip.target,
        scope=request.scope(slip.rollback_plan).text,
        requested_by=slip.executor,
        approved_by=slip.approved_by,
        consumed_by=None,
        expires_at=time_from(slip.expires_at),
        reason=slip.reason,
        requested_via=None,
        approved_via=None,
        created_at=begun,
        updated_at=begun,
    )


def _rejection(rejected: Rejected, wanted: Wanted) -> AuthorityError:
    return AuthorityError(
        rejected.message,
        code=rejected.code,
        next_step=f"An approver writes one: `holdfast grant slip --action {wanted.act} --target {wanted.target}"
        " --executor NAME --rollback-plan TEXT --reason TEXT --as NAME --key FILE > slip.json`,"
        " and give --grant slip.json.",
        context={"action": str(wanted.act), "target": wanted.target, "environment": wanted.environment},
    )


# ---------------------------------------------------------------------------------------------------------------------
# The grant


def keep_as_grant(transaction: Transaction, permit: RestorePermit, *, ledger_id: str, reason: str) -> int:
    """Write a slip into the restored ledger as a grant that this transaction consumes; return its id."""
    slip, wanted = permit.slip, permit.wanted
    grant_id = transaction.grants.request(
        action=slip.action,
        target=slip.target,
        scope=wanted.scope(slip.rollback_plan).text,
        actor=slip.executor,
        reason=slip.reason,
        expires_at=time_from(slip.expires_at),
        via=canonical({"slip": sha256(slip.text.decode())}),
    )
    draft = _known(transaction, grant_id)
    mark = authority.approval_mark(draft, ledger_id)
    approval = GrantEvent("approve", slip.approved_by, may_self_approve=wanted.environment == DEV)
    for command, moved, why in ((approval, mark, slip.reason), (GrantEvent("consume", wanted.executor), None, reason)):
        grant = _known(transaction, grant_id)
        answer = transaction.grants.move(grant, command, reason=why, via=canonical(permit.via), move_id=moved)
        if isinstance(answer, Refused):  # it has expired meanwhile
            raise AuthorityError(answer.message, code=Reject.EXPIRED)
    return grant_id


def _known(transaction: Transaction, grant_id: int) -> Grant:
    grant = transaction.grants.get(grant_id)
    invariant(grant is not None, "a grant that was written exists")
    return grant  # type: ignore[return-value] # checked above
