"""What the engine may not decide for itself: the time, new names, chance, and planned faults.

Invariants: everything that is not a function of the ledger comes from here, so a test or a simulation that gives its
own World sees the same run twice.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from uuid import uuid4

import msgspec

from holdfast.store import Clock


def _nothing(_point: str) -> None:
    """Reach a point without a fault."""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """Clock, names, randomness and faults. `clock` None means the database's own (SQLite: the host's)."""

    clock: Clock | None = None
    new_name: Callable[[], str] = lambda: uuid4().hex[:12]
    randomness: random.Random = msgspec.field(default_factory=random.Random)
    monotonic: Callable[[], float] = time.monotonic
    reach: Callable[[str], None] = _nothing  # called at each point where a crash is worth planning
