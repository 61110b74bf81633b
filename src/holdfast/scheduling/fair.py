"""Weights of queues, and the step of priorities: which jobs a worker takes first.

Invariants: both are settings of the ledger, so that a whole fleet follows them; every change is journalled.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from holdfast.core.arguments import refuse_unfit
from holdfast.core.errors import FlowInvalidError
from holdfast.store.verbs import fair as verbs
from holdfast.store.verbs.fair import STEP, STEP_S, WEIGHT

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger
    from holdfast.store.transaction import Reading, Transaction

WEIGHT_MAX = 1000.0
STEP_S_MAX = 86_400.0


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


def step(reading: Reading) -> float:
    """Return how many seconds of waiting one priority is worth."""
    setting = reading.configuration.get(*STEP)
    return STEP_S if setting is None else float(setting.value)


def set_step(ledger: Ledger, seconds: float | None, *, actor: str, reason: str) -> bool:
    """Set how many seconds of waiting one priority is worth; None: the default. Return whether that changed anything.

    Raise FlowInvalidError for a step that is not greater than 0 and at most a day.
    """
    return ledger.perform(lambda tx: save_step(tx, seconds, actor=actor, reason=reason))


def save_step(transaction: Transaction, seconds: float | None, *, actor: str, reason: str) -> bool:
    """Set the step in a transaction; see `set_step`."""
    if seconds is None:
        return transaction.configuration.remove(*STEP, actor=actor, reason=reason)
    if not (math.isfinite(seconds) and 0 < seconds <= STEP_S_MAX):
        raise FlowInvalidError(
            f"The step of a priority must be greater than 0 and at most {STEP_S_MAX:g} seconds; it is {seconds:g}.",
            context={"refusal": "step_out_of_range", "seconds": seconds},
        )
    return transaction.configuration.set(*STEP, f"{seconds:g}", actor=actor, reason=reason)
