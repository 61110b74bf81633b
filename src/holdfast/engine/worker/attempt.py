"""An attempt that a worker holds: it runs the handler, ends once, and turns its end into a command.

Invariants: an attempt ends once: of its handler, its timeout and its being given back the first counts, and what comes
later is dropped; nothing is written here.
"""

from __future__ import annotations

import threading
import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core import commands
from holdfast.core.decide import CANCELLED
from holdfast.core.errors import EffectError, RegistryError, StoreError
from holdfast.core.machines import ExecutionStatus
from holdfast.core.records import Attempt
from holdfast.engine.failures import FailureKind
from holdfast.engine.operations import LEASE_S, Operation
from holdfast.engine.tasks import EndTask
from holdfast.engine.worker.execution import Execution
from holdfast.engine.worker.outcome import Outcome, Raised, Returned, Then, failed, handled, staged_again

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger

TIMED_OUT = "timed_out"
HANDLER_MISSING, HANDLER_MISSING_S = "handler_missing", 5.0
AGAIN_MAX = 20  # after so many refusals of what it stages, an attempt fails
COMMIT_MISSING = "commit_missing"


class HeldAttempt(Execution):
    """An attempt that a worker holds, from its claim to its end. Its handler sees it as an Execution."""

    def __init__(self, ledger: Ledger, attempt: Attempt) -> None:
        super().__init__(ledger, attempt)
        self.ledger = ledger
        job = attempt.job
        self.operation: Operation[Any, Any] | None = ledger.operations.get(job.operation, job.operation_version)
        self.started_at: float | None = None  # monotonic; None while it waits for a slot
        self.took_s = 0.0
        self.ended = False  # from here on nothing else can end it
        self.worker_stopping = False
        self.cancel_requested = False
        self._task: EndTask | None = None
        self._outcome: Outcome = None
        self._agains = 0
        self._confirmed: set[object] = set()  # operations whose version in force the registry gave during this end
        self._lock = threading.Lock()

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
    def task(self) -> EndTask | None:
        """How it ended, to be written; None when it completed itself in the caller's transaction."""
        if self._task is not None:
            self._task.attempt = self.record  # it may have waited, and its lease been extended meanwhile
        return self._task

    # -- while it runs ------------------------------------------------------------------------------------------------

    def begin(self, grace_s: float = 0.0) -> None:
        """Note that the handler starts now, or within `grace_s` that it is not charged for."""
        self.started_at = time.monotonic() + grace_s

    def run(self) -> bool:
        """Call a plain handler here; return whether that ended the attempt."""
        self.begin()
        return self.finish(handled(self.operation, self) if self.operation else self.missing())

    def missing(self) -> Raised:
        """Return the end of an attempt that has no handler here: it costs nothing, and another worker may have one."""
        job = self.job
        here = self.ledger.operations.versions(job.operation)
        has = f"handlers only for {', '.join(here)}" if here else "no handler for any version"
        needed = f"{job.operation} needs a handler for version {job.operation_version}; this worker has {has}"
        return Raised(HANDLER_MISSING, needed, Then.GIVE_BACK, HANDLER_MISSING_S)

    def extended(self, until: datetime) -> None:
        """Note that a heartbeat has extended the lease."""
        self.record = Attempt(self.job, msgspec.structs.replace(self.record.execution, lease_expires_at=until))

    # -- its end: the first of these counts, and says so by returning True --------------------------------------------

    def finish(self, outcome: Outcome) -> bool:
        """End the attempt as its handler did."""
        if not self._end():
            return False
        self.took_s = max(0.0, time.monotonic() - (self.started_at or time.monotonic()))
        self._conclude(outcome)
        return True

    def time_out(self) -> bool:
        """End the attempt because its handler ran too long, and ask the handler to stop."""
        limit_s = self.operation.timeout_s if self.operation else 0
        self.stop()
        return self.finish(Raised(TIMED_OUT, f"the handler ran longer than {limit_s:g} s", kind=FailureKind.TRANSIENT))

    def give_back(self, reason: str) -> bool:
        """End the attempt at no cost to the job, and ask the handler to stop."""
        self.stop()
        return self.finish(Raised(reason, reason, Then.GIVE_BACK))

    def let_go(self) -> None:
        """End the attempt without writing anything: its lease will expire."""
        self.stop()
        self._end()

    def refused(self, error: Exception) -> bool:
        """Make a failure of a completion that the ledger refused to write; return False if it was not a completion."""
        if self._task is None or not isinstance(self._task.command, commands.Complete):
            return False
        operation = error.context.get("operation") if isinstance(error, RegistryError) else None
        if isinstance(error, RegistryError) and operation not in self._confirmed and self.ledger.known.learn(error):
            self._confirmed.add(operation)
            self._conclude(self._outcome)  # a follow-up that names no version is submitted at the one in force now
        elif self.operation and self.again and self._agains < AGAIN_MAX and isinstance(error, EffectError):
            self._agains += 1
            self._conclude(staged_again(self.operation, self, error))
        else:
            self._task = self._ending(failed(error))
        return True

    def _conclude(self, outcome: Outcome) -> None:
        self._outcome = outcome
        try:
            self._task = self._ending(outcome)
        except Exception as error:  # noqa: BLE001 - such as a follow-up that the ledger does not take
            self._task = self._ending(failed(error))

    def _end(self) -> bool:
        with self._lock:
            first, self.ended = not self.ended, True
        return first

    def _ending(self, outcome: Outcome) -> EndTask | None:
        if isinstance(outcome, Returned):
            followups = self.ledger.followups(self.record, outcome.calls) if outcome.calls else ()
            complete = commands.Complete(self.token, outcome.result)
            return EndTask(self.record, complete, outcome.effects, followups)
        if outcome is None:
            outcome = self._not_committed()
        return EndTask(self.record, self._command(outcome, self.ledger.store.now())) if outcome else None

    def _not_committed(self) -> Raised | None:
        """Return a failure if the transaction in which the handler completed the job was never committed."""
        try:
            with self.ledger.store.reading() as reading:
                found = reading.lists.attempt(self.record.execution.exec_id)
        except StoreError:
            return None  # not known; if it was not committed, the lease expires
        if found is None or found.execution.status is not ExecutionStatus.IN_PROGRESS:
            return None
        return Raised(COMMIT_MISSING, "run.commit was called, but its transaction was not committed")

    def _command(self, outcome: Raised, now: datetime) -> object:
        token, code, message = self.token, outcome.code, outcome.message
        after = now + timedelta(seconds=outcome.after_s)
        match outcome.then:
            case Then.GIVE_BACK:
                return commands.GiveBack(token, after, code, message if code == HANDLER_MISSING else None)
            case Then.CANCEL if self.worker_stopping and not self.cancel_requested:
                # The handler stopped because the worker does: the job is not cancelled.
                return commands.GiveBack(token, now, "worker_stopped")
            case Then.CANCEL:
                return commands.Fail(token, code, message, quarantine_code=CANCELLED)
            case Then.QUARANTINE:
                return commands.Fail(token, code, message, permanent=True, quarantine_code=code)
            case Then.RETRY:
                return commands.Fail(token, code, message, retry_at=after)
        if self.operation is None:
            return commands.Fail(token, code, message)
        policy, kind = self.operation.retry, outcome.kind
        delay_s = policy.delay_s(self.job.spent, kind, self.ledger.world.randomness)
        retry_at = None if delay_s is None else now + timedelta(seconds=delay_s)
        return commands.Fail(token, code, message, retry_at=retry_at, permanent=policy.is_final(kind))
