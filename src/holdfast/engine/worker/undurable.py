"""Claims that are not synced: an idle job waits for one sync less.

A claim that is alone in its transaction need not be durable before its handler starts. The end of the attempt is
synced, and with it all that was written before. If a power cut takes the claim back, the job is pending as before; what
the handler still writes is refused, because no claim has its token.

Invariants: a transaction that is not synced has nothing but claims; a token reaches a handler only once its claim is
durable; only a first attempt starts under a claim that is not, so that no attempt is forgotten that a limit counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.core.errors import LeaseLostError, StoreError

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger
    from holdfast.engine.worker.attempt import HeldAttempt


def counted(claimed: Sequence[HeldAttempt], ledger: Ledger) -> list[HeldAttempt]:
    """Make the claims of repeated attempts durable; return what may start: these, and all first attempts."""
    with suppress(LeaseLostError, StoreError):  # an attempt that does not start expires, if it was claimed at all
        make_durable([running for running in claimed if not running.is_first], ledger)
    return [running for running in claimed if running.durable or running.is_first]


def make_durable(held: Sequence[HeldAttempt], ledger: Ledger) -> None:
    """Extend leases: that write is synced, and makes durable what was written before it. Raise if a lease is lost."""
    leases = [(running.record.execution, running.lease_s) for running in held]
    kept = ledger.perform(lambda tx: tx.executions.extend_leases(leases))
    for running in held:
        running.durable = running.record.exec_id in kept
    if lost := next((running for running in held if not running.durable), None):
        raise LeaseLostError(f"the lease of job {lost.record.job_id} was lost")
