"""A handler in another process: how it is named, what is sent to it, and its execution there.

It is sent as `module:qualname` with its attempt as JSON, and comes back as an outcome in JSON. What its execution needs
from the ledger meanwhile (checkpoints, progress, whether to stop) a child of our own requests from its parent, over the
same socket; in a process pool of the application, which has no such socket, it opens the ledger itself.

Invariants: nothing is pickled by us; a child runs one handler at a time, leaves stopping to its parent, and dies with
it; what cannot be written as JSON is refused in the handler.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from holdfast.core.digest import canonical
from holdfast.core.errors import EffectError, HoldfastError, InputError, LeaseLostError
from holdfast.core.machines import EXECUTION
from holdfast.core.records import Attempt, Job
from holdfast.core.records import Execution as ExecutionRecord
from holdfast.engine.above import tracing
from holdfast.engine.ledger import Ledger
from holdfast.engine.operations import Call, Operation
from holdfast.engine.worker.execution import Execution
from holdfast.engine.worker.outcome import Outcome, handled, outcome_of
from holdfast.engine.worker.raised import raised
from holdfast.store.effects import Params

LOOK_S = 0.25  # how often a pooled execution looks into the ledger, at most
# What a child is started with: the module whose `child` it runs, its end of the line, where its parent imports from.
BOOT = (
    "import importlib, json, sys; sys.path[:] = json.loads(sys.argv[3]); importlib.import_module(sys.argv[1]).child()"
)


# ---------------------------------------------------------------------------------------------------------------------
# Names and texts


@functools.lru_cache(maxsize=1024)
def handler_name(fn: Callable[..., Any]) -> str:
    """Return the `module:qualname` under which another process finds a handler, or raise InputError."""
    fn = getattr(fn, "untraced", fn)  # telemetry wraps handlers
    module, path = getattr(fn, "__module__", ""), getattr(fn, "__qualname__", "")
    try:
        found = _follow(sys.modules[module], path)
    except (KeyError, AttributeError):
        found = None
    spec = getattr(sys.modules.get(module), "__spec__", None)
    found = getattr(found, "fn", found)
    if getattr(found, "untraced", found) is not fn or (module == "__main__" and spec is None):
        raise InputError(
            f"another process cannot import the handler {module}:{path or type(fn).__name__}",
            next_step="Define it by name at the top level of a module that can be imported, or use threads.",
        )
    return f"{spec.name if spec is not None else module}:{path}"


@functools.lru_cache(maxsize=1024)
def _operation(name: str, operation: str) -> Operation[Any, Any]:
    module, _, path = name.partition(":")
    found = _follow(importlib.import_module(module), path)
    return found if isinstance(found, Operation) else Operation(found, name=operation)


def _follow(found: Any, path: str) -> Any:
    return functools.reduce(getattr, path.split("."), found)


def plain(value: object) -> Any:
    """Return a record as what JSON has."""
    return msgspec.to_builtins(value)


def attempt_from(value: object) -> Attempt:
    """Return the attempt that was sent as JSON: its job and its execution."""
    return Attempt(*msgspec.convert(value, tuple[Job, ExecutionRecord]))


def outcome_from(value: object) -> Outcome:
    """Return the outcome that was sent as JSON."""
    return cast("Outcome", msgspec.convert(value, Outcome))


class Channel:
    """A channel of JSON messages over a socket, one a line."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._reader = end.makefile("rb")

    def send(self, message: object) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> Any:
        """Return the next message, or None when the other side is gone."""
        line = self._reader.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def close(self) -> None:
        self._reader.close()
        self._socket.close()


# ---------------------------------------------------------------------------------------------------------------------
# In the other process


class _RemoteExecution(Execution):
    """An execution whose handler runs in another process than its worker."""

    def begin(self) -> None:
        """Report that the handler starts now, where there is a parent process."""

    def effect(self, sql: str, params: Params | None = None, *, rows: int | None = None) -> None:
        given: Any = dict(params) if isinstance(params, Mapping) else params and list(params)
        try:
            canonical(given)
        except (InputError, TypeError) as error:
            raise EffectError(
                f"the parameters of an effect must be JSON values in a process: {error}",
                next_step="Write bytes and times as text, or run the operation in threads.",
            ) from None
        # A copy: the handler may change its object later.
        super().effect(sql, json.loads(json.dumps(given)), rows=rows)

    def handler_ended(self) -> None:
        self.keep_rest()  # the worker does not see what waits here

    def after_commit(self, call: Call) -> None:
        canonical(call.payload)
        super().after_commit(call)

    def commit(self, *, connection: Any, result: Any = None) -> None:  # noqa: ARG002 - the same signature
        raise InputError(
            "run.commit works only in the worker's own process",
            next_step="Stage effects instead, or run the operation in threads.",
        )


