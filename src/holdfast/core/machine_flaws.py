"""What makes a transition table contradict itself: checked when the triggers are generated from it.

Invariants of a sound table:
- an event has at most one path from a state, so `(event, source)` identifies a path;
- all paths with the same source and target have the same edges, so the two states of a write identify its edges;
- a path visits no state twice; every edge of a longer path is also a path of its own;
- a governed path is one edge, and that edge is part of no other path;
- every state is reachable from ∅; every state that is not final can reach a final one;
- a final state has no routine exit.
"""

from collections.abc import Iterator

from holdfast.core.errors import MachineError
from holdfast.core.machine import NOTHING, Machine, Path


def require_sound(machine: Machine) -> None:
    """Raise MachineError for the first flaw of a table."""
    for flaw in (
        *_ambiguities(machine),
        *_malformed_paths(machine),
        *_governed_leaks(machine),
        *_unreachable(machine),
        *_dead_ends(machine),
    ):
        msg = f"{machine.name}: {flaw}"
        raise MachineError(msg, context={"machine": machine.name})


def _ambiguities(machine: Machine) -> Iterator[str]:
    by_event: dict[tuple[str, str | None], Path] = {}
    by_ends: dict[tuple[str | None, str], Path] = {}
    for path in machine.paths:
        if by_event.setdefault((path.event, path.source), path) is not path:
            yield f"{path.event!r} is ambiguous from {path.source or NOTHING}"
        if by_ends.setdefault((path.source, path.target), path).edges != path.edges:
            yield f"{path.source or NOTHING} to {path.target} is ambiguous: two paths share these ends"


def _malformed_paths(machine: Machine) -> Iterator[str]:
    alone = {path.edges[0] for path in machine.paths if len(path.edges) == 1}
    for path in machine.paths:
        visited = [edge.source for edge in path.edges] + [path.target]
        if len(set(visited)) != len(visited):
            yield f"{path.event!r} visits a state twice: {path}"
        for edge in path.edges:
            if edge not in alone:
                yield f"{path.event!r} takes the edge {edge}, which is not listed alone"


def _governed_leaks(machine: Machine) -> Iterator[str]:
    governed = {edge for path in machine.paths if path.governed for edge in path.edges}
    for path in machine.paths:
        if path.governed and len(path.edges) > 1:
            yield f"{path.event!r} is governed and longer than one edge"
        if not path.governed and governed.intersection(path.edges):
            yield f"{path.event!r} is routine and takes a governed edge"


def _unreachable(machine: Machine) -> Iterator[str]:
    for state in machine.states:
        if state not in _reach(machine, None):
            yield f"{state} is unreachable from {NOTHING}"
    for state in machine.final.difference(machine.states):
        yield f"{state} is called final but no path leads there"


def _dead_ends(machine: Machine) -> Iterator[str]:
    routine = [edge for path in machine.paths if not path.governed for edge in path.edges]
    for state in machine.states:
        if state in machine.final:
            if any(edge.source == state for edge in routine):
                yield f"{state} is called final but has a routine exit"
        elif not machine.final & _reach(machine, state):
            yield f"{state} is a dead end: it is not final and reaches nothing final"


def _reach(machine: Machine, start: str | None) -> set[str]:
    reached = {edge.target for edge in machine.edges if edge.source == start}
    while True:
        further = reached | {edge.target for edge in machine.edges if edge.source in reached}
        if further == reached:
            return reached
        reached = further
