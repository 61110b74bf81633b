"""The recovery of attempts whose lease has expired, and of ends that a request to cancel has changed.

Invariants: only an attempt with an expired lease is ended; what has committed is finished, never run again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from holdfast.core.commands import Expire, Finish
from holdfast.core.decide import Move, Refused
from holdfast.core.machines import ExecutionStatus
from holdfast.core.records import Attempt

if TYPE_CHECKING:
    from holdfast.store.verbs.executions import ExecutionWrites


def cancelled(
    executions: ExecutionWrites,
    moves: Mapping[int, tuple[Attempt, object]],
    *,
    actor: str,
    reason: str | None,
    now: datetime,
) -> dict[int, Move | Refused]:
    """Write again those moves that were not written because a cancellation was requested after the attempt was read."""
    requested = {attempt.token: attempt for attempt in executions.requested([a.job_id for a, _ in moves.values()])}
    again = {
        i: (requested[attempt.token], command)
        for i, (attempt, command) in moves.items()
        if attempt.token in requested and attempt.execution.cancel_asked_at is None
    }
    answers = executions.move(list(again.values()), actor=actor, reason=reason, now=now) if again else []
    return dict(zip(again, answers, strict=True))


def recovered(
    executions: ExecutionWrites, *, actor: str, n: int, at: datetime | None, retry_at: datetime | None, now: datetime
) -> list[tuple[Attempt, Move | Refused]]:
    """End up to n attempts whose lease expired before `at`: finish the committed ones, then expire the others."""
    attempts = executions.expired_attempts(at, n)
    attempts.sort(key=lambda attempt: attempt.execution.status != ExecutionStatus.COMMITTED)
    # The database found these expired. If the clock of this process is behind, use the expiry times instead.
    now = max([at or now, *(attempt.execution.lease_expires_at for attempt in attempts)])
    moves: list[tuple[Attempt, object]] = [
        (attempt, Finish() if attempt.execution.status == ExecutionStatus.COMMITTED else Expire(retry_at or now))
        for attempt in attempts
    ]
    return list(zip(attempts, executions.move(moves, actor=actor, now=now), strict=True))
