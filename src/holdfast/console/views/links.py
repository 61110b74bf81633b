"""Addresses of the pages, without the base path.

Invariants: every part of a path and every value of a query is quoted; a value that is None is left out; a name with a
slash is one part of a path: a server decodes an address before it is split, so the slash is quoted twice.
"""

from urllib.parse import quote, unquote, urlencode

from holdfast.core.machines import JobState


def path(*parts: str, **query: object) -> str:
    """Return the address of a page: the first part is written as it is, the others are quoted."""
    first, *rest = parts
    address = "/".join((first, *(part_of(part) for part in rest)))
    named = {name: str(value) for name, value in query.items() if value is not None}
    return f"{address}?{urlencode(named)}" if named else address


def part_of(name: str) -> str:
    """Return a name as one part of a path; `name_of` returns the name again."""
    return quote(name.replace("%", "%25").replace("/", "%2F"), safe="")


def name_of(part: str) -> str:
    """Return the name that a part of a path encodes, after the server has decoded the address once."""
    return unquote(part)


def job_list(*, state: JobState | str | None = None, **filters: object) -> str:
    return path("/jobs", state=None if state is None else str(state), **filters)


def replay_draft(
    *, operation: str | None = None, queue: str | None = None, code: str | None = None, since: str | None = "7d ago"
) -> str:
    """Return the address of a replay that is being prepared."""
    known = None if code in (None, "none") else code
    return path("/replays", "new", operation=operation, queue=queue, code=known, since=since)
