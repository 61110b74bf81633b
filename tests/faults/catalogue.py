"""The named faults, area by area; `python -m tests.faults.run` switches each on and shows that the suite catches it."""

from __future__ import annotations

from tests.faults.areas import decide, enforcement, store
from tests.faults.seeded import SeededFault

FAULTS: tuple[SeededFault, ...] = (*decide.FAULTS, *store.FAULTS, *enforcement.FAULTS)

AREAS = tuple(dict.fromkeys(fault.area for fault in FAULTS))
