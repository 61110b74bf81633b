"""The named faults, area by area; `python -m tests.faults.run` switches each on and shows that the suite catches it."""

from __future__ import annotations

from tests.faults.areas import (
    check,
    commands,
    committer,
    compat,
    decide,
    enforcement,
    engine,
    governance,
    nodd,
    repair,
    seals,
    store,
)
from tests.faults.seeded import SeededFault

_MODULES = (
    decide, store, enforcement, committer, seals, check, repair, engine, compat, governance, nodd, commands,
)  # fmt: skip
FAULTS: tuple[SeededFault, ...] = tuple(fault for module in _MODULES for fault in module.FAULTS)

AREAS = tuple(dict.fromkeys(fault.area for fault in FAULTS))
