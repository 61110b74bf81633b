"""The names that the engine knows of the layers above it.

A worker fires the schedules that it finds in its ledger, whether or not its own program declares any: it loads what
does that by name, and only if there are schedules. An erasure needs a grant, which governance knows.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.engine.operations import Operation

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger

Op = TypeVar("Op", bound=Operation[..., Any])


def scheduling() -> ModuleType:
    """Return the package of schedules, imported on first use."""
    return import_module("holdfast.scheduling")


def erasing() -> ModuleType:
    """Return the module of erasures, imported on first use."""
    return import_module("holdfast.governance.erasure")


def declared_schedule(ledger: Ledger, when: str, **settings: Any) -> Callable[[Op], Op]:
    """Return the decorator that schedules an operation."""
    declared: Callable[[Op], Op] = scheduling().declare(ledger, when, **settings)
    return declared
