"""What `decide` carries alone: nothing breaks, and the models reach what each guard is there for.

That each invariant breaks without its guard is shown in tests/faults.
"""

from __future__ import annotations

import pytest

from holdfast.core.machines import JobState
from holdfast.model.checker import Graph
from holdfast.model.guards import KEEPS, GovernedGuards, GovernedRows, JobGuards, JobRows
from tests.model.runs import explored

WORKED = {"begin", "lease", "start", "commit", "finish", "complete", "fail", "give up", "give back", "beat", "let go"}
RULED = {"quarantine", "cancel", "retry", "replay", "release"}


@pytest.fixture(scope="module")
def of_a_job() -> Graph[JobRows]:
    return explored("guards: a job, its workers, a reaper, an operator")


@pytest.mark.req("M-06", "M-08", "M-18", "K-17")
def test_nothing_breaks_and_every_action_of_a_job_is_taken(of_a_job: Graph[JobRows]) -> None:
    assert of_a_job.broken is None
    assert set(of_a_job.taken) == WORKED | RULED | {"recover", "expire", "empty", "lower the budget", "tick"}


def test_a_worker_shows_its_token_where_another_holds_the_job(of_a_job: Graph[JobRows]) -> None:
    shown = {(token, len(state.tries)) for state in of_a_job.states for token in state.tokens if token}
    assert {(1, 1), (1, 2), (1, 3), (2, 3)} <= shown


def test_a_job_rests_in_failed_with_everything_spent_once_its_budget_is_lowered(of_a_job: Graph[JobRows]) -> None:
    resting = [state for state in of_a_job.states if state.work.state is JobState.FAILED]
    assert any(state.work.spent >= sum(state.budget) for state in resting)


@pytest.mark.req("L-10")
def test_nothing_breaks_and_every_action_under_a_grant_is_taken() -> None:
    graph: Graph[GovernedRows] = explored("guards: grants, a switch, a value")
    assert graph.broken is None
    acts = {"throw", "lift", "retire", "supersede"}
    assert set(graph.taken) == acts | {"request", "approve", "revoke", "expire", "tick"}


def test_every_invariant_that_a_guard_keeps_is_judged() -> None:
    judged = {*JobGuards().model().invariants, *GovernedGuards().model().invariants}
    assert set(KEEPS.values()) <= judged
