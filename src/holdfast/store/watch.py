"""What notices that another process writes: each database has its own.

Invariants: a watch may report a change that is none; one that it misses costs a sleeper at most its next poll.
"""

from abc import ABC, abstractmethod


class Watch(ABC):
    """Notices writes of other processes, for a thread that sleeps."""

    period_s: float | None = None  # call `changed` so often; None: when `fileno` is readable

    @abstractmethod
    def fileno(self) -> int | None:
        """Return what becomes readable at a change; None if there is no such thing now."""

    @abstractmethod
    def changed(self) -> bool:
        """Return whether something may have changed since the last call."""

    @abstractmethod
    def close(self) -> None:
        """Stop watching."""
