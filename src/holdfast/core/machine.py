"""State machines: named events, each of which takes a path of edges from a state.

Invariants: those of `machine_flaws`, which the generator of the triggers checks, so that no database has a table that
contradicts itself.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import pairwise

import msgspec

from holdfast.core.digest import digest
from holdfast.core.errors import InvalidStateTransitionError, MachineError, invariant

NOTHING = "∅"  # the source of a new record in texts for people; None in code and NULL in SQL


class Rule(StrEnum):
    """Whether a path is routine, or needs a grant."""

    ROUTINE = "routine"
    GOVERNED = "governed"


class Row(msgspec.Struct, frozen=True):
    """One line of the transition table: `Row("JOB", "expire", "running → failed → pending")`."""

    machine: str
    event: str
    path: str
    rule: Rule = Rule.ROUTINE


class Edge(msgspec.Struct, frozen=True, order=True):
    """One step between two states; `source` is None for a new record."""

    source: str | None
    target: str

    def __str__(self) -> str:
        return f"{self.source or NOTHING} → {self.target}"


class Path(msgspec.Struct, frozen=True):
    """The edges that one event takes from one state; `source` is None for a new record."""

    event: str
    edges: tuple[Edge, ...]
    rule: Rule
    source: str | None
    target: str

    @property
    def governed(self) -> bool:
        """Return whether this path needs a grant."""
        return self.rule is Rule.GOVERNED

    def __str__(self) -> str:
        return " → ".join([self.edges[0].source or NOTHING, *(edge.target for edge in self.edges)])


class Machine:
    """A declared machine; paths are found by event and source, or by source and target."""

    def __init__(
        self, name: str, rows: Iterable[Row], *, final: Iterable[str], names: Iterable[str] | None = None
    ) -> None:
        self.name = name
        self.final = frozenset(map(str, final))
        self.paths = tuple(_path(row) for row in rows if row.machine == name)
        self.states = _states_in_order(self.paths)
        invariant(names is None or set(names) == set(self.states), f"the states of {name} differ from its table")
        self.edges = tuple(dict.fromkeys(edge for path in self.paths for edge in path.edges))
        self._by_event = {(path.event, path.source): path for path in self.paths}
        self._by_ends = {(path.source, path.target): path for path in self.paths}
        self.events = tuple(dict.fromkeys(path.event for path in self.paths))
        self.governed_edges = frozenset(path.edges[0] for path in self.paths if path.governed)
        self.digest = digest(
            {
                "machine": name,
                "final": sorted(self.final),
                "rows": [[path.event, str(path), str(path.rule)] for path in self.paths],
            }
        )

    def __repr__(self) -> str:
        return f"Machine({self.name!r})"

    def path(self, event: str, source: str | None) -> Path:
        """Return the path of `event` from `source`, or raise InvalidStateTransitionError."""
        found = self._by_event.get((event, source))
        if found is None:
            msg = f"{self.name} has no event {event!r} from {source or NOTHING}"
            raise InvalidStateTransitionError(msg, context={"machine": self.name, "event": event, "source": source})
        return found

    def allows(self, event: str, source: str | None) -> bool:
        """Return whether the state `source` allows the event."""
        return (event, source) in self._by_event

    def between(self, source: str | None, target: str) -> Path | None:
        """Return a path with this source and target, or None; all such paths have the same edges."""
        return self._by_ends.get((source, target))

    def births(self) -> Iterator[Path]:
        """Yield the paths of new records."""
        return (path for path in self.paths if path.source is None)

    def moves(self) -> Iterator[Path]:
        """Yield the paths from a state."""
        return (path for path in self.paths if path.source is not None)


def _path(row: Row) -> Path:
    names = [name.strip() for name in row.path.split("→")]
    if len(names) < 2 or not all(names) or NOTHING in names[1:]:
        msg = f"{row.machine}.{row.event}: {row.path!r} is not a path"
        raise MachineError(msg)
    states = [None if names[0] == NOTHING else names[0], *names[1:]]
    edges = tuple(Edge(source, target) for source, target in pairwise(states) if target is not None)
    return Path(row.event, edges, row.rule, edges[0].source, edges[-1].target)


def _states_in_order(paths: Iterable[Path]) -> tuple[str, ...]:
    seen: dict[str, None] = {}
    for path in paths:
        for edge in path.edges:
            if edge.source is not None:
                seen.setdefault(edge.source)
            seen.setdefault(edge.target)
    return tuple(seen)
