"""Waiting for jobs, and submitting from an event loop: two threads serve all callers of a ledger in one process.

One thread looks at the jobs of all waits in one read, after each commit of this process and at least every 50 ms,
because a commit of another process is not reported. Another thread writes what event loops submit: all that has
gathered goes into one transaction.

Invariants: no wait and no submit has a thread of its own; a wait ends when its job has ended, at its timeout, when its
caller cancels it, when an exception of a signal handler ends it, or when the ledger is closed, and then nothing refers
to it or waits for it; looking takes at most a tenth of the time of a core; a thread with nothing to serve ends.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec

from holdfast.core.digest import read_back
from holdfast.core.errors import (
    ConnectionUnfitError,
    HoldfastError,
    InputError,
    JobNotFoundError,
    JobUnsuccessfulError,
    RegistryError,
    ResultExpiredError,
    StoreUnavailableError,
    WaitTimeoutError,
)
from holdfast.core.guarded import guarded
from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.engine.receipt import ended
from holdfast.engine.tasks import SubmitTask
from holdfast.store import Admission, Store
from holdfast.store.interruption import in_signal_handler
from holdfast.store.pool import refuse_reentry

if TYPE_CHECKING:
    from holdfast.engine.opened import OpenedLedger
    from holdfast.engine.operations import Call
    from holdfast.engine.receipt import Receipt

T = TypeVar("T")

LOOK_FIRST_S, LOOK_LAST_S = 0.002, 0.05
REST, REST_MAX_S = 9, 0.1  # a look is followed by a rest of so many times as long, up to so many seconds
LINGER_S = 2.0  # for so long a thread with nothing to serve stays, so that the next caller need not start one
GATHER_MAX = 1_000  # submits in one transaction


def wait(opened: OpenedLedger, receipt: Receipt[Any], timeout: float | None, *, until_failed: bool) -> Job:
    """Return a job once it has ended; raise WaitTimeoutError after `timeout` seconds."""
    request = Wait(receipt.job_id, timeout, until_failed=until_failed)
    with request.here:
        if in_signal_handler():
            refuse_reentry(opened.committer.own)  # every other writer waits for what the handler has interrupted
            return Waiter(opened.store).follow_here(request)
        _waiter(opened).follow(request)
        request.answered.acquire()
    return request.outcome


to_thread = asyncio.to_thread


async def wait_async(opened: OpenedLedger, receipt: Receipt[Any], timeout: float | None, *, until_failed: bool) -> Job:
    """Return a job once it has ended, without blocking the event loop."""
    return await _answer(_waiter(opened).follow, Wait(receipt.job_id, timeout, until_failed=until_failed))


async def _answer(add: Callable[[Any], None], request: Request[T]) -> T:
    """Give a request to its thread, and return the answer."""
    loop, answered = asyncio.get_running_loop(), asyncio.Event()
    request.wake = partial(loop.call_soon_threadsafe, answered.set)
    with request.here:
        add(request)
        await answered.wait()
    return request.outcome


async def submit_async(opened: OpenedLedger, call: Call[Any], connection: Any = None) -> Admission:
    """Submit a call, without blocking the event loop; with `connection`, in the transaction of the caller."""
    if connection is not None:
        if opened.store.one_writer:
            raise ConnectionUnfitError(
                "submit_async takes connections to PostgreSQL only; this ledger is a SQLite file",
                context={"needs": "submit"}, next_step="Use `submit(connection=…)` with a sqlite3 connection.",
            )  # fmt: skip
        from holdfast.store.postgres.asynchronous import with_plain_connection  # noqa: PLC0415 - few have a connection

        return await with_plain_connection(
            connection, lambda plain: _submitted_in(opened, call, plain), opened.store.translate
        )
    plain = read_back(call.payload)  # another thread writes it: what the caller changes meanwhile is not stored
    call = msgspec.structs.replace(call, payload=plain[1] if plain else deepcopy(call.payload))
    with opened.lock:
        submitter = opened.attendants.setdefault(Submitter.name, Submitter(opened))
    return await _answer(submitter.add, Submit(call))


def _submitted_in(opened: OpenedLedger, call: Call[Any], connection: Any) -> Admission:
    with opened.store.borrowed(connection) as transaction:
        [admission] = opened.submit_in(transaction, [call])
    return admission


def _waiter(opened: OpenedLedger) -> Waiter:
    with opened.lock:
        waiter = opened.attendants.setdefault(Waiter.name, Waiter(opened.store))
    return cast("Waiter", waiter)


class Request(Generic[T]):
    """Something that a caller wants of a thread.

    Not a future: an exception of a signal handler could leave the lock inside it locked, and block the thread.
    """

    def __init__(self) -> None:
        self.answered = threading.Lock()  # released once there is an answer
        self.answered.acquire()
        self.wake: Callable[[], object] = self.answered.release
        self.here = threading.Lock()  # held by `with` while its caller waits, however that ends
        self.taken = False  # from here on it is served, whether its caller waits or not
        self._answers: list[T | BaseException] = []  # the first one counts

    @property
    def is_over(self) -> bool:
        """Whether it is answered, or its caller has left."""
        return bool(self._answers) or not self.here.locked()

    @property
    def outcome(self) -> T:
        """The answer, or raise the error that it is."""
        answer = self._answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def answer(self, outcome: T | BaseException) -> None:
        """Answer the caller, unless it has an answer."""
        self._answers.append(outcome)
        with suppress(RuntimeError):  # it is awake, or its event loop is closed
            self.wake()


class Wait(Request[Job]):
    """A wait for one job."""

    @guarded
    def __init__(self, job_id: int, timeout: float | None, *, until_failed: bool) -> None:
        super().__init__()
        if timeout is not None and not timeout >= float("-inf"):
            raise InputError("timeout must be a number of seconds", context={"argument": "timeout"})
        self.job_id = job_id
        self.timeout = timeout
        self.until_failed = until_failed
        self.deadline = float("inf") if timeout is None else time.monotonic() + timeout


class Submit(Request[Admission]):
    """A call that an event loop submits."""

    def __init__(self, call: Call[Any]) -> None:
        super().__init__()
        self.call = call


R = TypeVar("R", bound=Request[Any])


class Wakeup:
    """Wakes one thread; as an Event, but an exception of a signal handler cannot leave it locked."""

    def __init__(self) -> None:
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def set(self) -> None:
        with suppress(RuntimeError):  # it is set already
            self._asleep.release()

    def clear(self) -> None:
        self._asleep.acquire(blocking=False)

    def wait(self, timeout: float) -> bool:
        """Wait until it is set, and clear it; return whether it was."""
        return self._asleep.acquire(timeout=timeout)


class Attendant(ABC, Generic[R]):
    """A thread that serves requests: the first request starts it, and it ends when there has been none for a while."""

    name: str

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: list[R] = []  # in the order in which they came
        self._woken = Wakeup()
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def requests_waiting(self) -> int:
        """How many requests have no answer yet."""
        return len(self._left())

    def add(self, request: R) -> None:
        """Take a request, whose caller waits."""
        with self._lock:
            if self._thread is None and not self._closed:
                thread = threading.Thread(target=self._run, name=f"holdfast-{self.name}", daemon=True)
                thread.start()
                self._thread = thread
            self._requests.append(request)
        if self._closed:
            request.answer(_closed())
        self._woken.set()

    def notify(self) -> None:
        """Something has been committed in this process."""

    def close(self) -> None:
        """Answer with an error what is not being served yet, and let the thread end."""
        self._closed = True
        with self._lock:
            for request in self._requests:
                if not request.taken:
                    request.answer(_closed())
        self._woken.set()

    def _left(self) -> list[R]:
        """Drop the requests that are over, and return the others."""
        with self._lock:
            self._requests = [request for request in self._requests if not request.is_over]
            return self._requests[:]

    def _run(self) -> None:
        while True:
            self._woken.clear()
            if requests := self._left():
                self._woken.wait(self._served(requests))
            elif self._closed or not self._woken.wait(LINGER_S):
                with self._lock:
                    if not self._requests:
                        self._thread = None
                        return

    def _served(self, requests: Sequence[R]) -> float:
        """Serve requests, and return after how many seconds to do so again if nothing wakes the thread."""
        try:
            return self._serve(requests)
        except BaseException as error:  # noqa: BLE001 - also a planned crash: it is the answer to each of them
            for request in requests:
                request.answer(error)
            return 0.0

    @abstractmethod
    def _serve(self, requests: Sequence[R]) -> float:
        """Serve requests; see `_served`."""


class Waiter(Attendant[Wait]):
    """Looks at the jobs of all waits at once."""

    name = "waiter"

    def __init__(self, store: Store[Any]) -> None:
        super().__init__()
        self._store = store
        self._pause_s = LOOK_FIRST_S

    def follow(self, request: Wait) -> None:
        """Answer with the job once it has ended, or with WaitTimeoutError."""
        self._pause_s = LOOK_FIRST_S
        self.add(request)

    def follow_here(self, request: Wait) -> Job:
        """Wait in this thread: what a signal handler has interrupted may hold what another thread needs."""
        while not request.is_over:
            time.sleep(self._serve([request]))
        return request.outcome

    def notify(self) -> None:
        """Look now: a job may have ended."""
        self._woken.set()

    def _serve(self, requests: Sequence[Wait]) -> float:
        began = time.monotonic()
        with self._store.reading() as reading:
            states = reading.lists.states(sorted({each.job_id for each in requests}))
            over = [each for each in requests if ended(states.get(each.job_id), until_failed=each.until_failed)]
            jobs = {job.job_id: job for job in reading.jobs.get_many({each.job_id for each in over})}
        for each in requests:
            state, job = states.get(each.job_id), jobs.get(each.job_id)
            if job is not None:
                each.answer(job)
            elif state is None:
                each.answer(JobNotFoundError(f"there is no job {each.job_id}", context={"job_id": each.job_id}))
            elif each.deadline <= began:
                each.answer(_timed_out(each, state))
        now = time.monotonic()
        time.sleep(min((now - began) * REST, REST_MAX_S))
        nearest = min((each.deadline for each in requests if not each.is_over), default=now)
        self._pause_s = min(self._pause_s * 2, LOOK_LAST_S)
        return max(0.0, min(self._pause_s, nearest - time.monotonic()))


class Submitter(Attendant[Submit]):
    """Writes the calls of all event loops."""

    name = "submitter"

    def __init__(self, opened: OpenedLedger) -> None:
        super().__init__()
        self._opened = opened

    def _serve(self, requests: Sequence[Submit]) -> float:
        tasks: list[tuple[Submit, SubmitTask]] = []
        for each in requests[:GATHER_MAX]:
            with self._lock:  # so that `close` does not answer what is submitted
                each.taken = not each.is_over
            if each.taken:
                try:
                    tasks.append((each, SubmitTask(self._opened.prepared([each.call]))))
                except Exception as error:  # noqa: BLE001 - it is the answer to this one
                    each.answer(error)
        self._opened.declare_new()
        self._opened.committer.perform([task for _, task in tasks])
        for each, task in tasks:
            try:
                each.answer(self._admission(each.call, task))
            except Exception as error:  # noqa: BLE001 - the same
                each.answer(error)
        return 0.0

    def _admission(self, call: Call[Any], task: SubmitTask) -> Admission:
        try:
            [admission] = task.result()
        except RegistryError:
            # Another version may be in force than this process knew: `submit` learns which, and tries again.
            [admission] = self._opened.submit([call])
        return admission


def _timed_out(each: Wait, state: JobState) -> WaitTimeoutError:
    return WaitTimeoutError(
        f"job {each.job_id} is still {state.value} after {each.timeout or 0:g} s",
        next_step=f"Wait longer. To see why the job does not run: `holdfast explain {each.job_id}`.",
        context={"job_id": each.job_id, "state": state.value},
    )


def _closed() -> StoreUnavailableError:
    return StoreUnavailableError(
        "the ledger was closed in this process", next_step="Wait for the job before you close the ledger."
    )


def no_result(receipt: Receipt[Any]) -> HoldfastError:
    """Return the error for a job that has ended without a result, or whose result is deleted."""
    job_id, state = receipt.job_id, receipt.state
    context: dict[str, object] = {"job_id": job_id, "state": state.value}
    if receipt.result_expired:
        return ResultExpiredError(f"job {job_id} is {state.value}; retention has deleted its result", context=context)
    return JobUnsuccessfulError(
        f"job {job_id} is {state.value} and has no result; its last error is {receipt.error_code}",
        next_step=f"To see why, and what to do: `holdfast explain {job_id}`.",
        context={**context, "last_error_code": receipt.error_code},
    )
