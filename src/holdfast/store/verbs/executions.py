"""Verbs of executions: claim and move sets of attempts, and extend their leases.

Invariants: a worker's move matches id, owner, fencing token, status and lease; an attempt and its job are one row, so
they move in one write; a write that changes zero rows is a refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.commands import Complete
from holdfast.core.decide import COMPLETED, Move, Refused, decide, step_of
from holdfast.core.errors import invariant
from holdfast.core.machines import EXEC_IDS, EXECUTION, JOB, ExecutionStatus, JobState
from holdfast.core.records import Attempt, Execution, Job, time_text
from holdfast.store.requests import Lease
from holdfast.store.statements import encoded
from holdfast.store.verbs.base import Shapes, Verbs, WritingVerbs, redacted_move

_OPERATION, _VERSION, _PAYLOAD, _ATTEMPTS, _LOST = map(
    Job.__struct_fields__.index, ("operation", "operation_version", "payload", "attempts", "lost")
)
if TYPE_CHECKING:
    from holdfast.store.verbs.long_payloads import LongPayloads

# What `complete_jobs` writes and matches.
DONE: dict[str, object] = {
    "source": COMPLETED.steps[0].source, "status": COMPLETED.steps[0].target, "state": COMPLETED.steps[1].target,
    "edges": COMPLETED.steps[1].edges, "event": COMPLETED.steps[1].event,
}  # fmt: skip


class ExecutionReads(Verbs):
    """Reads executions."""

    def anything_to_check(self) -> bool:
        """Return whether a job runs, an execution is open or a seal exists; otherwise the check at open is skipped."""
        [[found]] = self._run("anything_to_check")
        return bool(found)

    def any_expired(self, at: datetime | None = None) -> tuple[bool, bool]:
        """Return whether the lease of an open execution has expired, and whether `scheduling.flow` has jobs to move.

        Also note whether claims must compare priorities or queues. It takes no lock.
        """
        [(leases, behind, fair)] = self._run("any_expired", now=self._time(at))
        self._store.fair = bool(fair)
        return bool(leases), bool(behind)


class ExecutionWrites(ExecutionReads, WritingVerbs):
    """Claims and moves attempts."""

    def claim(self, lease: Lease) -> list[Attempt]:
        """Lease up to n due jobs, highest priority first; return an attempt with a fencing token for each."""
        if self._store.limited:
            return self._session.slots.claim(lease)
        if self._store.fair:
            return self._session.fair.claim(lease)
        # Without duplicates: each would claim n jobs.
        queues = encoded(list(dict.fromkeys(lease.queues)))
        durable = lease.durable or not self._session.alone  # not synced is a whole transaction, so only a claim
        return self._lease("claim_jobs", lease, queues=queues, n=max(lease.n, 0), durable=durable)

    def claim_these(self, job_ids: Iterable[int], lease: Lease, *, limited: bool = False) -> list[Attempt]:
        """Lease those of the given jobs that are pending and due, and whose queue and operation are not stopped.

        `limited`: they were chosen within the limits of the ledger.
        """
        won = self._lease("claim_these", lease, rows=encoded(sorted(set(job_ids))), limited=limited)
        return won if won or limited else self._session.slots.claim_these(job_ids, lease)

    def _lease(self, statement: str, lease: Lease, **which: object) -> list[Attempt]:
        return self._attempts(self._claim(self._run, statement, lease, **which), lease)

    def _claim(
        self, run: Callable[..., list[tuple[Any, ...]]], statement: str, lease: Lease, **which: object
    ) -> list[tuple[Any, ...]]:
        path = JOB.path("claim", JobState.PENDING)
        begun = EXECUTION.path("begin" if lease.begin else "lease", None)
        until, own = self._store.lease_until, lease.seconds_by_operation
        signature = self._signature(lease.owner, None)
        rows = run(
            statement,
            state=path.target,
            edges=len(path.edges),
            event=path.event,
            status=begun.target,
            owner=lease.owner,
            leases=encoded({name: until(s) for name, s in own.items()}) if own else None,
            expires=until(lease.seconds),
            lease_s=lease.seconds,
            begins=lease.begin,
            started=signature["now"] if lease.begin else None,
            token=int(self._store.now().timestamp() * 1_000_000),
            payload_max=lease.payload_max,
            **which,
            **signature,
        )
        if rows and self._store.limited is None:
            self._store.limited = False  # a plain claim gives out nothing while a limit is set
        if rows and len(rows[0]) == 1:  # SQLite returns ids only
            ids = encoded([job_id for (job_id,) in rows])
            rows = self._run("claimed_jobs", rows=ids, payload_max=lease.payload_max)
        return rows

    def _attempts(self, rows: Sequence[tuple[Any, ...]], lease: Lease) -> list[Attempt]:
        begun = EXECUTION.path("begin" if lease.begin else "lease", None)
        status, version, owner = ExecutionStatus(begun.target), len(begun.edges), lease.owner

        payloads: LongPayloads | None = None
        if lengths := {row[0]: row[-1] for row in rows if row[-1] is not None}:
            from holdfast.store.verbs.long_payloads import LongPayloads  # noqa: PLC0415 - most payloads are short

            payloads = LongPayloads(self._store, lengths)

        def records(row: Sequence[Any], whole: bool) -> tuple[Job, Execution]:  # noqa: FBT001 - see Attempt.claimed
            job = self._job(row[:-3])
            if whole and payloads:
                job = msgspec.structs.replace(job, payload=payloads.of(job.job_id))
            at = job.last_attempt_at or job.updated_at
            execution = Execution(
                job.job_id * EXEC_IDS + job.attempts, job.job_id, job.attempts, status, version, owner, row[-3],
                self._store.moment(row[-2]), False, None, None, None, None, None, at if lease.begin else None, None, at,
                job.updated_at,
            )  # fmt: skip
            return job, execution

        return [
            Attempt.claimed(
                (row[0], row[_OPERATION], row[_VERSION], row[_PAYLOAD], row[_LOST]),
                (row[0] * EXEC_IDS + row[_ATTEMPTS], owner, row[-3]),
                partial(records, row),
            )
            for row in rows
        ]

    def move(
        self,
        moves: Sequence[tuple[Attempt, object]],
        *,
        actor: str,
        reason: str | None = None,
        now: datetime | None = None,
    ) -> list[Move | Refused]:
        """Start, commit, finish, complete, fail, give back or expire attempts; return a Move or Refused for each.

        A move is written only if the attempt still has the owner, token, status and lease that were read.
        """
        distinct = {(attempt.job_id, attempt.token) for attempt, _ in moves}
        invariant(len(distinct) == len(moves), "a batch has two moves of one attempt")
        # Of two attempts at one job only that with the greater token can hold it.
        newest = dict(sorted(distinct))
        stale: set[int] = set()
        if len(newest) < len(moves):
            stale = {i for i, (attempt, _) in enumerate(moves) if attempt.token != newest[attempt.job_id]}
        now = now or self._store.now()
        signature = self._signature(actor, reason)
        fresh = [each for i, each in enumerate(moves) if i not in stale] if stale else moves
        completed = self._complete(fresh, signature)
        known: dict[str, str] = {}
        answers = [
            COMPLETED
            if attempt.job_id in completed and i not in stale
            else redacted_move(decide(attempt, command, now), known)
            for i, (attempt, command) in enumerate(moves)
        ]
        shapes: Shapes = {}
        rows = {
            i: _attempt_row(attempt, answer, shapes)
            for i, ((attempt, _), answer) in enumerate(zip(moves, answers, strict=True))
            if answer is not COMPLETED and isinstance(answer, Move) and answer.steps and i not in stale
        }
        won = self._write("move_attempts", list(rows.values()), shapes=encoded(list(shapes)), **signature)
        if self._store.limited is not False:
            self._session.slots.ended(completed | won)
        lost = {i for i, row in rows.items() if row[0] not in won} | {i for i in stale if isinstance(answers[i], Move)}
        if lost:
            unwritten = {i: moves[i] for i in lost}
            again = self._session.recovery.cancelled(unwritten, actor=actor, reason=reason, now=now)
            for i, answer in again.items():
                answers[i] = answer
                lost.discard(i)
        return [_lease_lost(moves[i][0]) if i in lost else answer for i, answer in enumerate(answers)]

    def _complete(self, moves: Sequence[tuple[Attempt, object]], signature: dict[str, object]) -> set[int]:
        """Complete the attempts that their own worker completes; return the ids of the jobs that have succeeded."""
        owner = signature["actor"]
        rows = sorted([
            (attempt.job_id, attempt.token, command.result)
            for attempt, command in moves
            if type(command) is Complete and command.token == attempt.token and attempt.owner == owner
        ])  # fmt: skip
        if not rows:
            return set()
        return self._succeeded(rows, self._store.complete_jobs(self._session, rows, **DONE, **signature), signature)

    def _succeeded(self, rows: Sequence[tuple[int, int, str]], n: int, signature: dict[str, object]) -> set[int]:
        """Return the ids of the jobs that have succeeded, given those that were to be completed and how many were."""
        ids = {job_id for job_id, _, _ in rows}
        if n == len(rows):
            return ids
        return {
            job_id for (job_id,) in self._run("moved_jobs", rows=encoded(sorted(ids)), move_id=signature["move_id"])
        }

    def extend_leases(self, leases: Sequence[tuple[Execution, float]]) -> dict[int, bool]:
        """Extend leases to the given seconds from now.

        Return the ids of the executions that are still held, each with whether its cancellation was requested.
        """
        until = self._store.lease_until
        rows = sorted([e.job_id, e.lease_token, e.lease_owner, until(seconds)] for e, seconds in leases)
        held = self._run("extend_leases", rows=encoded(rows), now=self._store.time_parameter())
        return {exec_id: bool(cancel) for exec_id, cancel in held}


def _attempt_row(attempt: Attempt, move: Move, shapes: Shapes) -> list[object]:
    """Return the row of `move_attempts` for a move; its shape is added to `shapes`."""
    step, job = step_of(move, EXECUTION.name), move.step(JOB)
    status = None if step.target == ExecutionStatus.ABORTED else step.target
    state, edges, event = (job.target, job.edges, job.event) if job else (JobState.RUNNING, 0, step.event)
    shape = step.source, state, status, edges, event, int(move.excused), int(move.lost), move.lease_live
    return [
        attempt.job.job_id, shapes.setdefault(shape, len(shapes)), move.token, attempt.execution.lease_owner,
        time_text(move.run_at) if move.run_at else None, move.result, move.error_code, move.error_message,
        move.quarantine_code,
    ]  # fmt: skip


def _lease_lost(attempt: Attempt) -> Refused:
    token = attempt.execution.lease_token
    return Refused("lease_lost", f"execution {attempt.execution.exec_id} is no longer held under lease token {token}")
