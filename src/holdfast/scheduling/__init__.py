"""Work at certain times: schedules, their ticks, and what fires them.

A schedule is a setting of the ledger, so that a whole fleet follows it and the command can change it. Each worker
fires what is due; the ledger records a tick once, in the transaction that submits its job.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.scheduling.firer import Firer
    from holdfast.scheduling.limits import Limits
    from holdfast.scheduling.schedules import Missed, Overlap, Schedule, Schedules, declare, save_declared

__all__ = ["Firer", "Limits", "Missed", "Overlap", "Schedule", "Schedules", "declare", "save_declared"]


def __getattr__(name: str) -> Any:
    """Import the module of a name when it is first used: a program that has only limits needs no schedules."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = {"Firer": "firer", "Limits": "limits"}.get(name, "schedules")
    return getattr(import_module(f"{__name__}.{home}"), name)
