"""Slots: where handlers run. Threads by default, an event loop for `async def`, processes or any executor by choice.

Invariants: at most `size` handlers run at once; an attempt that its handler ended is handed to `on_end`, and no other;
a thread or a loop that is given up is replaced, so the number of usable slots stays the same; those that were given up
and still run are counted, because a process that has too many of them should be replaced.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Protocol

from holdfast.engine.worker.attempt import Running

OnEnd = Callable[[Running], None]

LOOP_ANSWERS_S = 0.25  # a loop that takes longer to answer is blocked by a handler
CANCELLING_S = 1.0


class Slots(Protocol):
    """Somewhere to run attempts. Only the worker's own thread calls these."""

    def start(self, running: Running) -> None:
        """Run an attempt as soon as there is room."""

    def abandon(self, running: Running) -> None:
        """Give up an attempt that has been ended, and whose handler does not return."""

    def worn_out(self, limit: int) -> bool:
        """Tell whether more than `limit` handlers were given up and still run, or no slot is left."""

    def close(self) -> None:
        """Take no more; do not wait for what runs."""


class GivenUp:
    """How many handlers were given up and still run: one more when it is given up, one less when it ends after all."""

    def __init__(self) -> None:
        self.n = 0
        self._lock = threading.Lock()

    def add(self, change: int) -> None:
        with self._lock:  # the two may come in either order
            self.n += change


class InlineSlots:
    """Runs each attempt at once, in the caller's thread: for tests on a virtual clock."""

    def __init__(self, on_end: OnEnd) -> None:
        self._on_end = on_end

    def start(self, running: Running) -> None:
        if asyncio.run(running.run_async()) if running.is_async else running.run():
            self._on_end(running)

    def abandon(self, running: Running) -> None:
        """Do nothing: nothing can be abandoned that runs in the caller's thread."""

    def worn_out(self, limit: int) -> bool:  # noqa: ARG002 - see abandon
        return False

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class ThreadSlots:
    """Threads of our own on one queue: several times faster than a ThreadPoolExecutor."""

    def __init__(self, size: int, on_end: OnEnd) -> None:
        self._on_end = on_end
        self._queue: SimpleQueue[Running | None] = SimpleQueue()
        self._size = size
        self._given_up = GivenUp()
        for _ in range(size):
            self._add()

    def _add(self) -> None:
        threading.Thread(target=self._run, name="holdfast-slot", daemon=True).start()

    def start(self, running: Running) -> None:
        self._queue.put(running)

    def abandon(self, running: Running) -> None:  # noqa: ARG002 - its thread notices by itself
        self._given_up.add(1)
        self._add()

    def worn_out(self, limit: int) -> bool:
        return self._given_up.n > limit

    def close(self) -> None:
        for _ in range(self._size):
            self._queue.put(None)

    def _run(self) -> None:
        while (running := self._queue.get()) is not None:
            if running.ended:
                continue  # given back while it waited here
            if not running.run():
                self._given_up.add(-1)
                return  # another thread has this slot now
            self._on_end(running)


class AsyncSlots:
    """An event loop in a thread of its own, started for the first `async def` handler, replaced if one blocks it."""

    def __init__(self, on_end: OnEnd) -> None:
        self._on_end = on_end
        self._loop: asyncio.AbstractEventLoop | None = None  # the one that takes new attempts
        self._waiting: dict[int, Running] = {}  # handed to a loop that has not begun them
        self._tasks: dict[asyncio.AbstractEventLoop, dict[int, asyncio.Task[None]]] = {}
        self._given_up = GivenUp()

    def start(self, running: Running) -> None:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._tasks[self._loop] = {}
            threading.Thread(target=_serve, args=(self._loop,), name="holdfast-loop", daemon=True).start()
        # On a loop nothing waits for room: a handler that is late to begin is late because of another handler.
        running.begin()
        self._waiting[id(running)] = running
        self._loop.call_soon_threadsafe(self._begin, self._loop, running)

    def _begin(self, loop: asyncio.AbstractEventLoop, running: Running) -> None:
        if loop in self._tasks and id(running) in self._waiting:
            task = loop.create_task(self._run(running))
            self._tasks[loop][id(running)] = task
            task.add_done_callback(lambda _: self._forget(loop, running))

    async def _run(self, running: Running) -> None:
        # Whoever takes it from the line has it: a loop that was blocked may find that another one was faster.
        if self._waiting.pop(id(running), None) is None:
            return
        if not running.ended and await running.run_async():
            self._on_end(running)
        else:
            self._given_up.add(-1)

    def _forget(self, loop: asyncio.AbstractEventLoop, running: Running) -> None:
        self._tasks[loop].pop(id(running), None)
        if loop is not self._loop and not self._tasks[loop]:
            del self._tasks[loop]
            loop.stop()  # it was blocked and replaced, and has come to its end after all

    def abandon(self, running: Running) -> None:
        loop = next((loop for loop, tasks in list(self._tasks.items()) if id(running) in tasks), self._loop)
        if self._waiting.pop(id(running), None) is None:
            self._given_up.add(1)
        if loop is None:
            return
        answered = threading.Event()
        with suppress(RuntimeError):  # it has come to its end meanwhile
            loop.call_soon_threadsafe(self._cancel, loop, running, answered)
        if loop is self._loop and not answered.wait(LOOP_ANSWERS_S):
            self._loop = None  # the next attempt starts another
            for waiting in list(self._waiting.values()):
                if self._waiting.pop(id(waiting), None) is not None:
                    self._tasks[loop].pop(id(waiting), None)
                    self.start(waiting)

    def _cancel(self, loop: asyncio.AbstractEventLoop, running: Running, answered: threading.Event) -> None:
        task = self._tasks.get(loop, {}).get(id(running))
        if task is not None:
            task.cancel()
        answered.set()

    def worn_out(self, limit: int) -> bool:
        return self._given_up.n > limit

    def close(self) -> None:
        for loop in list(self._tasks):
            with suppress(RuntimeError):  # the same
                loop.call_soon_threadsafe(loop.stop)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is stopped, then cancel what is left on it."""
    loop.run_forever()
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=CANCELLING_S))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
