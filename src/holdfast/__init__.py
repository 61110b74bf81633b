"""Holdfast: a durable work ledger.

Every unit of work is recorded before it runs, runs under a lease, takes effect exactly once, and can prove what
happened to it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.core.errors import HoldfastError, IdempotencyConflictError, LeaseLostError
    from holdfast.engine.failures import FailureKind
    from holdfast.engine.ledger import Ledger
    from holdfast.engine.operations import Call, Operation, Operations
    from holdfast.engine.receipt import Receipt
    from holdfast.engine.worker.execution import Execution
    from holdfast.engine.worker.retry import RetryPolicy, Strategy
    from holdfast.engine.worker.signals import Cancel, Quarantine, RetryAfter, Snooze
    from holdfast.engine.worker.worker import Worker
    from holdfast.governance.runs.procedure import resume_procedure, run_procedure, undo_procedure
    from holdfast.governance.runs.steps import Mode, Procedure, Step, StepContext, StepFailed, procedure

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
    "Mode",
    "Operation",
    "Operations",
    "Procedure",
    "Quarantine",
    "Receipt",
    "RetryAfter",
    "RetryPolicy",
    "Snooze",
    "Step",
    "StepContext",
    "StepFailed",
    "Strategy",
    "Worker",
    "__version__",
    "procedure",
    "resume_procedure",
    "run_procedure",
    "undo_procedure",
]

# The module of each name. The command imports this package too, and most commands need none of the engine.
_HOMES = {
    "core.errors": "HoldfastError IdempotencyConflictError LeaseLostError",
    "engine.failures": "FailureKind",
    "engine.ledger": "Ledger",
    "engine.operations": "Call Operation Operations",
    "engine.receipt": "Receipt",
    "engine.worker.execution": "Execution",
    "engine.worker.retry": "RetryPolicy Strategy",
    "engine.worker.signals": "Cancel Quarantine RetryAfter Snooze",
    "engine.worker.worker": "Worker",
    "governance.runs.procedure": "resume_procedure run_procedure undo_procedure",
    "governance.runs.steps": "Mode Procedure Step StepContext StepFailed procedure",
}


def __dir__() -> list[str]:
    """Return the public names, also those that are not imported yet."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    home = next((module for module, names in _HOMES.items() if name in names.split()), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
