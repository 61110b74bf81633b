"""The recovery of attempts whose lease has expired, and of ends that a request to cancel has changed.

Invariants: only an attempt with an expired lease is ended; what has committed is finished, never run again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from holdfast.core.commands import Expire, Finish
from holdfast.core.decide import LEASE_EXPIRED, Move, Refused
from holdfast.core.machines import JOB, ExecutionStatus, JobState
from holdfast.core.records import LOSSES_EXCUSED, Attempt
from holdfast.store.statements import encoded
from holdfast.store.verbs.executions import ExecutionWrites


class RecoveryWrites(ExecutionWrites):
    """Ends attempts whose lease has expired, and those that a request to cancel has changed."""

    def recover(
        self,
        *,
        actor: str,
        n: int = 1000,
        at: datetime | None = None,
        retry_at: datetime | None = None,
        rare: bool = False,
    ) -> list[tuple[Attempt, Move | Refused]]:
        """End up to n attempts whose lease expired before `at`: finish the committed ones, then expire the others.

        `rare`: only those that `expire` leaves out.
        """
        rows = self._run("expired_attempts", now=self._time(at), n=n, rare=rare, losses=LOSSES_EXCUSED)
        attempts = [self._attempt(row) for row in rows]
        attempts.sort(key=lambda attempt: attempt.execution.status != ExecutionStatus.COMMITTED)
        # The database found these expired. If the clock of this process is behind, use the expiry times instead.
        now = max([at or self._store.now(), *(attempt.execution.lease_expires_at for attempt in attempts)])
        moves: list[tuple[Attempt, object]] = [
            (attempt, Finish() if attempt.execution.status == ExecutionStatus.COMMITTED else Expire(retry_at or now))
            for attempt in attempts
        ]
        return list(zip(attempts, self.move(moves, actor=actor, now=now), strict=True))

    def expire(self, *, actor: str, n: int, at: datetime, retry_at: datetime | None = None) -> list[int]:
        """Expire up to n attempts as `recover` does, without reading them; return the ids of the jobs, which are due.

        Left out are attempts that have committed, that are to be cancelled, or whose job has lost its lease too often.
        """
        path = JOB.path("expire", JobState.RUNNING)
        rows = self._run(
            "expire_attempts",
            state=path.target,
            edges=len(path.edges),
            event=path.event,
            code=LEASE_EXPIRED,
            losses=LOSSES_EXCUSED,
            n=n,
            at=self._time(at),
            retry_at=self._store.stored(retry_at),
            **self._signature(actor, None),
        )
        ids = [job_id for (job_id,) in rows]
        if ids and self._store.limited is not False:
            self._session.slots.ended(ids)
        return ids

    def cancelled(
        self, moves: Mapping[int, tuple[Attempt, object]], *, actor: str, reason: str | None, now: datetime
    ) -> dict[int, Move | Refused]:
        """Write again the moves that were not written because a cancellation was requested after the attempt was read.

        Return their answers; a move that failed for another reason has none.
        """
        job_ids = sorted({attempt.job_id for attempt, _ in moves.values()})
        rows = self._run("requested_attempts", rows=encoded(job_ids))
        requested = {attempt.token: attempt for attempt in map(self._attempt, rows)}
        again = {
            i: (requested[attempt.token], command)
            for i, (attempt, command) in moves.items()
            if attempt.token in requested and attempt.execution.cancel_requested_at is None
        }
        answers = self.move(list(again.values()), actor=actor, reason=reason, now=now) if again else []
        return dict(zip(again, answers, strict=True))
