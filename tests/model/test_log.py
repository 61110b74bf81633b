"""The log that Holdfast keeps: every action of its model is taken, and every way to build it wrongly is found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.model.checker import Graph, explore
from holdfast.model.log import FAIR, Flaw, Log, Mode, State
from tests.model.runs import explored

REQUESTED = {
    "request lost",
    "append",
    "append, answer lost",
    "append again",
    "append again, answer lost",
    "append refused",
}
WORKED = {"claim", "expire", "fail", "give up", "crash", "restart", "recovered", "cleanup"}
# What one key shows, two keys show in a hundred times as many states.
SIZES = pytest.mark.parametrize("keys", [1, pytest.param(2, marks=pytest.mark.slow)])


@pytest.fixture(scope="module")
def of_one_database() -> Graph[State]:
    return explored("log: effects in the ledger's own database")


def require_every_action(graph: Graph[State], applied: set[str]) -> None:
    taken = set(graph.taken)
    assert taken == REQUESTED | WORKED | applied
    assert taken >= FAIR - {"complete", "apply", "mark"}


def test_every_action_is_taken(of_one_database: Graph[State]) -> None:
    require_every_action(of_one_database, {"complete"})


@pytest.mark.req("W-12")
def test_with_retries_the_lookup_of_a_key_is_what_keeps_entries_apart(of_one_database: Graph[State]) -> None:
    """Where a client asks again under an old key, the sound log passes and the one without the lookup fails."""
    assert of_one_database.broken is None
    broken = explore(Log(flaw=Flaw.KEY_NOT_LOOKED_UP).model()).broken
    assert broken is not None
    assert broken.name == "one entry a key"


@pytest.mark.req("W-07")
@SIZES
def test_cleanup_that_drops_keys_is_seen_in_effects_and_not_in_entries(keys: int) -> None:
    """One entry a key holds all the while; the work is done twice."""
    model = Log(keys=keys, flaw=Flaw.CLEANUP_DROPS_KEY).model()
    entries = {"one entry a key": model.invariants["one entry a key"]}
    assert explore(replace(model, invariants=entries)).broken is None
    effects = {"one effect a key": model.invariants["one effect a key"]}
    broken = explore(replace(model, invariants=effects)).broken
    assert broken is not None
    assert [action for action, _ in broken.trace] == [
        "start",
        "append",
        "claim",
        "complete",
        "cleanup",
        "append",
        "claim",
        "complete",
    ]


@pytest.mark.req("W-16")
@SIZES
def test_an_effect_elsewhere_is_made_once_only_if_its_target_knows_the_key(keys: int) -> None:
    sound = explore(Log(keys=keys, keyed_target=True).model())
    assert sound.broken is None
    require_every_action(sound, {"apply", "mark"})
    broken = explore(Log(keys=keys, flaw=Flaw.MARK_APART).model()).broken
    assert broken is not None
    assert broken.name == "one effect a key"
    assert "crash" in [action for action, _ in broken.trace]


@pytest.mark.req("W-05", "W-14")
def test_recovery_may_be_killed_and_begins_again_with_the_oldest(of_one_database: Graph[State]) -> None:
    graph = of_one_database
    recovering = [number for number, state in enumerate(graph.states) if state.mode is Mode.RECOVERING]
    assert any(
        name == "crash" and not graph.states[number].idle for number in recovering for name, _ in graph.edges[number]
    )
    for number in recovering:
        state = graph.states[number]
        waiting = [place for place, entry in enumerate(state.entries) if entry.status == "Pending"]
        for name, target in graph.edges[number]:
            if name in ("claim", "complete", "fail", "give up", "expire"):
                changed = [
                    place
                    for place, (old, new) in enumerate(zip(state.entries, graph.states[target].entries, strict=True))
                    if old != new
                ]
                assert changed == waiting[:1]
