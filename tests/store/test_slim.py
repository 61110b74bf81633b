"""Retention empties only jobs that ended before the given time, whatever list of ids it gets."""

from __future__ import annotations

import pytest

from holdfast.core.machines import JOB, JobState
from holdfast.core.records import Job
from tests.store.verbs import OPERATOR, Verbs, changed

OLD_S = 3600


def slim(verbs: Verbs, jobs: list[Job], seconds_ago: float) -> list[int]:
    with (
        verbs.store.transaction() as transaction,
        transaction.maintenance.open(who=OPERATOR, why="retention"),
    ):
        return transaction.retention.slim([job.job_id for job in jobs], before=verbs.clock.after(-seconds_ago))


@pytest.mark.req("W-06", "X-09")
def test_only_jobs_that_have_ended_are_emptied(verbs: Verbs) -> None:
    """The list was made earlier: a job on it may have been released since."""
    jobs = [verbs.job_in(state, queue=state) for state in JobState]
    verbs.clock.advance(OLD_S)
    ended = [job for job in jobs if job.state in JOB.final]
    assert slim(verbs, jobs, OLD_S / 2) == [job.job_id for job in ended]
    for job in jobs:
        assert verbs.job(job.job_id) == (changed(job, payload=None, result=None) if job in ended else job)


@pytest.mark.req("W-06")
def test_only_jobs_that_ended_before_the_given_time_are_emptied(verbs: Verbs) -> None:
    old = verbs.job_in(JobState.SUCCEEDED)
    verbs.clock.advance(OLD_S)
    young = verbs.job_in(JobState.SUCCEEDED)
    assert slim(verbs, [old, young], OLD_S / 2) == [old.job_id]
    assert verbs.job(young.job_id) == young
    assert slim(verbs, [old, young], OLD_S / 2) == []
