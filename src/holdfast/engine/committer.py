"""The committer: the writes of one process, gathered into transactions.

The first caller leads: it takes all waiting tasks, writes them as sets in one transaction, and answers each caller
after the commit is durable. Tasks that arrive meanwhile go into the next transaction, led by the first caller that
waits. So a single caller pays for one transaction and no hand-over, and many callers share one fsync.

Invariants: a caller is answered only after durability; on any failure, COMMIT included, the group is rolled back and
run again with each task in a savepoint, and if COMMIT still fails, each in a transaction of its own, so one bad
statement fails only its own job; nothing that may have committed is repeated unless repeating is harmless; events
are published in the order of the writes, after they are durable.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from holdfast.core.errors import CommitUnknownError, HoldfastError, StoreError
from holdfast.engine.tasks import Task
from holdfast.engine.world import BETWEEN, World
from holdfast.store import Store, Transaction

logger = logging.getLogger("holdfast")

DURING, AFTER = 0, 1


class _Batch:
    """The tasks of one caller, and the lock that wakes it to lead or to return."""

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
            # The leader's thread is being stopped. Callers that wait for it must not see a success.
            for task in tasks:
                if not task.answered:
                    task.failed(
                        CommitUnknownError("the thread that wrote this task was stopped before COMMIT answered")
                    )
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
        if not tasks:
            return
        try:
            self._write(tasks, partial(_write_sets, tasks))
        except Exception as error:  # noqa: BLE001 - whatever it is, the tasks that did not cause it must go on
            if len(tasks) == 1 and not isinstance(error, StoreError):
                tasks[0].failed(error)
            else:
                self._isolate(tasks, error)

    def _ran_in_two(self, task: Task[Any]) -> bool:
        """Run a task that has two halves as two transactions, so that a planned crash can fall between them."""
        last: Task[Any] | None = None
        for half in task.halves():
            if last is not None:
                self._world.reach(BETWEEN)
            self._run([half])
            last = half
        if last is None:
            return False
        task.outcome, task.error, task.answered = last.outcome, last.error, True
        return True

    def _write(
        self, tasks: Sequence[Task[Any]], body: Callable[[Transaction, dict[int, Any]], None]
    ) -> StoreError | None:
        """Run a body in one transaction; once that is durable, give each task the outcome that the body recorded.

        If no transaction can be begun, that is no task's fault: the error is every task's answer, and it is returned.
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
            logger.exception(
                "the events of a commit could not be published"
            )  # it is durable, and must not be written again
        return None

    def _reach(self, tasks: Sequence[Task[Any]], when: int) -> None:
        for point in dict.fromkeys(task.points[when] for task in tasks if task.points is not None):
            self._world.reach(point)

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
            except Exception as again:  # noqa: BLE001 - COMMIT failed, or the database is gone: each task is tried alone
                innocent = [task for task in remaining if task not in culprits]
                self._each_alone(self._without_unrepeatable(innocent, again))
            return

    def _one(
        self, task: Task[Any], transaction: Transaction, outcomes: dict[int, Any], culprits: list[Task[Any]]
    ) -> None:
        try:
            with transaction.savepoint():
                _write_sets([task], transaction, outcomes)
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
                not_begun = self._write([task], partial(_write_sets, [task]))
            except Exception as error:  # noqa: BLE001 - it is this task's answer
                task.failed(error)
                continue
            if not_begun is not None:
                # Waiting again for each task would keep every caller waiting for all of them.
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


def _write_sets(tasks: Sequence[Task[Any]], transaction: Transaction, outcomes: dict[int, Any]) -> None:
    """Write tasks as sets, one kind after the other, and record the outcome of each by its identity."""
    in_order = sorted(tasks, key=_order)
    for _, kind in groupby(in_order, key=_order):
        some = list(kind)
        outcomes.update(zip(map(id, some), some[0].write(some, transaction), strict=True))


def _order(task: Task[Any]) -> int:
    return task.order


class _TransactionGoneError(HoldfastError):
    """A task ended the transaction that it shared with others."""

    def __init__(self, task: Task[Any]) -> None:
        super().__init__("a task ended the shared transaction")
        self.task = task
