"""The verbs that write: each takes a set, decides with `core.decide`, and writes with the guards in the WHERE.

Invariants: a verb writes all of its accepted moves or, by an exception, nothing; zero rows is a refusal, never an
error swallowed; a job moves only together with the execution that moved it, in one transaction; states and events come
from the machines, never from these texts; the message of an error is written only as `core.redaction` leaves it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from operator import itemgetter
from typing import Any

import msgspec

from holdfast.core.commands import Expire, Finish, Release, Replay, Submit
from holdfast.core.decide import Move, Refused, Step, decide, step_of
from holdfast.core.errors import IdempotencyConflictError, UnknownOperationError, invariant
from holdfast.core.machine import Path
from holdfast.core.machines import EXECUTION, JOB, ExecutionStatus, JobState
from holdfast.core.records import Attempt, Execution, Job, time_text
from holdfast.core.redaction import redacted
from holdfast.store.effects import Effect
from holdfast.store.requests import Admission, Lease, Submission
from holdfast.store.statements import encoded
from holdfast.store.upkeep import Upkeep

# What the moves of a batch have in common, numbered: most batches have one shape, and a row names its own.
_Shapes = dict[tuple[object, ...], int]


class Transaction(Upkeep):
    """One transaction of the ledger."""

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def submit(
        self, submissions: Sequence[Submission], *, actor: str | None = None, reason: str | None = None
    ) -> list[Admission]:
        """Record work, once for each (client, key); raise on a used key with other work, or an unknown operation.

        Without an actor, each job's client is on record as the one who submitted it.
        """
        self.require_usable(submissions)
        digests = [submission.digest for submission in submissions]
        first: dict[tuple[str, str], int] = {}
        for index, submission in enumerate(submissions):
            if submission.key is not None:
                chosen = first.setdefault((submission.client, submission.key), index)
                _require_same(submission, digests[index], digests[chosen])
        keyless = [index for index, submission in enumerate(submissions) if submission.key is None]
        # One order for all writers, so that two batches with common keys cannot wait for each other.
        to_insert = [index for _, index in sorted(first.items())] + keyless
        born = _birth(JOB.name, decide(None, Submit(), self._store.now()))
        rows = self._run(
            "insert_jobs",
            rows=encoded([self._row(submissions[index], digests[index]) for index in to_insert]),
            state=born.target,
            version=born.edges,
            event=born.event,
            **self._signature(actor, reason),
        )
        if rows:
            self.queues_to_announce.update(submissions[index].queue for index in to_insert)
        return self._admissions(submissions, digests, first, keyless, rows)

    def _row(self, submission: Submission, asked: str) -> list[object]:
        s = submission
        return [
            s.operation, s.operation_version, s.client, s.key, s.queue, s.max_attempts, s.replay_attempts,
            s.priority, time_text(s.run_at) if s.run_at else None, s.payload, asked, s.replaces,
        ]  # fmt: skip

    def _admissions(
        self,
        submissions: Sequence[Submission],
        digests: Sequence[str],
        first: Mapping[tuple[str, str], int],
        keyless: Sequence[int],
        rows: list[tuple[Any, ...]],
    ) -> list[Admission]:
        admitted: dict[int, Admission] = {}
        inserted = {(client, key): job_id for job_id, client, key, _ in rows if key is not None}
        # Rows without a key are all inserted, in order, and ids only grow: position tells which is which.
        anonymous = sorted((job_id, asked) for job_id, _, key, asked in rows if key is None)
        for index, (job_id, asked) in zip(keyless, anonymous, strict=True):
            invariant(asked == digests[index], "a submission came back as another one")
            admitted[index] = Admission(job_id, is_new=True)
        old = [pair for pair in first if pair not in inserted]
        existing = self.jobs_by_key(old) if old else {}
        for pair, index in first.items():
            if pair in inserted:
                admitted[index] = Admission(inserted[pair], is_new=True)
            else:
                job = existing[pair]
                _require_same(submissions[index], digests[index], job.digest)
                admitted[index] = Admission(job.job_id, is_new=False, existing=job)
        return [
            admitted.get(index) or _repeat(admitted[first[submission.client, submission.key or ""]])
            for index, submission in enumerate(submissions)
        ]

    def rule(
        self,
        rulings: Sequence[tuple[Job, object]],
        *,
        actor: str,
        reason: str | None = None,
        move_id: str | None = None,
        grant_id: int | None = None,
    ) -> list[Move | Refused]:
        """Move jobs from outside (retry, replay, quarantine, cancel, release), matching id, state and version."""
        now = self._store.now()
        answers = [_fit(decide(job, command, now)) for job, command in rulings]
        shapes: _Shapes = {}
        rows = {
            index: self._job_row(answer, step_of(answer, JOB.name), _replay_reason(command), shapes)
            for index, ((_, command), answer) in enumerate(zip(rulings, answers, strict=True))
            if isinstance(answer, Move) and answer.steps
        }
        for _, command in rulings:
            if isinstance(command, Release):
                invariant(command.grant_id == grant_id, "a release and its grant are written together")
        signature = self._signature(actor, reason, move_id)
        won = self._write(
            "move_jobs", list(rows.values()), shapes=encoded(list(shapes)), grant_id=grant_id, **signature
        )
        lost = {index for index, row in rows.items() if row[0] not in won}
        self.queues_to_announce.update(job.queue for job, _ in rulings if job.job_id in won)
        return [_raced(rulings[i][0]) if i in lost else answer for i, answer in enumerate(answers)]

    # -- executions ---------------------------------------------------------------------------------------------------

    def claim(self, lease: Lease) -> list[Attempt]:
        """Lease up to n due jobs, highest priority first; each winner gets an execution and a fencing token."""
        queues = encoded(list(dict.fromkeys(lease.queues)))  # named twice, a queue would give its jobs twice
        return self._lease("claim_executions", lease, queues=queues, n=max(lease.n, 0))

    def claim_these(self, job_ids: Iterable[int], lease: Lease) -> list[Attempt]:
        """Lease those of the given jobs that are pending, due, in no paused queue and of no operation switched off."""
        return self._lease("claim_these", lease, rows=encoded(sorted(set(job_ids))))

    def _lease(self, statement: str, lease: Lease, **which: object) -> list[Attempt]:
        job_step = JOB.path("claim", JobState.PENDING)
        birth = EXECUTION.path("begin" if lease.begin else "lease", None)
        until = self._store.lease_until
        signature = self._signature(lease.owner, None)
        signature.pop("reason")
        owner = signature.pop("actor")
        begun = self._run(
            statement,
            status=birth.target,
            version=len(birth.edges),
            event=birth.event,
            owner=owner,
            leases=encoded({name: until(s) for name, s in lease.seconds_by_operation.items()}),
            expires=until(lease.seconds),
            lease_s=lease.seconds,
            begins=lease.begin,
            started=signature["now"] if lease.begin else None,
            **which,
            **signature,
        )
        if not begun:
            return []
        jobs = {
            job.job_id: job
            for job in map(
                self._job,
                self._run(
                    "claim_jobs",
                    rows=encoded([row[1] for row in begun]),
                    source=job_step.source,
                    target=job_step.target,
                    edges=len(job_step.edges),
                    event=job_step.event,
                    owner=owner,
                    **signature,
                ),
            )
        }
        invariant(len(jobs) == len(begun), "a job was leased that could not be claimed")
        alike, moment = self._alike(lease, birth), self._store.moment
        attempts = []
        for exec_id, job_id, begun_at, expires in begun:
            job, at = jobs[job_id], moment(begun_at)
            execution = msgspec.structs.replace(
                alike,
                exec_id=exec_id,
                job_id=job_id,
                attempt=job.attempts,
                lease_token=exec_id,
                lease_expires_at=moment(expires),
                started_at=at if lease.begin else None,
                created_at=at,
                updated_at=at,
            )
            attempts.append(Attempt(job, execution))
        return attempts

    def _alike(self, lease: Lease, birth: Path) -> Execution:
        """Return what the executions of one claim have in common; the rest is filled in for each."""
        now = self._store.now()
        return Execution(
            exec_id=0,
            job_id=0,
            attempt=0,
            status=ExecutionStatus(birth.target),
            version=len(birth.edges),
            lease_owner=lease.owner,
            lease_token=0,
            lease_expires_at=now,
            excused=False,
            error_code=None,
            error_message=None,
            progress=None,
            progress_note=None,
            cancel_asked_at=None,
            started_at=None,
            finished_at=None,
            created_at=now,
            updated_at=now,
        )

    def work(
        self,
        moves: Sequence[tuple[Attempt, object]],
        *,
        actor: str,
        reason: str | None = None,
        now: datetime | None = None,
    ) -> list[Move | Refused]:
        """Carry out commands on attempts: start, commit, finish, complete, fail, give back, expire.

        Each is decided, then written if the execution still has its status, token and lease, and its job with it.
        """
        now = now or self._store.now()
        answers = [_fit(decide(attempt, command, now)) for attempt, command in moves]
        shapes: _Shapes = {}
        rows = {
            index: self._execution_row(answer, step_of(answer, EXECUTION.name), shapes)
            for index, answer in enumerate(answers)
            if isinstance(answer, Move) and answer.steps
        }
        signature = self._signature(actor, reason)
        won = self._write("move_executions", list(rows.values()), shapes=encoded(list(shapes)), **signature)
        lost = {index for index, row in rows.items() if row[0] not in won}
        accepted = [answer for i, answer in enumerate(answers) if i in rows and i not in lost]
        self._move_jobs_of(accepted, signature)
        self._store_results(moves, answers, lost)
        return [_lease_lost(moves[i][0]) if i in lost else answer for i, answer in enumerate(answers)]

    def _move_jobs_of(self, accepted: Sequence[Move | Refused], signature: dict[str, object]) -> None:
        shapes: _Shapes = {}
        rows = [
            self._job_row(move, step, None, shapes)
            for move in accepted
            if isinstance(move, Move)
            for step in move.steps
            if step.machine == JOB.name
        ]
        won = self._write("move_jobs", rows, shapes=encoded(list(shapes)), grant_id=None, **signature)
        invariant(len(won) == len(rows), "an execution ended whose job could not follow")

    def _store_results(
        self, moves: Sequence[tuple[Attempt, object]], answers: Sequence[Move | Refused], lost: set[int]
    ) -> None:
        """Keep the results of executions that commit without finishing; the others go with their job's move."""
        rows = [
            [attempt.job.job_id, answer.result]
            for i, ((attempt, _), answer) in enumerate(zip(moves, answers, strict=True))
            if isinstance(answer, Move) and answer.result is not None and i not in lost and not answer.step(JOB)
        ]
        self._write("store_results", rows)

    def apply(self, effects: Sequence[Effect]) -> None:
        """Apply effects, at or after the commit of the executions that staged them."""
        self._store.apply(self._connection, effects)

    def savepoint(self) -> AbstractContextManager[None]:
        """Return a block whose writes are undone, and no others, if it raises."""
        return self._store.savepoint(self._connection)

    def beat(self, leases: Sequence[tuple[int, int, float]]) -> dict[int, bool]:
        """Extend leases, given as (exec_id, token, seconds).

        Return the executions that are still held, and whether somebody asked to cancel each.
        """
        rows = [[exec_id, token, self._store.lease_until(seconds)] for exec_id, token, seconds in leases]
        held = self._run("beat_executions", rows=encoded(rows), now=self._store.time_parameter())
        return {exec_id: bool(cancel) for exec_id, cancel in held}

    def progress(self, notes: Sequence[tuple[int, int, float, str | None]]) -> set[int]:
        """Note progress, given as (exec_id, token, fraction, note); return the executions that are still held."""
        return self._write("note_progress", [list(note) for note in notes], now=self._store.time_parameter())

    def recover(
        self, *, actor: str, n: int = 1000, at: datetime | None = None, retry_at: datetime | None = None
    ) -> list[tuple[Attempt, Move | Refused]]:
        """End what leases that had expired `at` that time left behind: finish the committed, then expire the rest."""
        rows = self._run("expired_attempts", now=self._time(at), n=n)
        attempts = [self._attempt(row) for row in rows]
        attempts.sort(key=lambda attempt: attempt.execution.status != ExecutionStatus.COMMITTED)
        # The database has found these expired; a clock of ours that lags behind must not contradict it.
        now = max([at or self._store.now(), *(attempt.execution.lease_expires_at for attempt in attempts)])
        moves: list[tuple[Attempt, object]] = [
            (attempt, Finish() if attempt.execution.status == ExecutionStatus.COMMITTED else Expire(retry_at or now))
            for attempt in attempts
        ]
        return list(zip(attempts, self.work(moves, actor=actor, now=now), strict=True))

    def ask_cancel(self, job_id: int) -> bool:
        """Ask the execution that holds a job to stop; return whether there is one."""
        return bool(self._run("ask_cancel", job_id=job_id, now=self._store.time_parameter()))

    def keep_checkpoints(self, attempt: Attempt, values: Mapping[str, str]) -> bool:
        """Keep values for later attempts; return False if the lease is lost."""
        execution = attempt.execution
        kept = self._run(
            "keep_checkpoints",
            exec_id=execution.exec_id,
            token=execution.lease_token,
            rows=encoded(sorted(values.items())),
            now=self._store.time_parameter(),
        )
        return len(kept) == len(values)

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _require_known(self, operations: set[str]) -> None:
        known = self._store.operations
        if not operations <= known.keys():
            # What this transaction sees may yet be rolled back: the store learns it with the commit.
            self.learned.update(self.operations())
        unknown = sorted(operations - known.keys() - self.learned.keys())
        if unknown:
            raise UnknownOperationError(
                f"no process has declared the operation {unknown[0]!r} to this ledger",
                context={"operation": unknown[0]},
            )

    def _write(self, name: str, rows: list[list[object]], **params: object) -> set[int]:
        invariant(len({row[0] for row in rows}) == len(rows), f"{name}: one record cannot take two moves at once")
        # One order for all writers, so that two batches with common rows cannot wait for each other.
        ordered = encoded(sorted(rows, key=itemgetter(0)))
        return {row[0] for row in self._run(name, rows=ordered, **params)} if rows else set()

    def _job_row(self, move: Move, step: Step, replay_reason: str | None, shapes: _Shapes) -> list[object]:
        shape = step.source, step.target, step.edges, step.event, int(move.excused)
        # Why an attempt was excused stays with the attempt: the job has not failed.
        error_code, error_message = (None, None) if move.excused else (move.error_code, move.error_message)
        return [
            step.subject, shapes.setdefault(shape, len(shapes)), step.version,
            time_text(move.run_at) if move.run_at else None, move.result, error_code, error_message,
            move.quarantine_code, replay_reason,
        ]  # fmt: skip

    def _execution_row(self, move: Move, step: Step, shapes: _Shapes) -> list[object]:
        started, finished = step.target == ExecutionStatus.IN_PROGRESS, step.target in EXECUTION.final
        shape = step.source, step.target, step.edges, step.event, int(move.excused), move.lease_live, started, finished
        number = shapes.setdefault(shape, len(shapes))
        return [step.subject, number, move.token, move.error_code, move.error_message]


def _fit(answer: Move | Refused) -> Move | Refused:
    """Return an answer whose message is fit to be written: whoever gave it may have given anything."""
    if isinstance(answer, Refused) or answer.error_message is None:
        return answer
    return msgspec.structs.replace(answer, error_message=redacted(answer.error_message))


def _birth(machine: str, answer: Move | Refused) -> Step:
    invariant(isinstance(answer, Move), "a birth was refused")
    return step_of(answer, machine)


def _replay_reason(command: object) -> str | None:
    return command.replay_reason if isinstance(command, Replay) else None


def _require_same(submission: Submission, asked: str, before: str) -> None:
    if asked != before:
        raise IdempotencyConflictError(
            f"client {submission.client!r} has used the key {submission.key!r} for other work",
            context={"client": submission.client, "key": submission.key},
        )


def _repeat(admission: Admission) -> Admission:
    return Admission(admission.job_id, is_new=False, existing=admission.existing)


def _raced(job: Job) -> Refused:
    return Refused("race", f"job {job.job_id} changed between the decision and the write")


def _lease_lost(attempt: Attempt) -> Refused:
    return Refused("lease_lost", f"execution {attempt.execution.exec_id} is no longer held under this lease")
