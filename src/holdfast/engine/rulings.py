"""Rulings: what an operator decides about a job, outside of any attempt.

Invariants: a ruling is applied to a job as it was read, or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from holdfast.core.decide import Move, Refused
from holdfast.core.errors import InvalidStateTransitionError, StateTransitionRaceError
from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.engine.tasks import CallTask
from holdfast.store import Transaction

if TYPE_CHECKING:
    from holdfast.engine.events import Transition
    from holdfast.engine.ledger import Ledger


class RuleTask(CallTask):
    """A ruling on a job as it was read; `rule` returns the Move, or why it was Refused."""

    def __init__(self, job: Job, rule: Callable[[Transaction], Move | Refused], *, actor: str) -> None:
        super().__init__(rule, ("during_ruling", "after_ruling"))
        self.job = job
        self.actor = actor

    def events(self, at: datetime) -> Iterator[Transition]:
        from holdfast.engine.events import of_move  # noqa: PLC0415 - only in a process with a subscriber

        if isinstance(self.outcome, Move):
            yield from of_move(self.job, self.outcome, at, actor=self.actor)


def rule(ledger: Ledger, job: Job, command: object, *, actor: str, reason: str | None) -> JobState:
    """Apply a command to a job as it was read; return its state. See `Ledger.rule`."""
    task = RuleTask(job, lambda tx: tx.jobs.rule([(job, command)], actor=actor, reason=reason)[0], actor=actor)
    ledger.perform_tasks([task])
    answer: Move | Refused = task.result()
    if isinstance(answer, Refused):
        race = answer.code == "race"
        error = StateTransitionRaceError if race else InvalidStateTransitionError
        context = {"job_id": job.job_id, "refusal": answer.code}
        raise error(answer.message, next_step=answer.next_step, context=context)
    return JobState(answer.steps[0].target) if answer.steps else job.state
