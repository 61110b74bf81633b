"""Approvers: who may approve where an approval must be authentic, and how somebody comes to be one.

Invariants: everybody who is registered or revoked is so under a grant, which names them and the digest of their key, so
that the journal tells of it; in prod only the first one ever is registered without an approval, recorded as bootstrap,
and every later one needs a grant; a key speaks for one name, and a name has one key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.core.authority import (
    BOOTSTRAP,
    DEV,
    FREE,
    PROD,
    TEXT_BYTES_MAX,
    Act,
    Reject,
    Wanted,
    is_exact,
    require_words,
)
from holdfast.core.digest import sha256
from holdfast.core.errors import ApprovalError, AuthorityError, InputError, RecordNotFoundError
from holdfast.core.records import Approver
from holdfast.governance.grants import authorise, environment_of, issue

if TYPE_CHECKING:
    from holdfast.store import Store
    from holdfast.store.transaction import Transaction

KEY_BYTES = 32


def register(
    store: Store[Any], name: str, public_key: str, *, actor: str, reason: str, grant_id: int | None = None
) -> Approver:
    """Let somebody approve by the private half of a key, whose public half is given in hexadecimal digits."""
    require_words(name=name, actor=actor)
    require_words(TEXT_BYTES_MAX, reason=reason)
    if not is_exact(name):
        raise AuthorityError("an approver has a name of their own: no wildcards", code=Reject.GENERIC_SCOPE)
    key = _key(public_key)
    with store.transaction() as transaction:
        transaction.lock_approvers()
        known = transaction.approvers()
        _require_free(known, name, key)
        wanted = _wanted(transaction, Act.APPROVER, name, key, actor)
        if wanted.environment == DEV or grant_id is not None or (wanted.environment == PROD and known):
            used = authorise(transaction, wanted, grant_id=grant_id, reason=reason)
        else:
            method = BOOTSTRAP if wanted.environment == PROD else FREE
            used = issue(transaction, wanted, reason=reason, method=method)
        added = transaction.add_approver(name, key, actor=actor, reason=reason, grant_id=used)
        if not added:
            raise _taken(name)
        return transaction.approvers()[name]


def dismiss(store: Store[Any], name: str, *, actor: str, reason: str) -> Approver:
    """Let somebody approve no more. Anybody may, at once; it is recorded, and to come back takes a registration."""
    require_words(actor=actor)
    require_words(TEXT_BYTES_MAX, reason=reason)
    with store.transaction() as transaction:
        transaction.lock_approvers()
        approver = transaction.approvers().get(name)
        if approver is None:
            raise RecordNotFoundError(
                f"nobody is registered as {name}",
                next_step="List them with `holdfast grant approvers list`.",
                context={"name": name},
            )
        if not transaction.revoke_approver(name, actor=actor):
            raise ApprovalError(f"{name} was revoked before", code="approver_revoked", context={"name": name})
        wanted = _wanted(transaction, Act.DISMISS, name, approver.public_key, actor)
        issue(transaction, wanted, reason=reason, method=FREE)
        return transaction.approvers()[name]


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
