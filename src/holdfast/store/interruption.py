"""Recognises signal handlers in the main thread: exceptions such as a timeout by SIGALRM, and writes inside a write.

Invariants: an exception that a signal handler raises belongs to no task and no database: it is raised, and never
translated, only logged, or given to another caller. This module is imported only after an error.
"""

from __future__ import annotations

import signal
import threading
import traceback
from collections.abc import Iterable
from types import CodeType, FrameType

from holdfast.core.errors import StoreBusyError


def from_signal_handler(error: BaseException) -> bool:
    """Return whether a signal handler of this process, written in Python, raised an exception in this thread."""
    return _has_handler(frame for frame, _ in traceback.walk_tb(error.__traceback__))


def in_signal_handler() -> bool:
    """Return whether a signal handler of this process, written in Python, is running in this thread."""
    return _has_handler(frame for frame, _ in traceback.walk_stack(None))


def _has_handler(frames: Iterable[FrameType]) -> bool:
    if threading.current_thread() is not threading.main_thread():
        return False
    handlers = {code for number in signal.valid_signals() if (code := _code(signal.getsignal(number))) is not None}
    return any(frame.f_code in handlers for frame in frames)


def _code(handler: object) -> CodeType | None:
    """Return the code of a handler: a function, a bound method, or an object with `__call__`."""
    called = handler if hasattr(handler, "__code__") or hasattr(handler, "__func__") else type(handler).__call__
    code = getattr(getattr(called, "__func__", called), "__code__", None)
    return code if isinstance(code, CodeType) else None


def reentered() -> StoreBusyError:
    """Return the error for a write that a signal handler begins inside a write of the thread that it interrupted."""
    return StoreBusyError(
        "this thread is in the middle of a write, which a signal handler has interrupted: it cannot write in between",
        next_step="Set a flag in the signal handler; write when the call that it interrupted has returned.",
        context={"reason": "reentered"},
    )
