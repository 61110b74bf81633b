"""Events of a replay, published on the bus of a ledger.

Invariants: a batch is published after its transaction is durable.
"""

from __future__ import annotations

from datetime import datetime

import msgspec


class ReplayBatch(msgspec.Struct, frozen=True, kw_only=True):
    """One batch of a replay: how many jobs it put back and passed over, and how often it waited."""

    run_id: str
    number: int
    batches: int  # of the whole run
    mode: str
    replay_reason: str
    environment: str
    replayed: dict[str, int]  # by dataset
    skipped: dict[str, int]  # by reason
    throttled: dict[str, int]  # by reason
    at: datetime

    def __str__(self) -> str:
        return f"replay {self.run_id} batch {self.number}"


class ReplayRefused(msgspec.Struct, frozen=True, kw_only=True):
    """A guard refused a replay."""

    guard_type: str
    environment: str
    at: datetime

    def __str__(self) -> str:
        return f"replay refused {self.guard_type}"
