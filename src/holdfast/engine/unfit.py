"""Says why an operation cannot be declared. Imported when one is refused.

Invariants: it always raises.
"""

from typing import NoReturn

from holdfast.core.arguments import refuse_unfit
from holdfast.core.errors import InputError
from holdfast.core.protocol import ranked
from holdfast.engine.operations import LEASE_S_MAX, NAME


def refuse_unfit_operation(name: str, version: str, lease_s: float, timeout_s: float | None) -> NoReturn:
    """Raise InputError: the first of the settings that is wrong, or else the number of attempts."""
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
                f"{name}: {setting} must be greater than 0 and at most {LEASE_S_MAX:g}", context={"argument": setting}
            )
    raise InputError(
        f"{name}: max_attempts and retry.max_attempts differ; set one of them", context={"argument": "max_attempts"}
    )
