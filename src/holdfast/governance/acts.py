"""What governed acts share: checking the actor and the reason, storing JSON, and repeating an act that lost a race.

Invariants: a reason is redacted before it is stored; an act that is repeated was rolled back, and the
use of its grant with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast.core.authority import TEXT_BYTES_MAX, require_words
from holdfast.core.digest import canonical
from holdfast.core.errors import RefusedByDatabaseError, StateTransitionRaceError
from holdfast.core.redaction import redacted

if TYPE_CHECKING:
    from holdfast.store import Store, Transaction

RACES_MAX = 5

T = TypeVar("T")


def actor_and_reason(actor: str, reason: str) -> tuple[str, str]:
    """Return the actor and the redacted reason; raise InputError if one is missing, too long or not storable."""
    why = redacted(reason)
    require_words(operator=actor)
    require_words(TEXT_BYTES_MAX, reason=why)
    return actor, why


def stored_text(value: object) -> str:
    """Return a struct, or plain data, as canonical JSON."""
    return canonical(msgspec.json.decode(msgspec.json.encode(value)))


def retried(store: Store[Any], act: Callable[[Transaction], T]) -> T:
    """Perform an act in a transaction of its own, and repeat it as `retry_races` does."""

    def once() -> T:
        with store.transaction() as transaction:
            return act(transaction)

    return retry_races(once)


def retry_races(once: Callable[[], T]) -> T:
    """Run a transaction; after a lost race or a refusal of the database repeat it, to see what the winner wrote."""
    for _ in range(RACES_MAX - 1):
        try:
            return once()
        except (StateTransitionRaceError, RefusedByDatabaseError):
            continue
    return once()
