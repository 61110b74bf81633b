"""Says why an operation cannot be declared, or is not known. Imported when one is refused.

Invariants: it always raises.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import NoReturn

from holdfast.core.arguments import refuse_unfit
from holdfast.core.errors import InputError, UnknownOperationError
from holdfast.core.protocol import ranked
from holdfast.engine.operations import LEASE_S_MAX, NAME


def refuse_second(name: str, version: str) -> NoReturn:
    """Raise InputError for a second operation of one name and version."""
    raise InputError(
        f"operation {name!r} version {version} is declared twice",
        next_step="Give one of them another name, or another version.",
    )


def refuse_unfit_operation(name: str, version: str, lease_s: float, timeout_s: float | None) -> NoReturn:
    """Raise InputError: the first of the settings that is wrong, or else the number of attempts."""
    if callable(name):
        raise InputError(
            "the name of the operation is a function",
            next_step="Write the decorator with parentheses: @ledger.operation().",
            context={"argument": "name", "given": type(name).__name__},
        )
    refuse_unfit("name", name, "str")
    if not NAME.fullmatch(name):
        raise InputError(
            f"{name[:40]!r} is not a valid name of an operation",
            next_step="Begin with a letter; use letters, digits and _ . : -",
            context={"argument": "name"},
        )
    if ranked(version) is None:
        raise InputError(
            f"{name}: {version[:40]!r} is not a version",
            next_step="Write it as SemVer, without build metadata: 1.0.0.",
            context={"argument": "version"},
        )
    for setting, seconds in (("lease_s", lease_s), ("timeout_s", timeout_s)):
        refuse_unfit(setting, seconds, "float | None")
        if seconds is not None and not 0 < seconds <= LEASE_S_MAX:
            raise InputError(
                f"{name}: {setting} must be greater than 0 and at most 366 days, in seconds",
                context={"argument": setting},
            )
    raise InputError(
        f"{name}: max_attempts and retry.max_attempts differ; set one of them", context={"argument": "max_attempts"}
    )


def refuse_unknown(name: object, known: Iterable[str]) -> NoReturn:
    """Raise InputError for what is no call, and UnknownOperationError for a name that no process has declared."""
    if not isinstance(name, str):
        given = getattr(name, "name", None)
        raise InputError(
            f"call must be a Call, or the name of an operation; it is of type {type(name).__name__}",
            next_step=f"Submit a call of the operation: {given if isinstance(given, str) else 'operation'}.call(…).",
            context={"argument": "call", "given": type(name).__name__},
        )
    message = f"no process has declared the operation {name!r} to this ledger"
    near = next(iter(get_close_matches(name, sorted(known), n=1, cutoff=0.7)), None)
    if near is None:
        raise UnknownOperationError(message, context={"operation": name})
    raise UnknownOperationError(
        f"{message}; the nearest is {near!r}",
        next_step=f"Submit {near!r}, or start a worker that declares {name!r}: `holdfast worker --help`.",
        context={"operation": name, "nearest": near},
    )
