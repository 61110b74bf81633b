"""Raising the environment of a ledger: dev, then stage, then prod.

Invariants: an environment is never lowered; it is not raised while a grant is active that was approved under weaker
rules; the change goes through the maintenance door, so that the journal has who, why and both environments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.core.environments import ENVIRONMENTS
from holdfast.core.errors import InputError, InvalidStateTransitionError
from holdfast.governance.acts import actor_and_reason

if TYPE_CHECKING:
    from holdfast.store import Store

SETTING = "environment"
NAMED_MAX = 10


def raise_environment(store: Store[Any], to: str, *, actor: str, reason: str) -> str:
    """Raise the environment of a ledger; return the one before.

    Raise InputError for an unknown environment, InvalidStateTransitionError if it would be lowered or a grant is
    active.
    """
    if to not in ENVIRONMENTS:
        raise InputError(f"{to!r} is not an environment; known: {', '.join(ENVIRONMENTS)}")
    actor, reason = actor_and_reason(actor, reason)
    with store.transaction() as transaction:
        before = transaction.settings.read()[SETTING]
        if before == to:
            return before
        if ENVIRONMENTS.index(to) < ENVIRONMENTS.index(before):
            raise InvalidStateTransitionError(
                f"the ledger is {before}; its environment cannot be lowered to {to}",
                next_step=f"Create another ledger: `holdfast init --env {to} --db another.db`.",
                context={"environment": before, "to": to},
            )
        active = transaction.grants.active(limit=NAMED_MAX)
        if active:
            raise InvalidStateTransitionError(
                f"grants are active that were approved in {before}: {', '.join(map(str, active))}",
                next_step=f"Use it or revoke it: `holdfast grant revoke {active[0]} --reason TEXT`.",
                context={"environment": before, "to": to, "grants": active},
            )
        with transaction.maintenance.open(who=actor, why=reason) as door:
            transaction.settings.set(SETTING, to)
            transaction.maintenance.note(door, "raise_environment", source=before, target=to)
    return before
