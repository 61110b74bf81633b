"""Rules about the history of one record, whichever machine it belongs to.

Invariants: what is legal is looked up in the machine's own table; rows below `history_from` are archived or given up,
and judge nothing; a row written under maintenance may come from any state, since a repair writes what it found, but
where it leads counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice, pairwise

from holdfast.audit.check.context import RuleContext
from holdfast.audit.check.findings import Finding, of_record
from holdfast.core.authority import Act
from holdfast.core.machine import NOTHING, Machine, Path
from holdfast.core.machines import JOB, MACHINES, SWITCH, VALUE
from holdfast.store.verbs.evidence import Entry, History

NAMED_MAX = 20  # how many versions a finding names
JOB_TARGET = "job:"  # and the id: what a grant to release one job is for
# Whose moves an act permits. A grant whose action is none of these words was made by a program of its own.
_OF_VALUES = frozenset({Act.BUILD, Act.SUPERSEDE, Act.RETIRE, Act.PROCEDURE})
_ACTS: dict[str, frozenset[str]] = {
    **{str(act): frozenset() for act in Act},
    **{str(act): frozenset({VALUE.name}) for act in _OF_VALUES},
    str(Act.RELEASE): frozenset({JOB.name}),
    str(Act.LIFT): frozenset({SWITCH.name}),
}


def one_state(history: History, _context: RuleContext) -> Iterator[Finding]:
    """Yield a state that the machine does not know."""
    if history.state not in history.machine.states:
        yield of_record(
            history, "state", f"{history.state!r} is no state of {history.machine.name}", state=history.state
        )


def continuous(history: History, context: RuleContext) -> Iterator[Finding]:
    """Yield where the journal has gaps, repeats itself, does not join, or ends elsewhere than the record stands."""
    told = history.told
    yield from _versions(history, told)
    first = told[0] if told else None
    if first and history.whole and first.version == 1 and first.source is not None and first.maintenance_id is None:
        yield of_record(history, "source", f"its history begins at {first.source}, not at {NOTHING}", seq=first.seq)
    for before, row in pairwise(told):
        if row.version != before.version + 1 or row.maintenance_id is not None:
            continue
        if row.source != before.target:
            detail = f"version {row.version} comes from {row.source or NOTHING}, and version {before.version} led to"
            yield of_record(history, "source", f"{detail} {before.target}", seq=row.seq, version=row.version)
        elif row.seq <= before.seq and before.maintenance_id is None:
            detail = f"version {row.version} was written before version {before.version}"
            yield of_record(history, "order", detail, seq=row.seq, version=row.version)
    if told and told[-1].version == history.version and told[-1].target != history.state:
        detail = f"it is {history.state}, and its journal ends at {told[-1].target}"
        yield of_record(history, "state", detail, state=history.state, journal=told[-1].target)
    yield from _cut(history, context)


def _versions(history: History, told: Sequence[Entry]) -> Iterator[Finding]:
    first, last = history.history_from, history.version
    if first > last + 1:
        yield of_record(history, "cut", f"its history is cut at version {first}, and it has only {last}", first=first)
        return
    counted = Counter(row.version for row in told)
    if len(counted) == len(told) == last + 1 - first and (not told or told[-1].version == last):
        return
    missing = list(islice((version for version in range(first, last + 1) if version not in counted), NAMED_MAX))
    twice = [version for version, n in counted.items() if n > 1][:NAMED_MAX]
    beyond = [version for version in counted if version > last][:NAMED_MAX]
    if missing:
        detail = f"its journal has no version {_some(missing)} of {first} to {last}"
        yield of_record(history, "gap", detail, missing=missing, first=first, last=last)
    if twice:
        yield of_record(history, "twice", f"its journal has version {_some(twice)} more than once", twice=twice)
    if beyond:
        detail = f"its journal goes on to version {_some(beyond)}, and the record has version {last}"
        yield of_record(history, "beyond", detail, beyond=beyond, last=last)


def _cut(history: History, context: RuleContext) -> Iterator[Finding]:
    """Yield a history that is cut although its rows are there: only a maintenance after them may give rows up."""
    standing = [row for row in history.rows if row.version < history.history_from and not context.archived(row)]
    if lacks_rows(history.rows, history.history_from) and context.evidence.archived_until is None:
        detail = f"its history is cut at version {history.history_from}, the rows before that are gone, and there is"
        yield of_record(
            history, "taken", f"{detail} neither an archive nor a repair that has them", first=history.history_from
        )
    if standing and context.last_maintenance < max(row.seq for row in standing):
        detail = f"its history is cut at version {history.history_from}, and no maintenance did that"
        yield of_record(history, "cut", detail, first=history.history_from)


def lacks_rows(rows: Sequence[Entry], begins: int) -> bool:
    """Tell whether rows before the cut are gone, and it is no repair with which the history begins anew."""
    first = next((row for row in rows if row.version >= begins), None)
    anew = first is not None and first.maintenance_id is not None
    return not anew and len({row.version for row in rows if row.version < begins}) < begins - 1


def legal(history: History, context: RuleContext) -> Iterator[Finding]:
    """Yield edges that the table does not list, events that lack them, grants and maintenance that never were."""
    yield from _unknown_maintenance(history, context)
    rows = [row for row in history.told if row.maintenance_id is None]
    paths = _paths(history.machine)
    index = 0
    while index < len(rows):
        row = rows[index]
        path = paths.get((row.event, row.source))
        taken = rows[index : index + len(path.edges)] if path else []
        if path and _is_taken(path, taken):
            index += len(path.edges)
            if path.governed and (wrong := _ungranted(history, row, context)):
                detail = f"{row.event} at version {row.version} is governed, and {wrong}"
                yield of_record(history, "grant", detail, seq=row.seq, version=row.version)
            continue
        index += 1
        if not (index == 1 and not history.whole and _ends_a_path(history.machine, row)):
            edge = f"{row.source or NOTHING} → {row.target} by {row.event}"
            detail = f"version {row.version} is {edge}, which the table does not list"
            yield of_record(history, "edge", detail, seq=row.seq, version=row.version)
    for before, row in pairwise(rows):
        if row.at < before.at:
            detail = f"version {row.version} was written at an earlier time than version {before.version}"
            yield of_record(history, "time", detail, seq=row.seq, version=row.version)


def _ungranted(history: History, row: Entry, context: RuleContext) -> str | None:
    """Return why the grant of a governed row does not permit it, if that is so."""
    if row.grant_id is None:
        return "names no grant"
    permit, name = context.grant(row.grant_id), f"grant {row.grant_id}"
    if permit is None:
        return f"there is no {name}"
    machine = history.machine.name
    if permit.action in _ACTS and machine not in _ACTS[permit.action]:
        return f"{name} is for another act, {permit.action}"
    if permit.action == Act.RELEASE and permit.target != f"{JOB_TARGET}{history.subject}":
        return f"{name} is for {permit.target}"
    # A repair of the grant has a move of its own; whose the last one was before, the grant no longer says.
    if permit.event == "repair" or (permit.of_a_run and machine == VALUE.name and row.source is None):
        return None
    used = permit.event == "consume" and permit.move_id == row.move_id
    return None if used else f"{name} was not used up by that move"


def _unknown_maintenance(history: History, context: RuleContext) -> Iterator[Finding]:
    """Yield rows that name maintenance of which the journal does not tell, or that lie outside it.

    The row that shuts the door comes after all that was written under it: it is archived with them or later.
    """
    for row in history.told:
        if row.maintenance_id is None or context.archived(row):
            continue
        known = context.maintenance(row.maintenance_id)
        first, last = known or (None, None)
        if known is None:
            wrong = "of which the journal does not tell"
        elif (first is not None and row.seq < first) or (last is not None and row.seq > last):
            wrong = "which was at another time"
        else:
            continue
        detail = f"version {row.version} was written under maintenance {row.maintenance_id}, {wrong}"
        yield of_record(history, "maintenance_id", detail, seq=row.seq, version=row.version)


def _is_taken(path: Path, rows: Sequence[Entry]) -> bool:
    """Tell whether one write took the path: all its edges, one after the other."""
    return len(rows) == len(path.edges) and all(
        row.source == edge.source
        and row.target == edge.target
        and row.event == path.event
        and row.move_id == rows[0].move_id
        and row.version == rows[0].version + step
        for step, (row, edge) in enumerate(zip(rows, path.edges, strict=True))
    )


def _ends_a_path(machine: Machine, row: Entry) -> bool:
    """Tell whether a row can be the end of a path whose beginning was cut off."""
    return any(
        path.event == row.event and (path.edges[-1].source, path.target) == (row.source, row.target)
        for path in machine.paths
    )


@cache
def _paths(machine: Machine) -> dict[tuple[str, str | None], Path]:
    return {(path.event, path.source): path for path in MACHINES[machine.name].paths}


def fields(history: History, _context: RuleContext) -> Iterator[Finding]:
    """Yield columns that cannot be read, and times and versions that do not fit the journal."""
    if history.unreadable:
        detail = f"these hold what was never written: {'; '.join(history.unreadable)}"
        yield of_record(history, "unreadable", detail, columns=list(history.unreadable))
        return
    if history.version < 1:
        yield of_record(history, "version", f"its version is {history.version}", version=history.version)
    if history.created_at > history.updated_at:
        yield of_record(history, "times", "it was changed before it was created")
    told = history.told
    if not told:
        return
    first, last = told[0], told[-1]
    if first.version == 1 and first.maintenance_id is None and first.at != history.created_at:
        yield of_record(history, "created_at", "it was not created when its journal says", journal=first.at.isoformat())
    if last.at > history.updated_at:
        yield of_record(
            history, "updated_at", "its last move is later than its last change", journal=last.at.isoformat()
        )


def _some(versions: Sequence[int]) -> str:
    words = ", ".join(map(str, versions))
    return f"{words}, …" if len(versions) == NAMED_MAX else words
