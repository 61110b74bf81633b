"""The published model of the log: its counts come out exactly, and a test shows what it cannot see."""

from __future__ import annotations

import pytest

from holdfast.core.entries import EntryStatus, entry_edges
from holdfast.model.checker import Graph
from holdfast.model.published import FAIR, OPERATIONS, State
from tests.model.runs import explored

ACTIONS = {
    "AppendToWal",
    "CompleteOperation",
    "FailOperation",
    "Crash",
    "StartRecovery",
    "RecoverEntry",
    "CompleteRecovery",
    "Cleanup",
}


@pytest.fixture(scope="module")
def graph() -> Graph[State]:
    return explored("published log, 1 client")


@pytest.mark.req("W-08", "W-09", "W-10", "W-11", "W-12")
def test_the_published_model_has_the_published_actions_and_variables(graph: Graph[State]) -> None:
    assert set(graph.taken) == ACTIONS
    assert State._fields == ("wal", "storage", "clients", "crashed", "recovering", "next_entry")
    assert {"AppendToWal", "Crash", "Cleanup"} == ACTIONS - FAIR
    assert len(OPERATIONS) == 4


@pytest.mark.req("W-10")
def test_an_entry_moves_as_our_own_view_of_a_job_does(graph: Graph[State]) -> None:
    moved = set()
    for state, leaving in zip(graph.states, graph.edges, strict=True):
        before = {entry.id: entry.status for entry in state.wal}
        for _, target in leaving:
            for entry in graph.states[target].wal:
                if before.get(entry.id) is not entry.status:
                    moved.add((before.get(entry.id), entry.status))
    assert moved == {(edge.source, edge.target) for edge in entry_edges()}


@pytest.mark.req("W-12")
def test_the_published_model_never_uses_a_key_twice(graph: Graph[State]) -> None:
    """The branch for a known key is never taken, so that a log without it would pass as well."""
    assert graph.broken is None
    assert "AppendToWal of a known key" not in graph.taken
    assert graph.taken["AppendToWal"] > 0


@pytest.mark.req("W-14")
def test_the_published_model_does_not_crash_during_recovery(graph: Graph[State]) -> None:
    assert not any(state.crashed and state.recovering for state in graph.states)
    pending_in_recovery = [state for state in graph.states if state.recovering and not state.idle]
    assert pending_in_recovery
    assert all(entry.status in EntryStatus for state in pending_in_recovery for entry in state.wal)
