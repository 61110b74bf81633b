"""Running one attempt: call the handler, say as data how it ended, and turn that into a command.

Invariants: a handler can raise anything, return anything, or fork, and the worker only sees an outcome; an outcome is
plain data, the same whether the handler ran in a thread or in another process; an attempt ends once: of its handler,
its timeout and its being given back the first counts, and what comes later is dropped; nothing is written here.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast.core import commands
from holdfast.core.decide import CANCELLED
from holdfast.core.digest import payload_text
from holdfast.core.errors import EffectError, HoldfastError, RegistryError, StoreError
from holdfast.core.machines import ExecutionStatus
from holdfast.core.records import Attempt
from holdfast.engine.operations import LEASE_S, Call, Operation
from holdfast.engine.redact import error_code, error_message, short_code
from holdfast.engine.tasks import EndTask
from holdfast.engine.worker.execution import Execution, Staged
from holdfast.engine.worker.retry import Cancel, FailureKind, Quarantine, RetryAfter, Snooze, classify
from holdfast.engine.world import Crash
from holdfast.store.effects import Effect

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger

TIMED_OUT = "timed_out"
HANDLER_MISSING, HANDLER_MISSING_S = "handler_missing", 5.0
AGAIN_MAX = 20  # so often what an attempt stages may be refused before that is a failure
COMMIT_MISSING = "commit_missing"
# The same call would end the same way: no retry will help.
HOPELESS = frozenset({"arguments_invalid", "payload_not_json", "payload_too_deep", "payload_too_large"})


# ---------------------------------------------------------------------------------------------------------------------
# Outcomes


class Then(StrEnum):
    """What is to become of a job whose handler did not return."""

    DECIDE = "decide"  # the operation's retry policy says
    RETRY = "retry"
    GIVE_BACK = "give_back"
    CANCEL = "cancel"
    QUARANTINE = "quarantine"


class Returned(msgspec.Struct, frozen=True, tag=True):
    """The handler returned: its result as canonical text, and what it staged."""

    result: str
    effects: list[Effect]
    calls: list[Call]


class Raised(msgspec.Struct, frozen=True, tag=True):
    """The handler raised, or was ended: why, fit to be kept, and what follows."""

    code: str
    message: str
    then: Then = Then.DECIDE
    after_s: float = 0.0
    kind: FailureKind = FailureKind.UNKNOWN


Outcome = Returned | Raised | None  # None: it completed the job itself, in a transaction of its own


def handled(operation: Operation[Any, Any], execution: Execution) -> Outcome:
    """Call a plain handler and return what came of it, whatever that is."""
    worker_pid = os.getpid()
    try:
        result = operation.fn(execution, **operation.arguments(execution.job.payload or "{}"))
        _leave_fork(worker_pid)
        return _returned(execution, result)
    except Crash:
        raise
    except BaseException as error:  # noqa: BLE001 - also SystemExit and MemoryError: they are the job's, not ours
        _leave_fork(worker_pid)
        return _failed(execution, error, operation)


async def handled_async(operation: Operation[Any, Any], execution: Execution) -> Outcome:
    """Await an `async def` handler and return what came of it, whatever that is."""
    worker_pid = os.getpid()
    try:
        handler = cast("Callable[..., Awaitable[Any]]", operation.fn)
        result = await handler(execution, **operation.arguments(execution.job.payload or "{}"))
        _leave_fork(worker_pid)
        return _returned(execution, result)
    except Crash:
        raise
    except BaseException as error:  # noqa: BLE001 - the same
        _leave_fork(worker_pid)
        return _failed(execution, error, operation)


def staged_again(operation: Operation[Any, Any], execution: Execution, refused: EffectError) -> Outcome:
    """Let a handler stage anew what was refused, and return what came of it."""
    execution.staged = Staged([], [])
    try:
        return _returned(execution, execution.again(refused) if execution.again else None)
    except Crash:
        raise
    except BaseException as error:  # noqa: BLE001 - the same
        return _failed(execution, error, operation)


def raised(error: BaseException, judge: Callable[[BaseException], FailureKind] = classify) -> Raised:
    """Return an exception as an outcome. Whatever the exception does when it is looked at, this does not raise."""
    code, message = error_code(error), error_message(error)
    match error:
        case Snooze():
            return Raised(short_code(error.reason), message, Then.GIVE_BACK, error.seconds)
        case RetryAfter():
            return Raised(code, message, Then.RETRY, error.seconds)
        case Cancel():
            return Raised(CANCELLED, message, Then.CANCEL)
        case Quarantine():
            return Raised(short_code(error.reason), message, Then.QUARANTINE)
        case HoldfastError() if code in HOPELESS:
            return Raised(code, message, Then.QUARANTINE)
    try:
        return Raised(code, message, kind=FailureKind(judge(error)))
    except BaseException:  # noqa: BLE001 - the judge is the user's code too
        return Raised(code, message)


def _failed(execution: Execution, error: BaseException, operation: Operation[Any, Any]) -> Raised:
    with suppress(Exception):  # what it failed of is what matters; a value that was not kept is computed again
        execution.keep_rest()
    return raised(error, operation.classify)


def _returned(execution: Execution, result: Any) -> Returned | None:
    if execution.committed:
        return None
    execution.keep_rest()
    # Copies: a thread that the handler left behind cannot add to what is being written.
    return Returned(payload_text(result), list(execution.staged.effects), list(execution.staged.calls))


def _leave_fork(worker_pid: int) -> None:
    # A handler that forks returns twice; the child must not go on as if it were the worker.
    if os.getpid() != worker_pid:
        os._exit(0)


# ---------------------------------------------------------------------------------------------------------------------
# The attempt that a worker holds


class Running:
    """An attempt that a worker holds, from its claim to its end."""

    def __init__(self, ledger: Ledger, attempt: Attempt) -> None:
        self.ledger = ledger
        job = attempt.job
        self.operation: Operation[Any, Any] | None = ledger.operations.get(job.operation, job.operation_version)
        self.execution = Execution(ledger, attempt)
        self.started_at: float | None = None  # monotonic; None while it waits for a slot
        self.took_s = 0.0
        self.ended = False  # from here on nothing else can end it
        self.worker_stopping = False
        self.cancel_asked = False
        self._task: EndTask | None = None
        self._outcome: Outcome = None
        self._agains = 0
        self._told: set[object] = set()  # operations of which a registry has told that another version is in force
        self._lock = threading.Lock()

    @property
    def attempt(self) -> Attempt:
        """The attempt, with its lease as it was last extended."""
        return self.execution.record

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
            self._task.attempt = self.attempt  # it may have waited, and its lease been extended meanwhile
        return self._task

    # -- while it runs ------------------------------------------------------------------------------------------------

    def begin(self, grace_s: float = 0.0) -> None:
        """Note that the handler starts now, or within `grace_s` that it is not charged for."""
        self.started_at = time.monotonic() + grace_s

    def run(self) -> bool:
        """Call a plain handler here; return whether that ended the attempt."""
        self.begin()
        return self.finish(handled(self.operation, self.execution) if self.operation else self.missing())

    async def run_async(self) -> bool:
        """Await an `async def` handler here; return whether that ended the attempt."""
        self.begin()
        return self.finish(await handled_async(self.operation, self.execution) if self.operation else self.missing())

    def missing(self) -> Raised:
        """Return how an attempt ends that nobody here can make: it costs nothing, and another worker may know how."""
        job = self.attempt.job
        here = self.ledger.operations.versions(job.operation)
        has = f"handlers only for {', '.join(here)}" if here else "none of any version"
        needed = f"{job.operation} needs a handler that speaks {job.operation_version}; this worker has {has}"
        return Raised(HANDLER_MISSING, needed, Then.GIVE_BACK, HANDLER_MISSING_S)

    def extended(self, until: datetime) -> None:
        """Note that a heartbeat has extended the lease."""
        attempt = self.attempt
        execution = msgspec.structs.replace(attempt.execution, lease_expires_at=until)
        self.execution.record = Attempt(attempt.job, execution)

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
        self.execution.stop()
        return self.finish(Raised(TIMED_OUT, f"the handler ran longer than {limit_s:g} s", kind=FailureKind.TRANSIENT))

    def give_back(self, reason: str) -> bool:
        """End the attempt at no cost to the job, and ask the handler to stop."""
        self.execution.stop()
        return self.finish(Raised(reason, reason, Then.GIVE_BACK))

    def let_go(self) -> None:
        """End the attempt without a word: its lease will run out."""
        self.execution.stop()
        self._end()

    def refused(self, error: Exception) -> bool:
        """Take in that the ledger would not write a completion: a failure like any other. False: it was none."""
        if self._task is None or not isinstance(self._task.command, commands.Complete):
            return False
        operation = error.context.get("operation") if isinstance(error, RegistryError) else None
        if isinstance(error, RegistryError) and operation not in self._told and self.ledger.calling.learned(error):
            self._told.add(operation)
            self._conclude(self._outcome)  # a follow-up that names no version is submitted at the one in force now
        elif self.operation and self.execution.again and self._agains < AGAIN_MAX and isinstance(error, EffectError):
            self._agains += 1
            self._conclude(staged_again(self.operation, self.execution, error))
        else:
            self._task = self._ending(raised(error))
        return True

    def _conclude(self, outcome: Outcome) -> None:
        self._outcome = outcome
        try:
            self._task = self._ending(outcome)
        except Exception as error:  # noqa: BLE001 - such as a follow-up that no ledger would take
            self._task = self._ending(raised(error))

    def _end(self) -> bool:
        with self._lock:
            first, self.ended = not self.ended, True
        return first

    def _ending(self, outcome: Outcome) -> EndTask | None:
        if isinstance(outcome, Returned):
            followups = self.ledger.followups(self.attempt, outcome.calls) if outcome.calls else ()
            complete = commands.Complete(self.execution.token, outcome.result)
            return EndTask(self.attempt, complete, outcome.effects, followups)
        if outcome is None:
            outcome = self._not_committed()
        return EndTask(self.attempt, self._command(outcome, self.ledger.store.now())) if outcome else None

    def _not_committed(self) -> Raised | None:
        """Return a failure if the transaction in which the handler completed the job was never committed."""
        try:
            with self.ledger.store.reading() as reading:
                found = reading.executions.attempt(self.attempt.execution.exec_id)
        except StoreError:
            return None  # nobody can tell; if it was not, the lease runs out
        if found is None or found.execution.status is not ExecutionStatus.IN_PROGRESS:
            return None
        return Raised(COMMIT_MISSING, "run.commit was called, and its transaction was not committed")

    def _command(self, outcome: Raised, now: datetime) -> object:
        token, code, message = self.execution.token, outcome.code, outcome.message
        after = now + timedelta(seconds=outcome.after_s)
        match outcome.then:
            case Then.GIVE_BACK:
                return commands.GiveBack(token, after, code, message if code == HANDLER_MISSING else None)
            case Then.CANCEL if self.worker_stopping and not self.cancel_asked:
                # The handler was told to stop because the worker does; that is no reason to drop the job.
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
        delay_s = policy.delay_s(self.attempt.job.spent, kind, self.ledger.world.randomness)
        retry_at = None if delay_s is None else now + timedelta(seconds=delay_s)
        return commands.Fail(token, code, message, retry_at=retry_at, permanent=policy.is_final(kind))
