"""The one format of times, and the two budgets of a job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import BrokenError
from holdfast.core.machines import ExecutionStatus
from holdfast.core.records import MAX_ATTEMPTS, REPLAY_ATTEMPTS, Attempt, Execution, Job, time_from, time_text
from tests.core.asking import NOW, attempt, job

ZONES = (UTC, timezone(timedelta(hours=-7)), timezone(timedelta(hours=5, minutes=45)))
MOMENTS = st.builds(
    lambda microseconds, zone: (NOW + timedelta(microseconds=microseconds)).astimezone(zone),
    st.integers(-(10**16), 10**17),
    st.sampled_from(ZONES),
)


@pytest.mark.parametrize(
    "moment, text",
    [
        (datetime(2030, 1, 2, 3, 4, 5, 6, UTC), "2030-01-02T03:04:05.000006Z"),
        (datetime(2030, 1, 2, 3, 4, 5, 0, UTC), "2030-01-02T03:04:05.000000Z"),
        (datetime(2030, 1, 2, 3, 4, 5, 6, timezone(timedelta(hours=5, minutes=45))), "2030-01-01T21:19:05.000006Z"),
    ],
)
def test_a_time_has_one_text(moment: datetime, text: str) -> None:
    assert time_text(moment) == text
    assert time_from(text) == moment


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(BrokenError, match="a time without a zone"):
        time_text(datetime(2030, 1, 2))  # noqa: DTZ001 - that is the mistake


@given(MOMENTS, MOMENTS)
def test_texts_sort_like_their_times(one: datetime, other: datetime) -> None:
    assert (time_text(one) < time_text(other)) == (one < other)
    assert time_from(time_text(one)) == one
    assert time_from(time_text(one)).utcoffset() == timedelta(0)


@pytest.mark.req("X-06")
def test_a_job_has_five_attempts_and_five_replays_by_default() -> None:
    assert (MAX_ATTEMPTS, REPLAY_ATTEMPTS) == (5, 5)


@pytest.mark.req("X-06", "K-14")
@pytest.mark.parametrize(
    "attempts, excused, spent, may_retry, may_replay",
    [(0, 0, 0, True, True), (4, 0, 4, True, True), (5, 0, 5, False, True), (5, 1, 4, True, True),
     (9, 0, 9, False, True), (10, 0, 10, False, False), (12, 2, 10, False, False), (12, 8, 4, True, True)],
)  # fmt: skip
def test_used_attempts_and_attempts_left(
    attempts: int, excused: int, spent: int, may_retry: bool, may_replay: bool
) -> None:
    record = job(attempts=attempts, excused=excused)
    assert (record.spent, record.may_retry, record.may_replay) == (spent, may_retry, may_replay)


def test_a_job_without_its_payload_is_slimmed() -> None:
    assert (job().slimmed, job(payload=None).slimmed) == (False, True)


def test_equal_attempts_have_equal_hashes_and_attempts_of_other_jobs_differ() -> None:
    one, same = attempt(ExecutionStatus.LEASED), attempt(ExecutionStatus.LEASED)
    other = attempt(ExecutionStatus.LEASED, job_id=2)
    assert (one == same, hash(one) == hash(same), one == other) == (True, True, False)
    assert {one: 1}[same] == 1


@pytest.mark.parametrize("lost, suspect", [(None, False), (1, False), (2, True), (3, True)])
def test_a_job_is_a_suspect_after_two_lost_leases(lost: int | None, suspect: bool) -> None:
    made = attempt(ExecutionStatus.LEASED)
    whole = Attempt(job(lost=lost), made.execution)
    call = (1, "noop", "1.0.0", "{}", lost)
    claimed = Attempt.claimed(call, (made.exec_id, made.owner, made.token), lambda _long: (whole.job, whole.execution))
    assert (whole.suspect, claimed.suspect) == (suspect, suspect)


def test_a_long_payload_is_read_when_it_is_used_and_can_be_let_go() -> None:
    whole = attempt(ExecutionStatus.LEASED)
    asked: list[bool] = []

    def make(with_payload: bool) -> tuple[Job, Execution]:
        asked.append(with_payload)
        return job(payload="{}" if with_payload else None), whole.execution

    lease = (whole.exec_id, whole.owner, whole.token)
    claimed = Attempt.claimed((1, "noop", "1.0.0", None, None), lease, make)
    assert (claimed.payload, claimed.payload, asked) == ("{}", "{}", [True])
    claimed.forget_payload()
    assert (claimed.job.payload, claimed.payload, asked) == (None, "{}", [True, False, True])
    other = Attempt.claimed((1, "noop", "1.0.0", "{}", None), lease, make)
    assert (other.execution, other.job.payload, asked[3:]) == (whole.execution, None, [False])  # and no payload is read
    with pytest.raises(AttributeError):
        _ = other.no_such_field
    whole.forget_payload()  # it was claimed with its payload, and keeps it
    assert whole.payload == "{}"
