"""The budget of a worker's duties: which share of the time that passes they may cost while there is work.

Invariants: while there is work, a step that cost `c` seconds allows the next one `c / share` seconds after its own
start, so that the steps of any `t` seconds cost at most `share * t` and the last of them; without work nothing waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

SHARE = 0.02

Seconds = Callable[[], float]
"""Returns seconds since an arbitrary moment: a clock, or a meter of what this thread has cost."""


class Step(msgspec.Struct):
    """When a step began, and what it cost, in seconds."""

    began: float
    cost: float = 0.0


class Budget:
    """Measures what steps cost, and says how long the next one has to wait."""

    def __init__(
        self, share: float = SHARE, *, clock: Seconds = time.monotonic, meter: Seconds = time.thread_time
    ) -> None:
        self.clock = clock
        self.busy = True  # whether there is work; the owner of the budget sets it
        self._share, self._meter = share, meter
        self._free_at = clock()

    def wait_s(self) -> float:
        """Return how long the next step has to wait."""
        return max(0.0, self._free_at - self.clock()) if self.busy else 0.0

    @contextmanager
    def charged(self) -> Iterator[Step]:
        """Measure the step that the block makes; while there is work, charge its cost."""
        step, before = Step(self.clock()), self._meter()
        try:
            yield step
        finally:
            step.cost = self._meter() - before
            if self.busy:
                self._free_at = max(self._free_at, step.began) + step.cost / self._share
