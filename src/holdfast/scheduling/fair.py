"""Weights of queues: which share of its claims a worker of several queues gives to each.

Invariants: a weight is a setting of the ledger, so that a whole fleet follows it; every change is journalled.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from holdfast.core.arguments import refuse_unfit
from holdfast.core.errors import FlowInvalidError
from holdfast.store.verbs import fair as verbs
from holdfast.store.verbs.fair import WEIGHT

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger
    from holdfast.store.transaction import Transaction

WEIGHT_MAX = 1000.0


def weights(ledger: Ledger) -> dict[str, float]:
    """Return the queues that have a weight; all others have the weight 1."""
    with ledger.store.reading() as reading:
        return verbs.weights(reading)


def set_weight(ledger: Ledger, queue: str, weight: float | None, *, actor: str, reason: str) -> bool:
    """Set the weight of a queue, None removes it; return whether that changed anything. Raise FlowInvalidError."""
    return ledger.perform(lambda tx: save_weight(tx, queue, weight, actor=actor, reason=reason))


def save_weight(transaction: Transaction, queue: str, weight: float | None, *, actor: str, reason: str) -> bool:
    """Set the weight of a queue in a transaction; see `set_weight`."""
    refuse_unfit("queue", queue, "str")
    if weight is None:
        return transaction.configuration.remove(WEIGHT, queue, actor=actor, reason=reason)
    if not (math.isfinite(weight) and 0 < weight <= WEIGHT_MAX):
        raise FlowInvalidError(
            f"The weight of a queue must be greater than 0 and at most {WEIGHT_MAX:g}; it is {weight:g}.",
            context={"refusal": "weight_out_of_range", "queue": queue},
        )
    return transaction.configuration.set(WEIGHT, queue, f"{weight:g}", actor=actor, reason=reason)
