"""Checks of a running engine: the quick ones when a ledger opens, all of them once a period.

Invariants: whatever a check finds or fails at, the ledger can be used; each violation is logged as a
warning and published to subscribers of violations, when it is found.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.audit.check.catalogue import INVARIANTS
from holdfast.audit.check.findings import CheckReport, Violation
from holdfast.audit.check.runner import check, check_steps
from holdfast.core.steps import Steps
from holdfast.engine.events import InvariantViolated
from holdfast.store import Store

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger

logger = logging.getLogger("holdfast")

JOBS_A_STEP = 100  # a check takes about 0.1 ms a job
# What a store enforces has been compared already, or it would not be open.
AT_OPEN = tuple(invariant.name for invariant in INVARIANTS if invariant.cheap and invariant.name != "enforcement")


def check_at_open(ledger: Ledger, store: Store[Any]) -> None:
    """Run the quick checks of a ledger that has just been opened, and log and publish what they find."""
    _publish(ledger, store, check(store, only=AT_OPEN, cheap=True).violations)


def check_and_publish(ledger: Ledger) -> Steps[CheckReport]:
    """Check everything in steps, log and publish each violation when it is found, and return the report."""
    store = ledger.store
    return check_steps(store, batch=JOBS_A_STEP, on_found=lambda found: _publish(ledger, store, found))


def _publish(ledger: Ledger, store: Store[Any], violations: Sequence[Violation]) -> None:
    if not violations:
        return
    at = store.now()
    for found in violations:
        logger.warning("%s violates %s: %s", found.subject, found.invariant, found.detail)
    ledger.bus.publish(
        [
            InvariantViolated(
                invariant=found.invariant,
                subject=found.subject,
                detail=found.detail,
                severity=str(found.severity),
                at=at,
            )
            for found in violations
        ]
    )
