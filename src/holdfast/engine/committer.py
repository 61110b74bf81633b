"""The committer: the writes of one process, gathered into transactions.

Whoever comes first leads: it takes everything that has gathered, writes it as sets in one transaction, and answers
each caller after the commit is durable. What gathers meanwhile goes into the next transaction, led by the first of
those who wait. So a lone caller pays for one transaction and no hand-over, and a flood shares its fsyncs.

Invariants: a caller is answered only after durability; on any failure, COMMIT included, the group is rolled back and
run again with each task in a savepoint, and if COMMIT still fails, each in a transaction of its own, so one bad
statement fails only its own job; nothing that may have committed is repeated unless repeating is harmless; what was
written is told in the order it was written, after it is durable.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.core.commands import Commit, Complete, Finish
from holdfast.core.decide import Move, Refused
from holdfast.core.errors import CommitUnknownError, HoldfastError, StoreError
from holdfast.core.machines import ExecutionStatus
from holdfast.core.records import Attempt, Job
from holdfast.engine.world import BETWEEN, World
from holdfast.store import Admission, Lease, Store, Submission, Transaction
from holdfast.store.effects import Effect, in_turn

logger = logging.getLogger("holdfast")

T = TypeVar("T")


Points = tuple[str, str]
DURING, AFTER = 0, 1


class Task(Generic[T]):
    """One thing to write. After `perform`, either `outcome` or `error` is set."""

    points: Points | None = None  # where a crash can be planned: with the task written, and with it durable

    def __init__(self) -> None:
        self.outcome: T | None = None
        self.error: Exception | None = None
        self.answered = False
        self.repeatable = True  # may it be run again when COMMIT's answer was lost?

    def succeeded(self, outcome: T) -> None:
        self.outcome, self.error, self.answered = outcome, None, True

    def failed(self, error: Exception) -> None:
        self.error, self.answered = error, True

    def result(self) -> T:
        """Return the outcome, or raise what went wrong."""
        if self.error is not None:
            raise self.error
        return self.outcome  # type: ignore[return-value]  # set with every durable commit


class SubmitTask(Task[list[Admission]]):
    """Submissions that are recorded together or not at all."""

    points = ("during_submit", "after_submit")

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
        self.admissions: Sequence[Admission] = ()  # of the follow-ups
        if isinstance(command, Complete | Commit):
            self.points = ("before_commit", "after_commit")
        elif not isinstance(command, Finish):
            self.points = ("during_failure", "after_failure")


class ClaimTask(Task[list[Attempt]]):
    """A request for leases."""

    points = ("during_claim", "after_claim")

    def __init__(self, lease: Lease) -> None:
        super().__init__()
        self.lease = lease


class CallTask(Task[Any]):
    """Anything else that is written, as a function of the transaction; it must be safe to repeat."""

    def __init__(self, fn: Callable[[Transaction], Any], points: Points | None = None) -> None:
        super().__init__()
        self.fn = fn
        self.points = points


class RuleTask(CallTask):
    """A ruling on a job as it was read."""

    def __init__(self, job: Job, command: object, *, actor: str, reason: str | None) -> None:
        super().__init__(
            lambda transaction: transaction.rule([(job, command)], actor=actor, reason=reason)[0],
            ("during_ruling", "after_ruling"),
        )
        self.job = job
        self.actor = actor


class RecoverTask(CallTask):
    """A recovery of what leases that had expired at a given time left behind."""

    def __init__(self, *, actor: str, n: int, at: datetime, retry_at: datetime | None) -> None:
        super().__init__(
            lambda transaction: transaction.recover(actor=actor, n=n, at=at, retry_at=retry_at),
            ("during_recovery", "after_recovery"),
        )
        self.actor = actor


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
        tasks = [task for batch in batches for task in batch.tasks]
        try:
            self._run(tasks)
        except BaseException:
            # The leader's thread is being stopped. Those who wait for it must not take silence for success.
            for task in tasks:
                if not task.answered:
                    task.failed(CommitUnknownError("the thread that wrote for others was stopped"))
            raise
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
        if self._world.planned(BETWEEN):
            tasks = [task for task in tasks if not self._ran_in_two(task)]
        try:
            self._together(tasks)
        except Exception as error:  # noqa: BLE001 - whatever it is, the tasks that did not cause it must go on
            if len(tasks) == 1 and not isinstance(error, StoreError):
                tasks[0].failed(error)
            else:
                self._isolate(tasks, error)

    def _ran_in_two(self, task: Task[Any]) -> bool:
        """Run a completion as commit and finish, each a transaction, so that a planned fault can fall between them."""
        if not isinstance(task, EndTask) or not isinstance(task.command, Complete):
            return False
        commit = EndTask(task.attempt, Commit(task.command.token, task.command.result), task.effects, task.followups)
        self._run([commit])
        last = commit
        if isinstance(commit.outcome, Move):
            self._world.reach(BETWEEN)
            execution = msgspec.structs.replace(
                task.attempt.execution,
                status=ExecutionStatus.COMMITTED,
                version=task.attempt.execution.version + 1,
            )
            last = EndTask(Attempt(task.attempt.job, execution), Finish(task.command.token))
            self._run([last])
        task.outcome, task.error, task.answered = last.outcome, last.error, True
        return True

    def _write(
        self, tasks: Sequence[Task[Any]], body: Callable[[Transaction, dict[int, Any]], None]
    ) -> StoreError | None:
        """Run a body in one transaction; once that is durable, give each task the outcome that the body put down.

        If no transaction can be begun, that is nobody's fault: it is every task's answer, and it is returned.
        """
        outcomes: dict[int, Any] = {}
        began = False
        try:
            with self._store.transaction() as transaction:
                began = True
                body(transaction, outcomes)
                self._reach(tasks, DURING)
        except StoreError as error:
            if began:
                raise
            for task in tasks:
                task.failed(error)
            return error
        self._reach(tasks, AFTER)
        by_id = {id(task): task for task in tasks}
        written = [by_id[each] for each in outcomes]  # in the order they were written
        for task in written:
            task.succeeded(outcomes[id(task)])
        try:
            self._on_commit(written)
        except Exception:
            logger.exception("what was written could not be told")  # it is durable, and must not be written again
        return None

    def _reach(self, tasks: Sequence[Task[Any]], when: int) -> None:
        for point in dict.fromkeys(task.points[when] for task in tasks if task.points is not None):
            self._world.reach(point)

    def _together(self, tasks: Sequence[Task[Any]]) -> None:
        """Run tasks optimistically, as sets, in one transaction."""

        def body(transaction: Transaction, outcomes: dict[int, Any]) -> None:
            self._submit([t for t in tasks if isinstance(t, SubmitTask)], transaction, outcomes)
            for task in tasks:
                if isinstance(task, CallTask):
                    outcomes[id(task)] = task.fn(transaction)
            self._end([t for t in tasks if isinstance(t, EndTask)], transaction, outcomes)
            self._claim([t for t in tasks if isinstance(t, ClaimTask)], transaction, outcomes)

        if tasks:
            self._write(tasks, body)

    def _isolate(self, tasks: Sequence[Task[Any]], error: Exception) -> None:
        """Run the tasks of a failed group again so that each fails only by its own fault."""
        remaining = self._without_unrepeatable(tasks, error)
        culprits: list[Task[Any]] = []

        def body(transaction: Transaction, outcomes: dict[int, Any]) -> None:
            culprits.clear()
            for task in remaining:
                self._one(task, transaction, outcomes, culprits)

        while remaining:
            try:
                self._write(remaining, body)
            except _TransactionGoneError as gone:
                remaining.remove(gone.task)
                continue
            except Exception as again:  # noqa: BLE001 - COMMIT failed, or the database is gone: each tells for itself
                innocent = [task for task in remaining if task not in culprits]
                self._each_alone(self._without_unrepeatable(innocent, again))
            return

    def _one(
        self, task: Task[Any], transaction: Transaction, outcomes: dict[int, Any], culprits: list[Task[Any]]
    ) -> None:
        try:
            with transaction.savepoint():
                self._dispatch(task, transaction, outcomes)
        except Exception as raised:
            # Inside a transaction errors are still the driver's own: a lost database is not this task's fault.
            error = self._store.translated(raised)
            if isinstance(error, StoreError):
                raise error from raised
            outcomes.pop(id(task), None)
            task.failed(error)
            if not transaction.is_open:
                raise _TransactionGoneError(task) from error
            culprits.append(task)

    def _each_alone(self, tasks: Sequence[Task[Any]]) -> None:
        for index, task in enumerate(tasks):
            try:
                not_begun = self._write([task], partial(self._dispatch, task))
            except Exception as error:  # noqa: BLE001 - it is this task's answer
                task.failed(error)
                continue
            if not_begun is not None:
                # To wait in vain once more for each would keep every caller waiting for all of them.
                for other in tasks[index + 1 :]:
                    other.failed(not_begun)
                return

    @staticmethod
    def _without_unrepeatable(tasks: Sequence[Task[Any]], error: Exception) -> list[Task[Any]]:
        """Give the error to tasks that may have committed and would happen twice; return the others."""
        if not isinstance(error, CommitUnknownError):
            return list(tasks)
        for task in tasks:
            if not task.repeatable:
                task.failed(error)
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
        effects = in_turn([task.effects for task in accepted if task.effects])
        if effects:
            transaction.apply(effects)
        leading = [task for task in accepted if task.followups]
        if leading:
            admissions = iter(transaction.submit([s for task in leading for s in task.followups]))
            for task in leading:
                task.admissions = [next(admissions) for _ in task.followups]

    @staticmethod
    def _claim(tasks: list[ClaimTask], transaction: Transaction, outcomes: dict[int, Any]) -> None:
        for task in tasks:
            outcomes[id(task)] = transaction.claim(task.lease)


class _TransactionGoneError(HoldfastError):
    """A task ended the transaction that it shared with others."""

    def __init__(self, task: Task[Any]) -> None:
        super().__init__("a task ended the shared transaction")
        self.task = task
