"""Verbs of jobs: submit them once, and read them.

Invariants: of one client and key there is one job; a submit records all of its jobs, or raises and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from holdfast.core.commands import Submit
from holdfast.core.decide import decide, step_of
from holdfast.core.errors import JobNotFoundError
from holdfast.core.machines import JOB
from holdfast.core.records import Job
from holdfast.store.requests import Admission, Submission, patterns
from holdfast.store.statements import encoded
from holdfast.store.verbs.base import Verbs, WritingVerbs

_birth = step_of(decide(None, Submit(), datetime.min.replace(tzinfo=UTC)), JOB.name)  # it depends on no time
_BORN = {"state": _birth.target, "version": _birth.edges, "event": _birth.event, "gated": False}


class JobReads(Verbs):
    """Reads jobs."""

    def get(self, job_id: int) -> Job:
        """Return one job, or raise JobNotFoundError."""
        found = self.get_many([job_id])
        if not found:
            raise JobNotFoundError(f"there is no job {job_id}", context={"job_id": job_id})
        return found[0]

    def get_many(self, job_ids: Iterable[int]) -> list[Job]:
        """Return the jobs with these ids, without those that do not exist."""
        wanted = [job_id for job_id in job_ids if job_id.bit_length() < 64]  # a database has no greater id
        return [self._job(row) for row in self._run("get_jobs", rows=encoded(wanted))] if wanted else []

    def by_key(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Job]:
        """Return the jobs that were submitted under these (client, key) pairs."""
        rows = self._run("jobs_by_key", rows=encoded(keys))
        return {(job.client, job.key): job for job in map(self._job, rows) if job.key is not None}

    def outlook(self, queues: Sequence[str]) -> tuple[datetime | None, bool]:
        """Return the earliest `run_at` of the pending jobs of these queues, None if there is none.

        Also return whether the ledger has jobs that `scheduling.flow` moves.
        """
        [(moment, behind, limited)] = self._run("next_due", queues=encoded(queues), now=self._store.time_parameter())
        self._store.limited = bool(limited)
        due_at = None if moment is None else self._store.moment(moment)
        return self._session.slots.next_due(due_at) if limited else due_at, bool(behind)


class JobWrites(JobReads, WritingVerbs):
    """Submits jobs."""

    def submit(
        self, submissions: Sequence[Submission], *, actor: str | None = None, reason: str | None = None
    ) -> list[Admission]:
        """Record jobs, one for each (client, key), and return an admission for each submission.

        Raise IdempotencyConflictError if a key was used for other work, UnknownOperationError for an operation that is
        not declared, RegistryError for one that is not in force, and QueueFullError if a queue is at its limit. Without
        an actor, the journal names the client.
        """
        if any(submission.flow is not None for submission in patterns(submissions)):
            return self._session.flow.submit(submissions, actor=actor, reason=reason)
        self._session.operations.require_usable(submissions)
        born = {**_BORN, **self._signature(actor, reason)}
        if len(submissions) == 1:
            return [self._submit_one(submissions[0], born)]
        from holdfast.store.verbs.bulk import submit_bulk  # noqa: PLC0415 - of several jobs

        return submit_bulk(self, self._session, submissions, born) if submissions else []

    def _submit_one(self, submission: Submission, born: dict[str, object]) -> Admission:
        digest = submission.digest
        rows = self._run("insert_job", **submission.fields(digest), **born)
        if rows:
            self._session.queues_to_announce.add(submission.queue)
            return Admission(rows[0][0], is_new=True)
        return self._left_out([(submission, digest)], born)[0]

    def _left_out(self, rest: Sequence[tuple[Submission, str]], born: dict[str, object]) -> list[Admission]:
        """Return the admissions of what was not inserted: because its key is in use, or for the gate of the ledger."""
        from holdfast.store.verbs.repeats import admissions  # noqa: PLC0415 - most work is new

        return admissions(self, self._session, rest, born)
