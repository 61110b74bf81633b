"""What people did last: grants, switches, replays, settings and pauses.

Invariants: each source is read by its own newest records, so that the cost does not grow with the journal.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from holdfast.console.views.links import path
from holdfast.core.machines import GrantState, SwitchState
from holdfast.governance.granted import granted
from holdfast.governance.replay.guards import PROCEDURE
from holdfast.store.transaction import Reading
from holdfast.store.verbs.watch import pauses

SHOWN = 6
SETTINGS = "schedule"


class RecentAct(msgspec.Struct, frozen=True):
    """One act of a person: when, by whom, what, and where it can be seen."""

    at: datetime
    by: str
    did: str
    subject: str
    why: str | None
    href: str


def recent_acts(reading: Reading, limit: int = SHOWN) -> list[RecentAct]:
    """Return the last acts of people, newest first."""
    found = [*_of_grants(reading, limit), *_of_switches(reading, limit), *_of_runs(reading, limit)]
    found += [
        RecentAct(pause.at, pause.by or "", "paused", f"queue {queue}", pause.reason, path("/queues", queue))
        for queue, pause in pauses(reading).items()
    ]
    found += [
        RecentAct(s.created_at, s.actor, "set", f"schedule {s.name}", s.reason, "/schedules")
        for s in reading.configuration.active(SETTINGS)
    ]
    return sorted(found, key=lambda act: act.at, reverse=True)[:limit]


def _of_grants(reading: Reading, limit: int) -> Iterator[RecentAct]:
    for grant in reading.grants.page(limit=limit):
        href, what = path("/grants", str(grant.grant_id)), f"grant {grant.grant_id}: {granted(reading, grant).words}"
        why = grant.reason if grant.state is GrantState.DRAFT else None  # later moves replace the reason
        yield RecentAct(grant.created_at, grant.requested_by, "requested", what, why, href)
        if grant.approved_by and grant.state is GrantState.ACTIVE:
            yield RecentAct(grant.updated_at, grant.approved_by, "approved", what, None, href)
        elif grant.consumed_by:
            yield RecentAct(grant.updated_at, grant.consumed_by, "used", what, grant.reason, href)


def _of_switches(reading: Reading, limit: int) -> Iterator[RecentAct]:
    for switch in reading.switches.page(limit=limit):
        on = switch.state is SwitchState.ON
        why = switch.reason if on else None
        yield RecentAct(switch.created_at, switch.thrown_by, "threw", f"switch {switch.name}", why, "/switches")
        if not on:
            yield RecentAct(
                switch.updated_at, switch.actor, "lifted", f"switch {switch.name}", switch.reason, "/switches"
            )


def _of_runs(reading: Reading, limit: int) -> Iterator[RecentAct]:
    for run in reading.runs.page(procedure=PROCEDURE, limit=limit):
        href = path("/replays", run.idempotency_root)
        yield RecentAct(run.created_at, run.actor, "began", run.idempotency_root, run.reason, href)
