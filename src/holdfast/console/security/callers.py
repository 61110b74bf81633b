"""Callers: who sends a request, how they are known, and what they may do.

Invariants: a permission follows from a role, never from a name; a token never approves; a caller who is limited to some
queues or operations sees and changes nothing outside of them.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from holdfast.core.errors import GovernanceError


class Role(StrEnum):
    """What an account or a token is for. Every role may look."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    APPROVER = "approver"  # of accounts only
    SUBMITTER = "submitter"  # of tokens only: a program that submits work and reads what became of it


class Permission(StrEnum):
    """What a route needs. Each route declares one in `opt`."""

    PUBLIC = "public"
    VIEW = "view"
    SUBMIT = "submit"
    OPERATE = "operate"
    APPROVE = "approve"
    REVOKE = "revoke"  # a grant: an operator's own or another's, and an approver's


PERMISSIONS = {
    Role.VIEWER: frozenset({Permission.VIEW}),
    Role.SUBMITTER: frozenset({Permission.VIEW, Permission.SUBMIT}),
    Role.OPERATOR: frozenset({Permission.VIEW, Permission.SUBMIT, Permission.OPERATE, Permission.REVOKE}),
    Role.APPROVER: frozenset({Permission.VIEW, Permission.APPROVE, Permission.REVOKE}),
}
WRITES = frozenset(Permission) - {Permission.PUBLIC, Permission.VIEW}


class CallerKind(StrEnum):
    """How a caller is known."""

    SESSION = "session"  # a person who has logged in
    TOKEN = "token"  # noqa: S105 - the word, not a secret
    OPEN = "open"  # a person at a console without accounts: a dev ledger on loopback


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who sends a request."""

    name: str
    kind: CallerKind
    roles: frozenset[Role]
    queues: frozenset[str] = frozenset()  # empty: all
    operations: frozenset[str] = frozenset()  # empty: all
    csrf_token: str = ""
    session_id: str = ""

    @property
    def actor(self) -> str:
        return f"{'token' if self.kind is CallerKind.TOKEN else 'console'}:{self.name}"

    def may(self, permission: Permission) -> bool:
        return permission is Permission.PUBLIC or any(permission in PERMISSIONS[role] for role in self.roles)

    def sees(self, queue: str, operation: str) -> bool:
        """Return whether the work of a queue and an operation is within the caller's limits."""
        return (not self.queues or queue in self.queues) and (not self.operations or operation in self.operations)

    @property
    def limited(self) -> bool:
        return bool(self.queues or self.operations)

    def require_unlimited(self) -> None:
        """Raise GovernanceError if the caller is limited: what follows concerns the whole ledger."""
        if self.limited:
            raise out_of_scope(self, "This concerns the whole ledger.")


def out_of_scope(caller: Caller, message: str) -> GovernanceError:
    """Return the error for a caller whose token does not cover what was wanted."""
    limits = {"queues": sorted(caller.queues), "operations": sorted(caller.operations)}
    return GovernanceError(
        f"{message} The token {caller.name} is limited to some queues or operations.",
        code="token_scope",
        next_step="Use a token that covers it: `holdfast console tokens add --help`.",
        context=limits,
    )
