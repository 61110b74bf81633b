"""Events: every transition that the engine commits and every invariant found broken, published to subscribers.

Invariants: events are published after their transaction is durable, in order, from a thread of their own; a subscriber
that is slow loses events, which are counted, and one that raises is logged; neither delays the engine.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from holdfast.core.decide import Move
from holdfast.core.errors import StoreError
from holdfast.core.machines import EXECUTION, JOB, ExecutionStatus, JobState
from holdfast.core.records import Attempt, Execution, Job
from holdfast.engine.tasks import CallTask
from holdfast.store import Admission, Submission

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger
    from holdfast.engine.tasks import Task

logger = logging.getLogger("holdfast")

WAITING_MAX = 10_000


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """One edge, or path of edges, that a record took."""

    machine: str
    subject: int
    event: str
    source: str | None
    target: str
    job_id: int | None
    operation: str | None
    queue: str | None
    attempt: int | None
    actor: str | None
    error_code: str | None
    excused: bool
    at: datetime
    since: datetime | None = None  # when the record came into `source`; of a claim, when the job was due

    def __str__(self) -> str:
        return f"{self.machine} {self.event}"


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """One durable commit of this process, with the number of its tasks, and whether they changed the ledger."""

    tasks: int
    at: datetime
    wrote: bool


class InvariantViolated(msgspec.Struct, frozen=True, kw_only=True):
    """A check found an invariant broken: which, by what, and how bad that is."""

    invariant: str
    subject: str
    detail: str
    severity: str
    at: datetime

    def __str__(self) -> str:
        return f"{self.invariant} {self.subject}"


Event = TypeVar("Event", bound=msgspec.Struct)
Subscriber = Callable[[Transition], None]


class Subscription:
    """One subscriber with its own queue and thread."""

    def __init__(
        self, subscriber: Callable[[Any], None], kind: type[msgspec.Struct], on_close: Callable[[Subscription], None]
    ) -> None:
        self.kind = kind
        self._subscriber = subscriber
        self._on_close = on_close
        self._waiting: deque[msgspec.Struct] = deque()
        self._wake = threading.Condition()
        self._busy = False
        self._closed = False
        self.lost = 0  # how many events did not fit in the queue
        self.broken = 0  # how many times the subscriber raised
        self._thread = threading.Thread(target=self._run, name="holdfast-events", daemon=True)
        self._thread.start()

    def put(self, events: Sequence[msgspec.Struct]) -> None:
        """Queue events; those that do not fit are lost and counted."""
        with self._wake:
            room = WAITING_MAX - len(self._waiting)
            self._waiting.extend(events[:room])
            self.lost += max(0, len(events) - room)
            self._wake.notify_all()

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Wait until the subscriber got every queued event; return False if that took longer than `timeout_s`."""
        with self._wake:
            return self._wake.wait_for(lambda: not self._waiting and not self._busy, timeout_s)

    def close(self) -> None:
        """End this subscription."""
        self._on_close(self)
        with self._wake:
            self._closed = True
            self._wake.notify_all()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._busy = False
                self._wake.notify_all()
                self._wake.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                event = self._waiting.popleft()
                self._busy = True
            try:
                self._subscriber(event)
            except BaseException:  # SystemExit too: it would end this thread, and with it the subscription
                self.broken += 1
                logger.exception("a subscriber failed on %s", event)


