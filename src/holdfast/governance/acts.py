"""What governed acts have in common: who acts and why is checked, and an act that lost a race is tried again.

Invariants: a reason is redacted before it is kept; what is tried again was undone, the use of its grant with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from holdfast.core.authority import TEXT_BYTES_MAX, require_words
from holdfast.core.errors import RefusedByDatabaseError, StateTransitionRaceError
from holdfast.core.redaction import redacted

RACES_MAX = 5

T = TypeVar("T")


def actor_and_reason(actor: str, reason: str) -> tuple[str, str]:
    """Return who acts and why, fit to be kept; raise InputError where one of them is missing."""
    why = redacted(reason)
    require_words(operator=actor)
    require_words(TEXT_BYTES_MAX, reason=why)
    return actor, why


def retry_races(once: Callable[[], T]) -> T:
    """Try again what lost a race, or what the database refused: the record is judged anew, as the winner left it.

    What was tried was undone, the use of its grant with it.
    """
    for _ in range(RACES_MAX - 1):
        try:
            return once()
        except (StateTransitionRaceError, RefusedByDatabaseError):
            continue
    return once()
