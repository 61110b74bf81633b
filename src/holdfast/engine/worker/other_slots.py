"""Slots for attempts that do not run among the others: suspects, and `async def` handlers.

Invariants: a suspect, whose job has lost leases, runs alone in a child process, one suspect at a time: if it ends the
process, no other attempt is hurt, and only then does that cost it an attempt. A handler that a child cannot import runs
in this process. A suspect's `async def` handler has an event loop of its own in that child.
"""

from __future__ import annotations

from concurrent.futures import Executor

from holdfast.core.errors import InputError
from holdfast.engine.worker.async_slots import AsyncSlots
from holdfast.engine.worker.attempt import HeldAttempt
from holdfast.engine.worker.child import handler_name
from holdfast.engine.worker.processes import ProcessSlots
from holdfast.engine.worker.slots import OnEnd
from holdfast.engine.worker.some_slots import Slots


def other_slots(slots: list[Slots], running: HeldAttempt, executor: str | Executor, on_end: OnEnd) -> Slots:
    """Return where such an attempt runs; its slots are added to those of the worker when they are first needed."""
    kind: type[AsyncSlots | ProcessSlots]
    if running.record.suspect and _importable(running) and (running.is_async or executor == "threads"):
        kind = ProcessSlots
    elif running.is_async:
        kind = AsyncSlots
    else:
        return slots[0]
    for some in slots[1:]:
        if isinstance(some, kind):
            return some
    made: Slots = AsyncSlots(on_end) if kind is AsyncSlots else ProcessSlots(1, on_end)
    slots.append(made)
    return made


def _importable(running: HeldAttempt) -> bool:
    try:
        return running.operation is not None and bool(handler_name(running.operation.fn))
    except InputError:
        return False
