"""Checking as part of the running engine: a quick look when a ledger opens, everything now and then.

Invariants: a check never keeps a ledger from being used, whatever it finds or fails at; each violation is logged as a
warning and told to those who subscribed to violations.
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


class _Stopped(Exception):  # not an error: the way out of a check that nobody waits for any more
    pass


def check_at_open(ledger: Ledger, store: Store[Any]) -> None:
    """Run the quick checks of a ledger that has just been opened, and log and publish what they find."""
    _tell(ledger, store, check(store, only=AT_OPEN, cheap=True).violations)


def check_and_tell(ledger: Ledger, *, stopping: Callable[[], bool] = lambda: False) -> CheckReport | None:
    """Ask everything, and log and publish what is found; None if it was stopped on the way."""

    def go_on(_what: str, _n: int) -> None:
        if stopping():
            raise _Stopped

    try:
        report = check(ledger.store, on_progress=go_on)
    except _Stopped:
        return None
    _tell(ledger, ledger.store, report.violations)
    return report


def _tell(ledger: Ledger, store: Store[Any], violations: Sequence[Violation]) -> None:
    if not violations:
        return
    at = store.now()
    for found in violations:
        logger.warning("%s breaks %s: %s", found.subject, found.invariant, found.detail)
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
