"""What the engine takes from outside: the time, new names, randomness, and planned crashes.

Invariants: everything that is not a function of the ledger comes from here, so a test or a simulation that gives its
own World sees the same run twice; a planned crash passes through every handler of errors, as the end of a process
would.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from uuid import uuid4

import msgspec

from holdfast.store import Clock

BETWEEN = "after_commit_before_done"


class Crash(BaseException):
    """A planned crash at a point. Only the test or the simulation that planned it may catch it."""

    def __init__(self, point: str) -> None:
        from holdfast.engine.crash_points import POINTS  # noqa: PLC0415 - only where a crash is planned

        super().__init__(f"a planned crash at {point}: {POINTS.get(point, 'a point of its own')}")
        self.point = point


def nothing(_point: str) -> None:
    """Reach a point without a fault."""


def _never(_point: str) -> bool:
    """Plan nothing."""
    return False


class World(msgspec.Struct, frozen=True, kw_only=True):
    """Clock, names, randomness and faults. `clock` None means the database's own (SQLite: the host's)."""

    clock: Clock | None = None
    new_name: Callable[[], str] = lambda: uuid4().hex[:12]
    randomness: random.Random = msgspec.field(default_factory=random.Random)
    monotonic: Callable[[], float] = time.monotonic
    reach: Callable[[str], None] = nothing  # called at each of `crash_points.POINTS`
    planned: Callable[[str], bool] = _never  # is a task run in two transactions, so that it passes this point?
