"""Verbs of grants and of approvers.

Invariants: a grant moves as `core.decide` says, matching id, state and version; a write of zero rows is a refusal.
"""

from __future__ import annotations

from datetime import datetime

from holdfast.core.authority import BOOTSTRAP
from holdfast.core.decide import Move, Refused
from holdfast.core.digest import canonical
from holdfast.core.governed import Approver, Grant, GrantEvent
from holdfast.core.machines import GRANT
from holdfast.store.rows import reader
from holdfast.store.verbs.base import Verbs
from holdfast.store.verbs.moving import MovingVerbs

_read_grant = reader(Grant)
_read_approver = reader(Approver)


class GrantReads(Verbs):
    """Reads grants and approvers."""

    def get(self, grant_id: int) -> Grant | None:
        return self._one(_read_grant, "get_grant", grant_id=grant_id)

    def open_for(self, action: str, target: str) -> list[Grant]:
        """Return the drafts and the active grants for one act and target."""
        return self._all(_read_grant, "grants_for", action=action, target=target)

    def page(
        self,
        *,
        state: str | None = None,
        action: str | None = None,
        target: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Grant]:
        """Return a page of grants, newest first; for `state`, a grant past its expiry counts as expired."""
        filters = {"state": state, "action": action, "target": target, "before": before}
        return self._all(_read_grant, "list_grants", **filters, now=self._store.time_parameter(), n=limit)

    def evidence(self, grant_id: int, kind: str) -> list[str]:
        """Return the evidence of one kind that was stored with a grant and is not void."""
        return [content for (content,) in self._run("evidence_under", grant_id=grant_id, kind=kind)]

    def session_role(self) -> str | None:
        """Return the database role of this session; None on SQLite, which has no roles."""
        [[role]] = self._run("session_role")
        return None if role is None else str(role)

    def approvers(self) -> dict[str, Approver]:
        """Return all approvers by name, including the revoked ones."""
        return {approver.name: approver for approver in self._all(_read_approver, "list_approvers")}

    def active(self, *, limit: int) -> list[int]:
        """Return the ids of grants that are active, the oldest first."""
        return [grant_id for (grant_id,) in self._run("active_grants", n=limit)]

    def bootstrap(self) -> int | None:
        """Return the first grant that registered an approver of this ledger in prod without an approval, or None."""
        [[grant_id]] = self._run(
            "first_bootstrap", via=canonical({"method": BOOTSTRAP}), scope='%"environment":"prod"%'
        )
        return None if grant_id is None else int(grant_id)


class GrantWrites(GrantReads, MovingVerbs):
    """Requests and moves grants, registers approvers."""

    def request(
        self,
        *,
        action: str,
        target: str,
        scope: str,
        actor: str,
        reason: str,
        expires_at: datetime,
        via: str | None = None,
    ) -> int:
        """Record a draft of a grant; return its id."""
        [[grant_id]] = self._run(
            "insert_grant",
            action=action,
            target=target,
            scope=scope,
            requested_via=via,
            expires_at=self._store.stored(expires_at),
            **self._birth(GRANT, "request"),
            **self._signature(actor, reason),
        )
        return int(grant_id)

    def move(
        self,
        grant: Grant,
        command: GrantEvent,
        *,
        reason: str | None = None,
        move_id: str | None = None,
        via: str | None = None,
    ) -> Move | Refused:
        """Approve, consume, revoke or expire a grant, matching id, state and version.

        `via` is how the approver was identified.
        """
        return self._move_one(
            "move_grant",
            GRANT,
            grant,
            command,
            f"grant {grant.grant_id}",
            grant_id=grant.grant_id,
            approved_by=command.actor if command.event == "approve" else None,
            approved_via=via if command.event == "approve" else None,
            consumed_by=command.actor if command.event == "consume" else None,
            **self._signature(command.actor, reason, move_id),
        )

    def lock_approvers(self) -> None:
        """Lock the approvers against changes by other transactions until this one ends."""
        self._run("lock_approvers")

    def add_approver(self, name: str, public_key: str, *, actor: str, reason: str, grant_id: int | None) -> bool:
        """Register an approver; return False if the name is taken."""
        now = self._store.time_parameter()
        rows = self._run(
            "add_approver", name=name, public_key=public_key, actor=actor, reason=reason, grant_id=grant_id, now=now
        )
        return bool(rows)

    def revoke_approver(self, name: str, *, actor: str) -> bool:
        """Revoke an approver; return False if there is no active approver of this name."""
        return bool(self._run("revoke_approver", name=name, actor=actor, now=self._store.time_parameter()))
