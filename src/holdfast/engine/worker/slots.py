"""Slots: where handlers run. Threads here; `async_slots` has the event loop for `async def`, `processes` the others.

Invariants: at most `size` handlers run at once; an attempt that its handler ended is handed to `on_end`, and no other;
a thread that is given up is replaced, so the number of usable slots stays the same; those that were given up
and still run are counted, because a process that has too many of them should be replaced.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

from holdfast.engine.worker.attempt import HeldAttempt

OnEnd = Callable[[HeldAttempt], None]


class Slots(Protocol):
    """Somewhere to run attempts. Only the worker's own thread calls these."""

    def start(self, running: HeldAttempt) -> None:
        """Run an attempt as soon as there is room."""

    def abandon(self, running: HeldAttempt) -> None:
        """Give up an attempt that has been ended, and whose handler does not return."""

    def worn_out(self, limit: int) -> bool:
        """Tell whether more than `limit` handlers were given up and still run, or no slot is left."""

    def close(self) -> None:
        """Take no more; do not wait for what runs."""


class AbandonedCount:
    """How many handlers were abandoned and still run: one more when abandoned, one less when it ends after all."""

    def __init__(self) -> None:
        self.n = 0
        self._lock = threading.Lock()

    def add(self, change: int) -> None:
        with self._lock:  # the two may come in either order
            self.n += change


class ThreadSlots:
    """Threads of our own on one queue: several times faster than a ThreadPoolExecutor."""

    def __init__(self, size: int, on_end: OnEnd) -> None:
        self._on_end = on_end
        self._queue: SimpleQueue[HeldAttempt | None] = SimpleQueue()
        self._size = size
        self._abandoned = AbandonedCount()
        for _ in range(size):
            self._add()

    def _add(self) -> None:
        threading.Thread(target=self._run, name="holdfast-slot", daemon=True).start()

    def start(self, running: HeldAttempt) -> None:
        self._queue.put(running)

    def abandon(self, running: HeldAttempt) -> None:  # noqa: ARG002 - its thread notices by itself
        self._abandoned.add(1)
        self._add()

    def worn_out(self, limit: int) -> bool:
        return self._abandoned.n > limit

    def close(self) -> None:
        for _ in range(self._size):
            self._queue.put(None)

    def _run(self) -> None:
        while (running := self._queue.get()) is not None:
            if running.ended:
                continue  # given back while it waited here
            if not running.run():
                self._abandoned.add(-1)
                return  # another thread has this slot now
            self._on_end(running)
