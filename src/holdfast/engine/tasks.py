"""Tasks: the kinds of things that a process writes, each with how it is written and which events come of it.

Invariants: a task writes a whole set of its kind at once, and may write it again after a rollback; the sets of one
transaction are written in the order of `Task.order`, so that a claim sees what was submitted and ended before it; a
task describes itself only after it is durable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdfast.core.commands import Commit, Complete, Finish
from holdfast.core.decide import Move, Refused
from holdfast.core.records import Attempt
from holdfast.store import Admission, Lease, Submission, Transaction
from holdfast.store.requests import Effect

if TYPE_CHECKING:
    from holdfast.engine.events import Transition
    from holdfast.store.watch import Watch

T = TypeVar("T")

Points = tuple[str, str]


class Task(ABC, Generic[T]):
    """One thing to write. After `Committer.perform`, either `outcome` or `error` is set."""

    order = 0  # of the sets in one transaction; all kinds of one order share one `write`
    points: Points | None = None  # where a crash can be planned: with the task written, and with it durable
    outcome: T | None = None
    error: Exception | None = None
    answered = False
    repeatable = True  # may it be run again when COMMIT's answer was lost?

    def succeeded(self, outcome: T) -> None:
        self.outcome, self.error, self.answered = outcome, None, True

    def failed(self, error: Exception) -> None:
        self.error, self.answered = error, True

    def result(self) -> T:
        """Return the outcome, or raise what went wrong."""
        if self.error is not None:
            raise self.error
        return self.outcome  # type: ignore[return-value]  # set with every durable commit

    @staticmethod
    @abstractmethod
    def write(tasks: Sequence[Any], transaction: Transaction) -> Sequence[Any]:
        """Write a set of tasks of this kind; return the outcome of each."""

    def events(self, at: datetime) -> Iterator[Transition]:  # noqa: ARG002 - a kind of task that makes none
        """Yield the transitions that this task has made, in the order they were written."""
        return iter(())


class SubmitTask(Task[list[Admission]]):
    """Submissions that are recorded together or not at all."""

    order = 1
    points = ("during_submit", "after_submit")

    def __init__(self, submissions: Sequence[Submission]) -> None:
        self.submissions = submissions

    @property
    def repeatable(self) -> bool:  # type: ignore[override]  # it depends on the submissions
        return all(submission.key is not None for submission in self.submissions)

    @staticmethod
    def write(tasks: Sequence[SubmitTask], transaction: Transaction) -> list[list[Admission]]:
        return _submitted([task.submissions for task in tasks], transaction)

    def events(self, at: datetime) -> Iterator[Transition]:
        from holdfast.engine.events import of_submissions  # noqa: PLC0415 - only in a process with a subscriber

        return of_submissions(self.submissions, self.result(), at)


class CallTask(Task[Any]):
    """Anything else that is written, as a function of the transaction; it must be safe to repeat."""

    order = 2

    def __init__(self, fn: Callable[[Transaction], Any], points: Points | None = None) -> None:
        self.fn = fn
        self.points = points

    @staticmethod
    def write(tasks: Sequence[CallTask], transaction: Transaction) -> list[Any]:
        return [task.fn(transaction) for task in tasks]


class EndTask(Task[Move | Refused]):
    """A command that moves one attempt, with the effects and follow-ups that go with it."""

    order = 3
    admissions: Sequence[Admission] = ()  # of the follow-ups
    traceback: str | None = None  # of a failure
    kept: Mapping[str, str] | None = None  # checkpoints to store with the end
    losses = 0  # how often the connection was lost while only this was written

    def __init__(
        self, attempt: Attempt, command: object, effects: Sequence[Effect] = (), followups: Sequence[Submission] = ()
    ) -> None:
        self.attempt = attempt
        self.command = command
        self.effects = effects
        self.followups = followups

    @property
    def points(self) -> Points | None:  # type: ignore[override]  # it depends on the command
        if isinstance(self.command, Complete | Commit):
            return "before_commit", "after_commit"
        return None if isinstance(self.command, Finish) else ("during_failure", "after_failure")

    @staticmethod
    def write(tasks: Sequence[EndTask], transaction: Transaction) -> list[Move | Refused]:
        answers: list[Move | Refused] = []
        kept = [(task.attempt, task.kept) for task in tasks if task.kept]
        if kept:  # first: they are stored under the lease
            transaction.notes.save_all_checkpoints(kept)
        for owner, owned in groupby(tasks, _owner):
            moves = [(task.attempt, task.command) for task in owned]
            answers += transaction.executions.move(moves, actor=owner)
        more = [
            task for task, answer in zip(tasks, answers, strict=True)
            if (task.effects or task.followups or task.traceback) and isinstance(answer, Move)
        ]  # fmt: skip
        staged = [task.effects for task in more if task.effects]
        if staged:
            transaction.apply(staged)
        leading = [task for task in more if task.followups]
        if leading:
            admissions = _submitted([task.followups for task in leading], transaction)
            for task, admitted in zip(leading, admissions, strict=True):
                task.admissions = admitted
        if any(task.traceback for task in more):
            from holdfast.engine.worker.traces import keep  # noqa: PLC0415 - most attempts do not fail

            keep(more, transaction)
        return answers

    def events(self, at: datetime) -> Iterator[Transition]:
        from holdfast.engine.events import of_move, of_submissions  # noqa: PLC0415 - only in a process with a subscriber

        if isinstance(self.outcome, Move):
            yield from of_move(self.attempt.job, self.outcome, at, self.attempt.execution)
            yield from of_submissions(self.followups, self.admissions, at)


class ClaimTask(Task[list[Attempt]]):
    """A request for leases; `watch`, of its worker, need not report what was written up to the end of the claim."""

    order = 4
    points = ("during_claim", "after_claim")

    def __init__(self, lease: Lease, watch: Watch | None = None) -> None:
        self.lease = lease
        self.watch = watch

    @staticmethod
    def write(tasks: Sequence[ClaimTask], transaction: Transaction) -> list[list[Attempt]]:
        transaction.watches += [task.watch for task in tasks if task.watch is not None]
        return [transaction.executions.claim(task.lease) for task in tasks]

    def events(self, at: datetime) -> Iterator[Transition]:
        from holdfast.engine.events import of_claims  # noqa: PLC0415 - only in a process with a subscriber

        return of_claims(self.result(), at)


def _owner(task: EndTask) -> str:
    return task.attempt.owner


def _submitted(groups: Sequence[Sequence[Submission]], transaction: Transaction) -> list[list[Admission]]:
    """Submit groups of submissions as one set; return the admissions of each group."""
    if len(groups) == 1:
        return [transaction.jobs.submit(groups[0])]
    admissions = iter(transaction.jobs.submit([submission for group in groups for submission in group]))
    return [[next(admissions) for _ in group] for group in groups]
