"""Quarantine: its jobs and reasons, its counts, adding by hand, and purging with the record kept."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.audit.check.runner import check
from holdfast.core.authority import Act
from holdfast.core.commands import Cancel, Fail
from holdfast.core.errors import InputError, InvalidStateTransitionError, JobNotFoundError
from holdfast.core.journal import JournalRow
from holdfast.core.machines import JobState
from holdfast.explain.explain import explain
from holdfast.governance import quarantine
from holdfast.governance.quarantine import QuarantineFilters, add, find, history, purge, show, statistics
from holdfast.governance.reasons import Reason
from holdfast.governance.releases import release
from holdfast.store import Lease, Store, Submission, open_store
from holdfast.testing import VirtualClock
from tests.governance.quarantining import (
    ANN,
    failed_once,
    grant_states,
    granted,
    job_of,
    quarantined,
    states,
    submitted,
)
from tests.support.ledgers import new_store

HOUR, DAY = 3600, 86400


def cancelled(store: Store[Any], **fields: Any) -> int:
    [job_id] = submitted(store, **fields)
    with store.transaction() as transaction:
        transaction.rulings.rule([(transaction.jobs.get(job_id), Cancel())], actor="operator-1")
    return job_id


def found(store: Store[Any], *, limit: int = 50, before: int | None = None, **filters: Any) -> list[int]:
    with store.reading() as reading:
        return [job.job_id for job in find(reading, QuarantineFilters(**filters), limit=limit, before=before)]


# ---------------------------------------------------------------------------------------------------------------------
# Looking


@pytest.mark.req("G-21")
def test_quarantined_jobs_are_found_by_each_filter(
    store: Store[Any], clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine, "_PAGE", 2)  # a reason is looked for page by page
    [old] = quarantined(store, "timed_out", operation="thumbnail")
    clock.advance(2 * DAY)
    a, b, c = quarantined(store, "poison", n=3, queue="slow", message="429 too many requests")
    [parsed] = quarantined(store, "parse_error")
    dropped = cancelled(store)
    waiting, failing = submitted(store, n=2)
    failed_once(store)
    assert states(store, [waiting, failing]) == ["failed", "pending"]

    assert found(store) == [parsed, c, b, a, old]
    assert found(store, limit=2) == [parsed, c]
    assert found(store, limit=2, before=c) == [b, a]
    assert found(store, cancelled=True) == [dropped, parsed, c, b, a, old]
    assert found(store, code="cancelled") == found(store, reason=Reason.CANCELLED) == [dropped]
    assert found(store, code="poison") == found(store, queue="slow") == [c, b, a]
    assert found(store, reason=Reason.RATE_LIMITED) == [c, b, a]
    assert found(store, reason=Reason.RATE_LIMITED, limit=2) == [c, b]
    assert found(store, reason=Reason.TIMEOUT) == found(store, operation="thumbnail") == [old]
    assert found(store, reason=Reason.TIMEOUT, queue="slow") == []
    assert found(store, older_than=timedelta(days=2)) == []  # it must have been there for longer
    assert found(store, older_than=timedelta(days=1)) == [old]
    with pytest.raises(InputError):
        found(store, limit=0)


@pytest.mark.req("G-21")
def test_statistics_count_each_job_once_from_one_view(store: Store[Any], clock: VirtualClock) -> None:
    quarantined(store, "timed_out", operation="thumbnail")
    clock.advance(30 * DAY - 7 * DAY)
    quarantined(store, "poison", n=2, queue="slow", message="malformed")
    clock.advance(7 * DAY - HOUR)
    quarantined(store, "poison", message="seven")
    cancelled(store)
    clock.advance(HOUR)
    purge(store, timedelta(days=29), operator="ann", reason="old", apply=True)
    with store.reading() as reading:
        first = statistics(reading)
        quarantined(store, "parse_error")  # by another operator, meanwhile
        assert statistics(reading) == first
        assert first.total + first.cancelled == sum(c.n for c in reading.counts.current() if c.state == "quarantined")
    assert (first.total, first.cancelled, first.slimmed) == (4, 1, 1)
    assert list(first.by_reason.items()) == [("parse_error", 2), ("timeout", 1), ("unknown", 1)]
    assert first.by_operation == {"echo": 3, "thumbnail": 1}
    assert first.by_queue == {"default": 2, "slow": 2}
    assert first.by_age == {
        "less than an hour": 0, "less than a day": 1, "less than 7 days": 0, "less than 30 days": 2,
        "30 days or more": 1,
    }  # fmt: skip
    with store.reading() as reading:
        every = statistics(reading, cancelled=True)
    assert (every.total, every.cancelled, every.by_reason["cancelled"]) == (6, 1, 1)


@pytest.mark.req("G-21", "K-17")
def test_a_job_is_shown_with_its_quarantines_and_releases(store: Store[Any], clock: VirtualClock) -> None:
    [job_id] = quarantined(store, "poison", message="malformed", max_attempts=2, replay_attempts=0)
    came = clock()
    clock.advance(60)
    with store.reading() as reading:
        shown = show(reading, job_id)
    assert (shown.reason, shown.since, shown.by, shown.why) == ("parse_error", came, "operator-1", "looks wrong")
    assert (shown.left, shown.then) == (2, JobState.QUARANTINED)
    assert shown.next == (f"holdfast quarantine release {job_id} --reason TEXT",)
    assert [_fields(row) for row in shown.moves] == [("quarantine", "operator-1", "looks wrong", None)]

    clock.advance(60)
    assert release(store, job_id, **ANN).grant_id == 1
    with store.reading() as reading:
        shown = show(reading, job_id)
    assert (shown.reason, shown.since, shown.next) == (None, None, (f"holdfast explain {job_id}",))
    assert [_fields(row) for row in shown.moves] == [
        ("quarantine", "operator-1", "looks wrong", None),
        ("release", "ann", "the reader was mended", 1),
    ]
    [past] = shown.releases
    assert (past.job_id, past.at, past.by, past.reason) == (job_id, clock(), "ann", "the reader was mended")
    assert (past.requested_by, past.approved_by, past.approved_how, past.under) == ("ann", "ann", "self", None)
    with store.reading() as reading, pytest.raises(JobNotFoundError):
        show(reading, 10_000)


def _fields(row: JournalRow) -> tuple[str, str, str | None, int | None]:
    return row.event, row.actor, row.reason, row.grant_id


@pytest.mark.parametrize(
    "spent, budget, left, then",
    [
        (0, (3, 5), 3, "failed"),
        (0, (3, 0), 3, "quarantined"),
        (1, (1, 0), 1, "quarantined"),
        (1, (1, 1), 1, "quarantined"),
        (1, (1, 5), 1, "failed"),
    ],
)
def test_the_shown_effect_of_a_release_matches_the_budget(
    sqlite_url: str, spent: int, budget: tuple[int, int], left: int, then: str
) -> None:
    """The shown effect matches what happens to a job that continues to fail."""
    max_attempts, replay_attempts = budget
    clock = VirtualClock()
    with new_store(sqlite_url, clock) as store:
        [job_id] = submitted(store, max_attempts=max_attempts, replay_attempts=replay_attempts)
        for _ in range(spent):
            failed_once(store)
        if job_of(store, job_id).state is not JobState.QUARANTINED:
            add(store, job_id, "poison", **ANN)
        with store.reading() as reading:
            shown = show(reading, job_id)
        assert (shown.left, shown.then) == (left, then)
        release(store, job_id, **ANN)
        for n in range(1, left + 1):
            assert job_of(store, job_id).state is JobState.PENDING, n
            with store.transaction() as transaction:
                [attempt] = transaction.executions.claim(Lease(owner="worker-1", seconds=30))
                again = Fail(attempt.execution.lease_token, "io_error", "the disk said no", retry_at=clock())
                transaction.executions.move([(attempt, again)], actor="worker-1")
        assert job_of(store, job_id).state == then


@pytest.mark.req("K-17")
def test_the_next_command_is_a_request_for_a_grant_where_one_is_needed(prod_url: str) -> None:
    with open_store(prod_url) as store:
        [job_id] = quarantined(store)
        with store.reading() as reading:
            ask, then = show(reading, job_id).next
        assert (
            ask == f"holdfast grant request job.release job:{job_id} --executor NAME --rollback-plan TEXT --reason TEXT"
        )
        assert then == f"holdfast quarantine release {job_id} --reason TEXT --grant ID"
        assert grant_states(store) == []


@pytest.mark.req("K-17")
def test_explain_names_the_release_of_a_quarantined_job(stage_url: str) -> None:
    with open_store(stage_url) as store:
        [job_id] = quarantined(store)
        nexts = [_next(store, job_id)]
        number = granted(store, Act.RELEASE, f"job:{job_id}")
        nexts.append(_next(store, job_id))
    assert nexts == [
        f"holdfast grant request job.release job:{job_id} --executor NAME --rollback-plan TEXT --reason TEXT",
        f"holdfast quarantine release {job_id} --reason TEXT --grant {number}",
    ]


def _next(store: Store[Any], job_id: int) -> str:
    with store.reading() as reading:
        [finding] = explain(reading, job_id, store.now()).findings
    return finding.next


# ---------------------------------------------------------------------------------------------------------------------
# Adding


@pytest.mark.req("K-15", "G-21", "G-25")
def test_a_job_is_quarantined_by_hand(store: Store[Any]) -> None:
    waiting, failing, running = submitted(store, n=3)
    with store.transaction() as transaction:
        [held] = transaction.executions.claim(Lease(owner="worker-1", seconds=30))
    assert held.job.job_id == waiting
    failed_once(store)  # the next one
    assert states(store, [waiting, failing, running]) == ["running", "failed", "pending"]

    added = add(store, failing, "resource_exhausted", operator="ann", reason="password=hunter2 fills the disk")
    assert (added.changed, added.job.state, added.job.quarantine_code) == (True, "quarantined", "resource_exhausted")
    assert (added.job.last_error_code, added.job.last_error_message) == ("io_error", "the disk said no")  # kept
    added = add(store, running, "my_own_code", operator="ann", reason="it looks odd")
    assert (added.job.last_error_code, added.job.last_error_message) == ("my_own_code", "it looks odd")  # set
    with store.reading() as reading:
        rows = [_fields(reading.journal.of(job_id)[-1]) for job_id in (failing, running)]
    assert rows == [
        ("quarantine", "ann", "password=*** fills the disk", None),
        ("quarantine", "ann", "it looks odd", None),
    ]

    again = add(store, running, "timeout", **ANN)
    assert (again.changed, again.job.quarantine_code, again.job.version) == (False, "my_own_code", added.job.version)
    with pytest.raises(InvalidStateTransitionError) as refused:
        add(store, waiting, "timeout", **ANN)
    assert (refused.value.code, refused.value.context["refusal"]) == ("invalid_state_transition", "wrong_state")
    assert job_of(store, waiting).state is JobState.RUNNING
    with pytest.raises(JobNotFoundError):
        add(store, 10_000, "timeout", **ANN)


@pytest.mark.parametrize(
    "code, operator, reason",
    [
        ("cancelled", "ann", "x"), ("Poison", "ann", "x"), ("two words", "ann", "x"), ("", "ann", "x"),
        ("x" * 65, "ann", "x"), ("ä", "ann", "x"), ("1st", "ann", "x"), ("timeout", " ", "x"), ("timeout", "ann", ""),
        ("timeout", "ann", " \n"), ("timeout", "a\0b", "x"), ("timeout", "\ud800", "x"),
    ],
)  # fmt: skip
def test_an_invalid_code_or_reason_is_refused_before_any_write(
    sqlite_url: str, code: str, operator: str, reason: str
) -> None:
    with new_store(sqlite_url) as store:
        [job_id] = submitted(store)
        with pytest.raises(InputError):
            add(store, job_id, code, operator=operator, reason=reason)
        assert job_of(store, job_id).version == 1


# ---------------------------------------------------------------------------------------------------------------------
# Purging


@pytest.mark.req("G-21")
def test_a_purge_drops_payload_and_result_and_keeps_the_record(store: Store[Any], clock: VirtualClock) -> None:
    [old] = quarantined(store, key="k-1", client="web", payload='{"secret":1}')
    dropped = cancelled(store, key="k-2")
    clock.advance(29 * DAY)
    [young] = quarantined(store)
    clock.advance(DAY + 1)
    before = job_of(store, old)

    counted = purge(store, timedelta(days=30), operator="ann", reason="spring", apply=False)
    assert (counted.dry_run, counted.quarantined, counted.finished) == (True, 2, 0)
    assert job_of(store, old) == before

    done = purge(store, timedelta(days=30), operator="ann", reason="spring", apply=True)
    assert (done.dry_run, done.quarantined) == (False, 2)
    after = job_of(store, old)
    assert (after.slimmed, after.payload, after.digest, after.key) == (True, None, before.digest, "k-1")
    assert (after.version, after.quarantine_code, after.updated_at) == (before.version, "poison", before.updated_at)
    assert job_of(store, dropped).slimmed
    assert not job_of(store, young).slimmed
    with store.reading() as reading:
        notes = [(row.event, row.actor, row.reason) for row in reading.journal.of(1, "MAINTENANCE")]
    slimmed = f'{{"first":{old},"jobs":2,"last":{dropped}}}'
    assert notes == [("open", "ann", "spring"), ("slim", "ann", slimmed), ("shut", "ann", "spring")]
    assert purge(store, timedelta(days=30), operator="ann", reason="spring", apply=True).quarantined == 0
    assert check(store).ok
    with store.transaction() as transaction:  # the key is taken for life
        [same] = transaction.jobs.submit(
            [Submission(operation="echo", payload='{"secret":1}', client="web", key="k-1")]
        )
    assert (same.job_id, same.is_new) == (old, False)


# ---------------------------------------------------------------------------------------------------------------------
# History


@pytest.mark.req("K-17", "G-25")
def test_every_release_can_be_reviewed(stage_url: str) -> None:
    with open_store(stage_url) as store:
        first, second = quarantined(store, n=2)
        numbers = [granted(store, Act.RELEASE, f"job:{job_id}") for job_id in (first, second)]
        for job_id, number in zip((first, second), numbers, strict=True):
            release(store, job_id, grant_id=number, **ANN)
        with store.reading() as reading:
            past_releases = history(reading)
            of_one = history(reading, job_id=first)
            page = history(reading, limit=1), history(reading, limit=1, before=numbers[1])
    assert [(past.job_id, past.grant_id, past.by, past.approved_by, past.approved_how) for past in past_releases] == [
        (second, numbers[1], "ann", "bob", "claimed"),
        (first, numbers[0], "ann", "bob", "claimed"),
    ]
    assert {(past.reason, past.state, past.requested_by) for past in past_releases} == {
        ("the reader was mended", JobState.PENDING, "ann")
    }
    assert of_one == past_releases[1:]
    assert page == (past_releases[:1], past_releases[1:])
