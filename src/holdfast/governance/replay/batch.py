"""One batch of a replay: failed jobs become pending again, or new jobs replace old ones.

Invariants: a batch moves only jobs that are unchanged since they were selected, each by a legal transition; every other
job is skipped for one reason; the journal of each job names the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.core.commands import Replay
from holdfast.core.decide import Move
from holdfast.core.errors import InvalidStateTransitionError
from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.core.selection import ReplayMode
from holdfast.engine.events import Transition, of_move
from holdfast.governance.replay.candidates import NO_ERROR, Skip, rules_of
from holdfast.governance.replay.guards import PROCEDURE
from holdfast.governance.replay.pace import records_per_second
from holdfast.governance.replay.record import BatchOutcome, ReplayTerms
from holdfast.store import Submission
from holdfast.store.requests import ENGINE

if TYPE_CHECKING:
    from holdfast.store import Transaction

KEY_BYTES_MAX = 900  # of an old key; the new one is a little longer
# What a new job has of the one that it replaces: all that a caller sets, but for what is decided anew.
_COPIED = ({*Submission.__struct_fields__} & {*Job.__struct_fields__}) - {
    "payload", "key", "operation_version", "run_at", "replaces",
}  # fmt: skip
_REFUSALS = {"race": Skip.CONFLICT, "attempts_exhausted": Skip.ATTEMPTS_EXCEEDED}


class Batch:
    """One batch in one transaction."""

    def __init__(self, transaction: Transaction, terms: ReplayTerms, run_id: str, actor: str, reason: str) -> None:
        self._transaction, self._terms, self._run_id, self._actor = transaction, terms, run_id, actor
        self._move_reason = f"{PROCEDURE} {run_id}: {reason}"
        self._rules = rules_of(transaction, terms.selection.mode, terms.policy)
        self._skipped: dict[str, list[int]] = {}
        self.transitions: list[Transition] = []

    def make(self, job_ids: Sequence[int], versions: Mapping[int, int], throttled: dict[str, int]) -> BatchOutcome:
        """Replay or replace these jobs, if they still have these versions, and return the outcome."""
        replaced = self._transaction.replay.replaced_by(job_ids) if self._rules.replaces else {}
        chosen: list[Job] = []
        for job in self._transaction.jobs.get_many(job_ids):
            skip = _changed(job, versions[job.job_id]) or self._rules.skip(job, replaced=job.job_id in replaced)
            if skip is None:
                chosen.append(job)
            else:
                self._skip(skip, job)
        made = self._replace(chosen) if self._rules.replaces else {}
        moved = [] if self._rules.replaces else self._replay(chosen)
        touched = [job for job in chosen if job.job_id in made] or moved
        return BatchOutcome(
            replayed=[job.job_id for job in moved],
            replaced=made,
            skipped=self._skipped,
            queues=dict(Counter(job.queue for job in touched)),
            errors=dict(Counter(job.last_error_code or NO_ERROR for job in touched)),
            throttled=throttled,
        )

    def _skip(self, skip: Skip, job: Job) -> None:
        self._skipped.setdefault(skip, []).append(job.job_id)

    def _replay(self, jobs: Sequence[Job]) -> list[Job]:
        """Move failed jobs to pending and return those that moved; those of a backfill become due one by one."""
        mode, policy = self._terms.selection.mode, self._terms.policy
        now, due = self._transaction.now(), self._transaction.due_now()
        apart_s = 1 / records_per_second(mode, policy) if mode is ReplayMode.BACKFILL else 0.0
        rulings: list[tuple[Job, object]] = [
            (job, Replay(self._terms.replay_reason, due + timedelta(seconds=n * apart_s))) for n, job in enumerate(jobs)
        ]
        answers = self._transaction.rulings.rule(rulings, actor=self._actor, reason=self._move_reason)
        moved: list[Job] = []
        for job, answer in zip(jobs, answers, strict=True):
            if isinstance(answer, Move):
                moved.append(job)
                self.transitions.extend(of_move(job, answer, now, actor=self._actor))
            elif answer.code in _REFUSALS:
                self._skip(_REFUSALS[answer.code], job)
            else:  # a transition that is not legal: the whole batch is rolled back
                context = {"job_id": job.job_id, "refusal": answer.code}
                raise InvalidStateTransitionError(answer.message, next_step=answer.next_step, context=context)
        return moved

    def _replace(self, jobs: Sequence[Job]) -> dict[int, int]:
        """Submit a new job for each old one, with the version in force; return the new id by the old one."""
        submissions = [
            Submission(
                payload=job.payload or "null",
                key=_new_key(job, self._run_id),
                operation_version=self._rules.version_of(job.operation) or job.operation_version,
                replaces=job.job_id,
                by_engine=job.client == ENGINE,
                **{name: getattr(job, name) for name in _COPIED},
            )
            for job in jobs
        ]
        made: dict[int, int] = {}
        admissions = self._transaction.jobs.submit(submissions, actor=self._actor, reason=self._move_reason)
        for job, admission in zip(jobs, admissions, strict=True):
            if admission.is_new:
                made[job.job_id] = admission.job_id
            else:
                self._skip(Skip.ALREADY_REPLACED, job)
        return made


def _changed(job: Job, version: int) -> Skip | None:
    """Return why a job that has changed since it was selected is skipped, or None if it has not changed."""
    if job.version == version:
        return None
    return Skip.REPLAY_HIT if job.state is JobState.SUCCEEDED else Skip.STATE_CHANGED


def _new_key(job: Job, run_id: str) -> str:
    """Return the key of a new job: the old key, or the old id if the key is long, with the id of the run."""
    old = job.key if job.key is not None and len(job.key.encode()) <= KEY_BYTES_MAX else str(job.job_id)
    return f"{old}#{run_id}"
