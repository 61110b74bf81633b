"""Verbs of rulings: moves of a job that no attempt makes (retry, replay, quarantine, cancel, release).

Invariants: a verb writes all of its accepted moves, or raises and writes nothing; a write that changes zero rows is
returned as a refusal; a move matches id, state and version; an error message is redacted before it is written.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.commands import Replay
from holdfast.core.decide import Move, Refused, Step, decide, step_of
from holdfast.core.errors import invariant
from holdfast.core.machines import JOB
from holdfast.core.records import Job, time_text
from holdfast.store.statements import encoded
from holdfast.store.verbs.base import Shapes, WritingVerbs, redacted_move


class RulingWrites(WritingVerbs):
    """Moves jobs that are not running."""

    def rule(
        self,
        rulings: Sequence[tuple[Job, object]],
        *,
        actor: str,
        reason: str | None = None,
        move_id: str | None = None,
        grant_id: int | None = None,
    ) -> list[Move | Refused]:
        """Retry, replay, quarantine, cancel or release jobs, matching id, state and version.

        Return a Move or Refused for each; Refused with the code `race` if the job has changed since it was read.
        """
        now = self._store.now()
        known: dict[str, str] = {}
        answers = [redacted_move(decide(job, command, now), known) for job, command in rulings]
        shapes: Shapes = {}
        rows = {
            index: _ruling_row(answer, step_of(answer, JOB.name), command, shapes)
            for index, ((_, command), answer) in enumerate(zip(rulings, answers, strict=True))
            if isinstance(answer, Move) and answer.steps
        }
        for _, command in rulings:
            named = getattr(command, "grant_id", grant_id)
            invariant(named == grant_id, f"a release names grant {named}, not {grant_id}")
        signature = self._signature(actor, reason, move_id)
        won = self._write(
            "rule_jobs", list(rows.values()), shapes=encoded(list(shapes)), grant_id=grant_id, **signature
        )
        lost = {index for index, row in rows.items() if row[0] not in won}
        self._session.queues_to_announce.update(job.queue for job, _ in rulings if job.job_id in won)
        return [_race_refusal(rulings[i][0]) if i in lost else answer for i, answer in enumerate(answers)]


def _ruling_row(move: Move, step: Step, command: object, shapes: Shapes) -> list[object]:
    """Return the row of `rule_jobs` for a move of a job that no attempt makes; its shape is added to `shapes`."""
    shape = step.source, step.target, step.edges, step.event
    return [
        step.subject, shapes.setdefault(shape, len(shapes)), step.version,
        time_text(move.run_at) if move.run_at else None, move.error_code, move.error_message, move.quarantine_code,
        command.replay_reason if isinstance(command, Replay) else None,
    ]  # fmt: skip


def _race_refusal(job: Job) -> Refused:
    return Refused("race", f"another process changed job {job.job_id} (read at version {job.version}); read it again")
