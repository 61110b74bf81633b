"""The committer: the writes of one process, gathered into transactions.

Whoever comes first leads: it takes everything that has gathered, writes it as sets in one transaction, and answers
each caller after the commit is durable. What gathers meanwhile goes into the next transaction, led by the first of
those who wait. So a lone caller pays for one transaction and no hand-over, and a flood shares its fsyncs.

Invariants: a caller is answered only after durability; on any failure, COMMIT included, the group is rolled back and
run again with each task in a savepoint, and if COMMIT still fails, each in a transaction of its own, so one bad
statement fails only its own job; nothing that may have committed is repeated unless repeating is harmless.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from holdfast.core.decide import Move, Refused
from holdfast.core.errors import CommitUnknownError, HoldfastError, StoreError
from holdfast.core.records import Attempt
from holdfast.engine.world import World
from holdfast.store import Admission, Lease, Store, Submission, Transaction
from holdfast.store.effects import Effect, in_layers

T = TypeVar("T")


class Task(Generic[T]):
    """One thing to write. After `perform`, either `outcome` or `error` is set."""

    repeatable = True  # may it be run again when COMMIT's answer was lost?

    def __init__(self) -> None:
        self.outcome: T | None = None
        self.error: Exception | None = None

    def result(self) -> T:
        """Return the outcome, or raise what went wrong."""
        if self.error is not None:
            raise self.error
        return self.outcome  # type: ignore[return-value]  # set with every durable commit


class SubmitTask(Task[list[Admission]]):
    """Submissions that are recorded together or not at all."""

    def __init__(self, submissions: Sequence[Submission]) -> None:
        super().__init__()
        self.submissions = submissions
        self.repeatable = all(submission.key is not None for submission in submissions)


class EndTask(Task[Move | Refused]):
    """A command that moves one attempt, with the effects and follow-ups that go with it."""

    def __init__(
        self, attempt: Attempt, command: object, effects: Sequence[Effect] = (), followups: Sequence[Submission] = ()
    ) -> None:
        super().__init__()
        self.attempt = attempt
        self.command = command
        self.effects = effects
        self.followups = followups


class ClaimTask(Task[list[Attempt]]):
    """A request for leases."""

    def __init__(self, lease: Lease) -> None:
        super().__init__()
        self.lease = lease


class CallTask(Task[Any]):
    """Anything else that is written, as a function of the transaction; it must be safe to repeat."""

    def __init__(self, fn: Callable[[Transaction], Any]) -> None:
        super().__init__()
        self.fn = fn


class _Batch:
    """What one caller brought, and how it is told to lead or that it is done."""

    def __init__(self, tasks: Sequence[Task[Any]]) -> None:
        self.tasks = tasks
        self.woken = threading.Lock()
        self.woken.acquire()
        self.done = False


class Committer:
    """Gathers the writes of one process."""

    def __init__(self, store: Store[Any], world: World, on_commit: Callable[[Sequence[Task[Any]]], None]) -> None:
        self._store = store
        self._world = world
        self._on_commit = on_commit
        self._lock = threading.Lock()
        self._waiting: deque[_Batch] = deque()
        self._led = False

    def perform(self, tasks: Sequence[Task[Any]]) -> None:
        """Write these tasks, with whatever else has gathered; return when each has its durable outcome or its error."""
        batch = _Batch(tasks)
        with self._lock:
            self._waiting.append(batch)
            if not self._led:
                self._led = True
                batch.woken.release()
        batch.woken.acquire()
        if not batch.done:
            self._lead(batch)

    def _lead(self, own: _Batch) -> None:
        with self._lock:
            batches = list(self._waiting)
            self._waiting.clear()
        try:
            self._run([task for batch in batches for task in batch.tasks])
        finally:
            for batch in batches:
                if batch is not own:
                    batch.done = True
                    batch.woken.release()
            with self._lock:
                if self._waiting:
                    self._waiting[0].woken.release()
                else:
                    self._led = False

    def _run(self, tasks: Sequence[Task[Any]]) -> None:
        try:
            self._together(tasks)
        except Exception as error:  # noqa: BLE001 - whatever it is, the tasks that did not cause it must go on
            if len(tasks) == 1 and not isinstance(error, StoreError):
                tasks[0].error = error
            else:
                self._isolate(tasks, error)
        self._on_commit(tasks)

    def _together(self, tasks: Sequence[Task[Any]]) -> None:
        """Run tasks optimistically, as sets, in one transaction."""
        outcomes: dict[int, Any] = {}
        with self._store.transaction() as transaction:
            self._submit([t for t in tasks if isinstance(t, SubmitTask)], transaction, outcomes)
            for task in tasks:
                if isinstance(task, CallTask):
                    outcomes[id(task)] = task.fn(transaction)
            self._end([t for t in tasks if isinstance(t, EndTask)], transaction, outcomes)
            self._claim([t for t in tasks if isinstance(t, ClaimTask)], transaction, outcomes)
            self._world.reach("before_commit")
        self._world.reach("after_commit")
        for task in tasks:
            task.outcome, task.error = outcomes[id(task)], None

    def _isolate(self, tasks: Sequence[Task[Any]], error: Exception) -> None:
        """Run the tasks of a failed group again so that each fails only by its own fault."""
        tasks = self._without_unrepeatable(tasks, error)
        remaining = list(tasks)
        while remaining:
            outcomes: dict[int, Any] = {}
            culprits: list[Task[Any]] = []
            try:
                with self._store.transaction() as transaction:
                    for task in remaining:
                        self._one(task, transaction, outcomes, culprits)
            except CommitUnknownError as unknown:
                self._without_unrepeatable(remaining, unknown)
                self._each_alone([task for task in remaining if task.error is None])
                return
            except _TransactionGoneError as gone:
                remaining.remove(gone.task)
                continue
            except Exception:  # noqa: BLE001 - COMMIT failed, or the database is gone: each task tells for itself
                self._each_alone([task for task in remaining if task not in culprits])
                return
            for task in remaining:
                if task not in culprits:
                    task.outcome, task.error = outcomes[id(task)], None
            return

    def _one(
        self, task: Task[Any], transaction: Transaction, outcomes: dict[int, Any], culprits: list[Task[Any]]
    ) -> None:
        try:
            with transaction.savepoint():
                self._dispatch(task, transaction, outcomes)
        except Exception as raised:
            # Inside a transaction errors are still the driver's own: a lost database is nobody's fault.
            error = self._store.translated(raised)
            if isinstance(error, StoreError):
                raise error from raised
            task.error = error
            if not transaction.is_open:
                raise _TransactionGoneError(task) from error
            culprits.append(task)

    def _each_alone(self, tasks: Iterable[Task[Any]]) -> None:
        for task in tasks:
            outcomes: dict[int, Any] = {}
            try:
                with self._store.transaction() as transaction:
                    self._dispatch(task, transaction, outcomes)
                task.outcome, task.error = outcomes[id(task)], None
            except Exception as error:  # noqa: BLE001 - it is this task's answer
                task.error = error

    @staticmethod
    def _without_unrepeatable(tasks: Sequence[Task[Any]], error: Exception) -> list[Task[Any]]:
        """Give the error to tasks that may have committed and would happen twice; return the others."""
        if not isinstance(error, CommitUnknownError):
            return list(tasks)
        for task in tasks:
            if not task.repeatable:
                task.error = error
        return [task for task in tasks if task.repeatable]

    def _dispatch(self, task: Task[Any], transaction: Transaction, outcomes: dict[int, Any]) -> None:
        match task:
            case SubmitTask():
                self._submit([task], transaction, outcomes)
            case CallTask():
                outcomes[id(task)] = task.fn(transaction)
            case EndTask():
                self._end([task], transaction, outcomes)
            case ClaimTask():
                self._claim([task], transaction, outcomes)

    # -- sets ---------------------------------------------------------------------------------------------------------

    @staticmethod
    def _submit(tasks: list[SubmitTask], transaction: Transaction, outcomes: dict[int, Any]) -> None:
        if not tasks:
            return
        admissions = iter(transaction.submit([s for task in tasks for s in task.submissions]))
        for task in tasks:
            outcomes[id(task)] = [next(admissions) for _ in task.submissions]

    @staticmethod
    def _end(tasks: list[EndTask], transaction: Transaction, outcomes: dict[int, Any]) -> None:
        by_owner: dict[str, list[EndTask]] = {}
        for task in tasks:
            by_owner.setdefault(task.attempt.execution.lease_owner, []).append(task)
        for owner, owned in by_owner.items():
            answers = transaction.work([(task.attempt, task.command) for task in owned], actor=owner)
            outcomes.update((id(task), answer) for task, answer in zip(owned, answers, strict=True))
        accepted = [task for task in tasks if isinstance(outcomes[id(task)], Move)]
        effects = in_layers([task.effects for task in accepted if task.effects])
        if effects:
            transaction.apply(effects)
        followups = [submission for task in accepted for submission in task.followups]
        if followups:
            transaction.submit(followups)

    @staticmethod
    def _claim(tasks: list[ClaimTask], transaction: Transaction, outcomes: dict[int, Any]) -> None:
        for task in tasks:
            outcomes[id(task)] = transaction.claim(task.lease)


class _TransactionGoneError(HoldfastError):
    """A task ended the transaction that it shared with others."""

    def __init__(self, task: Task[Any]) -> None:
        super().__init__("a task ended the shared transaction")
        self.task = task
