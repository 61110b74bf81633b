"""Rules about the history of one record of any machine.

Invariants: the machine's own table says which moves are legal; rows below `history_from` are archived or were given up
by a repair, and are not tested; a row written under maintenance may start at any state, because a repair writes what it
found, but the state it leads to is tested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice, pairwise

from holdfast.audit.check.context import RuleContext
from holdfast.audit.check.findings import Finding, of_record
from holdfast.core.machine import NOTHING, Machine, Path
from holdfast.core.machines import EXECUTION, JOB, MACHINES, SWITCH, VALUE
from holdfast.store.verbs.histories import Entry, History

NAMED_MAX = 20  # versions that a finding lists
JOB_TARGET = "job:"  # and the id: the target of a grant to release one job


def one_state(history: History, _context: RuleContext) -> Iterator[Finding]:
    """Yield a state that the machine does not define."""
    if history.state not in history.machine.states:
        yield of_record(
            history,
            "state",
            f"the state is {history.state!r}, which {history.machine.name} does not define",
            state=history.state,
        )


def continuous(history: History, context: RuleContext) -> Iterator[Finding]:
    """Yield gaps, repeated versions and broken paths in the journal, and a last state that is not the record's."""
    kept = history.kept
    yield from _versions(history, kept)
    first = kept[0] if kept else None
    if first and history.whole and first.version == 1 and first.source is not None and first.maintenance_id is None:
        yield of_record(
            history, "source", f"the first journal row starts at {first.source}, not at {NOTHING}", seq=first.seq
        )
    for before, row in pairwise(kept):
        if row.version != before.version + 1 or row.maintenance_id is not None:
            continue
        if row.source != before.target:
            detail = f"version {row.version} starts at {row.source or NOTHING}, but version {before.version} led to"
            yield of_record(history, "source", f"{detail} {before.target}", seq=row.seq, version=row.version)
        elif row.seq < before.seq and before.maintenance_id is None:  # the edges of one row share its number
            detail = (
                f"version {row.version} is row {row.seq}, before version {before.version}, which is row {before.seq}"
            )
            yield of_record(history, "order", detail, seq=row.seq, version=row.version)
    if kept and kept[-1].version == history.version and kept[-1].target != history.state:
        detail = f"the record is {history.state}, but its journal ends at {kept[-1].target}"
        yield of_record(history, "state", detail, state=history.state, journal=kept[-1].target)
    if history.machine is not EXECUTION:  # its edges are in rows of its job, whose history is judged
        yield from _cut(history, context)


def _versions(history: History, kept: Sequence[Entry]) -> Iterator[Finding]:
    first, last = history.history_from, history.version
    if first > last + 1:
        yield of_record(history, "cut", f"history_from is {first}, but the record has version {last}", first=first)
        return
    counted = Counter(row.version for row in kept)
    if len(counted) == len(kept) == last + 1 - first and (not kept or kept[-1].version == last):
        return
    missing = list(islice((version for version in range(first, last + 1) if version not in counted), NAMED_MAX))
    twice = [version for version, n in counted.items() if n > 1][:NAMED_MAX]
    beyond = [version for version in counted if version > last][:NAMED_MAX]
    if missing:
        detail = f"versions {_some(missing)} of {first} to {last} are not in the journal"
        yield of_record(history, "gap", detail, missing=missing, first=first, last=last)
    if twice:
        yield of_record(history, "twice", f"versions {_some(twice)} are in the journal more than once", twice=twice)
    if beyond:
        detail = f"the journal has versions {_some(beyond)}, but the record has version {last}"
        yield of_record(history, "beyond", detail, beyond=beyond, last=last)


def _cut(history: History, context: RuleContext) -> Iterator[Finding]:
    """Yield a history that was cut by hand: only a repair after the rows, or an archive, may cut it."""
    given_up = [row for row in history.rows if row.version < history.history_from and not context.archived(row)]
    if lacks_rows(history.rows, history.history_from) and context.evidence.archived_until is None:
        detail = f"the journal rows before version {history.history_from} are missing, without an archive or a repair"
        yield of_record(history, "taken", detail, first=history.history_from)
    if given_up and context.last_maintenance < max(row.seq for row in given_up):
        detail = f"history_from is {history.history_from}, but no maintenance has set it"
        yield of_record(history, "cut", detail, first=history.history_from)


def lacks_rows(rows: Sequence[Entry], begins: int) -> bool:
    """Return whether rows before the first version are missing, and no repair has restarted the history there."""
    first = next((row for row in rows if row.version >= begins), None)
    restarted = first is not None and first.maintenance_id is not None
    return not restarted and len({row.version for row in rows if row.version < begins}) < begins - 1


