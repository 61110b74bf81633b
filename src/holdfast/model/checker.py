"""Visits every state that a model can reach, and checks its invariants and its promises.

A model is a first state, the steps out of a state, and the invariants of every state. States are hashable values; equal
states are one state. The search is breadth-first, so the trace to a broken invariant is a shortest one.

Invariants: a run visits every state within the bound, or returns the invariant that broke and the trace to it;
`generated` and `distinct` count as TLC counts, so that the numbers can be compared; a cycle breaks a promise only if it
is fair: each fair action is taken in the cycle, or is impossible in some state of it.
"""

import gc
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from holdfast.core.errors import invariant

S = TypeVar("S", bound=Hashable)
_OUT = -1  # the index of a state that is out of bound


@dataclass(frozen=True)
class Promise(Generic[S]):
    """Whenever `given` is true, `awaited` comes true then or later."""

    given: Callable[[S], bool]
    awaited: Callable[[S], bool]


@dataclass(frozen=True)
class Model(Generic[S]):
    """A model to explore. A step has the name of its action; a state out of `bound` is checked, but not left.

    A `fair` action that stays possible is taken sooner or later; one of the `faults` may happen at any time.
    """

    initial: S
    steps: Callable[[S], Iterable[tuple[str, S]]]
    invariants: Mapping[str, Callable[[S], bool]]
    promises: Mapping[str, Promise[S]] = field(default_factory=dict)
    fair: frozenset[str] = frozenset()
    faults: frozenset[str] = frozenset()
    bound: Callable[[S], bool] = lambda _: True
    canonical: Callable[[S], S] = lambda state: state


@dataclass(frozen=True)
class Broken(Generic[S]):
    """The broken invariant or promise, the trace (action, state after it), and the states of an endless cycle."""

    name: str
    trace: tuple[tuple[str, S], ...]
    cycle: tuple[S, ...] = ()

    def __str__(self) -> str:
        """Return the trace, one action per line."""
        lines = [f"{self.name} is broken after {len(self.trace) - 1} steps"]
        lines += [f"  {action:<24} {state}" for action, state in self.trace]
        lines += [f"  for ever: {state}" for state in self.cycle]
        return "\n".join(lines)


@dataclass
class Graph(Generic[S]):
    """The visited states in the order in which they were found, and the steps between them."""

    model: Model[S]
    states: list[S] = field(default_factory=list)
    reached_by: list[tuple[int, str]] = field(default_factory=list)
    edges: list[tuple[tuple[str, int], ...]] = field(default_factory=list)
    generated: int = 0
    taken: Counter[str] = field(default_factory=Counter)
    broken: Broken[S] | None = None

    @property
    def distinct(self) -> int:
        """Return how many states there are within the bound."""
        return len(self.states)

    def trace_to(self, index: int) -> tuple[tuple[str, S], ...]:
        """Return a shortest trace from the first state to this one."""
        trace: list[tuple[str, S]] = []
        while index >= 0:
            before, action = self.reached_by[index]
            trace.append((action, self.states[index]))
            index = before
        return tuple(reversed(trace))


# ---------------------------------------------------------------------------------------------------------------------
# Safety


def explore(model: Model[S], *, keep_edges: bool = False) -> Graph[S]:
    """Visit every state within the bound; stop at the first state that breaks an invariant."""
    with _no_garbage_collection():
        return _explored(Graph(model, generated=1), keep_edges=keep_edges)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Stop the search for garbage: it finds none among the states, and takes a quarter of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _explored(graph: Graph[S], *, keep_edges: bool) -> Graph[S]:
    model, taken = graph.model, graph.taken
    steps, canonical = model.steps, model.canonical
    found: dict[S, int] = {}
    if _arrive(graph, found, canonical(model.initial), -1, "start") is None:
        return graph
    here = 0
    while here < len(graph.states):  # breadth-first: states are visited in the order in which they were found
        leaving: list[tuple[str, int]] = []
        for action, state in steps(graph.states[here]):
            graph.generated += 1
            taken[action] += 1
            after = canonical(state)
            # One lookup, not two: hashing a state takes most of the time.
            index = found.get(after)
            if index is None:
                index = _arrive(graph, found, after, here, action)
                if index is None:
                    return graph
            if keep_edges and index not in (here, _OUT):
                leaving.append((action, index))
        if keep_edges:
            graph.edges.append(tuple(leaving))
        here += 1
    return graph


