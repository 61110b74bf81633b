"""Lists of jobs: filters from an address, a page by keyset, and how far it looked.

Invariants: a page looks through a bounded number of jobs; an empty page says whether there can be more; every filter is
checked before the ledger is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from holdfast.console.selections import JobSelection
from holdfast.console.views.links import path, replay_draft
from holdfast.core.digest import is_storable
from holdfast.core.errors import InputError
from holdfast.core.machines import JobState
from holdfast.explain.times import past_moment
from holdfast.store.transaction import Reading
from holdfast.store.verbs.watch import ID_MAX, JobFilters, JobLine, greatest_job

PAGE = 50
TEXT_MAX = 200
FILTERS = ("state", "queue", "operation", "client", "code", "since", "until", "before")


class JobQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The filters of a list as they are in its address."""

    state: JobState | None = None
    queue: str | None = None
    operation: str | None = None
    client: str | None = None
    code: str | None = None
    since: str | None = None  # as it was typed: a time, or an age such as 2h ago
    until: str | None = None
    before: int | None = None

    def address(self, **changes: object) -> str:
        """Return the address of this list with other filters; None removes one."""
        values = {**msgspec.structs.asdict(self), **changes}
        return path("/jobs", **{name: values[name] for name in FILTERS})

    def selection(self, now: datetime) -> JobSelection:
        """Return the selection of these filters; raise InputError for a time that is not valid."""
        return JobSelection(
            filters=JobFilters(
                state=self.state, operation=self.operation, queue=self.queue, client=self.client, code=self.code
            ),
            since=_moment(self.since, "since", now),
            until=_moment(self.until, "until", now),
        )

    @property
    def replay(self) -> str:
        """Return the address of a replay of the failed jobs among these."""
        since = self.since or "30d ago"
        return replay_draft(operation=self.operation, queue=self.queue, code=self.code, since=since)

    @property
    def named(self) -> dict[str, str]:
        """Return the filters that are set, without the page."""
        values = msgspec.structs.asdict(self)
        return {name: str(values[name]) for name in FILTERS if name != "before" and values[name] is not None}


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a list of jobs."""

    query: JobQuery
    lines: tuple[JobLine, ...]
    looked_from: int  # the lowest id that was looked at
    looked_to: int  # the highest
    older: str | None  # the address of the next page
    newest: str | None  # the address of the first page, unless this is it
    whole: bool  # every job of the ledger that can match was looked at
    total: int | None  # how many jobs match, if the counts tell
    replay: str | None  # the address of a replay of these jobs


def number_in(text: str, name: str, low: int = 1, high: int = ID_MAX) -> int:
    """Return a whole number of an address, or raise InputError."""
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(ID_MAX)) and low <= int(text) <= high):
        raise InputError(
            f"{name} must be a whole number from {low} to {high}; it is {text[:TEXT_MAX]!r}.", context={"field": name}
        )
    return int(text)


def text_in(text: str, name: str) -> str:
    """Return a text of an address, or raise InputError if it is too long or no database can hold it."""
    if len(text) > TEXT_MAX or not is_storable(text):
        raise InputError(
            f"{name} must have at most {TEXT_MAX} characters, and none that a database cannot store.",
            context={"field": name},
        )
    return text


def filters_in(params: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return those of the named parameters of an address that are set."""
    return {name: params[name].strip() for name in names if params.get(name, "").strip()}


def job_query(params: Mapping[str, str]) -> JobQuery:
    """Return the filters of an address; an empty one is not set. Raise InputError for a value that is not valid."""
    given = filters_in(params, FILTERS)
    state = given.get("state")
    if state is not None and state not in list(JobState):
        raise InputError(
            f"{state[:TEXT_MAX]!r} is not a state; use one of {', '.join(JobState)}.", context={"field": "state"}
        )
    texts = {
        name: text_in(given[name], name)
        for name in ("queue", "operation", "client", "code", "since", "until")
        if name in given
    }
    return JobQuery(
        state=None if state is None else JobState(state),
        before=number_in(given["before"], "before") if "before" in given else None,
        **texts,
    )


def job_page(reading: Reading, query: JobQuery, now: datetime) -> JobPage:
    """Return a page of jobs, newest first."""
    selection = query.selection(now)
    found = selection.page(reading, before=query.before, limit=PAGE)
    after, below = selection.bounds(reading)
    top = min(min(query.before or ID_MAX, below) - 1, greatest_job(reading))
    low = found.looked_from if found.more and found.looked_from is not None else after + 1
    return JobPage(
        query=query,
        lines=tuple(found.lines),
        looked_from=low,
        looked_to=top,
        older=query.address(before=low) if found.more else None,
        newest=query.address(before=None) if query.before is not None else None,
        whole=not found.more and query.before is None,
        total=_total(reading, query),
        replay=query.replay if found.lines and query.state is JobState.FAILED else None,
    )


def _moment(text: str | None, name: str, now: datetime) -> datetime | None:
    return None if text is None else past_moment(text, name, now)


def _total(reading: Reading, query: JobQuery) -> int | None:
    """Return how many jobs match, if the filters are those by which the ledger keeps counts."""
    if query.client or query.code or query.since or query.until:
        return None
    return sum(
        count.n
        for count in reading.counts.current()
        if (query.state is None or count.state is query.state)
        and (query.operation is None or count.operation == query.operation)
        and (query.queue is None or count.queue == query.queue)
    )
