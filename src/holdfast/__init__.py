"""Holdfast: a durable work ledger.

Every unit of work is recorded before it runs, runs under a lease, takes effect exactly once, and can prove what
happened to it.
"""

from holdfast.core.errors import HoldfastError, IdempotencyConflictError, LeaseLostError
from holdfast.engine.execution import Execution
from holdfast.engine.ledger import Ledger
from holdfast.engine.operations import Call, Operation, Operations
from holdfast.engine.receipt import Receipt
from holdfast.engine.retry import Cancel, FailureKind, Quarantine, RetryAfter, RetryPolicy, Snooze, Strategy
from holdfast.engine.worker import Worker

__version__ = "0.1.0"

__all__ = [
    "Call",
    "Cancel",
    "Execution",
    "FailureKind",
    "HoldfastError",
    "IdempotencyConflictError",
    "LeaseLostError",
    "Ledger",
    "Operation",
    "Operations",
    "Quarantine",
    "Receipt",
    "RetryAfter",
    "RetryPolicy",
    "Snooze",
    "Strategy",
    "Worker",
    "__version__",
]