class _ChildExecution(_RemoteExecution):
    """An execution that requests from its parent process what the ledger stores."""

    def __init__(self, channel: Channel, attempt: Attempt) -> None:
        super().__init__(cast("Ledger", None), attempt)  # every method that would use a ledger is overridden
        self._channel = channel
        self._pid = os.getpid()
        self._turn = threading.Lock()  # threads of the handler's own may use it too
        self._ended = False

    def end(self) -> None:
        """Refuse more requests: one from a thread that outlives its handler would be answered for the next job."""
        with self._turn:
            self._ended = True

    def begin(self) -> None:
        self._request("begin")

    @property
    def cancelled(self) -> bool:
        return bool(self._request("cancelled"))

    def _checkpoints(self) -> dict[str, str]:
        return cast("dict[str, str]", self._request("checkpoints"))

    def _keep(self, values: dict[str, str]) -> None:
        self._request("keep", values)

    def _note(self, fraction: float, note: str | None) -> None:
        self._request("note", fraction, note)

    def _request(self, *request: object) -> object:
        if os.getpid() != self._pid:
            raise InputError("an execution cannot be used in a fork of its process", context={"pid": self._pid})
        with self._turn:
            if self._ended:
                raise LeaseLostError(
                    f"the attempt at job {self.job.job_id} has ended", context={"job_id": self.job.job_id}
                )
            self._channel.send({"request": request})
            reply = self._channel.receive()
        if reply is None:
            os._exit(1)  # the parent process has ended
        if "error" in reply:
            raise _errors().get(reply["error"], HoldfastError)(reply["message"])
        return reply["answer"]


class _PooledExecution(_RemoteExecution):
    """An execution that looks into the ledger itself, now and then."""

    _looked_at = _noted_at = 0.0

    @property
    def cancelled(self) -> bool:
        if not self._cancelled and time.monotonic() - self._looked_at >= LOOK_S:
            self._looked_at = time.monotonic()
            with self._ledger.store.reading() as reading:
                found = reading.lists.attempt(self.record.execution.exec_id)
            held = found and found.execution.status not in EXECUTION.final and not found.execution.cancel_requested_at
            self._cancelled = not held
        return self._cancelled

    def _note(self, fraction: float, note: str | None) -> None:
        super()._note(fraction, note)
        if time.monotonic() - self._noted_at >= LOOK_S:
            self._noted_at = time.monotonic()
            notes = self._ledger.take_progress()
            self._ledger.perform(lambda tx: tx.notes.save_progress(notes))


@functools.cache
def _errors() -> dict[str, type[HoldfastError]]:
    from holdfast.core import feature_errors  # noqa: F401, PLC0415 - their classes are found below

    kinds, found = [HoldfastError], dict[str, type[HoldfastError]]()
    while kinds:
        kind = kinds.pop()
        found.setdefault(kind.code, kind)
        kinds += kind.__subclasses__()
    return found


def channel_to_parent(on_signal: Callable[[], None]) -> Channel:
    """Return the channel to the parent of this child, which from now on ends with its parent, and not by a signal."""
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, lambda *_: on_signal())
    end = socket.socket(fileno=int(sys.argv[2]))
    threading.Thread(target=_die_with_parent, args=(end,), name="holdfast-parent", daemon=True).start()
    return Channel(end)


def child() -> None:
    """Serve the parent: run one handler after another until the parent is gone."""
    # The parent decides when to stop. Not SIG_IGN, which a handler's own subprocesses would inherit.
    channel = channel_to_parent(lambda: None)
    while (job := channel.receive()) is not None:
        execution = _ChildExecution(channel, attempt_from(job["attempt"]))
        outcome = _handled(job["handler"], execution, job.get("trace"))
        execution.end()
        channel.send({"outcome": plain(outcome)})


def _die_with_parent(end: socket.socket) -> None:
    hung_up = select.poll()
    hung_up.register(end, 0)  # no event but the other side's end
    hung_up.poll()
    os.killpg(0, signal.SIGKILL)


def _handled(name: str, execution: _RemoteExecution, trace: dict[str, str] | None = None) -> Outcome:
    if trace:
        with tracing().within(trace):
            return _handled(name, execution)
    try:
        operation = _operation(name, execution.job.operation)
    except BaseException as error:  # noqa: BLE001 - importing runs the user's code
        return raised(error)
    execution.begin()
    if not operation.is_async:
        return handled(operation, execution)
    payload = execution.record.payload or "{}"
    return outcome_of(
        operation, execution, lambda: asyncio.run(operation.fn(execution, **operation.arguments(payload)))
    )


def in_pool(name: str, text: str) -> str:
    """Run a handler in a process of a foreign pool: what such a pool is given, and what it returns, is text."""
    job = json.loads(text)
    ledger = _pool_ledger(job["url"], job["schema"])
    execution = _PooledExecution(ledger, attempt_from(job["attempt"]))
    return json.dumps(plain(_handled(name, execution, job.get("trace"))))


@functools.lru_cache(maxsize=8)
def _pool_ledger(url: str, schema: str) -> Ledger:
    return Ledger(url, schema=schema)
