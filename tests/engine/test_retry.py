"""Retry: strategies, kinds of failure, budgets kept in the ledger, and jitter from the injected randomness."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from email.message import Message
from random import Random
from typing import Any
from urllib.error import HTTPError

import pytest

from holdfast import Execution, FailureKind, Ledger, RetryPolicy, Snooze, Strategy
from holdfast.core import commands
from holdfast.core.errors import InputError, InvalidStateTransitionError
from holdfast.core.machines import JobState
from holdfast.core.records import LOSSES_EXCUSED
from holdfast.testing import VirtualClock, crash_at, drain, virtual_world

WEEK_S = 7 * 24 * 3600
TRANSIENT, RATE_LIMITED, PERMANENT, UNKNOWN = FailureKind


def delays(policy: RetryPolicy, kind: FailureKind = UNKNOWN, seed: int = 0) -> list[float | None]:
    """Return the delays after the first attempts, until there is no other."""
    found: list[float | None] = []
    randomness = Random(seed)
    while not found or found[-1] is not None:
        found.append(policy.delay_s(len(found) + 1, kind, randomness))
        if len(found) == 12:
            break
    return found


# ---------------------------------------------------------------------------------------------------------------------
# The policy


@pytest.mark.req("G-20")
@pytest.mark.parametrize(
    "strategy, expected",
    [
        (Strategy.EXPONENTIAL_BACKOFF, [10, 20, 40, 60, 60, None]),
        (Strategy.LINEAR_BACKOFF, [10, 20, 30, 40, 50, None]),
        (Strategy.FIXED_DELAY, [10, 10, 10, 10, 10, None]),
        (Strategy.IMMEDIATE, [0, 0, 0, 0, 0, None]),
        (Strategy.NO_RETRY, [None]),
    ],
)
def test_each_strategy_has_its_delays(strategy: Strategy, expected: list[float | None]) -> None:
    policy = RetryPolicy(strategy=strategy, max_attempts=6, base_s=10, cap_s=60, jitter=0)
    assert delays(policy) == expected


@pytest.mark.req("G-20")
@pytest.mark.parametrize(
    "policy, kind, expected",
    [
        # local files: 3 attempts, 30 to 300 s
        ({"max_attempts": 3, "base_s": 30, "cap_s": 300}, UNKNOWN, [30, 60, None]),
        # a mailbox: 5 attempts, 7 for what passes, 120 to 1800 s, 600 s when rate limited
        ({"max_attempts": 5, "transient_max_attempts": 7, "base_s": 120, "cap_s": 1800, "rate_limit_delay_s": 600},
         UNKNOWN, [120, 240, 480, 960, None]),
        ({"max_attempts": 5, "transient_max_attempts": 7, "base_s": 120, "cap_s": 1800, "rate_limit_delay_s": 600},
         TRANSIENT, [120, 240, 480, 960, 1800, 1800]),
        ({"max_attempts": 5, "transient_max_attempts": 7, "base_s": 120, "cap_s": 1800, "rate_limit_delay_s": 600},
         RATE_LIMITED, [600, 600, 600, 600, None]),
        # a repository host: 5 attempts, 300 to 3600 s, 900 s
        ({"max_attempts": 5, "base_s": 300, "cap_s": 3600, "rate_limit_delay_s": 900},
         RATE_LIMITED, [900, 900, 900, 900, None]),
        ({"max_attempts": 5, "base_s": 300, "cap_s": 3600}, UNKNOWN, [300, 600, 1200, 2400, None]),
        # anything else: 3 attempts, 60 to 1800 s
        ({"max_attempts": 3, "base_s": 60, "cap_s": 1800}, RATE_LIMITED, [60, 120, None]),
        ({"max_attempts": 3}, PERMANENT, [None]),
        ({"max_attempts": 3, "permanent_failures_no_retry": False}, PERMANENT, [60, 120, None]),
    ],
)  # fmt: skip
def test_the_policies_of_the_sources_can_be_expressed(
    policy: dict[str, Any], kind: FailureKind, expected: list[float | None]
) -> None:
    assert delays(RetryPolicy(jitter=0, **policy), kind)[: len(expected)] == expected


@pytest.mark.req("G-20")
@pytest.mark.parametrize("jitter", [0.2, 0.25, 0.3, 1.0])
def test_jitter_follows_the_given_randomness_exactly(jitter: float) -> None:
    policy = RetryPolicy(max_attempts=9, base_s=100, cap_s=1000, jitter=jitter)
    same = Random(42)
    plain = [100, 200, 400, 800, 1000, 1000, 1000, 1000]
    expected = [max(1, delay + same.uniform(-jitter * delay, jitter * delay)) for delay in plain]
    assert delays(policy, seed=42) == [*expected, None]
    assert delays(policy, seed=42) != delays(policy, seed=43)
    assert all(
        (1 - jitter) * delay <= waited <= (1 + jitter) * delay for delay, waited in zip(plain, expected, strict=True)
    )


@pytest.mark.req("G-20")
def test_a_delay_is_at_least_a_second_unless_the_base_is_shorter() -> None:
    low = _Lowest()
    assert RetryPolicy(base_s=60, jitter=1).delay_s(1, UNKNOWN, low) == 1
    assert RetryPolicy(base_s=0.5, jitter=1).delay_s(1, UNKNOWN, low) == 0.5
    assert RetryPolicy(base_s=2, jitter=0.25).delay_s(1, UNKNOWN, low) == 1.5


class _Lowest(Random):
    """Randomness at its lowest value."""

    def uniform(self, a: float, b: float) -> float:
        return a


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_attempts": 0}, {"max_attempts": 1001}, {"base_s": -1}, {"base_s": float("nan")}, {"base_s": 90_000},
        {"base_s": 100, "cap_s": 99}, {"cap_s": 604_801}, {"jitter": -0.1}, {"jitter": 1.1}, {"jitter": float("nan")},
        {"multiplier": 0.9}, {"multiplier": 101}, {"multiplier": float("inf")}, {"rate_limit_delay_s": -1},
        {"rate_limit_delay_s": float("nan")}, {"max_attempts": 5, "transient_max_attempts": 4},
    ],
)  # fmt: skip
def test_an_invalid_policy_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        RetryPolicy(**wrong)


def test_no_policy_overflows() -> None:
    policy = RetryPolicy(max_attempts=1000, base_s=86_400, cap_s=604_800, multiplier=100, jitter=0)
    assert policy.delay_s(999, UNKNOWN, Random(0)) == 604_800


# ---------------------------------------------------------------------------------------------------------------------
# The engine


class Failing:
    """An operation that raises what the test says, attempt by attempt, then succeeds."""

    def __init__(self, ledger: Ledger, *raises: BaseException, name: str = "fail", **settings: Any) -> None:
        self.ledger = ledger
        self.raises = list(raises)
        self.operation = ledger.operation(name, **settings)(self._handler)
        self.job_id = ledger.submit(self.operation.call()).job_id

    def _handler(self, _run: Execution) -> None:
        if self.raises:
            raise self.raises.pop(0)

    @property
    def ended(self) -> tuple[Any, ...]:
        job = self.ledger.job(self.job_id)
        return job.state.value, job.attempts, job.excused, job.last_error_code

    def began_after_s(self) -> list[float]:
        """Return when each attempt began, in seconds since the clock's start."""
        with self.ledger.store.reading() as reading:
            return [(e.created_at - VirtualClock()()).total_seconds() for e in reading.lists.executions(self.job_id)]


