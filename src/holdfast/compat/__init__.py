"""Thin faces over the ledger with the names of the job state machine of G. See docs/compat.md."""

from holdfast.compat.job_queue import IdempotentJobQueue
from holdfast.compat.jobs import IngestionJob, JobPriority, JobRow, LeaseToken
from holdfast.compat.stalls import DeadlockDetector
from holdfast.compat.states import VALID_TRANSITIONS, JobStatus, StateTransition
from holdfast.compat.validator import AuditEvent, AuditLogger, StateMachineValidator
from holdfast.core.errors import InvalidStateTransitionError, JobNotFoundError, LeaseLostError, StateTransitionRaceError

__all__ = [
    "VALID_TRANSITIONS",
    "AuditEvent",
    "AuditLogger",
    "DeadlockDetector",
    "IdempotentJobQueue",
    "IngestionJob",
    "InvalidStateTransitionError",
    "JobNotFoundError",
    "JobPriority",
    "JobRow",
    "JobStatus",
    "LeaseLostError",
    "LeaseToken",
    "StateMachineValidator",
    "StateTransition",
    "StateTransitionRaceError",
]
