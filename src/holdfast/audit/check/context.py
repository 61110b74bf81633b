"""The context of a rule: the evidence of one page, from one read transaction, and look-ups that several rules share.

Invariants: a grant or an act of maintenance is looked up once; those of one page are read in one statement each.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from holdfast.core.machines import GRANT
from holdfast.store.transaction import Reading
from holdfast.store.verbs.evidence import Evidence
from holdfast.store.verbs.histories import Entry, History, Permit


class RuleContext:
    """The evidence of one page, from one read transaction, and what several rules look up in it."""

    def __init__(self, evidence: Evidence, *, limit: int, batch: int) -> None:
        self.evidence = evidence
        self.limit = limit  # the greatest number of findings to return
        self.batch = batch
        self.now: datetime = evidence.reading.now()
        self.committed: frozenset[int] = frozenset()  # parents of the page's follow-ups that have committed
        self._last_maintenance: int | None = None
        self._grants: dict[int, Permit | None] = {}
        self._maintenance: dict[int, tuple[int | None, int | None] | None] = {}

    @property
    def reading(self) -> Reading:
        """The read transaction of the page."""
        return self.evidence.reading

    def look_up(self, histories: Iterable[History]) -> None:
        """Read every grant and every maintenance that rows of these histories name, in one statement each."""
        grants: set[Any] = set()  # a damaged row may hold any value
        maintenance: set[Any] = set()
        for history in histories:
            for row in history.rows:
                if row.grant_id is not None and history.machine is not GRANT:
                    grants.add(row.grant_id)
                if row.maintenance_id is not None:
                    maintenance.add(row.maintenance_id)
        if new := {number for number in grants if isinstance(number, int)} - self._grants.keys():
            found = self.evidence.grants_named(new)
            self._grants.update((number, found.get(number)) for number in new)
        if new := {number for number in maintenance if isinstance(number, int)} - self._maintenance.keys():
            rows = self.evidence.maintenance_named(new)
            self._maintenance.update((number, rows.get(number)) for number in new)

    def grant(self, grant_id: int) -> Permit | None:
        """Return the grant and what happened to it; None if it does not exist."""
        if grant_id not in self._grants:
            self._grants[grant_id] = self.evidence.grants_named([grant_id]).get(grant_id)
        return self._grants[grant_id]

    def maintenance(self, maintenance_id: int) -> tuple[int | None, int | None] | None:
        """Return the first and the last journal row of a maintenance; None if the journal has none."""
        if maintenance_id not in self._maintenance:
            self._maintenance[maintenance_id] = self.evidence.maintenance_named([maintenance_id]).get(maintenance_id)
        return self._maintenance[maintenance_id]

    def archived(self, row: Entry) -> bool:
        """Return whether a row is in an archive; it may stay in the journal until its partition is dropped."""
        until = self.evidence.archived_until
        return until is not None and row.key <= until

    @property
    def last_maintenance(self) -> int:
        """The number of the last journal row of any maintenance."""
        if self._last_maintenance is None:
            self._last_maintenance = self.evidence.last_maintenance()
        return self._last_maintenance
