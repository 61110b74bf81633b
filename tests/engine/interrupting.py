"""Interrupts a call as a signal handler would, at a chosen point."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType


def interrupted(act: Callable[[], object], *, after: int) -> bool:
    """Call a function, and raise after so many points where a signal handler can; return False if there were fewer.

    Python runs signal handlers where a function begins, where one of C has returned, and at the end of a loop.
    """
    left = after

    def profile(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal left
        if event in ("call", "c_return", "c_exception"):
            left -= 1
            if left < 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    gc.disable()  # else the exception can come in the end of an object of another test, where Python drops it
    try:
        sys.setprofile(profile)
        act()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
        gc.enable()
    return left < 0
