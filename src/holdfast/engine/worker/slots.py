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

from holdfast.engine.worker.attempt import HeldAttempt

OnEnd = Callable[[HeldAttempt], None]


class ThreadSlots:
    """Threads of our own on one deque, whose methods are atomic: only a thread that goes to sleep takes a lock."""

    def __init__(self, size: int, on_end: OnEnd) -> None:
        self._on_end = on_end
        self._todo: deque[HeldAttempt] = deque()
        self._lock = threading.Lock()  # of the next two
        self._sleeping = 0
        self._closed = False
        self._bell: SimpleQueue[None] = SimpleQueue()  # one item wakes one thread
        self._abandoned: list[int] = []  # 1 for each that was given up, -1 for each of them that ended after all
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
        self._abandoned.append(1)
        self._add()

    def worn_out(self, limit: int) -> bool:
        return sum(self._abandoned) > limit

    def close(self) -> None:
        self._closed = True
        self._wake(sys.maxsize)

    def _run(self) -> None:
        while (running := self._next()) is not None:
            if running.ended:
                continue  # given back while it waited here
            if not running.run():
                self._abandoned.append(-1)
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
