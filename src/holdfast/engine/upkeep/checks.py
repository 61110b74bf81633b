"""Checks of a running engine: the quick ones when a ledger opens, all of them once a period.

Invariants: whatever a check finds or fails at, the ledger can be used; each violation is logged as a
warning and published to subscribers of violations.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.audit.check.catalogue import INVARIANTS
from holdfast.audit.check.findings import CheckReport, Violation
from holdfast.audit.check.runner import check
from holdfast.engine.events import InvariantViolated
from holdfast.store import Store

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger

logger = logging.getLogger("holdfast")

# What a store enforces has been compared already, or it would not be open.
AT_OPEN = tuple(invariant.name for invariant in INVARIANTS if invariant.cheap and invariant.name != "enforcement")


class _Stopped(Exception):  # not an error: it ends a check whose keeper is stopping
    pass


def check_at_open(ledger: Ledger, store: Store[Any]) -> None:
    """Run the quick checks of a ledger that has just been opened, and log and publish what they find."""
    _publish(ledger, store, check(store, only=AT_OPEN, cheap=True).violations)


def check_and_publish(ledger: Ledger, *, stopping: Callable[[], bool] = lambda: False) -> CheckReport | None:
    """Ask everything, and log and publish what is found; None if it was stopped on the way."""

    def go_on(_what: str, _n: int) -> None:
        if stopping():
            raise _Stopped

    try:
        report = check(ledger.store, on_progress=go_on)
    except _Stopped:
        return None
    _publish(ledger, ledger.store, report.violations)
    return report


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
