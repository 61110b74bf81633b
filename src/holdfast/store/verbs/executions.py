"""Verbs of executions: claim, move and recover sets of attempts, extend their leases, store their checkpoints.

Invariants: a worker's move matches id, status, fencing token and lease; an execution and its job move in the same
transaction; a write that changes zero rows is a refusal; only an attempt with an expired lease is recovered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from holdfast.core.commands import Expire, Finish
from holdfast.core.decide import Move, Refused, Step, decide, step_of
from holdfast.core.errors import invariant
from holdfast.core.machine import Path
from holdfast.core.machines import EXECUTION, JOB, ExecutionStatus, JobState
from holdfast.core.records import Attempt, Execution
from holdfast.store.requests import Lease
from holdfast.store.statements import encoded
from holdfast.store.verbs.base import Shapes, Verbs, WritingVerbs, job_row, redacted_move


class ExecutionReads(Verbs):
    """Reads executions and their checkpoints."""

    def anything_to_check(self) -> bool:
        """Return whether a job runs, an execution is open or a seal exists; otherwise the check at open is skipped."""
        [[found]] = self._run("anything_to_check")
        return bool(found)

    def any_expired(self, at: datetime | None = None) -> bool:
        """Return whether the lease of an open execution has expired; takes no lock."""
        [[found]] = self._run("any_expired", now=self._time(at))
        return bool(found)

    def checkpoints(self, job_id: int) -> dict[str, str]:
        """Return the checkpoints of a job, as JSON text by name."""
        return dict(self._run("checkpoints_of", job_id=job_id))


class ExecutionWrites(ExecutionReads, WritingVerbs):
    """Claims, moves and recovers attempts."""

    def claim(self, lease: Lease) -> list[Attempt]:
        """Lease up to n due jobs, highest priority first; return an attempt with a fencing token for each."""
        queues = encoded(list(dict.fromkeys(lease.queues)))  # without duplicates: each would claim n jobs
        return self._lease("claim_executions", lease, queues=queues, n=max(lease.n, 0))

    def claim_these(self, job_ids: Iterable[int], lease: Lease) -> list[Attempt]:
        """Lease those of the given jobs that are pending and due, and whose queue and operation are not stopped."""
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
        invariant(len(jobs) == len(begun), f"{len(begun)} jobs were leased, but {len(jobs)} were claimed")
        template, moment = self._template(lease, birth), self._store.moment
        attempts = []
        for exec_id, job_id, begun_at, expires in begun:
            job, at = jobs[job_id], moment(begun_at)
            execution = msgspec.structs.replace(
                template,
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

    def _template(self, lease: Lease, birth: Path) -> Execution:
        """Return an execution with the values that all executions of one claim share."""
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

    def move(
        self,
        moves: Sequence[tuple[Attempt, object]],
        *,
        actor: str,
        reason: str | None = None,
        now: datetime | None = None,
    ) -> list[Move | Refused]:
        """Start, commit, finish, complete, fail, give back or expire attempts; return a Move or Refused for each.

        A move is written only if the execution still has the status, token and lease that were read; its job moves
        in the same transaction.
        """
        now = now or self._store.now()
        answers = [redacted_move(decide(attempt, command, now)) for attempt, command in moves]
        shapes: Shapes = {}
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
        shapes: Shapes = {}
        rows = [
            job_row(move, step, None, shapes)
            for move in accepted
            if isinstance(move, Move)
            for step in move.steps
            if step.machine == JOB.name
        ]
        won = self._write("move_jobs", rows, shapes=encoded(list(shapes)), grant_id=None, **signature)
        invariant(len(won) == len(rows), f"{len(rows)} executions ended, but only {len(won)} of their jobs moved")

    def _store_results(
        self, moves: Sequence[tuple[Attempt, object]], answers: Sequence[Move | Refused], lost: set[int]
    ) -> None:
        """Store the results of executions that commit without finishing; other results are part of the job's move."""
        rows = [
            [attempt.job.job_id, answer.result]
            for i, ((attempt, _), answer) in enumerate(zip(moves, answers, strict=True))
            if isinstance(answer, Move) and answer.result is not None and i not in lost and not answer.step(JOB)
        ]
        self._write("store_results", rows)

    def _execution_row(self, move: Move, step: Step, shapes: Shapes) -> list[object]:
        started, finished = step.target == ExecutionStatus.IN_PROGRESS, step.target in EXECUTION.final
        shape = step.source, step.target, step.edges, step.event, int(move.excused), move.lease_live, started, finished
        number = shapes.setdefault(shape, len(shapes))
        return [step.subject, number, move.token, move.error_code, move.error_message]

    def extend_leases(self, leases: Sequence[tuple[int, int, float]]) -> dict[int, bool]:
        """Extend leases, given as (exec_id, token, seconds).

        Return the ids of the executions that are still held, each with whether its cancellation was requested.
        """
        rows = [[exec_id, token, self._store.lease_until(seconds)] for exec_id, token, seconds in leases]
        held = self._run("beat_executions", rows=encoded(rows), now=self._store.time_parameter())
        return {exec_id: bool(cancel) for exec_id, cancel in held}

    def save_progress(self, notes: Sequence[tuple[int, int, float, str | None]]) -> set[int]:
        """Store progress, given as (exec_id, token, fraction, note); return the ids of the executions still held."""
        return self._write("note_progress", [list(note) for note in notes], now=self._store.time_parameter())

    def save_checkpoints(self, attempt: Attempt, values: Mapping[str, str]) -> bool:
        """Store checkpoints for later attempts; return False if the lease is lost."""
        execution = attempt.execution
        stored = self._run(
            "keep_checkpoints",
            exec_id=execution.exec_id,
            token=execution.lease_token,
            rows=encoded(sorted(values.items())),
            now=self._store.time_parameter(),
        )
        return len(stored) == len(values)

    def request_cancel(self, job_id: int) -> bool:
        """Request that the execution that holds a job stops; return whether there is one."""
        return bool(self._run("ask_cancel", job_id=job_id, now=self._store.time_parameter()))

    def recover(
        self, *, actor: str, n: int = 1000, at: datetime | None = None, retry_at: datetime | None = None
    ) -> list[tuple[Attempt, Move | Refused]]:
        """End up to n attempts whose lease expired before `at`: finish the committed ones, then expire the others."""
        rows = self._run("expired_attempts", now=self._time(at), n=n)
        attempts = [self._attempt(row) for row in rows]
        attempts.sort(key=lambda attempt: attempt.execution.status != ExecutionStatus.COMMITTED)
        # The database found these expired. If the clock of this process is behind, use the expiry times instead.
        now = max([at or self._store.now(), *(attempt.execution.lease_expires_at for attempt in attempts)])
        moves: list[tuple[Attempt, object]] = [
            (attempt, Finish() if attempt.execution.status == ExecutionStatus.COMMITTED else Expire(retry_at or now))
            for attempt in attempts
        ]
        return list(zip(attempts, self.move(moves, actor=actor, now=now), strict=True))


def _lease_lost(attempt: Attempt) -> Refused:
    token = attempt.execution.lease_token
    return Refused("lease_lost", f"execution {attempt.execution.exec_id} is no longer held under lease token {token}")
