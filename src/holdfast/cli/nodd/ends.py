"""Counts how the attempts of this process ended.

Invariants: only committed ends of attempts that this process claimed are counted; the counts add up to the number of
attempts, because attempts whose end was not received count as unknown.
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
    "retried": "failed, to be retried",
    "given_back": "given back",
    "expired": "expired",
    "unknown": "with unknown end",
}


class Ends:
    """Counts how attempts end, from the events of a ledger."""

    def __init__(self, bus: Bus) -> None:
        self._held: set[tuple[int | None, int | None]] = set()
        self._counts: Counter[str] = Counter()
        self._subscription = bus.subscribe(self._count, Transition)

    def _count(self, transition: Transition) -> None:
        if transition.machine != JOB.name:
            return
        attempt = (transition.job_id, transition.attempt)
        if transition.event == "claim":
            self._held.add(attempt)
        elif transition.source == JobState.RUNNING and attempt in self._held:
            self._held.remove(attempt)
            self._counts[_ENDS[transition.event]] += 1

    def counted(self, attempts: int) -> dict[str, int]:
        """Stop counting, and return the number of attempts per end."""
        self._subscription.flush()
        self._subscription.close()
        found = {end: self._counts[end] for end in _ENDS.values()}
        return {**found, "unknown": max(0, attempts - sum(found.values()))}


def words(counts: dict[str, int]) -> str:
    """Return the counts as text, without zeros."""
    return ", ".join(f"{n} {_WORDS.get(end, end)}" for end, n in counts.items() if n)
