"""How many attempts a worker claims: what its slots can start soon, by the time that handlers took so far.

Invariants: before a handler has ended only free slots are filled; what is claimed beyond them starts within AHEAD_S if
handlers go on as they did; a slot whose handler has run longer than that counts for nothing; a payload that is longer
than PAYLOAD_MAX is not claimed ahead, but read when its handler starts, together with the next few.
"""

from __future__ import annotations

POLL_S = 1.0  # how often a worker looks for work that nothing has announced
SEEN_S = 5.0  # how often the ledger sees a worker, at the least
AHEAD_S = 0.05
PAYLOAD_MAX = 16 << 10
SHORT_S = 0.001  # handlers that take less are ended in groups
_WEIGHT = 1 / 16  # of the newest of many


class Pace:
    """An exponential mean of handler times, and the number of attempts to hold that follows."""

    def __init__(self, slots: int, most: int) -> None:
        self._slots = slots
        self._most = most
        self._mean_s: float | None = None

    @property
    def short(self) -> bool:
        """Whether handlers take so little time that it pays to write many ends at once."""
        return self._mean_s is not None and self._mean_s < SHORT_S

    def ran(self, n: int, seconds: float) -> None:
        """Note that n handlers ended after so many seconds in all."""
        if self._mean_s is None:
            self._mean_s = seconds / n
        # The weight of n newest together: one slow handler among many quick ones must not count as the last one.
        self._mean_s += (seconds / n - self._mean_s) * (1 - (1 - _WEIGHT) ** n)

    def hold(self, stalled: int, *, shared: bool = False) -> int:
        """Return how many attempts to hold, running and waiting, if so many slots are busy with a long handler.

        With two connections, each has its own share: `shared` doubles the limit.
        """
        most = 2 * self._most if shared else self._most
        if self._mean_s is None:
            return min(self._slots, most)
        ahead = (self._slots - stalled) * AHEAD_S / max(self._mean_s, 1e-6)
        return min(most, self._slots + int(ahead))
