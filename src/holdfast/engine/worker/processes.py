"""Slots outside this process or its threads: child processes of our own, and any `concurrent.futures.Executor`.

Invariants: past its timeout a child is killed, with every process that it started, and replaced; a child that dies
fails its own attempt and no other; an executor of the application is never shut down here, and when it can run nothing
more the worker recycles; an executor that pickles its work, such as Dask's, gets a handler's name and JSON.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor
from contextlib import suppress
from typing import Any

from holdfast.core.errors import InputError, StoreError, invariant
from holdfast.core.redaction import redacted
from holdfast.engine.error_texts import error_code, error_message
from holdfast.engine.failures import FailureKind
from holdfast.engine.worker.async_slots import InlineSlots
from holdfast.engine.worker.attempt import HeldAttempt
from holdfast.engine.worker.child import BOOT, Channel, handler_name, in_pool, outcome_from, plain
from holdfast.engine.worker.outcome import Outcome, Raised, Then
from holdfast.engine.worker.raised import raised
from holdfast.engine.worker.slots import OnEnd, ThreadSlots
from holdfast.engine.worker.some_slots import Slots

logger = logging.getLogger("holdfast")

PROCESS_DIED = "process_died"
HANDLER_UNNAMED = "handler_unnamed"
IMPORT_S = 60.0  # what the import of a handler's module may take, apart from the handler's own timeout
_GIVEN_BACK = Raised("executor_stopped", "the executor was stopped", Then.GIVE_BACK)


def slots_of(executor: str | Executor, size: int, on_end: OnEnd) -> Slots:
    """Return the slots of a worker's `executor`: the caller's thread, processes of our own, or an Executor."""
    if executor == "inline":
        return InlineSlots(on_end)
    if executor == "processes":
        return ProcessSlots(size, on_end)
    if isinstance(executor, Executor):
        return ExecutorSlots(executor, on_end)
    raise InputError(
        f"{executor!r} is not an executor: use 'threads', 'processes' or a concurrent.futures.Executor",
        context={"executor": str(executor)},
    )


def _name(running: HeldAttempt) -> str:
    return handler_name(running.operation.fn) if running.operation else ""


def _unnamed(error: InputError) -> Raised:
    return Raised(HANDLER_UNNAMED, f"{error.message}. {error.hint}")


class ChildProcess:
    """A child process that runs the function `child` of a module, and the parent's end of the channel to it."""

    def __init__(self, module: str) -> None:
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        self._readable = select.poll()
        self._readable.register(ours, select.POLLIN)
        self._lock = threading.Lock()
        with theirs:
            # A session of its own, so that it can be killed with whatever it has started.
            self._process = subprocess.Popen(  # noqa: S603 - this very interpreter
                [sys.executable, "-c", BOOT, module, str(theirs.fileno()), json.dumps(sys.path)],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def receive(self) -> Any:
        """Return the next message of the child, which waits for a reply; None when it has ended."""
        # Waiting for the end of the socket is not enough: a process that the handler started may hold it open. No
        # message stays in the reader's buffer: the child sends nothing more until it has its reply.
        while not self._readable.poll(500):
            if self.died():
                return None
        return self.channel.receive()

    @property
    def gone(self) -> bool:
        """Whether the process has ended, and is known to have."""
        return self._process.returncode is not None

    def died(self) -> bool:
        """Tell whether the process has ended by itself."""
        with self._lock:
            return self._process.poll() is not None

    def terminate(self) -> None:
        """Send SIGTERM to the process, from any thread."""
        with self._lock:
            if not self.gone:  # the same as below
                self._process.terminate()

    def kill(self) -> None:
        """Kill the process and whatever it has started, from any thread."""
        with self._lock:
            if not self.gone:  # not yet waited for, so its number cannot be another's
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> str:
        """Kill the process if it still runs; return how it ended."""
        self.kill()
        with self._lock:
            code = self._process.wait()
        self.channel.close()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


class _HandlerProcess(ChildProcess):
    """A child process that runs handlers."""

    def __init__(self) -> None:
        super().__init__("holdfast.engine.worker.child")

    def run(self, running: HeldAttempt, name: str) -> Outcome:
        """Run a handler in the child and answer its requests; return its outcome."""
        running.begin(IMPORT_S)
        try:
            attempt = _sent(running)
        except StoreError as error:
            return raised(error)
        span = _span(running)
        job = {"handler": name, "attempt": attempt}
        if span is None:
            return self._outcome(running, job)
        ended: Outcome = span.ended(self._outcome(running, job | {"trace": span.carrier}))
        return ended

    def _outcome(self, running: HeldAttempt, job: dict[str, object]) -> Outcome:
        try:
            self.channel.send(job)
            while (message := self.receive()) is not None:
                if "outcome" in message:
                    return outcome_from(message["outcome"])
                self.channel.send(_reply(running, *message["request"]))
        except Exception as error:  # noqa: BLE001 - the child has ended, or its handler has written to the socket
            logger.debug("the channel to a handler's process broke: %s", error)
        return Raised(PROCESS_DIED, f"the handler's process ended: {self.end()}", kind=FailureKind.TRANSIENT)


def _span(running: HeldAttempt) -> Any:
    """Return the span of an attempt that is sent to another process, begun; None if telemetry does not trace it."""
    begin = getattr(running.operation and running.operation.fn, "sent", None)
    return None if begin is None else begin(running)


def _sent(running: HeldAttempt) -> object:
    """Return an attempt as another process gets it; raise StoreError if its payload has to be read and cannot be."""
    payload = running.record.payload  # first: from here on the job has it too
    invariant(payload == running.record.job.payload, "a job is sent without its payload")
    return plain((running.record.job, running.record.execution))


def _reply(running: HeldAttempt, verb: str, *given: Any) -> dict[str, object]:
    """Return the reply to a request of an execution in a child."""
    answer: object = None
    try:
        match verb:
            case "begin":
                running.begin()
            case "cancelled":
                answer = running.cancelled
            case "checkpoints":
                answer = running._checkpoints()  # noqa: SLF001 - requested by the handler in its process
            case "keep":
                running._keep(*given)  # noqa: SLF001 - the same
            case "note":
                running.progress(*given)
    except Exception as error:  # noqa: BLE001 - it is raised again, in the handler
        return {"error": error_code(error), "message": redacted(str(error))}
    return {"answer": answer}


class ProcessSlots(ThreadSlots):
    """Child processes of our own, each with a thread that talks to it."""

    def __init__(self, size: int, on_end: OnEnd) -> None:
        self._busy: dict[int, _HandlerProcess] = {}
        super().__init__(size, on_end)

    def abandon(self, running: HeldAttempt) -> None:
        child = self._busy.get(id(running))
        if child is not None:
            child.kill()

    def close(self) -> None:
        super().close()
        for child in list(self._busy.values()):
            child.kill()

    def _run(self) -> None:
        child: _HandlerProcess | None = None
        while (running := self._next()) is not None:
            if not running.ended:  # it may have been given back while it waited here
                child = self._run_in(child, running)
        if child is not None:
            child.end()

    def _run_in(self, child: _HandlerProcess | None, running: HeldAttempt) -> _HandlerProcess | None:
        """Run an attempt in this child or in a new one; return the child if it can be used again."""
        if child is not None and child.died():
            child.end()  # while it was idle: no fault of the next handler's
            child = None
        try:
            name = _name(running)
            child = child or _HandlerProcess()
        except InputError as error:
            outcome: Outcome = _unnamed(error)
        except OSError as error:
            outcome = raised(error)  # no room for another process
        else:
            self._busy[id(running)] = child
            # Checked only now: a thread that ends it from here on finds the child to kill.
            outcome = _GIVEN_BACK if running.ended else child.run(running, name)
            del self._busy[id(running)]
        if running.finish(outcome):
            self._on_end(running)
        elif child is not None:
            child.end()  # the attempt was abandoned, and its handler may still run
        return None if child is None or child.gone else child


class _Sendable:
    """An attempt as an executor gets it: called in this process it runs here; pickled, it is a name and JSON."""

    refusal: InputError | None = None  # why it could not be sent
    is_sent = False  # to another process
    _span: Any = None

    def __init__(self, running: HeldAttempt) -> None:
        self._running = running
        self.__name__ = running.record.operation  # Dask names a task by it

    def __call__(self) -> bool:
        return self._running.run()

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            return functools.partial, self.work()
        except InputError as error:
            self.refusal = error
            raise

    def work(self) -> tuple[Any, ...]:
        """Return the function that runs it in another process, and its arguments: all that is pickled is text."""
        running = self._running
        name, store = _name(running), running.ledger.store
        job = {"attempt": _sent(running), "url": store.absolute_url, "schema": running.ledger.schema}
        self._span = self._span or _span(running)
        if self._span is not None:
            job["trace"] = self._span.carrier
        self.is_sent = True
        running.begin()  # it leaves this process: when it really starts is not reported
        return in_pool, name, json.dumps(job)

    def ended(self, outcome: Outcome) -> Outcome:
        """Return its outcome, after its span is ended."""
        return outcome if self._span is None else self._span.ended(outcome)


class ExecutorSlots:
    """An executor of the application: it is not shut down here, and a handler in it cannot be killed."""

    def __init__(self, executor: Executor, on_end: OnEnd) -> None:
        self._executor = self._brought = executor
        self._on_end = on_end
        self._remote = isinstance(executor, ProcessPoolExecutor) or "Interpreter" in type(executor).__name__
        self._futures: dict[int, Future[Any]] = {}
        self._abandoned: list[int] = []  # as in ThreadSlots
        self._unusable = False

    waiting = 0  # the executor does not tell

    def take_back(self, claimed_before: float) -> list[HeldAttempt]:  # noqa: ARG002 - see waiting
        return []

    def start(self, claimed: Sequence[HeldAttempt]) -> None:
        for running in claimed:
            self._start(running)

    def _start(self, running: HeldAttempt) -> None:
        sendable = _Sendable(running)
        try:
            future = self._submitted(sendable)
        except Exception as error:  # noqa: BLE001 - it was shut down, or broke for good: no fault of the job's
            refusal = error if isinstance(error, InputError) else sendable.refusal
            if refusal is not None or isinstance(error, StoreError):
                self._end(running, sendable, raised(error) if refusal is None else _unnamed(refusal))
                return
            logger.warning("the executor takes no more work: %s", error)
            self._unusable = True
            self._end(running, sendable, _GIVEN_BACK)
            return
        self._futures[id(running)] = future
        future.add_done_callback(functools.partial(self._done, running, sendable))

    def _submitted(self, sendable: _Sendable) -> Future[Any]:
        if not self._remote:
            return self._executor.submit(sendable)
        work = sendable.work()
        try:
            return self._executor.submit(*work)
        except BrokenExecutor:
            if not isinstance(self._executor, ProcessPoolExecutor):
                raise
            self._executor = _replacement(self._executor)
            return self._executor.submit(*work)

    def _done(self, running: HeldAttempt, sendable: _Sendable, future: Future[Any]) -> None:
        self._futures.pop(id(running), None)
        try:
            answer = future.result()
        except CancelledError:
            self._end(running, sendable, _GIVEN_BACK)
        except BaseException as error:  # noqa: BLE001 - such as an answer that the executor could not carry
            refused = _unnamed(sendable.refusal) if sendable.refusal else None
            self._end(running, sendable, refused or _failed(error, sendable))
        else:
            if isinstance(answer, str):  # it ran in another process
                self._end(running, sendable, outcome_from(json.loads(answer)))
            elif answer:
                self._on_end(running)
            else:
                self._abandoned.append(-1)

    def _end(self, running: HeldAttempt, sendable: _Sendable, outcome: Outcome) -> None:
        if running.finish(sendable.ended(outcome)):
            self._on_end(running)
        else:
            self._abandoned.append(-1)

    def abandon(self, running: HeldAttempt) -> None:
        future = self._futures.get(id(running))
        self._abandoned.append(1)
        if future is not None:
            future.cancel()

    def worn_out(self, limit: int) -> bool:
        size = getattr(self._executor, "_max_workers", limit + 1)
        return self._unusable or sum(self._abandoned) > limit or sum(self._abandoned) >= size

    def close(self) -> None:
        for future in list(self._futures.values()):
            future.cancel()
        if self._executor is not self._brought:
            self._executor.shutdown(wait=False, cancel_futures=True)


def _failed(error: BaseException, sendable: _Sendable) -> Raised:
    """Return the outcome of an attempt for which the executor raised: handlers elsewhere return their errors."""
    # Dask and Ray raise errors of their own packages when a node or its process is lost. An error of Python itself is
    # more likely an answer that could not be carried, or a node that lacks a package.
    package = type(error).__module__.partition(".")[0]
    if isinstance(error, BrokenExecutor) or (sendable.is_sent and package not in sys.stdlib_module_names):
        return Raised(PROCESS_DIED, error_message(error), kind=FailureKind.TRANSIENT)
    return raised(error)


def _replacement(broken: ProcessPoolExecutor) -> ProcessPoolExecutor:
    """Return a new pool like a broken one, which would refuse everything from now on."""
    was = vars(broken)
    return ProcessPoolExecutor(
        was["_max_workers"], was["_mp_context"], was["_initializer"], was["_initargs"],
        max_tasks_per_child=was["_max_tasks_per_child"],
    )  # fmt: skip
