"""Slots on an event loop for `async def` handlers, and slots in the caller's own thread.

Invariants: an attempt that its handler ended is handed to `on_end`, and no other; a loop that a handler blocks is
replaced, and those that were given up and still run are counted.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, cast

from holdfast.engine.operations import Operation
from holdfast.engine.worker.attempt import HeldAttempt
from holdfast.engine.worker.outcome import FORKS, outcome_of
from holdfast.engine.worker.slots import OnEnd
from holdfast.engine.world import Crash

LOOP_ANSWERS_S = 0.25  # a loop that takes longer to answer is blocked by a handler
LOOPS_MAX = 8  # of a worker, with those that are blocked
CANCELLING_S = 1.0


async def run_async(running: HeldAttempt) -> bool:
    """Await an `async def` handler; return whether that ended the attempt."""
    if running.operation is None:
        return running.finish(None)
    running.begin()
    forks = len(FORKS)
    ended = await _ended(running, running.operation)
    return running.finish(outcome_of(running.operation, running, ended, forks=forks))


async def _ended(running: HeldAttempt, operation: Operation[Any, Any]) -> Callable[[], Any]:
    """Await a handler; return a function that returns what it returned, or raises what it raised."""
    handler = cast("Callable[..., Awaitable[Any]]", operation.fn)
    try:
        result = await handler(running, **operation.arguments(running.record.payload or "{}"))
    except Crash:
        raise
    except BaseException as error:  # noqa: BLE001 - also a cancellation: see outcome_of
        raised = error
    else:
        return lambda: result

    def raise_again() -> None:
        raise raised

    return raise_again


class InlineSlots:
    """Runs each attempt at once, in the caller's thread: for tests on a virtual clock."""

    def __init__(self, on_end: OnEnd) -> None:
        self._on_end = on_end

    waiting = 0

    def take_back(self, claimed_before: float) -> list[HeldAttempt]:  # noqa: ARG002 - nothing waits
        return []

    def start(self, claimed: Sequence[HeldAttempt]) -> None:
        for running in claimed:
            if asyncio.run(run_async(running)) if running.is_async else running.run():
                self._on_end(running)

    def abandon(self, running: HeldAttempt) -> None:
        """Do nothing: nothing can be abandoned that runs in the caller's thread."""

    def worn_out(self, limit: int) -> bool:  # noqa: ARG002 - see abandon
        return False

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class AsyncSlots:
    """An event loop in a thread of its own, started for the first `async def` handler, replaced if one blocks it."""

    def __init__(self, on_end: OnEnd) -> None:
        self._on_end = on_end
        self._lock = threading.RLock()  # held while an attempt gets its loop, or a loop is replaced
        self._loop: asyncio.AbstractEventLoop | None = None  # the one that takes new attempts
        self._waiting: dict[int, HeldAttempt] = {}  # handed to a loop that has not begun them
        self._tasks: dict[asyncio.AbstractEventLoop, dict[int, asyncio.Task[None]]] = {}
        self._abandoned: list[int] = []  # as in ThreadSlots

    waiting = 0  # on a loop nothing waits for room

    def take_back(self, claimed_before: float) -> list[HeldAttempt]:
        """Start another loop for what a blocked one has not begun; return nothing, because all of it runs here."""
        with self._lock:
            late = any(one.claimed_at < claimed_before for one in list(self._waiting.values()))
            if late and self._loop is not None and len(self._tasks) < LOOPS_MAX:
                self._replace(self._loop)
        return []

    def start(self, claimed: Sequence[HeldAttempt]) -> None:
        with self._lock:
            for running in claimed:
                self._start(running)

    def _replace(self, blocked: asyncio.AbstractEventLoop) -> None:
        self._loop = None  # the next attempt starts another
        for waiting in list(self._waiting.values()):
            if self._waiting.pop(id(waiting), None) is not None:
                self._tasks[blocked].pop(id(waiting), None)
                self._start(waiting)

    def _start(self, running: HeldAttempt) -> None:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._tasks[self._loop] = {}
            threading.Thread(target=_serve, args=(self._loop,), name="holdfast-loop", daemon=True).start()
        # On a loop nothing waits for room: a handler that is late to begin is late because of another handler.
        running.begin()
        self._waiting[id(running)] = running
        self._loop.call_soon_threadsafe(self._begin, self._loop, running)

    def _begin(self, loop: asyncio.AbstractEventLoop, running: HeldAttempt) -> None:
        if loop in self._tasks and id(running) in self._waiting:
            task = loop.create_task(self._run(running))
            self._tasks[loop][id(running)] = task
            task.add_done_callback(lambda _: self._forget(loop, running))

    async def _run(self, running: HeldAttempt) -> None:
        # The loop that takes it from here runs it: another loop may have taken it while this one was blocked.
        if self._waiting.pop(id(running), None) is None:
            return
        if not running.ended and await run_async(running):
            self._on_end(running)
        else:
            self._abandoned.append(-1)

    def _forget(self, loop: asyncio.AbstractEventLoop, running: HeldAttempt) -> None:
        self._tasks[loop].pop(id(running), None)
        if loop is not self._loop and not self._tasks[loop]:
            del self._tasks[loop]
            loop.stop()  # it was blocked and replaced, and has come to its end after all

    def abandon(self, running: HeldAttempt) -> None:
        loop = next((loop for loop, tasks in list(self._tasks.items()) if id(running) in tasks), self._loop)
        if self._waiting.pop(id(running), None) is None:
            self._abandoned.append(1)
        if loop is None:
            return
        answered = threading.Event()
        with suppress(RuntimeError):  # it has come to its end meanwhile
            loop.call_soon_threadsafe(self._cancel, loop, running, answered)
        if loop is self._loop and not answered.wait(LOOP_ANSWERS_S):
            with self._lock:
                if loop is self._loop:
                    self._replace(loop)

    def _cancel(self, loop: asyncio.AbstractEventLoop, running: HeldAttempt, answered: threading.Event) -> None:
        task = self._tasks.get(loop, {}).get(id(running))
        if task is not None:
            task.cancel()
        answered.set()

    def worn_out(self, limit: int) -> bool:
        return sum(self._abandoned) > limit

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
