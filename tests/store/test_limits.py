"""Limits in the store: what a claim gives out, what it parks, and who gets a slot that is free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from holdfast.core.commands import Cancel, Complete, Fail, GiveBack
from holdfast.core.errors import LimitInvalidError
from holdfast.core.limits import Limit
from holdfast.core.machines import JobState
from holdfast.core.records import Attempt
from holdfast.store import Lease, Submission
from tests.store.verbs import WORKER, Verbs

CUSTOMER = Limit(running=1, path="customer.id")


def limit(verbs: Verbs, subject: str, value: Limit | None) -> bool:
    with verbs.store.transaction() as transaction:
        return transaction.limits.set(subject, value, actor="operator", reason="a test")


def submit(verbs: Verbs, customers: Sequence[object], **fields: Any) -> list[int]:
    payloads = [msgspec.json.encode({"customer": {"id": customer}}).decode() for customer in customers]
    made = [Submission(operation="echo", payload=payload, **fields) for payload in payloads]
    return [admission.job_id for admission in verbs.submit_all(made)]


def ids(attempts: Sequence[Attempt]) -> list[int]:
    return [attempt.job_id for attempt in attempts]


def complete(verbs: Verbs, *attempts: Attempt) -> None:
    verbs.work_all([(attempt, Complete(attempt.token, "1")) for attempt in attempts])


def held(verbs: Verbs) -> dict[str, list[int]]:
    with verbs.store.reading() as reading:
        found: dict[str, list[int]] = {}
        for bucket, _, job_id in reading.limits.held():
            found.setdefault(bucket, []).append(job_id)
        return found


def waiting(verbs: Verbs) -> dict[str, int]:
    with verbs.store.reading() as reading:
        return {bucket: n for bucket, _, n in reading.limits.waiting()}


# -- how many at once -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("subject", ["queue:default", "operation:echo"])
def test_no_more_jobs_run_at_once_than_a_limit_allows(verbs: Verbs, subject: str) -> None:
    limit(verbs, subject, Limit(running=2))
    jobs = submit(verbs, range(5))
    first = verbs.claim(10)
    assert ids(first) == jobs[:2]
    assert verbs.claim(10) == []
    assert waiting(verbs) == {subject: 3}
    complete(verbs, first[0])
    assert waiting(verbs) == {subject: 2}  # the end has let one go
    [third] = verbs.claim(10)
    assert third.job_id == jobs[2]
    assert held(verbs) == {subject: sorted((first[1].job_id, third.job_id))}
    complete(verbs, first[1], third)
    last = verbs.claim(10)
    assert ids(last) == jobs[3:]
    complete(verbs, *last)
    assert (held(verbs), waiting(verbs)) == ({}, {})


def test_each_key_has_a_limit_of_its_own(verbs: Verbs) -> None:
    limit(verbs, "key:echo", CUSTOMER)
    jobs = submit(verbs, [1, 1, "1", 1, None, 2])
    assert ids(verbs.claim(10)) == [jobs[0], jobs[2], jobs[4], jobs[5]]
    assert set(held(verbs)) == {"key:echo=1", 'key:echo="1"', "key:echo=null", "key:echo=2"}
    assert waiting(verbs) == {"key:echo=1": 2}


def test_the_jobs_of_one_key_take_one_execution_each_and_no_more_journal_rows(verbs: Verbs) -> None:
    def rows() -> int:
        with verbs.store.reading() as reading:
            return int(reading.execute("SELECT count(*) FROM holdfast_journal WHERE machine = 'JOB'")[0][0])

    free = submit(verbs, range(20))
    complete(verbs, *verbs.claim(100))
    plain = rows()
    limit(verbs, "key:echo", CUSTOMER)
    jobs = submit(verbs, ["shop"] * 20)
    order = []
    while found := verbs.claim(100):
        assert len(found) == 1
        order += ids(found)
        complete(verbs, *found)
    assert order == jobs
    assert rows() == 2 * plain
    assert all(len(verbs.executions(job_id)) == 1 for job_id in (*free, *jobs))
    assert Counter(verbs.job(job_id).attempts for job_id in jobs) == {1: 20}


def test_a_job_must_be_within_all_its_limits(verbs: Verbs) -> None:
    limit(verbs, "queue:default", Limit(running=2))
    limit(verbs, "operation:echo", Limit(running=3))
    limit(verbs, "key:echo", CUSTOMER)
    jobs = submit(verbs, [1, 1, 2, 3, 4])
    first = verbs.claim(10)
    assert ids(first) == [jobs[0], jobs[2]]
    complete(verbs, first[0])
    second = verbs.claim(10)
    assert ids(second) == [jobs[1]]
    complete(verbs, first[1], *second)
    third = verbs.claim(10)
    assert ids(third) == jobs[3:]
    complete(verbs, *third)
    assert (held(verbs), waiting(verbs)) == ({}, {})


def test_room_that_a_parked_job_cannot_use_goes_to_the_next(verbs: Verbs) -> None:
    """A job with a free slot of its key may be held by another limit: the slot must not be lost."""
    limit(verbs, "operation:echo", Limit(running=1))
    limit(verbs, "queue:slow", Limit(running=1))
    [blocker] = verbs.submit_all([Submission(operation="thumbnail", payload="{}", queue="slow")])
    [running] = verbs.claim(1, queues=("slow",))
    assert running.job_id == blocker.job_id
    [first] = submit(verbs, [1])
    [held_one] = verbs.claim(1)
    [slow] = submit(verbs, [2], queue="slow", priority=5)
    [quick] = submit(verbs, [3])
    assert verbs.claim(10, queues=("slow", "default")) == []
    complete(verbs, held_one)  # lets `slow` go, which finds its queue full
    assert ids(verbs.claim(10, queues=("slow", "default"))) == [quick]
    assert waiting(verbs) == {"queue:slow": 1}
    assert (verbs.job(slow).state, verbs.job(first).state) == (JobState.PENDING, JobState.SUCCEEDED)


@pytest.mark.parametrize("n", [1, 7, 500])
def test_a_claim_skips_jobs_without_a_free_slot(verbs: Verbs, n: int) -> None:
    limit(verbs, "key:echo", CUSTOMER)
    submit(verbs, ["one"] * 300)
    last = submit(verbs, ["two"])
    found: list[int] = []
    for _ in range(3):
        found += ids(verbs.claim(n))
    assert len(found) == 2
    assert found[-1] == last[0]


def test_a_limited_claim_keeps_the_fair_order(verbs: Verbs) -> None:
    limit(verbs, "queue:default", Limit(running=1))
    [old] = submit(verbs, [1], priority=1)
    verbs.clock.advance(3600)
    new = submit(verbs, range(5), priority=3)
    verbs.store.fair = True
    order = []
    for _ in range(6):
        [attempt] = verbs.claim(1)
        order.append(attempt.job_id)
        complete(verbs, attempt)
    assert order == [old, *new]


# -- how a slot comes back --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        lambda attempt, at: Fail(attempt.token, "boom", "it failed", at),
        lambda attempt, at: GiveBack(attempt.token, at, "stopped"),
    ],
    ids=["fail", "give_back"],
)
def test_however_an_attempt_ends_its_slot_is_free(verbs: Verbs, command: object) -> None:
    limit(verbs, "queue:default", Limit(running=1))
    jobs = submit(verbs, [1, 2])
    [first] = verbs.claim(10)
    verbs.claim(10)
    later = verbs.clock.after(60)
    verbs.work(first, command(first, later))  # type: ignore[operator]
    assert held(verbs) == {}
    [second] = verbs.claim(10)
    assert second.job_id == jobs[1]


def test_the_slot_of_a_lost_worker_is_free_when_its_lease_ends(verbs: Verbs) -> None:
    limit(verbs, "queue:default", Limit(running=1))
    jobs = submit(verbs, [1, 2])
    verbs.claim(10, seconds=30)
    assert verbs.claim(10) == []
    verbs.clock.advance(31)
    verbs.recover()
    assert held(verbs) == {}
    assert ids(verbs.claim(10)) == [jobs[1]]  # the other one is due since its lease was lost
    assert waiting(verbs) == {"queue:default": 1}


def test_a_parked_job_that_is_cancelled_takes_no_slot_with_it(verbs: Verbs) -> None:
    limit(verbs, "queue:default", Limit(running=1))
    jobs = submit(verbs, [1, 2, 3])
    [first] = verbs.claim(10)
    verbs.claim(10)
    complete(verbs, first)  # lets the second go
    verbs.rule(verbs.job(jobs[1]), Cancel())
    assert ids(verbs.claim(10)) == []
    verbs.clock.advance(2)
    verbs.claim(10)  # sweeps
    assert ids(verbs.claim(10)) == [jobs[2]]


def test_a_sweep_frees_slots_that_a_crash_left(verbs: Verbs) -> None:
    limit(verbs, "queue:default", Limit(running=1))
    jobs = submit(verbs, [1, 2])
    [first] = verbs.claim(10)
    verbs.claim(10)
    verbs.store.limited = False  # a process that does not know the limit ends it
    complete(verbs, first)
    verbs.store.limited = True
    assert held(verbs) == {"queue:default": [jobs[0]]}
    with verbs.store.transaction() as transaction:
        transaction.limits.sweep()
    assert ids(verbs.claim(10)) == [jobs[1]]


# -- changes at run time ----------------------------------------------------------------------------------------------


def test_a_limit_holds_for_what_waits_and_runs_when_it_is_set(verbs: Verbs) -> None:
    jobs = submit(verbs, range(4))
    running = verbs.claim(2)
    assert limit(verbs, "queue:default", Limit(running=2))
    assert not limit(verbs, "queue:default", Limit(running=2))
    assert held(verbs) == {"queue:default": jobs[:2]}
    assert verbs.claim(10) == []
    assert limit(verbs, "queue:default", Limit(running=3))  # lets one go
    assert ids(verbs.claim(10)) == [jobs[2]]
    assert limit(verbs, "queue:default", Limit(running=1))
    complete(verbs, *running)
    assert verbs.claim(10) == []  # one runs, and one is allowed
    assert limit(verbs, "queue:default", None)
    assert (held(verbs), waiting(verbs)) == ({}, {})
    assert ids(verbs.claim(10)) == [jobs[3]]


def test_changes_are_journalled(verbs: Verbs) -> None:
    limit(verbs, "queue:default", Limit(running=2))
    limit(verbs, "queue:default", Limit(running=3))
    limit(verbs, "queue:default", None)
    with verbs.store.reading() as reading:
        rows = reading.execute(
            "SELECT event, actor, reason FROM holdfast_journal WHERE machine = 'SETTING' ORDER BY seq"
        )
    assert [tuple(row) for row in rows] == [
        (event, "operator", "a test") for event in ("set", "replace", "set", "remove")
    ]


def test_a_process_that_does_not_know_a_limit_claims_nothing(verbs: Verbs) -> None:
    [job] = submit(verbs, [1])
    limit(verbs, "queue:default", Limit(running=1))
    for known in (False, None):
        verbs.store.limited = known
        assert verbs.claim(10) == []
        with verbs.store.transaction() as transaction:
            assert transaction.jobs.outlook(["default"])[0] is not None
        assert verbs.store.limited is True
    assert ids(verbs.claim(10)) == [job]
    limit(verbs, "queue:default", None)
    verbs.store.limited = True
    with verbs.store.transaction() as transaction:
        transaction.jobs.outlook(["default"])
    assert verbs.store.limited is False


def test_given_jobs_are_claimed_within_limits(verbs: Verbs) -> None:
    limit(verbs, "queue:default", Limit(running=1))
    jobs = submit(verbs, [1, 2])
    verbs.store.limited = None
    with verbs.store.transaction() as transaction:
        won = transaction.executions.claim_these(jobs, Lease(owner=WORKER, seconds=30))
    assert ids(won) == jobs[:1]
    assert held(verbs) == {"queue:default": jobs[:1]}
    assert waiting(verbs) == {"queue:default": 1}


@pytest.mark.parametrize(
    "subject, value",
    [
        ("queue:default", Limit(running=0)),
        ("queue:default", Limit(running=-1)),
        ("queue:default", Limit()),
        ("queue:", Limit(running=1)),
        ("fleet:all", Limit(running=1)),
        ("queue:default", Limit(starts=0)),
        ("queue:default", Limit(starts=5, seconds=0)),
        ("queue:default", Limit(starts=5, burst=0)),
        ("key:echo", Limit(running=1)),
        ("key:echo", Limit(running=1, path="customer..id")),
        ("queue:default", Limit(running=1, path="customer.id")),
    ],
)
def test_a_limit_that_cannot_be_enforced_is_refused(verbs: Verbs, subject: str, value: Limit) -> None:
    with pytest.raises(LimitInvalidError) as caught:
        limit(verbs, subject, value)
    assert caught.value.code == "limit_invalid"
    with verbs.store.reading() as reading:
        assert reading.limits.rules() == {}
