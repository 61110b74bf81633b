"""A bell: wakes the worker's thread when it sleeps.

Invariants: a ring between the look for work and the sleep ends that sleep at once; a ring is safe in a signal handler;
a sleep ends when the watch on the database notices a change.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.store.watch import Watch


class Bell:
    """A pipe on which one thread sleeps and others ring."""

    def __init__(self) -> None:
        self._pipe: tuple[int, ...] = ()  # opened by the first sleep
        self.asleep = False

    def ring(self) -> None:
        """End the sleep, if there is one. A caller first stores what the sleeper looks at."""
        if self.asleep:
            with suppress(OSError):  # the pipe is full of rings, or the worker has ended
                os.write(self._pipe[1], b"\0")

    def sleep(self, seconds: float, ready: Callable[[], object], watch: Watch | None = None) -> bool:
        """Sleep until a ring or a change, for so many seconds at most, not at all if `ready` returns a true value.

        Return whether the watch has noticed a change.
        """
        until = time.monotonic() + seconds
        self._pipe = self._pipe or _nonblocking_pipe()
        self.asleep = True  # from here on others ring, so that nothing is missed between the next look and the sleep
        try:
            while not ready() and (left_s := until - time.monotonic()) > 0:
                if watch is not None and watch.changed():
                    return True
                if self._rang(left_s, watch):
                    return False
        finally:
            self.asleep = False
        return False

    def _rang(self, seconds: float, watch: Watch | None) -> bool:
        """Sleep until a ring, or until the watch should be looked at; return whether there was a ring."""
        poll = select.poll()
        poll.register(self._pipe[0], select.POLLIN)
        if watch is not None:
            seconds = min(seconds, watch.period_s or seconds)
            if (file := watch.fileno()) is not None:
                poll.register(file, select.POLLIN)
        if self._pipe[0] not in dict(poll.poll(seconds * 1000)):
            return False
        with suppress(BlockingIOError):
            os.read(self._pipe[0], 4096)
        return True

    def close(self) -> None:
        """Close the pipe."""
        ends, self._pipe = self._pipe, ()
        list(map(os.close, ends))


def _nonblocking_pipe() -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return ends
