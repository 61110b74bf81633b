"""Events: every transition that the engine makes, and every invariant found broken, told to whoever subscribes.

Invariants: events are told after their transaction is durable, in order, from a thread of their own; a subscriber that
is slow loses events (they are counted) and one that raises is noted; neither can hurt or delay the engine.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from holdfast.core.decide import Move
from holdfast.core.machines import EXECUTION, JOB, JobState
from holdfast.core.records import Attempt, Execution, Job
from holdfast.engine.committer import ClaimTask, EndTask, RecoverTask, RuleTask, SubmitTask, Task
from holdfast.store import Admission, Submission

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

    def __str__(self) -> str:
        return f"{self.machine} {self.event}"


class InvariantViolated(msgspec.Struct, frozen=True, kw_only=True):
    """A check found an invariant broken: which, by what, and how bad that is."""

    invariant: str
    subject: str
    detail: str
    severity: str
    at: datetime

    def __str__(self) -> str:
        return f"{self.invariant} {self.subject}"


class ReplayBatch(msgspec.Struct, frozen=True, kw_only=True):
    """One batch of a replay: how many jobs it put back and passed over, and how often it waited."""

    run_id: str
    number: int
    batches: int  # of the whole run
    mode: str
    replay_reason: str
    environment: str
    replayed: dict[str, int]  # by dataset
    skipped: dict[str, int]  # by reason
    throttled: dict[str, int]  # by reason
    at: datetime

    def __str__(self) -> str:
        return f"replay {self.run_id} batch {self.number}"


class ReplayRefused(msgspec.Struct, frozen=True, kw_only=True):
    """A guard refused a replay."""

    guard_type: str
    environment: str
    at: datetime

    def __str__(self) -> str:
        return f"replay refused {self.guard_type}"


Event = Transition | InvariantViolated | ReplayBatch | ReplayRefused
Heard = TypeVar("Heard", Transition, InvariantViolated, ReplayBatch, ReplayRefused)
Subscriber = Callable[[Transition], None]


class Subscription:
    """One subscriber with its own waiting line and thread."""

    def __init__(
        self, subscriber: Callable[[Any], None], kind: type[Event], on_close: Callable[[Subscription], None]
    ) -> None:
        self.kind = kind
        self._subscriber = subscriber
        self._on_close = on_close
        self._waiting: deque[Event] = deque()
        self._wake = threading.Condition()
        self._busy = False
        self._closed = False
        self.lost = 0  # how many events did not fit in the line
        self.broken = 0  # how many times the subscriber raised
        self._thread = threading.Thread(target=self._run, name="holdfast-events", daemon=True)
        self._thread.start()

    def put(self, events: Sequence[Event]) -> None:
        """Line events up; what does not fit is lost and counted."""
        with self._wake:
            room = WAITING_MAX - len(self._waiting)
            self._waiting.extend(events[:room])
            self.lost += max(0, len(events) - room)
            self._wake.notify_all()

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Wait until everything lined up so far was told; return False if that took too long."""
        with self._wake:
            return self._wake.wait_for(lambda: not self._waiting and not self._busy, timeout_s)

    def close(self) -> None:
        """Stop telling."""
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
            except BaseException:  # SystemExit too: it would end this thread, and nobody would be told any more
                self.broken += 1
                logger.exception("a subscriber failed on %s", event)


class Bus:
    """The subscriptions of one ledger object."""

    def __init__(self) -> None:
        self._subscriptions: tuple[Subscription, ...] = ()

    @property
    def listening(self) -> bool:
        """Whether anybody listens to transitions: without, they are not even made into events."""
        return any(subscription.kind is Transition for subscription in self._subscriptions)

    def subscribe(self, subscriber: Callable[[Heard], None], kind: type[Heard]) -> Subscription:
        """Tell a subscriber every event of a kind from now on."""
        subscription = Subscription(subscriber, kind, self._forget)
        self._subscriptions = (*self._subscriptions, subscription)
        return subscription

    def publish(self, events: Sequence[Event]) -> None:
        """Hand events, all of one kind, to every subscription to it, without waiting for any."""
        for subscription in self._subscriptions:
            if events and isinstance(events[0], subscription.kind):
                subscription.put(events)

    def _forget(self, subscription: Subscription) -> None:
        self._subscriptions = tuple(kept for kept in self._subscriptions if kept is not subscription)


# ---------------------------------------------------------------------------------------------------------------------
# What a task's outcome says


def of_task(task: Task[Any], at: datetime) -> Iterator[Transition]:
    """Yield the transitions that a task has made, in the order they were written."""
    match task:
        case SubmitTask():
            for submission, admission in zip(task.submissions, task.result(), strict=True):
                yield from _of_submission(submission, admission, at)
        case ClaimTask():
            for attempt in task.result():
                yield from _of_claim(attempt, at)
        case EndTask() if isinstance(task.outcome, Move):
            yield from of_move(task.attempt.job, task.outcome, at, task.attempt.execution)
            for submission, admission in zip(task.followups, task.admissions, strict=True):
                yield from _of_submission(submission, admission, at)
        case RuleTask() if isinstance(task.outcome, Move):
            yield from of_move(task.job, task.outcome, at, actor=task.actor)
        case RecoverTask():
            for attempt, answer in task.result():
                if isinstance(answer, Move):
                    yield from of_move(attempt.job, answer, at, attempt.execution, actor=task.actor)


def of_move(
    job: Job, move: Move, at: datetime, execution: Execution | None = None, *, actor: str | None = None
) -> Iterator[Transition]:
    """Yield the transitions of a move of a job, and of its execution where that made it; the worker is the actor."""
    for step in move.steps:
        yield Transition(
            machine=step.machine,
            subject=step.subject or 0,
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
        )


def _of_submission(submission: Submission, admission: Admission, at: datetime) -> Iterator[Transition]:
    if admission.is_new:
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
    )
