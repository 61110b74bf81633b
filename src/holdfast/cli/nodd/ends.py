"""How the attempts of this process ended, counted while they do.

Invariants: what is counted was committed; only attempts that this process claimed count, whoever else works beside it;
the counts always add up to the attempts that were made: of which the end was not heard, it is said so.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from holdfast.core.machines import JOB, JobState
from holdfast.engine.events import Transition

if TYPE_CHECKING:
    from holdfast.engine.events import Bus

_ENDS = {
    "succeed": "succeeded",
    "fail": "failed",
    "retry": "retried",
    "quarantine": "quarantined",
    "cancel": "cancelled",
    "give_back": "given_back",
    "expire": "expired",
}
_WORDS = {
    "retried": "failed and to be tried again",
    "given_back": "given back",
    "expired": "lost their lease",
    "unknown": "of unknown end",
}


class Ends:
    """Counts how attempts end, as a ledger's events tell it."""

    def __init__(self, bus: Bus) -> None:
        self._held: set[tuple[int | None, int | None]] = set()
        self._counts: Counter[str] = Counter()
        self._subscription = bus.subscribe(self._hear, Transition)

    def _hear(self, told: Transition) -> None:
        if told.machine != JOB.name:
            return
        attempt = (told.job_id, told.attempt)
        if told.event == "claim":
            self._held.add(attempt)
        elif told.source == JobState.RUNNING and attempt in self._held:
            self._held.remove(attempt)
            self._counts[_ENDS[told.event]] += 1

    def counted(self, attempts: int) -> dict[str, int]:
        """Stop counting, and return how so many attempts ended, by every end that there is."""
        self._subscription.flush()
        self._subscription.close()
        found = {end: self._counts[end] for end in _ENDS.values()}
        return {**found, "unknown": max(0, attempts - sum(found.values()))}


def words(counts: dict[str, int]) -> str:
    """Return counts as people read them, without what did not happen."""
    return ", ".join(f"{n} {_WORDS.get(end, end)}" for end, n in counts.items() if n)
