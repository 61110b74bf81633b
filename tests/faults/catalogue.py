"""The named faults, area by area; `python -m tests.faults.run` switches each on and shows that the suite catches it."""

from __future__ import annotations

from tests.faults.areas import check, committer, decide, enforcement, repair, seals, store
from tests.faults.seeded import SeededFault

FAULTS: tuple[SeededFault, ...] = tuple(
    fault for area in (decide, store, enforcement, committer, seals, check, repair) for fault in area.FAULTS
)

AREAS = tuple(dict.fromkeys(fault.area for fault in FAULTS))
