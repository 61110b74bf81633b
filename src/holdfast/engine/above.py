"""The names that the engine knows of the layers above it.

A worker fires the schedules that it finds in its ledger, whether or not its own program declares any: it loads what
does that by name, and only if there are schedules. An erasure needs a grant, which governance knows. What a call says
about unique work, deadlines and other jobs is evaluated by the package of schedules too. A handler in another process
continues the trace of its worker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.core.guarded import guarded
from holdfast.engine.operations import Operation

if TYPE_CHECKING:
    from holdfast.engine.batch import Batch
    from holdfast.engine.ledger import Ledger
    from holdfast.engine.operations import Call
    from holdfast.store.requests import Declared
    from holdfast.store.verbs.flow import Flow

Op = TypeVar("Op", bound=Operation[..., Any])
PLAIN = (None,) * 5  # a call without such settings


def scheduling() -> ModuleType:
    """Return the package of schedules, imported on first use."""
    return import_module("holdfast.scheduling")


def tracing() -> ModuleType:
    """Return the module of traces, imported on first use."""
    return import_module("holdfast.telemetry.tracing")


def erasing() -> ModuleType:
    """Return the module of erasures, imported on first use."""
    return import_module("holdfast.governance.erasure")


def declared_schedule(ledger: Ledger, when: str, **settings: Any) -> Callable[[Op], Op]:
    """Return the decorator that schedules an operation."""
    declared: Callable[[Op], Op] = scheduling().declare(ledger, when, **settings)
    return declared


def declared_flow(
    operation: Operation[..., Any], unique: object, deadline_s: float | None, limit: object, limit_key: object
) -> Declared:
    """Return the declaration of an operation whose jobs are unique, have a deadline or are limited."""
    declared: Declared = operation.declared
    if (unique, deadline_s) != (None, None):
        declared = import_module("holdfast.scheduling.unique").declared_with(declared, unique, deadline_s)
    if limit is not None or limit_key is not None:
        return import_module("holdfast.scheduling.limits").declared_with(  # type: ignore[no-any-return]
            declared, operation, limit, limit_key
        )
    return declared


def flow_of(call: Call, declared: Declared) -> Flow | None:
    """Return what the store needs of a call that is unique, has a deadline or waits for other jobs."""
    if declared.flow and "limits" in declared.flow:
        import_module("holdfast.scheduling.limits").require_key(call, declared.flow["limits"])
        flows = call.unique, call.deadline_at, call.deadline_s, call.after, call.if_unsuccessful
        if declared.flow.keys() == {"limits"} and flows == PLAIN:
            return None
    flow: Flow = import_module("holdfast.scheduling.unique").flow_of(call, declared)
    return flow


def catch_up(ledger: Ledger, *, actor: str) -> bool:
    """End the jobs whose deadline has passed, let go those that have waited; return whether anything was changed."""
    moved: bool = import_module("holdfast.scheduling.flow").catch_up(ledger, actor=actor)
    return moved


@guarded
def batched(
    ledger: Ledger, calls: Sequence[Any], then: Any, *, name: str | None = None, if_unsuccessful: str | None = None
) -> Batch:
    """Return a batch that was submitted."""
    batch: Batch = import_module("holdfast.scheduling.batches").submit_batch(ledger, calls, then, name, if_unsuccessful)
    return batch
