"""Several processes that do the same work, for `nodd run --processes`.

Invariants: a process is a new interpreter, never a fork: connections, threads and the runtime of obstore are its own; a
process that is killed while it should work is replaced after a pause; SIGTERM and SIGINT stop all processes, and the
end of this one does too.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from holdfast.core.errors import HoldfastError

logger = logging.getLogger("holdfast")
T = TypeVar("T")

RESTART_PAUSE_S = 2.0


def run_processes(work: Callable[[], T], processes: int) -> list[T]:
    """Run `work` in so many processes until all have ended, and return their results.

    Another process must be able to import `work`, or to unpickle it. A process that dies is replaced; if `work` raises
    an error in one, all are stopped and the error is raised here.
    """
    fleet = _Fleet(work)
    before = {name: signal.signal(name, fleet.stop) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        return fleet.run(processes)
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


class _Fleet:
    """The processes that run, and the results of those that have ended."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._context = multiprocessing.get_context("spawn")
        self._running: dict[Any, tuple[Any, Connection]] = {}  # by what becomes ready when the process ends
        self._stopped = threading.Event()

    def stop(self, *_: object) -> None:
        """Ask all processes to stop; a handler of signals."""
        self._stopped.set()
        for process, _channel in list(self._running.values()):
            with suppress(ProcessLookupError, ValueError):
                os.kill(process.pid, signal.SIGTERM)

    def run(self, processes: int) -> list[Any]:
        """Start the processes and wait until all have ended; return their results or raise the first error."""
        results: list[Any] = []
        failure: BaseException | None = None
        for _ in range(processes):
            self._start()
        while self._running:
            for ended in wait(list(self._running)):
                process, channel = self._running.pop(ended)
                answer = _answer(channel)
                process.join()
                if isinstance(answer, BaseException):
                    failure = failure or answer
                    self.stop()
                elif answer is not None:
                    results.append(answer[0])
                elif not self._stopped.is_set():
                    logger.warning("process %s died with exit code %s; starting another", process.pid, process.exitcode)
                    if not self._stopped.wait(RESTART_PAUSE_S):
                        self._start()
                process.close()
        if failure is not None:
            raise failure
        return results

    def _start(self) -> None:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_child, args=(self._work, theirs), name="nodd-run")
        process.start()
        theirs.close()
        self._running[process.sentinel] = (process, ours)


def _answer(channel: Connection) -> Any:
    """Return what a process that has ended sent: its result in a tuple, or its error; None if it sent nothing."""
    with channel:
        try:
            return channel.recv() if channel.poll() else None
        except EOFError:
            return None


def _child(work: Callable[[], Any], channel: Connection) -> None:
    """Run the work of a process, and send its result or its error."""
    threading.Thread(target=_stop_with_parent, args=(channel,), daemon=True).start()
    try:
        channel.send((work(),))
    except HoldfastError as error:
        channel.send(error)
    except KeyboardInterrupt:
        return  # the parent got the same signal


def _stop_with_parent(channel: Connection) -> None:
    """Stop this process when the one that started it has ended."""
    with suppress(EOFError, OSError):
        channel.recv()  # the parent sends nothing: this returns when its end is closed
    os.kill(os.getpid(), signal.SIGTERM)
