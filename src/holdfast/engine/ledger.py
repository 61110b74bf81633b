"""Ledger: declare operations, submit work, read it, and run it.

Invariants: a ledger opens when it is first used, and again in a forked child; every write of this process
goes through one committer, except those in the caller's own transaction; a submit that returned is durable.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from operator import index
from typing import TYPE_CHECKING, Any, Concatenate, Self, TypeVar, Unpack

from holdfast.core import records
from holdfast.core.digest import PAYLOAD_BYTES_MAX, Json
from holdfast.core.guarded import guarded
from holdfast.core.machines import JobState
from holdfast.core.records import Attempt, Job
from holdfast.core.typevars import P, R
from holdfast.engine.opened import OpenedLedger
from holdfast.engine.operations import LEASE_S, Call, Operation, Operations
from holdfast.engine.receipt import Receipt, ended
from holdfast.engine.submit import KnownOperations, call_of, keyed
from holdfast.engine.tasks import CallTask, Task
from holdfast.engine.world import World
from holdfast.store import Admission, Store, Submission, Transaction, checked_url
from holdfast.store.verbs.counts import Count

if TYPE_CHECKING:
    from holdfast.engine.batch import Batch
    from holdfast.engine.committer import Committer
    from holdfast.engine.events import Bus, InvariantViolated, Subscriber, Subscription
    from holdfast.engine.typed_settings import BatchSettings, CallSettings, ScheduleSettings, Settings
    from holdfast.engine.worker.execution import Execution

logger = logging.getLogger("holdfast")

T = TypeVar("T")
Op = TypeVar("Op", bound=Operation[..., Any])

DEFAULT_URL = "holdfast.db"


class Ledger:
    """A durable work ledger: a SQLite file, or PostgreSQL for a fleet."""

    @guarded
    def __init__(
        self,
        url: str | os.PathLike[str] | None = None,
        operations: Operations | None = None,
        *,
        schema: str = "public",
        create: bool = True,
        payload_bytes_max: int | None = None,
        tracebacks: bool = True,
        world: World | None = None,
    ) -> None:
        self.url = None if url is None else checked_url(url)  # None: the configuration, or else holdfast.db
        self.operations = Operations() if operations is None else operations
        self.schema = schema
        self.create = create  # make or migrate the ledger at first use, if it is not there; False refuses instead
        self.world = world or World()
        if payload_bytes_max is None and (url is None or "HOLDFAST_PAYLOAD_MAX_BYTES" in os.environ):
            from holdfast.store.configuration import configuration  # noqa: PLC0415 - few set it

            payload_bytes_max = configuration().payload_max_bytes
        self.payload_bytes_max = PAYLOAD_BYTES_MAX if payload_bytes_max is None else payload_bytes_max
        self.tracebacks = tracebacks  # keep where a failed attempt failed; an operation can refuse it for itself
        self._lock = threading.RLock()
        self._bus: Bus | None = None
        _ledgers.add(self)
        self._opened: OpenedLedger | None = None
        self._progress: dict[int, tuple[records.Execution, float, str | None]] = {}
        self.scheduled: dict[str, Any] = {}  # the schedules that this program declares, by name
        if self.operations.get("noop") is None:
            noop = Operation(_noop, name="noop")
            noop.built_in = True
            self.operations.add(noop)

    def __repr__(self) -> str:
        from holdfast.store.urls import shown  # noqa: PLC0415 - for a person who reads it

        return f"Ledger({None if self.url is None else shown(self.url)!r})"

    # -- declaring ----------------------------------------------------------------------------------------------------

    def operation(
        self, name: str | None = None, **settings: Unpack[Settings]
    ) -> Callable[[Callable[Concatenate[Execution, P], R]], Operation[P, R]]:
        """Declare a handler as an operation of this ledger; see `Operations.operation`. Settings: see `Settings`."""
        return self.operations.operation(name, **settings)

    def schedule(self, when: str, **settings: Unpack[ScheduleSettings]) -> Callable[[Op], Op]:
        """Submit an operation at the times of a cron expression or an interval. Settings: see `ScheduleSettings`."""
        from holdfast.engine.above import declared_schedule  # noqa: PLC0415 - only in a program that has schedules

        return declared_schedule(self, when, **settings)

    # -- submitting ---------------------------------------------------------------------------------------------------

    def submit(
        self,
        call: Call[R] | str,
        payload: Mapping[str, Json] | None = None,
        *,
        connection: Any = None,
        **settings: Unpack[CallSettings],
    ) -> Receipt[R]:
        """Record work and return its receipt, durable when it returns; with `connection`, when the caller commits.

        Settings: see `CallSettings`.
        """
        made = call_of(call, payload, **settings)
        opened = self._open()
        if connection is None:
            [admission] = opened.submit([made])
        else:
            # Where there is one write lock, the caller holds it: nothing may be written but through its connection.
            with opened.store.borrowed(connection) as transaction:
                [admission] = opened.submit_in(transaction, [made])
        return self._receipt(admission)

    async def submit_async(
        self,
        call: Call[R] | str,
        payload: Mapping[str, Json] | None = None,
        *,
        connection: Any = None,
        **settings: Unpack[CallSettings],
    ) -> Receipt[R]:
        """Submit without blocking the event loop: one thread writes what all its tasks submit.

        With `connection`, psycopg's AsyncConnection or SQLAlchemy's AsyncSession, durable when the caller commits.
        A submit whose task is cancelled is recorded or not; submit it again under the same key to find out.
        """
        made = call_of(call, payload, **settings)
        from holdfast.engine import waiting  # noqa: PLC0415 - only in an event loop

        opened = await waiting.to_thread(self._open) if self._opened is None else self._open()
        return self._receipt(await waiting.submit_async(opened, made, connection))

    @guarded
    def submit_many(self, calls: Sequence[Call[R] | Mapping[str, Any]]) -> list[Receipt[R]]:
        """Record many calls, all or none, in one transaction."""
        from holdfast.engine.bulk import calls_from  # noqa: PLC0415 - of several calls

        made = calls_from(calls)
        found = self._open().submit(made)
        return [Receipt(self, one.job_id, is_new=one.is_new, job=one.existing) for one in found]

    def batch(self, calls: Sequence[Any], then: Call[Any] | None = None, **settings: Unpack[BatchSettings]) -> Batch:
        """Record calls, and a call that follows when they have ended. Settings: see `BatchSettings`.

        Raise FlowInvalidError if there are no calls, or too many.
        """
        from holdfast.engine.above import batched  # noqa: PLC0415 - only in a program that has batches

        return batched(self, calls, then, **settings)

    def _receipt(self, admission: Admission) -> Receipt[Any]:
        return Receipt(self, admission.job_id, is_new=admission.is_new, job=admission.existing)

    # -- looking ------------------------------------------------------------------------------------------------------

    @guarded
    def job(self, job_id: int) -> Job:
        """Return a job's record, or raise JobNotFoundError."""
        with self.store.glance() as reading:
            return reading.jobs.get(index(job_id))

    def receipt(self, job_id: int) -> Receipt[Any]:
        """Return a receipt of a job as it is now."""
        return Receipt(self, job_id, is_new=False, job=self.job(job_id))

    def counts(self) -> list[Count]:
        """Return how many jobs each operation and queue has in each state."""
        with self.store.reading() as reading:
            return reading.counts.current()

    @guarded
    def wait(self, receipt: Receipt[R], timeout: float | None = None, *, until_failed: bool = True) -> Receipt[R]:
        """Wait until a job has ended; see `Receipt.wait`."""
        job = self.job(receipt.job_id)
        if not ended(job.state, until_failed=until_failed):
            from holdfast.engine import waiting  # noqa: PLC0415 - only where a job has not ended yet

            job = waiting.wait(self._open(), receipt, timeout, until_failed=until_failed)
        return Receipt(self, job.job_id, is_new=receipt.is_new, job=job)

    async def wait_async(
        self, receipt: Receipt[R], timeout: float | None = None, *, until_failed: bool = True
    ) -> Receipt[R]:
        """Wait for a job without blocking the event loop; see `Receipt.wait_async`."""
        from holdfast.engine import waiting  # noqa: PLC0415 - only in an event loop

        opened = await waiting.to_thread(self._open) if self._opened is None else self._open()
        job = await waiting.wait_async(opened, receipt, timeout, until_failed=until_failed)
        return Receipt(self, job.job_id, is_new=receipt.is_new, job=job)

    # -- ruling -------------------------------------------------------------------------------------------------------

    def cancel(self, job_id: int, *, actor: str = "local", reason: str | None = None) -> JobState:
        """Cancel a pending or failed job now; request a running one to stop. Return its state."""
        from holdfast.engine.rulings import cancel  # noqa: PLC0415 - of an operator

        return cancel(self, self.job(job_id), actor=actor, reason=reason)

    def revoke(self, job_id: int, *, actor: str = "local", reason: str) -> JobState:
        """End the attempt that runs a job although its lease is valid. Return the job's state.

        The attempt counts, and its worker is refused from then on. Raise InvalidStateTransitionError if the job is not
        running, or its attempt has committed or ended meanwhile.
        """
        from holdfast.engine.rulings import revoke  # noqa: PLC0415 - of an operator

        return revoke(self, job_id, actor=actor, reason=reason)

    def retry(self, job_id: int, *, actor: str = "local", reason: str | None = None) -> JobState:
        """Retry a failed job if it has attempts left. Return its state."""
        from holdfast.engine.rulings import retry  # noqa: PLC0415 - of an operator

        return retry(self, self.job(job_id), actor=actor, reason=reason)

    def quarantine(self, job_id: int, code: str, *, actor: str = "local", reason: str | None = None) -> JobState:
        """Quarantine a pending or failed job, so that nothing runs it automatically. Return its state."""
        from holdfast.engine.rulings import quarantine  # noqa: PLC0415 - of an operator

        return quarantine(self, self.job(job_id), code, actor=actor, reason=reason)

    def rule(self, job: Job, command: object, *, actor: str, reason: str | None = None) -> JobState:
        """Apply a command to a job as it was read; return its state.

        Raise InvalidStateTransitionError if that is not allowed, StateTransitionRaceError if the job has changed.
        """
        from holdfast.engine.rulings import rule  # noqa: PLC0415 - of an operator

        return rule(self, job, command, actor=actor, reason=reason)

    def pause(self, queue: str, *, actor: str = "local", reason: str = "paused") -> None:
        """Pause a queue: its jobs are not claimed. Attempts that run continue."""
        from holdfast.engine.rulings import pause  # noqa: PLC0415 - of an operator

        pause(self, queue, actor=actor, reason=reason)

    def resume(self, queue: str, *, actor: str = "local", reason: str = "resumed") -> None:
        """Resume a queue: its jobs can be claimed again."""
        from holdfast.engine.rulings import resume  # noqa: PLC0415 - of an operator

        resume(self, queue, actor=actor, reason=reason)

    def limit(
        self, queue: str, depth: int | None, *, park: bool = False, actor: str = "local", reason: str = "limited"
    ) -> None:
        """Set how many jobs may wait in a queue; None removes the limit. A submit beyond it raises QueueFullError.

        With `park` it is recorded instead, and no worker sees it until fewer jobs wait. Retries, replays and follow-ups
        are never refused or parked. The limit is exact: submits to the queue take turns.
        """
        from holdfast.engine.rulings import limit  # noqa: PLC0415 - of an operator

        limit(self, queue, depth, park=park, actor=actor, reason=reason)

    def erase(self, job_id: int, *, reason: str, actor: str = "local", grant_id: int | None = None) -> None:
        """Remove the personal data of a job that has ended, under a grant; see `holdfast.governance.erasure.erase`."""
        from holdfast.engine.above import erasing  # noqa: PLC0415 - of an operator

        erasing().erase(self.store, job_id, actor=actor, reason=reason, grant_id=grant_id)

    # -- working ------------------------------------------------------------------------------------------------------

    @guarded
    def run_until_idle(self, *, queues: Sequence[str] | None = None, concurrency: int = 8) -> int:
        """Work in this process until nothing is due; return how many attempts were made.

        With a clock of its own a ledger makes one attempt at a time, in this thread, so that a run can be repeated.
        """
        from holdfast.engine.worker.worker import Worker  # noqa: PLC0415 - a worker imports its ledger

        attempts = 0
        worked_on: set[str] = set()
        while not worked_on.issuperset(found := queues or self.queues()):  # again, if work has led to other queues
            worked_on.update(found)
            if self.world.clock is None:
                worker = Worker(self, queues=queues or sorted(worked_on), concurrency=concurrency)
            else:
                worker = Worker(self, queues=queues or sorted(worked_on), concurrency=1, batch_max=1, executor="inline")
            attempts += worker.run(until_idle=True)
        return attempts

    def queues(self) -> list[str]:
        """Return the queues that operations declare, and those where jobs wait."""
        waiting = {count.queue for count in self.counts() if count.state is JobState.PENDING and count.n}
        return sorted({"default", *(operation.declared.queue for operation in self.operations), *waiting})

    def lease_seconds(self) -> dict[str, float]:
        """Return the lease, in seconds, of each operation that does not use the default."""
        longest: dict[str, float] = {}
        for op in self.operations:
            longest[op.name] = max(op.lease_s, longest.get(op.name, 0.0))
        return {name: lease_s for name, lease_s in longest.items() if lease_s != LEASE_S}

    def note_progress(self, attempt: Attempt, fraction: float, note: str | None) -> None:
        """Keep an execution's progress in memory until the next heartbeat writes it."""
        execution = attempt.execution
        self._progress[execution.exec_id] = (execution, fraction, note)

    def take_progress(self) -> list[tuple[records.Execution, float, str | None]]:
        """Return the progress noted since the last call, and forget it."""
        noted, self._progress = self._progress, {}
        return list(noted.values())

    def followups(
        self, attempt: Attempt, calls: Sequence[Call], transaction: Transaction | None = None
    ) -> list[Submission]:
        """Return the calls that a job staged as submissions under keys of its own: `<job_id>/<n>`."""
        return keyed(attempt.job.job_id, self._open().prepared(calls, transaction))

    def submit_in(
        self, transaction: Transaction, calls: Sequence[Call], parent: int | None = None, **signed: str | None
    ) -> list[Admission]:
        """Submit calls in a transaction of this ledger; with `parent`, as the follow-ups of that job.

        `actor` and `reason`, if given, are what the journal says; else it names the client.
        """
        return self._open().submit_in(transaction, calls, parent, **signed) if calls else []

    # -- writing ------------------------------------------------------------------------------------------------------

    @property
    def store(self) -> Store[Any]:
        """The open store."""
        return self._in_use().store

    def perform(self, fn: Callable[[Transaction], T]) -> T:
        """Run a function of a transaction through the committer; return its result. It must be safe to run twice."""
        task = CallTask(fn)
        self.perform_tasks([task])
        result: T = task.result()
        return result

    def perform_tasks(self, tasks: Sequence[Task[Any]]) -> None:
        """Write tasks through the committer: each has its outcome or its error when this returns."""
        self._in_use().committer.perform(tasks)

    def second_committer(self) -> Committer:
        """Return a committer beside the one of `perform_tasks`: what the two write is not gathered."""
        from holdfast.engine.worker.connections import Twin  # noqa: PLC0415 - only in a worker that has so much to write

        return Twin(self._in_use().committer)

    @property
    def bus(self) -> Bus:
        """The subscriptions of this ledger."""
        with self._lock:
            if self._bus is None:
                from holdfast.engine.events import Bus  # noqa: PLC0415 - only in a process that subscribes or publishes

                self._bus = Bus()
            return self._bus

    @property
    def listening(self) -> bool:
        """Whether a subscriber wants transitions: otherwise no events are made."""
        return self._bus is not None and self._bus.listening

    def subscribe(self, subscriber: Subscriber) -> Subscription:
        """Call a subscriber with every transition that this process commits, from a thread of its own.

        A submit with `connection` is not published: only the caller knows whether that transaction commits.
        """
        return self.bus.subscribe_to_transitions(subscriber)

    def subscribe_to_violations(self, subscriber: Callable[[InvariantViolated], None]) -> Subscription:
        """Call a subscriber with every invariant that a check in this process finds broken."""
        return self.bus.subscribe_to_violations(subscriber)

    def close(self) -> None:
        """Close the ledger; it opens again when it is used again."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None and opened.pid == os.getpid():
            opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def bound_to(self, url: str | os.PathLike[str], *, world: World | None = None) -> AbstractContextManager[Ledger]:
        """Use another database, and optionally another clock, inside a block: for tests."""
        from holdfast.engine.rebinding import bound  # noqa: PLC0415 - only in tests

        return bound(self, checked_url(url), world)

    def _in_use(self) -> OpenedLedger:
        """Return the opened ledger, with every operation declared to it."""
        opened = self._open()
        opened.declare_new()
        return opened

    @property
    def known(self) -> KnownOperations:
        """What this process knows of the ledger's operations; of a ledger that is not open, only its own handlers."""
        opened = self._opened
        return opened.known if opened else KnownOperations(self.operations, {}, self.payload_bytes_max)

    def _open(self) -> OpenedLedger:
        opened = self._opened
        if opened is not None and opened.pid == os.getpid():
            return opened
        with self._lock:
            if self._opened is not None and self._opened.pid == os.getpid():
                return self._opened
            if self._opened is not None:
                # After a fork: the connections belong to the parent, and the threads of its subscriptions are not
                # in this process.
                self._bus = None
            opened = self._opened = OpenedLedger(self, self.url or self._configured_url())
        opened.check()
        return opened

    def _configured_url(self) -> str:
        from holdfast.store.configuration import configuration  # noqa: PLC0415 - where no URL was given

        found = configuration()
        self.schema = found.schema if self.schema == "public" else self.schema
        return found.url or DEFAULT_URL

    def renew_lock(self) -> None:
        """Make a new lock after a fork: a thread of the parent may have held the old one."""
        self._lock = threading.RLock()


_ledgers: weakref.WeakSet[Ledger] = weakref.WeakSet()


def _renew_locks() -> None:
    for ledger in list(_ledgers):
        ledger.renew_lock()


os.register_at_fork(after_in_child=_renew_locks)


def _noop(_run: Any, /, **_arguments: Any) -> None:
    """Do nothing: the built-in operation."""
