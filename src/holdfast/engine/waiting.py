"""Waiting for jobs, and submitting from an event loop: two threads serve all callers of a ledger in one process.

A wait is a future. One thread looks at the jobs of all waits in one read, after each commit of this process and at
least every 50 ms, because a commit of another process is not reported. Another thread writes what event loops submit:
all that has gathered goes into one transaction.

Invariants: no wait and no submit has a thread of its own; a wait ends when its job has ended, at its timeout, when its
caller cancels it, or when the ledger is closed, and then nothing refers to it; looking takes at most a tenth of the
time of a core; a thread with nothing to serve ends.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

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
    if in_signal_handler():
        refuse_reentry(opened.committer.own)  # every other writer waits for what the handler has interrupted
        return Waiter(opened.store).follow_here(request)
    # Waited for by a plain lock: an exception of a signal handler could leave the lock inside a future locked.
    answered = threading.Lock()
    answered.acquire()
    request.future.add_done_callback(lambda _: answered.release())
    try:
        _waiter(opened).follow(request)
        answered.acquire()
        return request.future.result()
    finally:
        request.future.cancel()  # if an exception of a signal handler ended it


to_thread = asyncio.to_thread


async def wait_async(opened: OpenedLedger, receipt: Receipt[Any], timeout: float | None, *, until_failed: bool) -> Job:
    """Return a job once it has ended, without blocking the event loop."""
    request = Wait(receipt.job_id, timeout, until_failed=until_failed)
    return await asyncio.wrap_future(_waiter(opened).follow(request))


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
    with opened.lock:
        submitter = opened.attendants.setdefault(Submitter.name, Submitter(opened))
    return await asyncio.wrap_future(submitter.add(Submit(call)))


def _submitted_in(opened: OpenedLedger, call: Call[Any], connection: Any) -> Admission:
    with opened.store.borrowed(connection) as transaction:
        [admission] = opened.submit_in(transaction, [call])
    return admission


def _waiter(opened: OpenedLedger) -> Waiter:
    with opened.lock:
        waiter = opened.attendants.setdefault(Waiter.name, Waiter(opened.store))
    return cast("Waiter", waiter)


class Request(Generic[T]):
    """Something that a caller wants of a thread: its answer is a future."""

    def __init__(self) -> None:
        self.future: Future[T] = Future()

    def taken(self) -> bool:
        """Begin to serve it, so that it cannot be cancelled any more; return False if it was cancelled before."""
        return self.future.running() or (not self.future.done() and self.future.set_running_or_notify_cancel())

    def answer(self, outcome: T | BaseException) -> None:
        """Answer the caller, unless it has cancelled the request."""
        with suppress(InvalidStateError):  # another thread has closed the ledger at this moment
            if not self.taken():
                return
            if isinstance(outcome, BaseException):
                self.future.set_exception(outcome)
            else:
                self.future.set_result(outcome)


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
        self._requests: dict[Future[Any], R] = {}  # in the order in which they came
        self._woken = Wakeup()
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def requests_waiting(self) -> int:
        """How many requests have no answer yet."""
        return len(self._requests)

    def add(self, request: R) -> Future[Any]:
        """Take a request; return the future of its answer. Cancelling the future takes the request back."""
        request.future.add_done_callback(self._forget)  # before the thread can see it: see `wait`
        with self._lock:
            if self._thread is None and not self._closed:
                thread = threading.Thread(target=self._run, name=f"holdfast-{self.name}", daemon=True)
                thread.start()
                self._thread = thread
            self._requests[request.future] = request
        if self._closed:
            request.answer(_closed())
        self._woken.set()
        return request.future

    def notify(self) -> None:
        """Something has been committed in this process."""

    def close(self) -> None:
        """Answer with an error what is not being served yet, and let the thread end."""
        self._closed = True
        for request in self._left():
            if not request.future.running():
                request.answer(_closed())
        self._woken.set()

    def _left(self) -> list[R]:
        with self._lock:
            return list(self._requests.values())

    def _forget(self, future: Future[Any]) -> None:
        with self._lock:
            self._requests.pop(future, None)

    def _run(self) -> None:
        while True:
            self._woken.clear()
            if self._requests:
                self._woken.wait(self._served())
            elif self._closed or not self._woken.wait(LINGER_S):
                with self._lock:
                    if not self._requests:
                        self._thread = None
                        return

    def _served(self) -> float:
        """Serve what there is, and return after how many seconds to do so again if nothing wakes the thread."""
        requests = self._left()
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

    def follow(self, request: Wait) -> Future[Job]:
        """Return the future of a job once it has ended, or of WaitTimeoutError."""
        self._pause_s = LOOK_FIRST_S
        return self.add(request)

    def follow_here(self, request: Wait) -> Job:
        """Wait in this thread: what a signal handler has interrupted may hold what another thread needs."""
        while not request.future.done():
            time.sleep(self._serve([request]))
        return request.future.result()

    def notify(self) -> None:
        """Look now: a job may have ended."""
        self._woken.set()

    def _serve(self, requests: Sequence[Wait]) -> float:
        began = time.monotonic()
        waits = [each for each in requests if not each.future.done()]
        with self._store.reading() as reading:
            states = reading.lists.states(sorted({each.job_id for each in waits}))
            over = [each for each in waits if ended(states.get(each.job_id), until_failed=each.until_failed)]
            jobs = {job.job_id: job for job in reading.jobs.get_many({each.job_id for each in over})}
        for each in waits:
            state, job = states.get(each.job_id), jobs.get(each.job_id)
            if job is not None:
                each.answer(job)
            elif state is None:
                each.answer(JobNotFoundError(f"there is no job {each.job_id}", context={"job_id": each.job_id}))
            elif each.deadline <= began:
                each.answer(_timed_out(each, state))
        now = time.monotonic()
        time.sleep(min((now - began) * REST, REST_MAX_S))
        nearest = min((each.deadline for each in waits if not each.future.done()), default=now)
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
            if each.taken():
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
