"""The validator of G: checks a transition against the table, and records those that happened.

Invariants: `judge` records nothing, because the move may still lose a race; the history is bounded; times are aware,
in UTC.
"""

import logging
from collections import deque
from typing import Protocol

from holdfast.compat.audit_logger import SOURCE, STATUS, AuditEvent
from holdfast.compat.invariants import Orchestrator, StateMachineInvariants
from holdfast.compat.jobs import shown_by
from holdfast.compat.states import JobStatus, StateTransition
from holdfast.core.errors import InvalidStateTransitionError
from holdfast.store.store import Clock, host_clock

HISTORY_MAX = 10_000

logger = logging.getLogger(__name__)


class TakesEvents(Protocol):
    """An audit logger, or another object that accepts audit events."""

    def record(self, event: AuditEvent, /) -> object:
        """Record one event."""


class StateMachineValidator:
    """Checks transitions, keeps the latest ones, and sends them to the audit logger."""

    def __init__(
        self,
        audit_logger: TakesEvents | None = None,
        *,
        clock: Clock = host_clock,
        history_max: int = HISTORY_MAX,
    ) -> None:
        self._audit = audit_logger
        self._clock = clock
        self._history: deque[StateTransition] = deque(maxlen=history_max)

    @property
    def history(self) -> tuple[StateTransition, ...]:
        """Return the latest transitions that were recorded, oldest first."""
        return tuple(self._history)

    def validate_transition(
        self,
        job_id: str,
        from_status: JobStatus,
        to_status: JobStatus,
        *,
        operator: str | None = None,
        reason: str | None = None,
    ) -> StateTransition:
        """Check a transition and record it, or raise InvalidStateTransitionError."""
        transition = self.judge(job_id, from_status, to_status, operator=operator, reason=reason)
        self._history.append(transition)
        if self._audit is not None:
            self._audit.record(_event(transition))
        return transition

    def judge(
        self,
        job_id: str,
        from_status: JobStatus,
        to_status: JobStatus,
        *,
        operator: str | None = None,
        reason: str | None = None,
    ) -> StateTransition:
        """Return the transition if the table lists it, or raise InvalidStateTransitionError; record nothing."""
        transition = StateTransition(job_id, from_status, to_status, self._clock(), operator, reason)
        words = {"job_id": job_id, "from_status": str(from_status), "to_status": str(to_status)}
        if not transition.is_valid():
            logger.error("Invalid state transition", extra=words)
            message = f"Invalid transition: {from_status} → {to_status}"
            raise InvalidStateTransitionError(message, next_step=shown_by(job_id), context=words)
        if transition.is_idempotent():
            logger.debug("Idempotent state transition", extra=words)
        return transition

    def check_invariants(self, orchestrator: Orchestrator) -> list[str]:
        """Check the invariants of an orchestrator's jobs; see `StateMachineInvariants.check_invariants`."""
        return StateMachineInvariants.check_invariants(orchestrator)


def _event(transition: StateTransition) -> AuditEvent:
    source, target = str(transition.from_status), str(transition.to_status)
    return AuditEvent(
        job_id=transition.job_id,
        source=SOURCE,
        action=f"transition_{source}_to_{target}",
        status=STATUS,
        timestamp=transition.timestamp,
        metadata={
            "from_status": source,
            "to_status": target,
            "operator": transition.operator,
            "reason": transition.reason,
        },
    )
