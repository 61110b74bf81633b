"""Grants: one lets one job go, once, in every order of steps; and every way to build that wrongly is found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.model.catalogue import RUNS
from holdfast.model.checker import Graph, explore
from holdfast.model.grants import Flaw, Grants, State
from tests.model.runs import explored

TAKEN = {"request", "tick", "quarantine", "crash"} | {
    f"{before}{verb}" for verb in ("approve", "revoke", "expire", "release") for before in ("", "decide to ")
}
REFUSED = {"approve refused", "revoke refused", "expire refused", "release refused"}
APPROVED = ["request", "decide to approve", "approve"]
ONCE = "a grant is used once"


def explored_for(name: str, grants: Grants) -> Graph[State]:
    """Explore, and check one invariant alone."""
    model = grants.model()
    return explore(replace(model, invariants={name: model.invariants[name]}))


# ---------------------------------------------------------------------------------------------------------------------
# Sound


@pytest.mark.req("L-10")
@pytest.mark.parametrize(
    "name, taken",
    [("grants: two jobs", TAKEN | REFUSED - {"approve refused"}), ("grants: two clerks", TAKEN | REFUSED)],
    ids=["two jobs", "two clerks"],
)
def test_nothing_breaks_and_every_action_is_taken(name: str, taken: set[str]) -> None:
    graph = explored(name)
    assert graph.broken is None
    assert set(graph.taken) == taken


@pytest.fixture(scope="module")
def of_one_job() -> Graph[State]:
    return explore(Grants(jobs=1).model(), keep_edges=True)


@pytest.mark.req("L-04", "L-10")
def test_a_refused_or_crashed_act_changes_nothing(of_one_job: Graph[State]) -> None:
    graph = of_one_job
    for state, leaving in zip(graph.states, graph.edges, strict=True):
        for action, target in leaving:
            if action == "crash" or action.endswith(" refused"):
                after = graph.states[target]
                assert (after.jobs, after.grants, after.uses) == (state.jobs, state.grants, state.uses)


def test_a_job_can_leave_twice_and_only_by_two_grants(of_one_job: Graph[State]) -> None:
    twice = [state for state in of_one_job.states if len(state.uses) == 2]
    assert twice
    assert all({use.grant for use in state.uses} == {0, 1} for state in twice)


def test_a_grant_that_runs_out_between_the_judgement_and_the_write_still_counts(of_one_job: Graph[State]) -> None:
    """What is written is matched by version, not by time: a grant may run out while its use waits to be written."""
    graph = of_one_job
    left_at_the_write = {
        state.grants[graph.states[target].uses[-1].grant].expires
        for state, leaving in zip(graph.states, graph.edges, strict=True)
        for action, target in leaving
        if action == "release"
    }
    assert left_at_the_write == {0, 1}


# ---------------------------------------------------------------------------------------------------------------------
# Flawed

FOUND = {run.name: run.expected.fault for run in RUNS if run.name.startswith("grants: ") and not run.expected.sound}


def test_every_flaw_is_in_the_catalogue_and_every_invariant_is_broken_by_one() -> None:
    assert set(FOUND) == {f"grants: {flaw}" for flaw in Flaw}
    assert set(FOUND.values()) == set(Grants().model().invariants)


@pytest.mark.req("L-10")
@pytest.mark.parametrize("runners, meanwhile", [(1, ["crash", "quarantine"]), (2, ["quarantine"])])
def test_in_two_writes_a_grant_is_used_again_before_it_is_used_up(runners: int, meanwhile: list[str]) -> None:
    """Another process uses it in between, or the same one after a crash."""
    broken = explored_for(ONCE, Grants(runners=runners, flaw=Flaw.TWO_WRITES)).broken
    assert broken is not None
    released = ["decide to release", "release"]
    assert [action for action, _ in broken.trace[1:]] == [*APPROVED, *released, *meanwhile, *released]


def test_the_version_of_the_job_keeps_a_grant_from_being_used_twice_too() -> None:
    """A use that does not match the grant goes wrong if it was revoked; a second use fails on the job."""
    graph = explored_for(ONCE, Grants(jobs=1, flaw=Flaw.GRANT_UNMATCHED))
    assert graph.broken is None
    assert graph.taken["release refused"] > 0
