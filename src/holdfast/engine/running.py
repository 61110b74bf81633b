"""Running one attempt: decode, call the handler, and turn whatever happens into a command.

Invariants: a handler can raise anything, return anything, or end the process it forked, and the worker only sees a
command; nothing a handler said is written here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from holdfast.core import commands
from holdfast.core.decide import CANCELLED
from holdfast.core.digest import payload_text
from holdfast.core.errors import HoldfastError, UnknownOperationError
from holdfast.core.records import Attempt
from holdfast.engine.committer import EndTask
from holdfast.engine.execution import Execution
from holdfast.engine.operations import LEASE_S, Operation
from holdfast.engine.redact import error_code, error_message
from holdfast.engine.retry import Cancel, FailureKind, Quarantine, RetryAfter, Snooze

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger

TIMED_OUT = "timed_out"


class Running:
    """An attempt that a worker holds, from its claim to its end."""

    def __init__(self, ledger: Ledger, attempt: Attempt) -> None:
        self._ledger = ledger
        self.attempt = attempt
        self.operation: Operation[Any, Any] | None = ledger.operations.get(attempt.job.operation)
        self.execution = Execution(ledger, attempt)
        self.started_at: float | None = None  # monotonic; None while it waits for a slot
        self.took_s = 0.0
        self.ended = False
        self.abandoned = False  # its thread went past the timeout; whatever it returns no longer counts
        self.task: EndTask | None = None  # how it ended; None when it completed itself in the caller's transaction

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
        timeout_s = self.operation.timeout_s if self.operation else None
        if timeout_s is None or self.started_at is None or self.ended or self.abandoned:
            return None
        return self.started_at + timeout_s

    def begin(self) -> None:
        """Note that the handler starts now."""
        self.started_at = time.monotonic()

    def end(self) -> None:
        """Note that the handler has ended."""
        self.ended = True
        self.took_s = time.monotonic() - (self.started_at or 0.0)

    def run(self) -> None:
        """Call a plain handler; afterwards `task` says how it ended."""
        self.begin()
        worker_pid = os.getpid()
        try:
            operation = self._known()
            result = operation.fn(self.execution, **operation.arguments(self.attempt.job.payload or "{}"))
            self._leave_fork(worker_pid)
            self._completed(result)
        except BaseException as error:  # noqa: BLE001 - also SystemExit and MemoryError: they are the job's, not ours
            self._leave_fork(worker_pid)
            self.failed(error)
        self.end()

    async def run_async(self) -> None:
        """Await an `async def` handler; afterwards `task` says how it ended."""
        self.begin()
        try:
            operation = self._known()
            arguments = operation.arguments(self.attempt.job.payload or "{}")
            result = await cast("Callable[..., Awaitable[Any]]", operation.fn)(self.execution, **arguments)
            self._completed(result)
        except BaseException as error:  # noqa: BLE001 - the same
            self.failed(error)
        self.end()

    def _known(self) -> Operation[Any, Any]:
        if self.operation is None:
            raise UnknownOperationError(f"this worker has no handler for {self.attempt.job.operation!r}")
        return self.operation

    @staticmethod
    def _leave_fork(worker_pid: int) -> None:
        # A handler that forks returns twice; the child must not go on as if it were the worker.
        if os.getpid() != worker_pid:
            os._exit(0)

    def _completed(self, result: Any) -> None:
        if self.execution.committed:
            self.task = None
            return
        complete = commands.Complete(self.execution.token, payload_text(result))
        staged = self.execution.staged
        followups = self._ledger.followups(self.attempt, staged.calls) if staged.calls else ()
        self.task = EndTask(self.attempt, complete, staged.effects, followups)

    def failed(self, error: BaseException) -> None:
        """Set the task that records a failure; one that was abandoned has its task already."""
        self.task = EndTask(self.attempt, self._failure(error, self._ledger.store.now()))

    def timed_out(self) -> None:
        """Set the task that records a timeout, and let go of the handler."""
        self.abandoned = True
        self.execution.stop()
        limit_s = self.operation.timeout_s if self.operation else 0
        self.failed(_TimedOutError(f"the handler ran longer than {limit_s:g} s"))

    def given_back(self, reason: str) -> EndTask:
        """Return the task that gives the lease back at no cost to the job."""
        self.execution.stop()
        return EndTask(self.attempt, commands.GiveBack(self.execution.token, self._ledger.store.now(), reason))

    def _failure(self, error: BaseException, now: datetime) -> object:
        token = self.execution.token
        match error:
            case Snooze():
                return commands.GiveBack(token, now + timedelta(seconds=error.seconds), error.reason)
            case Cancel():
                return commands.Fail(token, CANCELLED, error_message(error), quarantine_code=CANCELLED)
            case Quarantine():
                return commands.Fail(
                    token, error.reason, error_message(error), permanent=True, quarantine_code=error.reason
                )
            case RetryAfter():
                retry_at = now + timedelta(seconds=error.seconds)
                return commands.Fail(token, error_code(error), error_message(error), retry_at=retry_at)
            case UnknownOperationError() if self.operation is None:
                # Another worker may know it: the job costs nothing and comes back a little later.
                return commands.GiveBack(token, now + timedelta(seconds=5), "handler_missing")
        return self._by_policy(error, now)

    def _by_policy(self, error: BaseException, now: datetime) -> object:
        operation, token = self.operation, self.execution.token
        kind = FailureKind.UNKNOWN
        delay_s: float | None = None
        final = isinstance(error, HoldfastError) and error.code in ("arguments_invalid", "payload_not_json")
        if operation is not None and not final:
            kind = FailureKind.TRANSIENT if isinstance(error, _TimedOutError) else operation.classify(error)
            final = operation.retry.is_final(kind)
            delay_s = operation.retry.delay_s(self.attempt.job.spent, kind, self._ledger.world.randomness)
        return commands.Fail(
            token,
            error_code(error),
            error_message(error),
            retry_at=None if delay_s is None else now + timedelta(seconds=delay_s),
            permanent=final,
        )


class _TimedOutError(TimeoutError):
    code = TIMED_OUT
