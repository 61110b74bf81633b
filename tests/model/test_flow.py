"""What follows other jobs: it starts once and only when they allow it; every way to build it wrongly is found."""

from __future__ import annotations

import pytest

from holdfast.core.machines import JobState
from holdfast.model.catalogue import RUNS
from holdfast.model.flow import Flaw, Flow
from tests.model.runs import explored

TAKEN = {
    "succeed",
    "fail",
    "cancel",
    "quarantine",
    "retry",
    "release",
    "look",
    "settle",
    "settle refused",
    "run",
    "crash",
}
FOUND = {run.name: run.expected.fault for run in RUNS if run.name.startswith("flow: ") and not run.expected.sound}


@pytest.mark.parametrize(
    "name, ends",
    [
        ("flow: two jobs and one that waits for both", {JobState.PENDING, JobState.SUCCEEDED}),
        ("flow: two jobs and one that is cancelled with either",
         {JobState.PENDING, JobState.SUCCEEDED, JobState.QUARANTINED}),
        ("flow: two jobs and one that runs when both have ended", {JobState.PENDING, JobState.SUCCEEDED}),
    ],
    ids=["wait", "cancel", "run"],
)  # fmt: skip
def test_nothing_breaks_and_every_action_is_taken(name: str, ends: set[JobState]) -> None:
    graph = explored(name)
    assert graph.broken is None
    assert set(graph.taken) == TAKEN
    assert {state.follower.state for state in graph.states} == ends


def test_every_flaw_is_in_the_catalogue_and_everything_that_must_hold_is_broken_by_one() -> None:
    assert set(FOUND) == {f"flow: {flaw}" for flaw in Flaw}
    model = Flow().model()
    assert set(FOUND.values()) == {*model.invariants, *model.promises}