Fail = Callable[..., Failing]


@pytest.fixture
def fail(ledger: Ledger) -> Fail:
    return lambda *raises, **settings: Failing(ledger, *raises, **settings)


def policy(**fields: Any) -> RetryPolicy:
    return RetryPolicy(**{"base_s": 60, "cap_s": 200, "jitter": 0, **fields})


@pytest.mark.req("G-20", "X-06")
def test_attempts_come_when_the_policy_says_and_end_with_the_budget(
    ledger: Ledger, clock: VirtualClock, fail: Fail
) -> None:
    failing = fail(*[ValueError("no")] * 9, retry=policy(max_attempts=4))
    assert drain(ledger, until=clock.after(WEEK_S)) == 4
    assert failing.began_after_s() == [0, 60, 180, 380]
    assert failing.ended == ("failed", 4, 0, "value_error")
    assert ledger.job(failing.job_id).max_attempts == 4


@pytest.mark.req("G-20")
def test_the_delay_is_jittered_by_the_worlds_randomness(ledger_url: str, clock: VirtualClock) -> None:
    with Ledger(ledger_url, world=virtual_world(clock, seed=5)) as ledger:
        retry = RetryPolicy(base_s=100, jitter=0.5)
        failing = Failing(ledger, ValueError("no"), retry=retry)
        drain(ledger)
        expected = retry.delay_s(1, UNKNOWN, Random(5))
        assert expected not in (None, 100)
        assert ledger.job(failing.job_id).run_at == clock.after(expected or 0)


