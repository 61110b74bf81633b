"""The outcome of a handler: what it returned and staged, or why it failed and what follows, as plain data.

Invariants: a handler can raise anything, return anything, or fork, and the caller only sees an outcome; an outcome is
the same whether the handler ran in a thread or in another process; nothing is written here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.core.digest import payload_text
from holdfast.core.errors import EffectError
from holdfast.engine.failures import FailureKind, classify
from holdfast.engine.operations import Call, Operation
from holdfast.engine.worker.execution import Execution, Staged
from holdfast.engine.world import Crash
from holdfast.store.effects import Effect

# The same call would end the same way: no retry will help.
HOPELESS = frozenset({"arguments_invalid", "payload_not_json", "payload_too_deep", "payload_too_large"})


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
    """Call a plain handler and return what came of it."""
    return outcome_of(
        operation, execution, lambda: operation.fn(execution, **operation.arguments(execution.job.payload or "{}"))
    )


def staged_again(operation: Operation[Any, Any], execution: Execution, refused: EffectError) -> Outcome:
    """Let a handler stage anew what was refused, and return what came of it."""
    execution.staged = Staged([], [])
    return outcome_of(operation, execution, lambda: execution.again(refused) if execution.again else None)


def outcome_of(
    operation: Operation[Any, Any], execution: Execution, work: Callable[[], Any], *, worker_pid: int | None = None
) -> Outcome:
    """Call what a handler does and return what came of it, whatever that is."""
    worker_pid = worker_pid or os.getpid()
    try:
        result = work()
        _leave_fork(worker_pid)
        return _returned(execution, result)
    except Crash:
        raise
    except BaseException as error:  # noqa: BLE001 - also SystemExit and MemoryError: they are the job's, not ours
        _leave_fork(worker_pid)
        with suppress(Exception):  # why it failed is what matters; a value that was not kept is computed again
            execution.keep_rest()
        return failed(error, operation.classify)


def failed(error: BaseException, judge: Callable[[BaseException], FailureKind] = classify) -> Raised:
    """Return an exception as an outcome: see `raised`, which is imported with the first failure."""
    from holdfast.engine.worker.raised import raised  # noqa: PLC0415 - most attempts do not fail

    return raised(error, judge)


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
