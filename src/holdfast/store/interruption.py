"""Exceptions that a signal handler raised into the main thread, such as a timeout by SIGALRM.

Invariants: such an exception is of no task and of no database: it is never translated, logged instead of raised, or
given to another caller; it is imported only when something went wrong.
"""

from __future__ import annotations

import signal
import threading
import traceback
from types import CodeType


def from_signal_handler(error: BaseException) -> bool:
    """Return whether a signal handler of this process, written in Python, raised an exception in this thread."""
    if threading.current_thread() is not threading.main_thread():
        return False
    handlers = {code for number in signal.valid_signals() if (code := _code(signal.getsignal(number))) is not None}
    return any(frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__))


def _code(handler: object) -> CodeType | None:
    """Return the code of a handler: a function, a bound method, or an object with `__call__`."""
    called = handler if hasattr(handler, "__code__") or hasattr(handler, "__func__") else type(handler).__call__
    code = getattr(getattr(called, "__func__", called), "__code__", None)
    return code if isinstance(code, CodeType) else None