@pytest.mark.req("G-20", "K-36")
def test_a_permanent_failure_goes_straight_to_quarantine(ledger: Ledger, clock: VirtualClock, fail: Fail) -> None:
    failing = fail(PermissionError("object a"), retry=policy())
    assert drain(ledger, until=clock.after(WEEK_S)) == 1
    assert failing.ended == ("quarantined", 1, 0, "permission_error")
    assert ledger.job(failing.job_id).quarantine_code == "permission_error"


@pytest.mark.req("G-20")
def test_a_permanent_failure_may_be_retried_by_choice(ledger: Ledger, clock: VirtualClock, fail: Fail) -> None:
    failing = fail(*[PermissionError("no")] * 9, retry=policy(max_attempts=2, permanent_failures_no_retry=False))
    assert drain(ledger, until=clock.after(WEEK_S)) == 2
    assert failing.ended == ("failed", 2, 0, "permission_error")


@pytest.mark.req("G-20")
def test_a_transient_failure_has_a_larger_budget(ledger: Ledger, clock: VirtualClock, fail: Fail) -> None:
    passing, other = TimeoutError("t"), ValueError("u")
    cases: list[tuple[list[Exception], tuple[Any, ...]]] = [
        ([passing] * 9, ("failed", 4, 0, "timeout_error")),
        ([other] * 9, ("failed", 2, 0, "value_error")),
        ([passing, passing, other, other], ("failed", 3, 0, "value_error")),
        ([other, *[passing] * 9], ("failed", 4, 0, "timeout_error")),
        ([passing] * 3, ("succeeded", 4, 0, "timeout_error")),
    ]
    retry = policy(max_attempts=2, transient_max_attempts=4)
    failing = [fail(*raises, name=f"case-{n}", retry=retry) for n, (raises, _) in enumerate(cases)]
    drain(ledger, until=clock.after(WEEK_S))
    assert [each.ended for each in failing] == [ended for _, ended in cases]


@pytest.mark.req("G-20")
def test_a_rate_limit_has_its_own_delay(ledger: Ledger, clock: VirtualClock, fail: Fail) -> None:
    raises = [HTTPError("u", 429, "m", Message(), None), ValueError("x"), HTTPError("u", 429, "m", Message(), None)]
    failing = fail(*raises, retry=policy(rate_limit_delay_s=900))
    drain(ledger, until=clock.after(WEEK_S))
    assert failing.began_after_s() == [0, 900, 900 + 120, 900 + 120 + 900]
    assert failing.ended == ("succeeded", 4, 0, "http_error")


@pytest.mark.req("G-20")
def test_no_retry_rests_in_failed_at_once(ledger: Ledger, clock: VirtualClock, fail: Fail) -> None:
    failing = fail(TimeoutError("t"), retry=policy(strategy=Strategy.NO_RETRY))
    assert drain(ledger, until=clock.after(WEEK_S)) == 1
    assert failing.ended == ("failed", 1, 0, "timeout_error")


