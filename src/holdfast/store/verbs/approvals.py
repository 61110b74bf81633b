"""What `check` reads about approvals: grants, their approvals in the journal, and approvers.

Invariants: nothing here writes.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.core.governed import Grant
from holdfast.core.machines import GRANT
from holdfast.store.transaction import Reading


class JournalledApproval(NamedTuple):
    """The approval of a grant as the journal has it."""

    actor: str
    move_id: str
    maintenance_id: int | None


def grant_named(reading: Reading, grant_id: int | None) -> Grant | None:
    """Return a grant; None if there is none, or none is named."""
    return None if grant_id is None else reading.grants.get(grant_id)


def approval_of(reading: Reading, grant_id: int) -> JournalledApproval | None:
    """Return the approval of a grant as the journal has it; None if it has none."""
    rows = [row for row in reading.journal.of(grant_id, GRANT.name) if row.event == "approve"]
    return JournalledApproval(rows[-1].actor, rows[-1].move_id, rows[-1].maintenance_id) if rows else None


def last_acts(reading: Reading) -> list[Grant]:
    """Return, for each name, the last used grant that registered or revoked the approver of that name."""
    found = (reading.grants.get(grant_id) for (grant_id,) in reading.run("last_acts_on_approvers"))
    return [grant for grant in found if grant is not None]


def raised_after(reading: Reading, grant_id: int) -> bool:
    """Return whether the journal says that the environment of the ledger was raised after a grant was used."""
    [[raised]] = reading.run("raised_after", grant_id=grant_id)
    return bool(raised)
