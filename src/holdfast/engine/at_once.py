"""What PostgreSQL writes without BEGIN and COMMIT, by statements that commit themselves: one round trip, not four.

Invariants: only a lone submit, a lone claim, and a turn of a worker (plain ends, or these and the next claim) are
written so, a turn by two statements that are sent and commit together; an end that was not written is written again,
and then decided, in a transaction; nothing that is planned to happen between a statement and COMMIT is left out,
because then nothing is written here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from holdfast.core.commands import Complete
from holdfast.core.decide import COMPLETED
from holdfast.core.errors import StoreError
from holdfast.engine.committer import Written, write_sets
from holdfast.engine.tasks import ClaimTask, EndTask, SubmitTask, Task
from holdfast.store import Store, Transaction


class Body(Protocol):
    """Writes tasks in a transaction, and records each set of them with its outcomes."""

    def __call__(self, transaction: Transaction, written: Written, /) -> None: ...


class Write(Protocol):
    """Runs a body as the committer does; `lone`: its statement commits itself."""

    def __call__(self, tasks: Sequence[Task[Any]], body: Body, *, lone: bool) -> StoreError | None: ...


def write_at_once(tasks: Sequence[Task[Any]], store: Store[Any], write: Write) -> Sequence[Task[Any]]:
    """Write these tasks if one round trip can; return those that are still to be written."""
    if store.limited or store.fair:
        return tasks  # here a claim takes several statements
    if len(tasks) == 1 and (isinstance(tasks[0], ClaimTask) or _is_plain_submit(tasks[0], store)):
        write(tasks, partial(write_sets, tasks), lone=True)
        return ()
    turn = _Turn(tasks)
    if store.limited is None or not turn.is_plain:
        return tasks
    return turn.rest if write(tasks, turn, lone=True) is None else ()


def _is_plain_submit(task: Task[Any], store: Store[Any]) -> bool:
    """Return whether one statement submits it.

    Of several jobs, a conflict of one must undo the others; one that is more than plain takes several statements.
    """
    if not isinstance(task, SubmitTask) or store.governed is not False:
        return False
    return len(task.submissions) == 1 and task.submissions[0].flow is None


class _Turn:
    """The ends of some attempts and perhaps a claim, of one worker."""

    def __init__(self, tasks: Sequence[Task[Any]]) -> None:
        self._claim = tasks[-1] if isinstance(tasks[-1], ClaimTask) else None
        self._tasks = tasks[:-1] if self._claim else tasks
        self.rest: list[Task[Any]] = []  # the ends that were not written

    @property
    def is_plain(self) -> bool:
        """Whether all ends are completions of one worker, with nothing else to write."""
        plain = [
            task.attempt.job_id
            for task in self._tasks
            if isinstance(task, EndTask)
            and type(task.command) is Complete
            and task.command.token == task.attempt.token
            and not (task.effects or task.followups or task.traceback or task.kept)
        ]
        if not plain or len(set(plain)) < len(self._tasks):
            return False
        owners = {task.attempt.owner for task in self._tasks if isinstance(task, EndTask)}
        return len(owners | ({self._claim.lease.owner} if self._claim else set())) == 1

    def __call__(self, transaction: Transaction, written: Written, /) -> None:
        ends = [task for task in self._tasks if isinstance(task, EndTask)]
        rows = [(task.attempt.job_id, task.attempt.token, task.command.result) for task in ends]  # type: ignore[attr-defined]  # `is_plain` says so
        lease = self._claim.lease if self._claim else None
        succeeded, claimed = transaction.turns.turn(rows, lease, owner=ends[0].attempt.owner)
        done = [task for task in ends if task.attempt.job_id in succeeded]
        self.rest = [task for task in ends if task.attempt.job_id not in succeeded]
        written.append((list(done), [COMPLETED] * len(done)))
        if self._claim:
            written.append(([self._claim], [claimed]))