def test_an_operation_may_classify_its_failures(ledger: Ledger, clock: VirtualClock, fail: Fail) -> None:
    failing = fail(KeyError("x"), retry=policy(), classify=lambda error: FailureKind.PERMANENT)
    drain(ledger, until=clock.after(WEEK_S))
    assert failing.ended == ("quarantined", 1, 0, "key_error")


@pytest.mark.req("X-06")
def test_excused_attempts_spend_nothing(ledger: Ledger, clock: VirtualClock, fail: Fail) -> None:
    wait, no = Snooze(10), ValueError("no")
    failing = fail(wait, no, wait, wait, no, wait, no, no, retry=policy(max_attempts=3))
    assert drain(ledger, until=clock.after(WEEK_S)) == 7
    assert failing.ended == ("failed", 7, 4, "value_error")
    # The backoff grows with what was spent, not with what was excused.
    assert failing.began_after_s() == [0, 10, 70, 80, 90, 210, 220]


@pytest.mark.req("X-06", "K-36", "K-14", "K-31")
def test_a_job_at_the_end_of_its_whole_budget_is_quarantined(ledger: Ledger, clock: VirtualClock, fail: Fail) -> None:
    failing = fail(*[ValueError("no")] * 9, retry=policy(max_attempts=2), replay_attempts=2)
    drain(ledger, until=clock.after(WEEK_S))
    assert failing.ended == ("failed", 2, 0, "value_error")
    replay = commands.Replay("incident", run_at=clock())
    assert ledger.rule(ledger.job(failing.job_id), replay, actor="ann") is JobState.PENDING
    drain(ledger, until=clock.after(WEEK_S))
    assert failing.ended == ("failed", 3, 0, "value_error")  # a replay is one attempt, not a new budget
    assert ledger.retry(failing.job_id) is JobState.PENDING
    drain(ledger, until=clock.after(WEEK_S))
    assert failing.ended == ("quarantined", 4, 0, "value_error")
    job = ledger.job(failing.job_id)
    assert (job.quarantine_code, job.replay_reason) == ("value_error", "incident")
    with pytest.raises(InvalidStateTransitionError):
        ledger.retry(failing.job_id)
    assert drain(ledger, until=clock.after(WEEK_S)) == 0


@pytest.mark.req("X-06", "G-19", "M-05", "M-12", "M-20")
def test_the_budget_is_in_the_ledger_and_outlives_every_process(ledger_url: str, clock: VirtualClock) -> None:
    job_id = 0
    lost = LOSSES_EXCUSED
    for attempt in range(1, lost + 4):
        with Ledger(ledger_url, world=virtual_world(clock, seed=attempt)) as ledger:

            @ledger.operation("doomed", max_attempts=2, replay_attempts=1, lease_s=10)
            def doomed(run: Execution) -> None: ...

            job_id = ledger.submit(doomed.call(), client="c", key="k").job_id
            if attempt == lost + 3:
                assert (ledger.job(job_id).state, ledger.job(job_id).spent) == (JobState.FAILED, 2)
                ledger.retry(job_id)
            with crash_at("before_commit"):
                drain(ledger)
            clock.advance(10)
            assert ledger.run_until_idle(queues=["nothing"]) == 0  # recovers, and works on nothing
    with Ledger(ledger_url) as ledger:
        job = ledger.job(job_id)
    assert (job.state, job.attempts, job.spent) == (JobState.QUARANTINED, lost + 3, 3)
    assert job.quarantine_code == "lease_expired"


@pytest.mark.pg
@pytest.mark.parametrize("ledger_url", ["postgres"], indirect=True)
def test_a_job_that_is_due_at_once_is_not_left_by_a_drain_whose_time_is_behind(ledger_url: str) -> None:
    """The time of the server is an estimate: that of another connection may be earlier than the time of the retry."""
    with Ledger(ledger_url) as ledger:

        @ledger.operation("first")
        def first(run: Execution) -> None:
            for seconds in (0.09, 30):
                ledger.submit("noop", run_at=ledger.store.now() + timedelta(seconds=seconds))

        ledger.submit(first.call())
        assert ledger.run_until_idle() == 2
