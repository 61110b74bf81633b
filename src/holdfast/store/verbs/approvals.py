"""What `check` reads about approvals: grants, their approvals in the journal, approvers, and what a run may release.

Invariants: everything comes from the snapshot of one read transaction; a page of grants is the most that is in memory.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.core.governed import Approver, Grant
from holdfast.core.machines import GRANT
from holdfast.store.transaction import Reading


class JournalledApproval(NamedTuple):
    """The approval of a grant as the journal has it."""

    actor: str
    move_id: str
    maintenance_id: int | None


class ApprovalEvidence:
    """Reads about approvals, through one view of the ledger."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def grants(self, before: int | None, n: int) -> list[Grant]:
        """Return a page of grants, newest first."""
        return self._reading.grants.page(before=before, limit=n)

    def grant(self, grant_id: int | None) -> Grant | None:
        """Return a grant; None if there is none, or none is named."""
        return None if grant_id is None else self._reading.grants.get(grant_id)

    def approvers(self) -> dict[str, Approver]:
        """Return all approvers by name, including the revoked ones."""
        return self._reading.grants.approvers()

    def bootstrap(self) -> int | None:
        """Return the first grant that registered an approver of a prod ledger without an approval, or None."""
        return self._reading.grants.bootstrap()

    def approval_of(self, grant_id: int) -> JournalledApproval | None:
        """Return the approval of a grant as the journal has it; None if it has none."""
        rows = [row for row in self._reading.journal.of(grant_id, GRANT.name) if row.event == "approve"]
        return JournalledApproval(rows[-1].actor, rows[-1].move_id, rows[-1].maintenance_id) if rows else None

    def last_acts(self) -> list[Grant]:
        """Return, for each name, the last used grant that registered or revoked the approver of that name."""
        found = (self.grant(grant_id) for (grant_id,) in self._reading.run("last_acts_on_approvers"))
        return [grant for grant in found if grant is not None]

    def candidates_under(self, grant_id: int) -> list[str]:
        """Return the stored candidates of the runs that a grant permits."""
        return [content for (content,) in self._reading.run("candidates_under", grant_id=grant_id)]

    def raised_after(self, grant_id: int) -> bool:
        """Return whether the journal says that the environment of the ledger was raised after a grant was used."""
        [[raised]] = self._reading.run("raised_after", grant_id=grant_id)
        return bool(raised)