class Bus:
    """The subscriptions of one ledger object."""

    def __init__(self) -> None:
        self._subscriptions: tuple[Subscription, ...] = ()

    @property
    def listening(self) -> bool:
        """Whether a subscriber wants transitions: otherwise no events are made."""
        return any(subscription.kind is Transition for subscription in self._subscriptions)

    def subscribe(self, subscriber: Callable[[Event], None], kind: type[Event]) -> Subscription:
        """Call a subscriber with every event of a kind from now on."""
        if not callable(cast("object", subscriber)):
            from holdfast.core.arguments import refuse  # noqa: PLC0415 - only for an error

            refuse("subscriber", subscriber, "a function")
        subscription = Subscription(subscriber, kind, self._forget)
        self._subscriptions = (*self._subscriptions, subscription)
        return subscription

    def subscribe_to_transitions(self, subscriber: Callable[[Transition], None]) -> Subscription:
        """Call a subscriber with every transition from now on."""
        return self.subscribe(subscriber, Transition)

    def subscribe_to_violations(self, subscriber: Callable[[InvariantViolated], None]) -> Subscription:
        """Call a subscriber with every invariant that is found broken from now on."""
        return self.subscribe(subscriber, InvariantViolated)

    def publish(self, events: Sequence[msgspec.Struct]) -> None:
        """Hand events, all of one kind, to every subscription to it, without waiting for any."""
        for subscription in self._subscriptions:
            if events and isinstance(events[0], subscription.kind):
                subscription.put(events)

    def publish_commit(self, tasks: Sequence[Task[Any]], at: datetime) -> None:
        """Publish what a group of tasks has changed, in the order it was written, and their one commit."""
        changes = [event for task in tasks for event in task.events(at)]
        self.publish(changes)
        wrote = bool(changes) or any(isinstance(task, CallTask) for task in tasks)  # it does not say what it wrote
        self.publish([Committed(tasks=len(tasks), at=at, wrote=wrote)])

    def _forget(self, subscription: Subscription) -> None:
        self._subscriptions = tuple(kept for kept in self._subscriptions if kept is not subscription)


# ---------------------------------------------------------------------------------------------------------------------
# What a task has done


def publish_own_commit(ledger: Ledger, attempt: Attempt, move: Move) -> None:
    """Publish a completion that a handler made in a transaction of its own, if that was committed."""
    try:
        with ledger.store.reading() as reading:
            now = reading.lists.attempt(attempt.execution.exec_id)
    except StoreError as error:
        logger.warning("job %s: its end cannot be published: %s", attempt.job.job_id, error)
        return
    if now is not None and now.execution.status is ExecutionStatus.DONE:
        ledger.bus.publish(list(of_move(attempt.job, move, ledger.store.now(), attempt.execution)))


def of_move(
    job: Job, move: Move, at: datetime, execution: Execution | None = None, *, actor: str | None = None
) -> Iterator[Transition]:
    """Yield the transitions of a move of a job, and of its execution where that made it; the worker is the actor."""
    for step in move.steps:
        yield Transition(
            machine=step.machine,
            subject=execution.exec_id if execution and step.machine == EXECUTION.name else job.job_id,
            event=step.event,
            source=step.source,
            target=step.target,
            job_id=job.job_id,
            operation=job.operation,
            queue=job.queue,
            attempt=None if execution is None else execution.attempt,
            actor=actor or (None if execution is None else execution.lease_owner),
            error_code=move.error_code,
            excused=move.excused,
            at=at,
            since=job.updated_at,
        )


def of_submissions(
    submissions: Sequence[Submission], admissions: Sequence[Admission], at: datetime
) -> Iterator[Transition]:
    """Yield the birth of each job that is new."""
    for submission, admission in zip(submissions, admissions, strict=True):
        if not admission.is_new:
            continue
        yield Transition(
            machine=JOB.name,
            subject=admission.job_id,
            event="submit",
            source=None,
            target=JobState.PENDING,
            job_id=admission.job_id,
            operation=submission.operation,
            queue=submission.queue,
            attempt=None,
            actor=submission.client,
            error_code=None,
            excused=False,
            at=at,
        )


def of_claims(attempts: Sequence[Attempt], at: datetime) -> Iterator[Transition]:
    """Yield, for each claimed attempt, the lease and what became of its job."""
    for attempt in attempts:
        yield from _of_claim(attempt, at)


def _of_claim(attempt: Attempt, at: datetime) -> Iterator[Transition]:
    job, execution = attempt.job, attempt.execution
    begun = Transition(
        machine=EXECUTION.name,
        subject=execution.exec_id,
        event="lease" if execution.started_at is None else "begin",
        source=None,
        target=execution.status,
        job_id=job.job_id,
        operation=job.operation,
        queue=job.queue,
        attempt=execution.attempt,
        actor=execution.lease_owner,
        error_code=None,
        excused=False,
        at=at,
    )
    yield begun
    yield msgspec.structs.replace(
        begun,
        machine=JOB.name,
        subject=job.job_id,
        event="claim",
        source=JobState.PENDING,
        target=job.state,
        since=max(job.run_at, job.created_at),
    )
