"""Slots: where handlers run. Threads here; `async_slots` has the event loop for `async def`, `processes` the others.

Invariants: at most `size` handlers run at once; an attempt that its handler ended is handed to `on_end`, and no other;
a thread that finds nothing to run sleeps, and `start` wakes as many as there is work for; a thread that is given up is
replaced, so the number of usable slots stays the same; those that were given up and still run are counted, because a
process that has too many of them should be replaced.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Protocol

from holdfast.engine.worker.attempt import HeldAttempt

OnEnd = Callable[[HeldAttempt], None]


class Slots(Protocol):
    """Somewhere to run attempts. Only the worker's own thread calls these; any may call `take_back`."""

    @property
    def waiting(self) -> int:
        """How many attempts no slot has taken yet, as far as that is known."""

    def start(self, claimed: Sequence[HeldAttempt]) -> None:
        """Run attempts, in their order, as soon as there is room."""

    def take_back(self, claimed_before: float) -> list[HeldAttempt]:
        """Return the attempts that were claimed before a time and that no slot has taken; they will not start here."""

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
    """Threads of our own on one deque, whose methods are atomic: only a thread that goes to sleep takes a lock."""

    def __init__(self, size: int, on_end: OnEnd) -> None:
        self._on_end = on_end
        self._todo: deque[HeldAttempt] = deque()
        self._lock = threading.Lock()  # of the next two
        self._sleeping = 0
        self._closed = False
        self._bell: SimpleQueue[None] = SimpleQueue()  # one item wakes one thread
        self._abandoned = AbandonedCount()
        for _ in range(size):
            self._add()

    def _add(self) -> None:
        threading.Thread(target=self._run, name="holdfast-slot", daemon=True).start()

    @property
    def waiting(self) -> int:
        return len(self._todo)

    def start(self, claimed: Sequence[HeldAttempt]) -> None:
        self._todo.extend(claimed)
        self._wake(len(claimed))

    def take_back(self, claimed_before: float) -> list[HeldAttempt]:
        taken: list[HeldAttempt] = []
        try:
            while self._todo[0].claimed_at < claimed_before:
                taken.append(self._todo.popleft())  # perhaps the one behind it, if a slot took the first meanwhile
        except IndexError:
            pass
        return taken

    def _wake(self, n: int) -> None:
        # Under the lock a thread looks for work and goes to sleep in one step: it cannot miss what was added before.
        with self._lock:
            n = min(n, self._sleeping)
            self._sleeping -= n
        for _ in range(n):
            self._bell.put(None)

    def abandon(self, running: HeldAttempt) -> None:  # noqa: ARG002 - its thread notices by itself
        self._abandoned.add(1)
        self._add()

    def worn_out(self, limit: int) -> bool:
        return self._abandoned.n > limit

    def close(self) -> None:
        self._closed = True
        self._wake(sys.maxsize)

    def _run(self) -> None:
        while (running := self._next()) is not None:
            if running.ended:
                continue  # given back while it waited here
            if not running.run():
                self._abandoned.add(-1)
                return  # another thread has this slot now
            self._on_end(running)

    def _next(self) -> HeldAttempt | None:
        """Return the next attempt to run, waiting for it; None once the slots are closed and nothing is left."""
        while True:
            try:
                return self._todo.popleft()
            except IndexError:
                with self._lock:
                    if self._todo:
                        continue
                    if self._closed:
                        return None
                    self._sleeping += 1
                self._bell.get()
