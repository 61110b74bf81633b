"""A bell: wakes the worker's thread when it sleeps.

Invariants: a ring between the look for work and the sleep ends that sleep at once; a ring is safe in a signal handler.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from contextlib import suppress


class Bell:
    """A pipe on which one thread sleeps and others ring."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        for end in (self._read, self._write):
            os.set_blocking(end, False)
        self._poll = select.poll()
        self._poll.register(self._read, select.POLLIN)
        self.asleep = False

    def ring(self) -> None:
        """End the sleep, if there is one. A caller first stores what the sleeper looks at."""
        if self.asleep:
            with suppress(OSError):  # the pipe is full of rings, or the worker has ended
                os.write(self._write, b"\0")

    def sleep(self, seconds: float, ready: Callable[[], object]) -> None:
        """Sleep until a ring, for so many seconds at most; not at all if `ready` returns a true value."""
        self.asleep = True  # from here on others ring, so that nothing is missed between the next two lines
        if not ready() and self._poll.poll(seconds * 1000):
            with suppress(BlockingIOError):
                os.read(self._read, 4096)
        self.asleep = False

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._read)
        os.close(self._write)
