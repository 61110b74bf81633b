"""Limits as pure rules: buckets and their names, tokens, slots, depths, and what a claim does with its candidates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.core.errors import LimitInvalidError
from holdfast.core.limit_texts import PERIOD_S_MAX, RUNNING_MAX, STARTS_MAX, checked, limit_of, limit_text, parsed_rate
from holdfast.core.limits import (
    BUCKET_CHARS_MAX,
    EVERY,
    Candidate,
    Limit,
    Room,
    Tokens,
    buckets_of,
    key_bucket,
    rule_of,
)

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
RULES = {"queue:mail": Limit(running=1), "operation:send": Limit(running=2), "key:send": Limit(starts=2, path="to")}


def job(job_id: int, queue: str = "mail", operation: str = "send", key: str | None = '"ann"') -> Candidate:
    return Candidate(job_id, queue, operation, key)


def test_a_limit_without_a_rate_has_no_tokens() -> None:
    assert (Limit(running=1).burst_max, Limit(running=1).per_s) == (0.0, 0.0)
    assert (Limit(starts=6, seconds=3).burst_max, Limit(starts=6, seconds=3).per_s) == (6.0, 2.0)
    assert Limit(starts=6, burst=9).burst_max == 9.0


def test_tokens_come_with_time_up_to_the_burst() -> None:
    rate = Limit(starts=2, burst=3)
    empty = Tokens(0.0, NOW)
    assert [empty.by(NOW + timedelta(seconds=s), rate) for s in (-1, 0, 1, 2)] == [0.0, 0.0, 2.0, 3.0]
    assert empty.next_at(NOW, rate) == NOW + timedelta(seconds=0.5)
    assert Tokens(1.0, NOW).next_at(NOW, rate) == NOW
    assert empty.next_at(NOW - timedelta(seconds=9), rate) == NOW + timedelta(seconds=0.5)
    assert empty.wake_at(NOW, Limit(starts=1000)) == NOW + timedelta(seconds=0.05)
    assert empty.wake_at(NOW, rate) == NOW + timedelta(seconds=0.5)


def test_each_bucket_of_a_job_has_its_limit() -> None:
    assert [name for name, _ in buckets_of(job(1), RULES)] == ["queue:mail", "operation:send", 'key:send="ann"']
    assert buckets_of(job(1, queue="other", operation="other"), RULES) == []


def test_a_long_key_is_hashed() -> None:
    fits = '"' + "x" * (BUCKET_CHARS_MAX - len('key:send=""')) + '"'
    assert len(key_bucket("key:send", fits)) == BUCKET_CHARS_MAX
    assert key_bucket("key:send", fits) == f"key:send={fits}"
    assert key_bucket("key:send", f'"x{fits[1:]}').startswith("key:send#")
    assert (key_bucket("key:send", None), key_bucket("key:send", "[1, 2]")) == ("key:send=null", "key:send=[1,2]")


@pytest.mark.parametrize(
    "bucket, subject",
    [
        ("queue:mail", "queue:mail"),
        ("rate:operation:send", "operation:send"),
        ('key:send="a=b#c"', "key:send"),
        ("rate:key:send#0f", "key:send"),
    ],
)
def test_a_bucket_leads_back_to_its_limit(bucket: str, subject: str) -> None:
    assert rule_of(bucket, RULES) is RULES[subject]
    assert rule_of(bucket, {}) is None


def test_what_is_left_in_a_bucket() -> None:
    room = Room(RULES, NOW)
    room.know([("queue:mail", 1), ("operation:send", 2)], [("rate:a", 1.5, NOW)])
    assert room.left("queue:mail", Limit(running=1)) == 0
    assert room.left("operation:send", Limit(running=2)) == 1
    assert room.left("operation:send", Limit(starts=2)) == EVERY
    assert [room.left("rate:a", limit) for limit in (Limit(running=1), Limit(starts=2))] == [EVERY, 1]
    assert room.left("rate:new", Limit(starts=2)) == 2  # a bucket that was never used is full
    room.waiting["depth:mail"] = 3
    assert [room.left("depth:mail", Limit(depth=depth)) for depth in (2, 3, 5)] == [0, 0, 2]
    assert room.left("depth:other", Limit(depth=2)) == 2


def test_the_lowest_slot_that_is_free_is_taken() -> None:
    room = Room(RULES, NOW)
    room.know([("a", 1), ("a", 3)], [])
    assert [room.free_slot("a") for _ in range(3)] == [2, 4, 5]


def test_candidates_are_chosen_or_parked_and_buckets_with_room_are_passed_on() -> None:
    found = Room(RULES, NOW).assign([job(1), job(2), job(3, queue="other"), job(4, queue="other", key='"bob"')], 10)
    assert found.chosen == [1, 3]
    assert found.parked == {2: "queue:mail", 4: "operation:send"}
    assert found.taken == [("queue:mail", 1, 1), ("operation:send", 1, 1), ("operation:send", 2, 3)]
    assert found.tokens == {'rate:key:send="ann"': Tokens(0.0, NOW)}
    # Job 2 would have used the last slot of its operation and the last token of its key, job 4 a token of its own.
    assert found.passed == {"operation:send", 'rate:key:send="ann"', 'rate:key:send="bob"'}
    assert Room(RULES, NOW).assign([job(1), job(3, queue="other")], 1).chosen == [1]


# ---------------------------------------------------------------------------------------------------------------------
# As people write them

LONGEST = "queue:" + "x" * (BUCKET_CHARS_MAX - len("queue:"))


@pytest.mark.parametrize(
    "subject, limit",
    [
        ("queue:mail", Limit(running=1)),
        ("operation:send", Limit(running=RUNNING_MAX, starts=STARTS_MAX, burst=STARTS_MAX, seconds=PERIOD_S_MAX)),
        ("queue:mail", Limit(starts=1, burst=1, seconds=0.001)),
        ("key:send", Limit(running=1, path="customer.id")),
        ("depth:mail", Limit(depth=1)),
        (LONGEST, Limit(running=1)),
    ],
)
def test_a_limit_that_can_be_enforced_is_accepted(subject: str, limit: Limit) -> None:
    assert checked(subject, limit) is limit


@pytest.mark.parametrize(
    "subject, limit, argument",
    [
        ("depth:mail", Limit(running=1), None),
        ("mail", Limit(running=1), None),
        ("queue:", Limit(running=1), None),
        (LONGEST + "x", Limit(running=1), None),
        ("queue:\ud800", Limit(running=1), None),
        ("queue:mail", Limit(depth=1), None),
        ("queue:mail", Limit(running=0), "running"),
        ("queue:mail", Limit(running=RUNNING_MAX + 1), "running"),
        ("queue:mail", Limit(running=True), "running"),
        ("queue:mail", Limit(starts=0), "starts"),
        ("queue:mail", Limit(starts=STARTS_MAX + 1), "starts"),
        ("queue:mail", Limit(starts=1, burst=0), "burst"),
        ("queue:mail", Limit(starts=1, burst=STARTS_MAX + 1), "burst"),
        ("queue:mail", Limit(starts=1, seconds=0), "seconds"),
        ("queue:mail", Limit(starts=1, seconds=PERIOD_S_MAX + 1), "seconds"),
        ("queue:mail", Limit(running=1, path="a"), "path"),
        ("key:send", Limit(running=1), "path"),
        ("key:send", Limit(running=1, path="a..b"), "path"),
    ],
)
def test_a_limit_that_cannot_be_enforced_is_refused(subject: str, limit: Limit, argument: str | None) -> None:
    with pytest.raises(LimitInvalidError) as caught:
        checked(subject, limit)
    assert caught.value.context == {"limit": subject} | ({} if argument is None else {"argument": argument})


@pytest.mark.parametrize(
    "text, rate",
    [("100/minute", (100, 60.0)), ("5/10s", (5, 10.0)), (" 7 / 2 hours ", (7, 7200.0)), ("1/d", (1, 86_400.0))],
)
def test_a_rate_is_read(text: str, rate: tuple[int, float]) -> None:
    assert parsed_rate(text) == rate
    limit = limit_of(running=3, rate=text, burst=4, path="a")
    assert limit == Limit(running=3, starts=rate[0], seconds=rate[1], burst=4, path="a")


def test_what_is_not_a_rate_is_refused() -> None:
    with pytest.raises(LimitInvalidError) as caught:
        parsed_rate("often")
    assert caught.value.context == {"rate": "often"}
    with pytest.raises(LimitInvalidError) as caught:
        limit_of(burst=1)
    assert caught.value.context == {"argument": "burst"}
    assert limit_of(running=1, path="a") == Limit(running=1, path="a")


@pytest.mark.parametrize(
    "limit, text",
    [
        (None, ""),
        (Limit(running=4), "4 at once"),
        (Limit(running=4, starts=5, seconds=60, path="customer.id"), "4 at once, 5/m for each customer.id"),
        (Limit(starts=5, seconds=7200), "5/2h"),
        (Limit(starts=5, seconds=1.5), "5/1.5s"),
        (Limit(starts=5, seconds=86_400), "5/d"),
        (Limit(depth=3), "3 waiting, more parked"),
    ],
)
def test_a_limit_is_said(limit: Limit | None, text: str) -> None:
    assert limit_text(limit) == text