def legal(history: History, context: RuleContext) -> Iterator[Finding]:
    """Yield moves that are not in the machine's table, and grants and maintenance that do not exist."""
    yield from _unknown_maintenance(history, context)
    rows = [row for row in history.kept if row.maintenance_id is None]
    paths = _paths(history.machine)
    index = 0
    while index < len(rows):
        row = rows[index]
        path = paths.get((row.event, row.source))
        taken = rows[index : index + len(path.edges)] if path else []
        if path and _is_taken(path, taken):
            index += len(path.edges)
            if path.governed and (wrong := _ungranted(history, row, context)):
                detail = f"{row.event} at version {row.version} needs a grant, but {wrong}"
                yield of_record(history, "grant", detail, seq=row.seq, version=row.version)
            continue
        index += 1
        if not (index == 1 and not history.whole and _ends_a_path(history.machine, row)):
            edge = f"{row.source or NOTHING} → {row.target} by {row.event}"
            detail = f"version {row.version} is {edge}, which is not in the table of {history.machine.name}"
            yield of_record(history, "edge", detail, seq=row.seq, version=row.version)
    for before, row in pairwise(rows):
        if row.at < before.at:
            detail = f"version {row.version} has an earlier time than version {before.version}"
            yield of_record(history, "time", detail, seq=row.seq, version=row.version)


def _ungranted(history: History, row: Entry, context: RuleContext) -> str | None:
    """Return why the grant of a governed row does not permit it; None if it does."""
    if row.grant_id is None:
        return "the row names no grant"
    permit, name = context.grant(row.grant_id), f"grant {row.grant_id}"
    if permit is None:
        return f"{name} does not exist"
    machine, permits = history.machine.name, _permits()
    if permit.action in permits and machine not in permits[permit.action]:
        return f"{name} is for the act {permit.action}"
    if permit.action in permits and machine == JOB.name and permit.target != f"{JOB_TARGET}{history.subject}":
        return f"the target of {name} is {permit.target}"
    # A repair replaces the last move of a grant, so that the move that consumed it is no longer known.
    if permit.event == "repair" or (permit.of_a_run and machine == VALUE.name and row.source is None):
        return None
    used = permit.event == "consume" and permit.move_id == row.move_id
    return None if used else f"{name} was not consumed by this move"


@cache
def _permits() -> dict[str, frozenset[str]]:
    """Return the machines whose moves each act permits; a grant with another action was made by an application."""
    from holdfast.core.authority import Act  # noqa: PLC0415 - few ledgers have grants

    return {
        **{str(act): frozenset() for act in Act},
        **{str(act): frozenset({VALUE.name}) for act in (Act.BUILD, Act.SUPERSEDE, Act.RETIRE, Act.PROCEDURE)},
        str(Act.RELEASE): frozenset({JOB.name}),
        str(Act.LIFT): frozenset({SWITCH.name}),
    }


def _unknown_maintenance(history: History, context: RuleContext) -> Iterator[Finding]:
    """Yield rows that name a maintenance that is not in the journal, or that were written before or after it.

    The row that ends a maintenance comes after all rows written under it, and is archived with them or later.
    """
    for row in history.kept:
        if row.maintenance_id is None or context.archived(row):
            continue
        known = context.maintenance(row.maintenance_id)
        first, last = known or (None, None)
        if known is None:
            wrong = "which is not in the journal"
        elif (first is not None and row.seq < first) or (last is not None and row.seq > last):
            wrong = "which was open at another time"
        else:
            continue
        detail = f"version {row.version} names maintenance {row.maintenance_id}, {wrong}"
        yield of_record(history, "maintenance_id", detail, seq=row.seq, version=row.version)


def _is_taken(path: Path, rows: Sequence[Entry]) -> bool:
    """Return whether the rows are one write along the path: all its edges, in order."""
    return len(rows) == len(path.edges) and all(
        row.source == edge.source
        and row.target == edge.target
        and row.event == path.event
        and row.move_id == rows[0].move_id
        and row.version == rows[0].version + step
        for step, (row, edge) in enumerate(zip(rows, path.edges, strict=True))
    )


def _ends_a_path(machine: Machine, row: Entry) -> bool:
    """Return whether a row can be the last edge of a path whose first edges were archived."""
    return any(
        path.event == row.event and (path.edges[-1].source, path.target) == (row.source, row.target)
        for path in machine.paths
    )


@cache
def _paths(machine: Machine) -> dict[tuple[str, str | None], Path]:
    return {(path.event, path.source): path for path in MACHINES[machine.name].paths}


def fields(history: History, _context: RuleContext) -> Iterator[Finding]:
    """Yield columns that cannot be read, and times and versions that differ from the journal."""
    if history.unreadable:
        detail = f"these columns hold values that Holdfast never writes: {'; '.join(history.unreadable)}"
        yield of_record(history, "unreadable", detail, columns=list(history.unreadable))
        return
    if history.version < 1:
        yield of_record(history, "version", f"version is {history.version}; the least is 1", version=history.version)
    if history.created_at > history.updated_at:
        yield of_record(history, "times", "updated_at is before created_at")
    kept = history.kept
    if not kept:
        return
    first, last = kept[0], kept[-1]
    if first.version == 1 and first.maintenance_id is None and first.at != history.created_at:
        yield of_record(
            history,
            "created_at",
            "created_at differs from the time of the first journal row",
            journal=first.at.isoformat(),
        )
    if last.at > history.updated_at:
        yield of_record(
            history, "updated_at", "updated_at is before the time of the last journal row", journal=last.at.isoformat()
        )


def _some(versions: Sequence[int]) -> str:
    words = ", ".join(map(str, versions))
    return f"{words}, …" if len(versions) == NAMED_MAX else words