def _arrive(graph: Graph[S], found: dict[S, int], state: S, before: int, action: str) -> int | None:
    """Check a new state, and return its index; None if an invariant is broken."""
    for name, holds in graph.model.invariants.items():
        if not holds(state):
            graph.broken = Broken(name, (*graph.trace_to(before), (action, state)))
            return None
    index = _OUT
    if graph.model.bound(state):
        index = len(graph.states)
        graph.states.append(state)
        graph.reached_by.append((before, action))
    found[state] = index
    return index


# ---------------------------------------------------------------------------------------------------------------------
# Liveness


class Kept(StrEnum):
    """Whether a promise is kept."""

    ALWAYS = "always"
    IF_FAULTS_END = "if faults stop"
    NEVER = "no"


def kept(graph: Graph[S], name: str) -> Kept:
    """Return whether the visited graph keeps a promise: always, if faults stop, or never."""
    if unkept(graph, name) is None:
        return Kept.ALWAYS
    return Kept.IF_FAULTS_END if unkept(graph, name, without=graph.model.faults) is None else Kept.NEVER


def unkept(graph: Graph[S], name: str, *, without: Collection[str] = ()) -> Broken[S] | None:
    """Return a trace and a fair cycle in which a promise is never kept, or None.

    The cycle does not take the actions in `without`; the trace may.
    """
    invariant(graph.broken is None and len(graph.edges) == graph.distinct, "promises are checked on a complete graph")
    promise = graph.model.promises[name]
    with _no_garbage_collection():
        for component in _components(graph, _still_open(graph, promise), frozenset(without)):
            members = set(component)
            if _is_fair(graph, members, frozenset(without)):
                cycle = tuple(graph.states[index] for index in sorted(members))
                return Broken(name, graph.trace_to(min(members)), cycle)
    return None


def _still_open(graph: Graph[S], promise: Promise[S]) -> set[int]:
    """Return every state in which the promise was given on some trace and has not been kept since."""
    awaited = [promise.awaited(state) for state in graph.states]
    reached = [i for i, state in enumerate(graph.states) if promise.given(state) and not awaited[i]]
    seen = set(reached)
    while reached:
        for _, target in graph.edges[reached.pop()]:
            if target not in seen and not awaited[target]:
                seen.add(target)
                reached.append(target)
    return seen


def _is_fair(graph: Graph[S], members: set[int], without: frozenset[str]) -> bool:
    """Return whether a run can stay in these states for ever although every fair action is taken.

    A run may stay in one state (a stuttering step), so a component of one state is a cycle too.
    """
    taken: set[str] = set()
    always = graph.model.fair  # the fair actions that are possible in every state
    for index in members:
        leaving = graph.edges[index]
        always = always.intersection(name for name, _ in leaving)
        taken.update(name for name, target in leaving if target in members)
    return always <= taken.difference(without)


def _components(graph: Graph[S], among: set[int], without: frozenset[str]) -> Iterator[list[int]]:
    """Yield the strongly connected components of the steps among some states (Tarjan's, without recursion)."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()

    def leaving(index: int) -> Iterator[int]:
        return (target for name, target in graph.edges[index] if target in among and name not in without)

    for root in among:
        if root in order:
            continue
        order[root] = low[root] = len(order)
        stack.append(root)
        on_stack.add(root)
        path = [(root, leaving(root))]
        while path:
            here, targets = path[-1]
            for target in targets:
                if target not in order:
                    order[target] = low[target] = len(order)
                    stack.append(target)
                    on_stack.add(target)
                    path.append((target, leaving(target)))
                    break
                if target in on_stack:
                    low[here] = min(low[here], order[target])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[here])
                if low[here] == order[here]:
                    component = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.append(member)
                        if member == here:
                            break
                    yield component
