"""What every kind of slots has in common: for type checkers only.

Invariants: only the worker's own thread calls these methods, except `take_back`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.engine.worker.attempt import HeldAttempt


class Slots(Protocol):
    """Somewhere to run attempts. Only the worker's own thread calls these; any may call `take_back`."""

    @property
    def waiting(self) -> int:
        """How many attempts no slot has taken yet, as far as that is known."""

    def start(self, claimed: Sequence[HeldAttempt]) -> None:
        """Run attempts, in their order, as soon as there is room."""

    def take_back(self, claimed_before: float) -> list[HeldAttempt]:
        """Return the attempts that were claimed before a time and that no slot has taken; they will not start here."""

    def abandon(self, running: HeldAttempt) -> None:
        """Give up an attempt that has been ended, and whose handler does not return."""

    def worn_out(self, limit: int) -> bool:
        """Tell whether more than `limit` handlers were given up and still run, or no slot is left."""

    def close(self) -> None:
        """Take no more; do not wait for what runs."""
