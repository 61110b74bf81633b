"""Batch: what a caller gets for calls that the ledger has recorded together.

Invariants: reading it never changes a job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.machines import JobState

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger
    from holdfast.engine.receipt import Receipt
    from holdfast.store.transaction import Reading
    from holdfast.store.verbs.flow import Wait


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a batch is: its jobs by state."""

    total: int
    pending: int
    running: int
    succeeded: int
    failed: int
    quarantined: int

    @property
    def ended(self) -> bool:
        """Whether no job of the batch is pending or running."""
        return not self.pending and not self.running


class Batch:
    """A batch of jobs, and the job that follows it, if there is one."""

    def __init__(
        self, ledger: Ledger, batch_id: int, receipts: Sequence[Receipt[Any]], then: Receipt[Any] | None
    ) -> None:
        self._ledger = ledger
        self.batch_id = batch_id
        self.receipts = list(receipts)  # in the order of the calls; empty in a batch that was looked up
        self.then = then

    def __repr__(self) -> str:
        return f"Batch({self.batch_id}, then={None if self.then is None else self.then.job_id})"

    def progress(self) -> Progress:
        """Return how many of its jobs are in each state."""
        with self._ledger.store.reading() as reading:
            return progress_of(reading, reading.flow.batch(self.batch_id))


def progress_of(reading: Reading, wait: Wait) -> Progress:
    """Return how many jobs of a batch are in each state."""
    states = reading.flow.states_of(wait.wait_id)
    return Progress(total=wait.parents, **{state.value: states[state] for state in JobState})
