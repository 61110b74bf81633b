"""A watch notices that another process writes. Each database has its own kind.

Invariants: a watch may report a change where there is none; a change that it misses is found at the next poll.
"""

from abc import ABC, abstractmethod


class Watch(ABC):
    """Notices writes of other processes, for a thread that sleeps."""

    period_s: float | None = None  # between two calls of `changed`; None: call it when `fileno` is readable

    @abstractmethod
    def fileno(self) -> int | None:
        """Return the descriptor that becomes readable at a change; None if there is none now."""

    @abstractmethod
    def changed(self) -> bool:
        """Return whether something may have changed since the last call."""

    @abstractmethod
    def close(self) -> None:
        """Stop watching."""
