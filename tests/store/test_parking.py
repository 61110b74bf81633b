"""Parked jobs: pending, and seen by no claim until their limit lets them go."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.commands import Cancel, Complete
from holdfast.core.errors import RefusedByDatabaseError
from holdfast.core.machines import JobState
from holdfast.store import Lease
from tests.store.verbs import Verbs


def parked(verbs: Verbs) -> dict[int, tuple[Any, ...]]:
    with verbs.store.reading() as reading:
        rows = reading.execute("SELECT job_id, parked, limit_key FROM holdfast_jobs ORDER BY job_id")
    return {job_id: tuple(rest) for job_id, *rest in rows}


def park(verbs: Verbs, *job_ids: int, bucket: str | None = "b") -> set[int]:
    with verbs.store.transaction() as transaction:
        return transaction.parking.park(job_ids, "limit", bucket)


def test_a_parked_job_is_pending_and_is_not_claimed(verbs: Verbs) -> None:
    first, second = verbs.submit(), verbs.submit()
    before = verbs.job(first), verbs.journal(first)
    assert park(verbs, first, first) == {first}
    assert park(verbs, first) == set()
    assert (verbs.job(first), verbs.journal(first)) == before  # parking is no move
    with verbs.store.transaction() as transaction:
        assert transaction.executions.claim_these([first], Lease(owner="w", seconds=30)) == []
        assert transaction.lists.jobs(state=JobState.PENDING)[-1].job_id == first
    assert [attempt.job_id for attempt in verbs.claim(10)] == [second]
    with verbs.store.reading() as reading:
        assert reading.jobs.outlook(["default"])[0] is None


def test_only_the_cause_that_parked_a_job_lets_it_go(verbs: Verbs) -> None:
    job_id = verbs.submit(queue="slow")
    park(verbs, job_id)
    with verbs.store.transaction() as transaction:
        assert transaction.parking.let_go([job_id], "after") == set()
        assert transaction.parking.let_go([job_id], "limit") == {job_id}
        assert transaction.queues_to_announce == {"slow"}
    assert parked(verbs) == {job_id: (None, None)}
    [attempt] = verbs.claim(10, queues=("slow",))
    assert attempt.job.version == 2


def test_only_a_pending_job_can_be_parked(verbs: Verbs) -> None:
    job_id = verbs.submit()
    attempt = verbs.claim_one()
    assert park(verbs, job_id) == set()
    verbs.work(attempt, Complete(attempt.token, "1"))
    assert park(verbs, job_id) == set()
    with pytest.raises(RefusedByDatabaseError), verbs.store.transaction() as transaction:
        transaction.execute(f"UPDATE holdfast_jobs SET parked = 'limit' WHERE job_id = {job_id}")


def test_a_ruling_on_a_parked_job_ends_its_parking(verbs: Verbs) -> None:
    job_id = verbs.submit()
    park(verbs, job_id)
    verbs.rule(verbs.job(job_id), Cancel())
    assert verbs.job(job_id).state is JobState.QUARANTINED
    assert parked(verbs) == {job_id: (None, None)}
