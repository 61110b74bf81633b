"""Slots: where handlers run. Threads by default, an event loop for `async def`, processes or any executor by choice.

Invariants: at most `size` handlers run at once; each that ends is handed to `on_end` from the slot's own thread; a
thread that is abandoned is replaced, so the number of usable slots stays the same until the limit of abandoned ones.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

from holdfast.engine.running import Running

OnEnd = Callable[[Running], None]


class Slots(Protocol):
    """Somewhere to run attempts."""

    def start(self, running: Running) -> None:
        """Run an attempt as soon as there is room."""

    def abandon(self, running: Running) -> None:
        """Give up an attempt whose handler does not return."""

    def close(self) -> None:
        """Take no more; do not wait for what runs."""


class InlineSlots:
    """Runs each attempt at once, in the caller's thread: for tests on a virtual clock."""

    def __init__(self, on_end: OnEnd) -> None:
        self._on_end = on_end

    def start(self, running: Running) -> None:
        if running.is_async:
            asyncio.run(running.run_async())
        else:
            running.run()
        self._on_end(running)

    def abandon(self, running: Running) -> None:
        """Do nothing: nothing can be abandoned that runs in the caller's thread."""

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class ThreadSlots:
    """Threads of our own on one queue: several times faster than a ThreadPoolExecutor."""

    def __init__(self, size: int, on_end: OnEnd) -> None:
        self._on_end = on_end
        self._queue: SimpleQueue[Running | None] = SimpleQueue()
        self._size = size
        self.abandoned = 0
        for _ in range(size):
            self._add()

    def _add(self) -> None:
        threading.Thread(target=self._run, name="holdfast-slot", daemon=True).start()

    def start(self, running: Running) -> None:
        self._queue.put(running)

    def abandon(self, running: Running) -> None:  # noqa: ARG002 - any thread is as good as another
        self.abandoned += 1
        self._add()

    def close(self) -> None:
        for _ in range(self._size + self.abandoned):
            self._queue.put(None)

    def _run(self) -> None:
        while True:
            running = self._queue.get()
            if running is None:
                return
            if running.abandoned:
                continue
            running.run()
            if _abandoned(running):
                return  # somebody else has this slot now
            self._on_end(running)


class AsyncSlots:
    """One event loop in a thread of its own, started when the first `async def` handler comes."""

    def __init__(self, on_end: OnEnd) -> None:
        self._on_end = on_end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def start(self, running: Running) -> None:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="holdfast-loop", daemon=True).start()
        self._loop.call_soon_threadsafe(self._begin, running)

    def _begin(self, running: Running) -> None:
        task = asyncio.get_running_loop().create_task(running.run_async())
        self._tasks[id(running)] = task
        task.add_done_callback(lambda _: self._ended(running))

    def _ended(self, running: Running) -> None:
        self._tasks.pop(id(running), None)
        if not running.abandoned:
            self._on_end(running)

    def abandon(self, running: Running) -> None:
        loop, task = self._loop, self._tasks.get(id(running))
        if loop is not None and task is not None:
            loop.call_soon_threadsafe(task.cancel)

    def close(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)


def _abandoned(running: Running) -> bool:
    """Tell whether the worker has given up on this attempt meanwhile."""
    return running.abandoned
