"""Selections of jobs, as the API and the pages give them: of a list, of an act on several jobs, and of a replay.

Invariants: a selection is read by keyset, through a bounded number of jobs; a list of ids is taken as it is given.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.console.acts import Word
from holdfast.core.errors import InputError, SpecInvalidError
from holdfast.core.selection import Limits, Selection, SelectionFilters, Window, selection_fault
from holdfast.store.transaction import Reading
from holdfast.store.verbs.watch import ID_MAX, JobFilters, JobLines, first_job_since, job_lines

NAME = "console"
LOOKED_MAX = 10  # windows of a list that are looked through for one selection


class JobSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs: these ids, or those that match the filters and were submitted in a window of time."""

    filters: JobFilters = JobFilters()
    since: datetime | None = None
    until: datetime | None = None
    jobs: tuple[int, ...] = ()

    def bounds(self, reading: Reading) -> tuple[int, int]:
        """Return the ids between which the jobs of the window are: above the first, below the second."""
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise InputError("since must be before until.", context={"field": "since"})
        after = 0 if self.since is None else first_job_since(reading, self.since) - 1
        return after, ID_MAX if self.until is None else first_job_since(reading, self.until)

    def page(self, reading: Reading, *, before: int | None = None, limit: int) -> JobLines:
        """Return a page of the jobs that match, newest first."""
        after, below = self.bounds(reading)
        return job_lines(reading, self.filters, before=min(before or ID_MAX, below), after=after, limit=limit)

    def ids(self, reading: Reading, most: int) -> tuple[list[int], bool]:
        """Return the newest ids that match, at most so many, and whether there may be more."""
        if self.jobs:
            return sorted(set(self.jobs))[:most], len(set(self.jobs)) > most
        found: list[int] = []
        before: int | None = None
        for _ in range(LOOKED_MAX):
            page = self.page(reading, before=before, limit=most - len(found))
            found += [line.job_id for line in page.lines]
            before = page.looked_from
            if not page.more or len(found) >= most:
                return sorted(found), page.more
        return sorted(found), True


class ReplaySelectionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which failed jobs to replay. An empty list matches every job."""

    queues: Annotated[tuple[Word, ...], Meta(max_length=1000)] = ()
    operations: Annotated[tuple[Word, ...], Meta(max_length=1000)] = ()
    error_codes: Annotated[tuple[Word, ...], Meta(max_length=1000)] = ()
    jobs: Annotated[tuple[Word, ...], Meta(max_length=1000)] = ()
    since: datetime | None = None
    until: datetime | None = None
    limit: Annotated[int, Meta(ge=1, le=100_000)] | None = None

    def selection(self, environment: str) -> Selection:
        """Return the selection for a ledger's environment; raise SpecInvalidError if it has a fault."""
        made = Selection(
            name=NAME,
            env=environment,
            filters=SelectionFilters(
                queues=self.queues,
                operations=self.operations,
                error_codes=self.error_codes,
                jobs=self.jobs,
                created_at=Window(self.since, self.until) if self.since or self.until else None,
            ),
            limits=Limits(max_records=self.limit),
        )
        fault = selection_fault(made)
        if fault is not None:
            raise SpecInvalidError(
                f"{fault.path}: {fault.message}", next_step=fault.next_step, context={"path": fault.path}
            )
        return made
