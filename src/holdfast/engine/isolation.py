"""What the committer does when a group of tasks fails: each task again, so that it fails only by its own fault.

Invariants: the group was rolled back; each task runs again in a savepoint, and if COMMIT still fails, in a transaction
of its own; nothing that may have committed is repeated unless repeating is harmless.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeGuard

import msgspec

from holdfast.core.commands import Commit, Complete, Finish
from holdfast.core.decide import Move
from holdfast.core.errors import CommitUnknownError, EffectError, HoldfastError, StoreError, StoreUnavailableError
from holdfast.core.machines import ExecutionStatus
from holdfast.core.records import Attempt
from holdfast.engine.committer import Written, write_sets
from holdfast.engine.tasks import ClaimTask, EndTask, Task
from holdfast.engine.world import BETWEEN, World
from holdfast.store import Store, Transaction
from holdfast.store.interruption import from_signal_handler
from holdfast.store.requests import Effect

logger = logging.getLogger("holdfast")

LOSSES_MAX = 3  # after so many lost connections or sessions an effect that was written alone is the cause
LOSS_PAUSE_S = 0.4  # longer after each of them: several in a row may be those of one outage
Write = Callable[[Sequence[Task[Any]], Callable[[Transaction, Written], None]], StoreError | None]


class Isolation:
    """Runs the tasks of a failed group again; `write` runs a body in one transaction, as the committer does."""

    def __init__(self, store: Store[Any], write: Write) -> None:
        self._store = store
        self._write = write

    def run(self, tasks: Sequence[Task[Any]], error: Exception) -> None:
        """Run the tasks of a failed group again so that each fails only by its own fault."""
        if from_signal_handler(error):
            raise error
        if len(tasks) == 1 and not isinstance(error, StoreError):
            tasks[0].failed(error)
            return
        if _waited(error):
            self._store.effects_wait = True
            self._apart(tasks, waited=True)  # one transaction would wait for all of them that wait
            return
        remaining = self._without_unrepeatable(tasks, error)
        culprits: list[Task[Any]] = []

        def body(transaction: Transaction, written: Written) -> None:
            culprits.clear()
            for task in remaining:
                self._one(task, transaction, written, culprits)

        while remaining:
            try:
                self._write(remaining, body)
            except _TransactionGoneError as gone:
                remaining.remove(gone.task)
                continue
            except Exception as again:  # COMMIT failed, or the database is gone: each task is tried alone
                if from_signal_handler(again):
                    raise
                innocent = [task for task in remaining if task not in culprits]
                self._apart(self._without_unrepeatable(innocent, again))
            return

    def _one(self, task: Task[Any], transaction: Transaction, written: Written, culprits: list[Task[Any]]) -> None:
        before = len(written)
        try:
            with transaction.savepoint():
                write_sets([task], transaction, written)
        except Exception as raised:
            if from_signal_handler(raised):
                raise
            # Inside a transaction errors are still the driver's own: a lost database is not this task's fault.
            error = self._store.translated(raised)
            if isinstance(error, StoreError):
                raise error from raised
            del written[before:]
            task.failed(error)
            if not transaction.is_open:
                raise _TransactionGoneError(task) from error
            culprits.append(task)

    def _apart(self, tasks: Sequence[Task[Any]], *, waited: bool = False) -> None:
        """Write the tasks without effects together, as they are unlikely to be the cause; then each of the rest.

        A claim comes last: what it leases gets no heartbeat before its caller has it, and effects may wait for long.
        """
        rest = [task for task in tasks if _effects(task)]
        claims = [task for task in tasks if rest and isinstance(task, ClaimTask)]
        plain = [task for task in tasks if not _effects(task) and not (rest and isinstance(task, ClaimTask))]
        if rest and len(plain) > 1:
            try:
                not_begun = self._write(plain, partial(write_sets, plain))
            except Exception as error:
                if from_signal_handler(error):
                    raise
                plain = self._without_unrepeatable(plain, error)
            else:
                plain = []
                if not_begun is not None:
                    for task in (*rest, *claims):
                        task.failed(not_begun)
                    return
        self._each_alone([*plain, *rest], claims, waited=waited)

    def _each_alone(self, tasks: Sequence[Task[Any]], last: Sequence[Task[Any]] = (), *, waited: bool = False) -> None:
        """Write each task in a transaction of its own; `waited`: an effect of one of them has waited too long.

        Once one has waited, the others may wait for a tenth of that, so that no task waits for several that do. Those
        that need longer come later, and so do those that lost a connection: of each statement one task waits as long
        as it may, and decides for the others.
        """
        left, slow, final = deque(tasks), deque[tuple[Task[Any], Exception]](), deque(last)
        stuck: set[str] = set()  # statements that have waited as long as they may
        while left or slow or final:
            task, hurried_error = slow.popleft() if slow and not left else ((left or final).popleft(), None)
            statements = {effect.sql for effect in _effects(task)}
            if hurried_error is not None and not stuck.isdisjoint(statements):
                task.failed(hurried_error)
                continue
            if hurried_error is not None:
                if isinstance(task, EndTask):
                    time.sleep(LOSS_PAUSE_S * task.losses)
                self._extend([task, *(other for other, _ in slow)])
            try:
                not_begun = self._alone(task, hurried=waited and hurried_error is None)
            except _LaterError as error:
                slow.append((task, error.error))
                continue
            if not_begun is not None:
                # Waiting again for each task would keep every caller waiting for all of them.
                for other in (*left, *(task for task, _ in slow), *final):
                    other.failed(not_begun)
                return
            if _waited(task.error):
                waited = True
                stuck |= statements

    def _alone(self, task: Task[Any], *, hurried: bool) -> StoreError | None:
        """Write one task; return the error if no transaction could be begun, which is no task's fault.

        Raise _LaterError if its effects were hurried and took too long, or lost a connection: it has no answer then.
        """
        patient = _effects(task)
        if isinstance(task, EndTask) and hurried:
            task.effects = [msgspec.structs.replace(effect, hurried=True) for effect in patient]
        try:
            return self._write([task], partial(write_sets, [task]))
        except Exception as error:
            if from_signal_handler(error):
                raise
            if isinstance(task, EndTask) and task.effects and _lost_in_effects(error):
                # By a restart, a pooler, or the effects: the first two do not happen again and again.
                task.losses += 1
                if task.losses < LOSSES_MAX:
                    task.effects = patient
                    raise _LaterError(error) from error
                job_id, n = task.attempt.job.job_id, task.losses
                message = f"lost {n} times while the effects of job {job_id} were written alone: {error.message}"
                task.failed(EffectError(message, context={"losses": n, "job_id": job_id}))
                return None
            if isinstance(task, EndTask) and hurried and _waited(error):
                task.effects = patient
                raise _LaterError(error) from error
            task.failed(error)  # it is this task's answer
            return None

    def _extend(self, tasks: Sequence[Task[Any]]) -> None:
        """Extend the leases of ends that may wait: a heartbeat passes over a row that such an end has locked."""
        lease_s = self._store.shortest_lease_s
        if lease_s is None:
            return  # no worker of this process has a heartbeat
        leases = [(task.attempt.execution, lease_s) for task in tasks if isinstance(task, EndTask)]
        with suppress(HoldfastError), self._store.transaction() as transaction:  # the next write says what is wrong
            transaction.executions.extend_leases(leases)

    @staticmethod
    def _without_unrepeatable(tasks: Sequence[Task[Any]], error: Exception) -> list[Task[Any]]:
        """Give the error to tasks that may have committed and would happen twice; return the others."""
        if not isinstance(error, CommitUnknownError):
            return list(tasks)
        for task in tasks:
            if not task.repeatable:
                task.failed(error)
        return [task for task in tasks if task.repeatable]


class _TransactionGoneError(HoldfastError):
    """A task ended the transaction that it shared with others."""

    def __init__(self, task: Task[Any]) -> None:
        super().__init__("a task ended the shared transaction")
        self.task = task


class _LaterError(HoldfastError):
    """A task comes after the others: its effects took longer than they may while others wait, or lost a connection."""

    def __init__(self, error: Exception) -> None:
        super().__init__("the effects of a task took too long or lost their connection")
        self.error = error


def _effects(task: Task[Any]) -> Sequence[Effect]:
    return task.effects if isinstance(task, EndTask) else ()


def _waited(error: Exception | None) -> bool:
    return isinstance(error, EffectError) and bool(error.context.get("waited"))


def _lost_in_effects(error: Exception) -> TypeGuard[StoreUnavailableError]:
    """Return whether a connection was lost while effects ran, or at COMMIT, where their triggers may run."""
    if not isinstance(error, StoreUnavailableError) or not error.context.get("connection_lost"):
        return False
    return isinstance(error, CommitUnknownError) or bool(error.context.get("in_effect"))


def answer_unknown(tasks: Sequence[Task[Any]]) -> None:
    """Answer the tasks of a leader whose thread is being stopped: their callers must not see a success."""
    for task in tasks:
        if not task.answered:
            task.failed(CommitUnknownError("the thread that wrote this task was stopped before COMMIT answered"))


def not_published(error: Exception) -> None:
    """Log why the events of a durable commit were not published; raise what a signal handler raised."""
    if from_signal_handler(error):
        raise error
    logger.error("the events of a commit could not be published", exc_info=error)


def ran_in_two(task: Task[Any], run: Callable[[Sequence[Task[Any]]], None], world: World) -> bool:
    """Run a completion as two transactions, so that a planned crash can fall between them; False for other tasks."""
    if not isinstance(task, EndTask) or not isinstance(task.command, Complete):
        return False
    attempt, command = task.attempt, task.command
    last = EndTask(attempt, Commit(command.token, command.result), task.effects, task.followups)
    last.kept = task.kept
    run([last])
    if isinstance(last.outcome, Move):
        world.reach(BETWEEN)
        before = attempt.execution
        committed = msgspec.structs.replace(before, status=ExecutionStatus.COMMITTED, version=before.version + 1)
        last = EndTask(Attempt(attempt.job, committed), Finish(command.token))
        run([last])
    task.outcome, task.error, task.answered = last.outcome, last.error, True
    return True
