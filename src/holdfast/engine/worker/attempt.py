"""An attempt that a worker holds: it runs the handler, ends once, and turns its end into a command.

Invariants: an attempt ends once: of its handler, its timeout and its being given back the first counts, and what comes
later is dropped; nothing is written here.
"""

from __future__ import annotations

from datetime import datetime
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.commands import Complete
from holdfast.core.machines import EXEC_IDS
from holdfast.core.records import Attempt
from holdfast.engine.failures import FailureKind
from holdfast.engine.operations import LEASE_S, Operation
from holdfast.engine.tasks import EndTask
from holdfast.engine.worker.execution import Execution
from holdfast.engine.worker.outcome import Outcome, Raised, Returned, Then, failed, handled

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger


class HeldAttempt(Execution):
    """An attempt that a worker holds, from its claim to its end. Its handler sees it as an Execution."""

    # As in Execution: what most attempts never have is a value of the class.
    started_at: float | None = None  # monotonic; None while it waits for a slot
    taken_at: float | None = None  # when its slot took it, before anything that the handler is not charged for
    took_s = 0.0  # how long it occupied a slot
    lost_at: float | None = None  # when a heartbeat first found that the lease was lost, monotonic
    ended = False  # from here on nothing else can end it
    worker_stopping = False
    cancel_requested = False
    # How it ended, to be written; None when it completed itself in the caller's transaction.
    task: EndTask | None = None
    outcome: Outcome = None
    agains = 0
    confirmed: frozenset[object] = frozenset()  # operations whose version the registry gave during this end

    def __init__(self, ledger: Ledger, attempt: Attempt, claimed_at: float = 0.0, *, durable: bool = True) -> None:
        self._ledger = self.ledger = ledger
        self.record = attempt
        self.claimed_at = claimed_at  # monotonic
        self.durable = durable  # whether the claim is known to be
        self._ends = count()
        self.operation: Operation[Any, Any] | None = ledger.operations.found(attempt.operation, attempt.version)

    @property
    def token(self) -> int:
        if not self.durable:
            from holdfast.engine.worker.undurable import make_durable  # noqa: PLC0415 - few handlers look at it

            make_durable([self], self.ledger)
        return self.record.token

    @property
    def is_first(self) -> bool:
        """Whether it is the first attempt at its job."""
        return self.record.exec_id % EXEC_IDS == 1

    @property
    def lease_s(self) -> float:
        """For how long each heartbeat extends the lease."""
        return self.operation.lease_s if self.operation else LEASE_S

    @property
    def is_async(self) -> bool:
        """Whether the handler runs on an event loop."""
        return self.operation is not None and self.operation.is_async

    @property
    def deadline(self) -> float | None:
        """When the handler has run too long, in monotonic time; None while there is nothing to time."""
        timeout_s, started_at = self.operation.timeout_s if self.operation else None, self.started_at
        return None if timeout_s is None or started_at is None or self.ended else started_at + timeout_s

    @property
    def stages(self) -> bool:
        """Whether its end has effects."""
        return self.task is not None and bool(self.task.effects)

    # -- while it runs ------------------------------------------------------------------------------------------------

    def begin(self, grace_s: float = 0.0) -> None:
        """Note that the handler starts now, or within `grace_s` that it is not charged for."""
        now = monotonic()
        self.started_at, self.taken_at = now + grace_s, self.taken_at or now

    def run(self) -> bool:
        """Call a plain handler here; return whether that ended the attempt."""
        self.started_at = self.taken_at = monotonic()
        return self.finish(handled(self.operation, self) if self.operation else None)

    def extended(self, until: datetime) -> None:
        """Note that a heartbeat has extended the lease."""
        self.record.execution = msgspec.structs.replace(self.record.execution, lease_expires_at=until)

    # -- its end: the first of these counts, and says so by returning True --------------------------------------------

    def finish(self, outcome: Outcome) -> bool:
        """End the attempt as its handler did."""
        if not self._end():
            return False
        self.conclude(outcome)
        if self.record.long and self.again is None and isinstance(outcome, Returned):
            self.record.forget_payload()  # the end may wait for many others before it is written
        return True

    def time_out(self) -> bool:
        """End the attempt because its handler ran too long, and ask the handler to stop."""
        limit_s = self.operation.timeout_s if self.operation else 0
        self.stop()
        return self.finish(
            Raised("timed_out", f"the handler ran longer than {limit_s:g} s", kind=FailureKind.TRANSIENT)
        )

    def give_back(self, reason: str) -> bool:
        """End the attempt at no cost to the job, and ask the handler to stop."""
        self.stop()
        return self.finish(Raised(reason, reason, Then.GIVE_BACK))

    def let_go(self) -> bool:
        """End the attempt without writing anything: its lease will expire, or is lost."""
        self.stop()
        return self._end()

    def conclude(self, outcome: Outcome) -> None:
        """Make the task that writes an outcome."""
        self.outcome = outcome
        try:
            self.task = self._ending(outcome)
        except Exception as error:  # noqa: BLE001 - such as a follow-up that the ledger does not take
            self.task = self._ending(failed(error))
        if self.task is not None:
            self.task.kept = self._unkept

    def drop_checkpoints(self) -> None:
        """Write the end without the checkpoints that wait for it."""
        self._unkept = None
        if self.task is not None:
            self.task.kept = None

    def _end(self) -> bool:
        if next(self._ends):  # an atomic step: of two threads one gets 0
            return False
        if self.taken_at is not None:
            self.took_s = monotonic() - self.taken_at
        self.ended = True
        return True

    def _ending(self, outcome: Outcome) -> EndTask | None:
        if isinstance(outcome, Returned):
            followups = self.ledger.followups(self.record, outcome.calls) if outcome.calls else ()
            complete = Complete(self.record.token, outcome.result)
            return EndTask(self.record, complete, outcome.effects, followups)
        from holdfast.engine.worker.unsuccessful import ending  # noqa: PLC0415 - most attempts succeed

        return ending(self, outcome)
