"""The parts of a machine that are drawn: states, arrows, and the paths that take several arrows in one write.

Invariants: the arrows are the machine's edges, each once, in the table's order; an arrow carries the events that take
it alone; a route is a path of two or more edges.
"""

import msgspec

from holdfast.core.entries import ENTRY_STATUS, entry_edges
from holdfast.core.errors import InputError
from holdfast.core.machine import Machine
from holdfast.core.machines import JOB, MACHINES, JobState


class Arrow(msgspec.Struct, frozen=True):
    """One edge; `source` is None for a new record."""

    source: str | None
    target: str
    events: tuple[str, ...]
    governed: bool


class Route(msgspec.Struct, frozen=True):
    """Events that take the same two or more edges in one write."""

    events: tuple[str, ...]
    states: tuple[str | None, ...]


class Diagram(msgspec.Struct, frozen=True):
    """The parts of one machine that a picture shows."""

    name: str
    states: tuple[str, ...]
    final: frozenset[str]
    arrows: tuple[Arrow, ...]
    routes: tuple[Route, ...]


def diagrams() -> tuple[Diagram, ...]:
    """Return every machine in the table's order, and ENTRY, a view of JOB, after JOB."""
    drawn = [_of(machine) for machine in MACHINES.values()]
    drawn.insert(1, _entry())
    return tuple(drawn)


def find(name: str) -> Diagram:
    """Return one diagram by its machine's name, in any case."""
    known = {diagram.name: diagram for diagram in diagrams()}
    if name.upper() not in known:
        raise InputError(
            f"Unknown machine {name!r}.",
            next_step=f"Use one of {', '.join(known)}.",
            context={"machine": name, "machines": list(known)},
        )
    return known[name.upper()]


def _of(machine: Machine) -> Diagram:
    arrows = tuple(
        Arrow(
            edge.source,
            edge.target,
            tuple(path.event for path in machine.paths if path.edges == (edge,)),
            edge in machine.governed_edges,
        )
        for edge in machine.edges
    )
    routes: dict[tuple[str | None, ...], list[str]] = {}
    for path in machine.paths:
        if len(path.edges) > 1:
            states = (path.source, *(edge.target for edge in path.edges))
            routes.setdefault(states, []).append(path.event)
    return Diagram(
        machine.name,
        machine.states,
        machine.final,
        arrows,
        tuple(Route(tuple(events), states) for states, events in routes.items()),
    )


def _entry() -> Diagram:
    """Draw ENTRY: the routine events of JOB, by what they do to the entry's status."""
    events: dict[tuple[str | None, str], dict[str, None]] = {}
    for path in JOB.paths:
        if not path.governed:
            source = ENTRY_STATUS[JobState(path.source)] if path.source else None
            events.setdefault((source, ENTRY_STATUS[JobState(path.target)]), {})[path.event] = None
    edges = tuple(entry_edges())
    states = tuple(dict.fromkeys(edge.target for edge in edges))
    return Diagram(
        "ENTRY",
        states,
        frozenset(states) - {edge.source for edge in edges},
        tuple(Arrow(edge.source, edge.target, tuple(events[edge.source, edge.target]), False) for edge in edges),
        (),
    )
