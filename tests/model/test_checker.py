"""The checker shows what is broken by a shortest trace, and counts a cycle against a promise only if it is fair."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import BrokenError
from holdfast.model.checker import Graph, Kept, Model, Promise, explore, kept, unkept

Arrows = dict[int, list[tuple[str, int]]]


def model(
    arrows: Arrows,
    *,
    fair: set[str] = frozenset(),  # type: ignore[assignment]
    faults: set[str] = frozenset(),  # type: ignore[assignment]
    holds: Callable[[int], bool] = lambda _: True,
    awaited: Callable[[int], bool] = lambda state: state == 9,
    bound: Callable[[int], bool] = lambda _: True,
) -> Model[int]:
    """Return a model that starts in 0 and goes along these arrows; it promises, from 1 on, to come to 9."""

    def steps(state: int) -> Iterator[tuple[str, int]]:
        yield from arrows.get(state, [])

    return Model(
        initial=0,
        steps=steps,
        invariants={"holds": holds},
        promises={"comes": Promise(lambda state: state == 1, awaited)},
        fair=frozenset(fair),
        faults=frozenset(faults),
        bound=bound,
    )


def whole(of: Model[int]) -> Graph[int]:
    """Explore it with its edges."""
    return explore(of, keep_edges=True)


# ---------------------------------------------------------------------------------------------------------------------
# Safety


def test_every_state_is_visited_once_and_every_step_is_counted() -> None:
    graph = explore(model({0: [("a", 1), ("b", 2)], 1: [("c", 2), ("c", 0)], 2: [("d", 2)]}))
    assert (graph.generated, graph.distinct, graph.broken) == (6, 3, None)
    assert dict(graph.taken) == {"a": 1, "b": 1, "c": 2, "d": 1}


def test_a_broken_invariant_is_shown_by_a_shortest_trace() -> None:
    long_and_short = {0: [("walk", 1), ("jump", 3)], 1: [("walk", 2)], 2: [("walk", 4)], 3: [("walk", 4)]}
    broken = explore(model(long_and_short, holds=lambda state: state != 4)).broken
    assert broken is not None
    assert (broken.name, broken.trace) == ("holds", (("start", 0), ("jump", 3), ("walk", 4)))
    assert str(broken).splitlines()[0] == "holds is broken after 2 steps"


def test_the_first_state_is_judged_too() -> None:
    broken = explore(model({}, holds=lambda state: state != 0)).broken
    assert broken is not None
    assert broken.trace == (("start", 0),)


def test_a_state_out_of_bounds_is_checked_and_not_explored_further() -> None:
    chain = {n: [("on", n + 1)] for n in range(100)}
    graph = explore(model(chain, bound=lambda state: state < 5))
    assert (graph.generated, graph.distinct, graph.broken) == (6, 5, None)
    broken = explore(model(chain, bound=lambda state: state < 5, holds=lambda state: state != 5)).broken
    assert broken is not None
    assert len(broken.trace) == 6


# ---------------------------------------------------------------------------------------------------------------------
# Liveness


def test_a_promise_is_kept_if_every_path_leads_there() -> None:
    assert kept(whole(model({0: [("a", 1)], 1: [("b", 2)], 2: [("b", 9)]}, fair={"b"})), "comes") is Kept.ALWAYS


def test_without_fairness_a_state_may_never_be_left() -> None:
    broken = unkept(whole(model({0: [("a", 1)], 1: [("b", 9)]})), "comes")
    assert broken is not None
    assert (broken.trace, broken.cycle) == ((("start", 0), ("a", 1)), (1,))


def test_a_dead_end_keeps_nothing() -> None:
    assert kept(whole(model({0: [("a", 1)], 1: [("b", 2)]}, fair={"b"})), "comes") is Kept.NEVER


def test_a_cycle_that_neglects_a_fair_action_does_not_count() -> None:
    there_and_back = {0: [("a", 1)], 1: [("on", 2), ("out", 9)], 2: [("on", 1), ("out", 9)]}
    assert kept(whole(model(there_and_back, fair={"on", "out"})), "comes") is Kept.ALWAYS


def test_a_cycle_in_which_the_fair_action_is_not_always_possible_counts() -> None:
    now_and_then = {0: [("a", 1)], 1: [("on", 2), ("out", 9)], 2: [("on", 1)]}
    broken = unkept(whole(model(now_and_then, fair={"on", "out"})), "comes")
    assert broken is not None
    assert set(broken.cycle) == {1, 2}


def test_faults_that_come_to_an_end() -> None:
    crashing = {0: [("a", 1)], 1: [("crash", 2), ("work", 9)], 2: [("restart", 1)]}
    graph = whole(model(crashing, fair={"work", "restart"}, faults={"crash"}))
    assert kept(graph, "comes") is Kept.IF_FAULTS_END


def test_a_promise_is_open_only_until_it_is_kept() -> None:
    after = {0: [("a", 1)], 1: [("b", 9)], 9: [("c", 3)], 3: [("d", 4)], 4: [("d", 3)]}
    assert kept(whole(model(after, fair={"b"})), "comes") is Kept.ALWAYS


def test_promises_are_judged_on_a_whole_graph() -> None:
    with pytest.raises(BrokenError):
        kept(explore(model({0: [("a", 1)]})), "comes")


# ---------------------------------------------------------------------------------------------------------------------
# Against a search that is slow and plain


@given(
    arrows=st.dictionaries(
        st.integers(0, 6), st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 6)), max_size=4), max_size=7
    ),
    fair=st.sets(st.sampled_from("abc")),
)
def test_a_promise_is_judged_as_by_looking_at_every_set_of_states(arrows: Arrows, fair: set[str]) -> None:
    """A way that never keeps it ends in a set of states that it visits for ever: try every set."""
    graph = whole(model(arrows, fair=fair, awaited=lambda state: state == 0))
    index = {state: number for number, state in enumerate(graph.states)}
    reachable = set(graph.states)
    real = {state: {(name, target) for name, target in arrows.get(state, []) if target != state} for state in reachable}

    def closure(start: set[int], within: set[int]) -> set[int]:
        seen = start & within
        grown = True
        while grown:
            more = {t for s in seen for _, t in real[s] if t in within} - seen
            seen |= more
            grown = bool(more)
        return seen

    still_open = closure({1} & reachable, reachable - {0})
    found = False
    states = sorted(still_open)
    for mask in range(1, 1 << len(states)):
        members = {state for bit, state in enumerate(states) if mask >> bit & 1}
        if any(closure({state}, members) != members for state in members):
            continue
        found |= all(
            any(name == action and target in members for state in members for name, target in real[state])
            or any(all(name != action for name, _ in real[state]) for state in members)
            for action in fair
        )
    assert (unkept(graph, "comes") is not None) == found, (arrows, fair, index)
