"""The job state machine of G and the write-ahead log of W over the ledger. See docs/compat.md."""

from holdfast.compat.audit_chain import AuditProblem, AuditReport
from holdfast.compat.audit_logger import AuditEvent, AuditLogger
from holdfast.compat.base_queue import JobQueue
from holdfast.compat.invariants import StateMachineInvariants, validate_database_integrity
from holdfast.compat.job_queue import IdempotentJobQueue
from holdfast.compat.jobs import IngestionJob, JobPriority, JobRow, LeaseToken
from holdfast.compat.orchestrator import IngestionOrchestrator
from holdfast.compat.stalls import DeadlockDetector
from holdfast.compat.states import VALID_TRANSITIONS, JobStatus, StateTransition
from holdfast.compat.validator import StateMachineValidator
from holdfast.compat.wal import Wal, WalRecovery
from holdfast.compat.wal_entries import Boundary, WalEntry, WalOperation
from holdfast.core.entries import EntryStatus
from holdfast.core.errors import (
    IdempotencyConflictError,
    InvalidStateTransitionError,
    JobNotFoundError,
    LeaseLostError,
    ResultExpiredError,
    StateTransitionRaceError,
    WalRecoveringError,
)
from holdfast.store.effects import Effect

__all__ = [
    "VALID_TRANSITIONS",
    "AuditEvent",
    "AuditLogger",
    "AuditProblem",
    "AuditReport",
    "Boundary",
    "DeadlockDetector",
    "Effect",
    "EntryStatus",
    "IdempotencyConflictError",
    "IdempotentJobQueue",
    "IngestionJob",
    "IngestionOrchestrator",
    "InvalidStateTransitionError",
    "JobNotFoundError",
    "JobPriority",
    "JobQueue",
    "JobRow",
    "JobStatus",
    "LeaseLostError",
    "LeaseToken",
    "ResultExpiredError",
    "StateMachineInvariants",
    "StateMachineValidator",
    "StateTransition",
    "StateTransitionRaceError",
    "Wal",
    "WalEntry",
    "WalOperation",
    "WalRecoveringError",
    "WalRecovery",
    "validate_database_integrity",
]
