"""Limits: in every order of steps no claim goes beyond one and no slot is lost; every flaw is found."""

from __future__ import annotations

import pytest

from holdfast.core.machines import JobState
from holdfast.model.catalogue import RUNS
from holdfast.model.limits import Flaw, Limits
from tests.model.runs import explored

TAKEN = {"claim", "complete", "forget", "crash", "expire", "cancel", "set limit", "sweep", "tick"}
FOUND = {run.name: run.expected.fault for run in RUNS if run.name.startswith("limits: ") and not run.expected.sound}


@pytest.mark.req("G-20")
def test_nothing_breaks_every_action_is_taken_and_each_limit_is_reached() -> None:
    graph = explored("limits: a queue and two keys")
    assert graph.broken is None
    assert set(graph.taken) == TAKEN
    running = {sum(case.work.state is JobState.RUNNING for case in state.jobs) for state in graph.states}
    assert running == {0, 1, 2}  # of three jobs: the queue has two slots, and two of the jobs have one key
    ended = [state for state in graph.states if all(case.work.state is JobState.SUCCEEDED for case in state.jobs)]
    assert ended
    assert all(not state.slots for state in ended)


def test_every_flaw_is_in_the_catalogue_and_everything_that_must_hold_is_broken_by_one() -> None:
    assert set(FOUND) == {f"limits: {flaw}" for flaw in Flaw}
    model = Limits().model()
    assert set(FOUND.values()) == {*model.invariants, *model.promises}
