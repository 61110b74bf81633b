"""Quarantine: what was taken out, why, and since when.

Invariants: the list is a page by keyset; all jobs are counted by reason and age only while there are few enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from holdfast.console.views.jobs import filters_in, number_in, text_in
from holdfast.console.views.links import path
from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.governance.quarantine import QuarantineFilters, QuarantineStatistics, find, statistics
from holdfast.governance.reasons import reason_for
from holdfast.store.transaction import Reading

PAGE = 50
COUNTED_MAX = 1_000  # with more quarantined jobs, they are not counted by reason: each is read
FILTERS = ("code", "operation", "queue", "cancelled", "before")


class QuarantineLine(msgspec.Struct, frozen=True):
    """A quarantined job and the kind of reason."""

    job: Job
    reason: str


class QuarantineView(msgspec.Struct, frozen=True, kw_only=True):
    """A page of quarantined jobs, and the counts of all."""

    now: datetime
    lines: tuple[QuarantineLine, ...]
    total: int
    statistics: QuarantineStatistics | None
    filters: dict[str, str]
    older: str | None


def quarantine_view(reading: Reading, params: Mapping[str, str], now: datetime) -> QuarantineView:
    """Return a page of quarantined jobs; cancelled ones are left out unless the address asks for them."""
    given = filters_in(params, FILTERS)
    code, operation, queue = (
        text_in(given[name], name) if name in given else None for name in ("code", "operation", "queue")
    )
    before = number_in(given["before"], "before") if "before" in given else None
    cancelled = "cancelled" in given
    filters = QuarantineFilters(code=code, operation=operation, queue=queue, cancelled=cancelled)
    found = find(reading, filters, limit=PAGE + 1, before=before)
    total = sum(count.n for count in reading.counts.current() if count.state is JobState.QUARANTINED)
    shown = {name: value for name, value in given.items() if name != "before"}
    return QuarantineView(
        now=now,
        lines=tuple(QuarantineLine(job, str(reason_for(job))) for job in found[:PAGE]),
        total=total,
        statistics=statistics(reading, cancelled=cancelled) if total <= COUNTED_MAX else None,
        filters=shown,
        older=path("/quarantine", **shown, before=found[PAGE - 1].job_id) if len(found) > PAGE else None,
    )
