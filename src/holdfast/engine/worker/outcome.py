"""The outcome of a handler: what it returned and staged, or why it failed and what follows, as plain data.

Invariants: a handler can raise anything, return anything, or fork, and the caller only sees an outcome; an outcome is
the same whether the handler ran in a thread or in another process; nothing is written here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.core.digest import payload_text
from holdfast.engine.failures import FailureKind, classify
from holdfast.engine.operations import Call, Operation
from holdfast.engine.worker.execution import Execution
from holdfast.engine.world import Crash
from holdfast.store.requests import Effect

FORKS: list[None] = []  # one for each fork between the first process and this one
os.register_at_fork(after_in_child=lambda: FORKS.append(None))


class Then(StrEnum):
    """What follows for a job whose handler did not return."""

    DECIDE = "decide"  # the operation's retry policy says
    RETRY = "retry"
    HOLD = "hold"  # retry, and hold the rate of the job for all
    GIVE_BACK = "give_back"
    CANCEL = "cancel"
    QUARANTINE = "quarantine"


class Returned(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The handler returned: its result as canonical text, and what it staged."""

    result: str
    effects: Sequence[Effect] = ()
    calls: Sequence[Call] = ()


class Raised(msgspec.Struct, frozen=True, tag=True):
    """The handler raised, or was ended: why, fit to be kept, and what follows."""

    code: str
    message: str
    then: Then = Then.DECIDE
    after_s: float = 0.0
    kind: FailureKind = FailureKind.UNKNOWN
    traceback: str | None = None  # where it was raised, redacted


# None: it completed the job itself, in a transaction of its own, or there is no handler here.
Outcome = Returned | Raised | None


def handled(operation: Operation[Any, Any], execution: Execution) -> Outcome:
    """Call a plain handler and return its outcome."""
    return outcome_of(
        operation, execution, lambda: operation.fn(execution, **operation.arguments(execution.record.payload or "{}"))
    )


def outcome_of(
    operation: Operation[Any, Any], execution: Execution, work: Callable[[], Any], *, forks: int | None = None
) -> Outcome:
    """Call a function that runs a handler and return its outcome, also if it raises anything."""
    forks = len(FORKS) if forks is None else forks
    try:
        result = work()
        _leave_fork(forks)
        return _returned(execution, result)
    except Crash:
        raise
    except BaseException as error:  # noqa: BLE001 - also SystemExit and MemoryError: they are the job's, not ours
        _leave_fork(forks)
        execution.undo_commit()
        with suppress(Exception):  # why it failed is what matters; a value that was not kept is computed again
            execution.handler_ended()
        return failed(error, operation.classify)


def failed(error: BaseException, judge: Callable[[BaseException], FailureKind] = classify) -> Raised:
    """Return an exception as an outcome: see `raised`, which is imported with the first failure."""
    from holdfast.engine.worker.raised import raised  # noqa: PLC0415 - most attempts do not fail

    return raised(error, judge)


def _returned(execution: Execution, result: Any) -> Returned | None:
    if execution.committed:
        return None
    execution.handler_ended()
    text = "null" if result is None else payload_text(result)
    if execution._staged is None:  # noqa: SLF001 - looking must not make it
        return Returned(text)
    # Copies: a thread that the handler left behind cannot add to what is being written.
    return Returned(text, list(execution.staged.effects), list(execution.staged.calls))


def _leave_fork(forks: int) -> None:
    # A handler that forks returns twice; the child must not continue as if it were the worker.
    if forks != len(FORKS):
        os._exit(0)
