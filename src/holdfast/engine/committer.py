"""The committer: the writes of one process, gathered into transactions.

The first caller leads: it takes all waiting tasks, writes them as sets in one transaction, and answers each caller
after the commit is durable: each caller wakes the next one of its group. Tasks that arrive meanwhile go into the next
transaction, led by the first caller that waits. So a single caller pays for one transaction and no hand-over, and many
callers share one fsync.

Invariants: a caller is answered only after durability; on any failure, COMMIT included, the group is rolled back and
run again with each task in a savepoint, and if COMMIT still fails, each in a transaction of its own, so one bad
statement fails only its own job; nothing that may have committed is repeated unless repeating is harmless; events
are published in the order of the writes, after they are durable; an exception from a signal handler can come at any
moment of a caller in the main thread: a caller that has left cannot lead, and another one leads in its place; a
thread that is inside `perform` cannot enter it again, as a signal handler would: the inner call raises StoreBusyError.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

from holdfast.core.errors import StoreError
from holdfast.engine.tasks import ClaimTask, Task
from holdfast.engine.world import BETWEEN, World, nothing
from holdfast.store import Store, Transaction
from holdfast.store.pool import refuse_reentry

DURING, AFTER = 0, 1
LOST_S = 0.2  # how often a caller that waits looks whether the leader has left
_ORDER = attrgetter("order")
Written = list[tuple[list[Task[Any]], Sequence[Any]]]  # sets of tasks, each with the outcomes of its tasks


class _Batch:
    """The tasks of one caller, and the locks that wake it to lead or to return, and show that it has not left."""

    def __init__(self, tasks: Sequence[Task[Any]]) -> None:
        self.tasks = tasks
        self.woken = threading.Lock()
        self.woken.acquire()
        self.here = threading.Lock()  # held by `with` while its caller is in `perform`, however that ends
        self.done = False
        self.taken: threading.Lock | None = None  # `here` of another caller, which leads and has taken it
        self.following: _Batch | None = None  # of the same group: its caller is woken by this one

    @property
    def waits(self) -> bool:
        """Whether no leader has taken it, and its caller has not left."""
        return self.here.locked() and self.taken is None and not self.done

    @property
    def left(self) -> bool:
        """Whether its leader has left without an answer."""
        return self.taken is not None and not self.taken.locked() and not self.done


class Committer:
    """Gathers the writes of one process."""

    def __init__(self, store: Store[Any], world: World, on_commit: Callable[[Sequence[Task[Any]]], None]) -> None:
        self.store, self.world, self.on_commit = store, world, on_commit
        self._lock = threading.Lock()
        self._waiting: deque[_Batch] = deque()
        self._leader: _Batch | None = None
        self.order = threading.RLock()  # held while events are published
        self.own = threading.local()  # of each thread: the lock that shows whether it is inside `perform`

    def perform(self, tasks: Sequence[Task[Any]]) -> None:
        """Write these tasks, with whatever else has gathered; return when each has its durable outcome or its error."""
        refuse_reentry(self.own)
        batch = _Batch(tasks)
        with batch.here:
            self.own.here = batch.here
            with self._lock:
                self._waiting.append(batch)
            try:
                while not batch.done:
                    if batch.left or self._leads(batch):
                        self._lead(batch)
                    else:
                        batch.woken.acquire(timeout=LOST_S)
            finally:
                if batch.following is not None:
                    batch.following.woken.release()

    def _leads(self, batch: _Batch) -> bool:
        with self._lock:
            if batch.taken is None and (self._leader is None or not self._leader.here.locked()):
                self._leader = batch
            return self._leader is batch

    def _lead(self, own: _Batch) -> None:
        batches = [own]
        lost = True  # until each is answered
        try:
            if not own.left:  # else it answers for the leader that has left, while another may lead
                with self._lock:
                    batches += [batch for batch in self._waiting if batch.waits and batch is not own]
                    for batch in batches[1:]:
                        batch.taken = own.here
                    self._waiting.clear()
                self._run([task for batch in batches for task in batch.tasks])
                lost = False
        finally:
            if lost:
                from holdfast.engine.isolation import answer_unknown  # noqa: PLC0415 - a thread is being stopped

                answer_unknown([task for batch in batches for task in batch.tasks])
            # Each caller wakes the next one: if all woke at once, they would only wait for each other's GIL.
            for batch, following in zip(batches, [*batches[1:], None], strict=True):
                batch.following, batch.done = following, True
            with self._lock:
                if self._leader is own:
                    self._leader = next((batch for batch in self._waiting if batch.waits), None)
                    if self._leader is not None:
                        self._leader.woken.release()

    def _run(self, tasks: Sequence[Task[Any]]) -> None:
        if self.world.planned(BETWEEN):
            from holdfast.engine.isolation import ran_in_two  # noqa: PLC0415 - only where a crash is planned

            tasks = [task for task in tasks if not ran_in_two(task, self._run, self.world)]
        if not tasks:
            return
        rest = tasks
        try:
            if self.world.reach is nothing and not self.store.one_writer:
                from holdfast.engine.at_once import write_at_once  # noqa: PLC0415 - not on SQLite

                rest = write_at_once(tasks, self.store, self._write)
            if rest:
                claims = all(type(task) is ClaimTask and not task.lease.durable for task in rest)
                lone = claims and self.store.one_writer and not self.store.limited
                self._write(rest, partial(write_sets, rest), lone=lone)
        except Exception as error:  # noqa: BLE001 - whatever it is, the tasks that did not cause it must go on
            from holdfast.engine.isolation import Isolation  # noqa: PLC0415 - most groups do not fail

            Isolation(self.store, self._write).run(rest, error)

    def _write(self, tasks: Sequence[Task[Any]], body: Callable[..., None], *, lone: bool = False) -> StoreError | None:
        """Run a body in one transaction; once that is durable, give each task the outcome that the body recorded.

        If no transaction can be begun, that is no task's fault: the error is every task's answer, and it is returned.
        """
        written: Written = []
        began = False
        block = self.store.alone() if lone else self.store.transaction()
        try:
            with block as transaction:
                began = True
                body(transaction, written)
                self._reach(tasks, DURING)
        except StoreError as error:
            if began:
                raise
            for task in tasks:
                task.failed(error)
            return error
        finally:
            block.gen.close()  # it is open if an exception from a signal handler came between its steps
        self._reach(tasks, AFTER)
        for some, outcomes in written:
            for task, outcome in zip(some, outcomes, strict=True):
                task.succeeded(outcome)
        try:
            with self.order:
                self.on_commit([task for some, _ in written for task in some])
        except Exception as error:  # noqa: BLE001 - it is durable, and must not be written again
            from holdfast.engine.isolation import not_published  # noqa: PLC0415 - rare

            not_published(error)
        return None

    def _reach(self, tasks: Sequence[Task[Any]], when: int) -> None:
        if self.world.reach is not nothing:
            for point in dict.fromkeys(points[when] for task in tasks if (points := task.points) is not None):
                self.world.reach(point)


def write_sets(tasks: Sequence[Task[Any]], transaction: Transaction, written: Written) -> None:
    """Write tasks as sets, one kind after the other, and record each set with the outcomes of its tasks."""
    for _, kind in groupby(sorted(tasks, key=_ORDER), key=_ORDER):
        some = list(kind)
        written.append((some, some[0].write(some, transaction)))
