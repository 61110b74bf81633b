"""Every guard of `decide`: each command to each state, with the right and the wrong token, in time and too late.

Invariants: the tables below are written out by hand; an answer is compared whole, so a fact too many fails as well.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from holdfast.core import commands as ask
from holdfast.core import decide as decisions
from holdfast.core import governed, machine, records
from holdfast.core.decide import CANCELLED, LEASE_EXPIRED, REPLAY_REASONS, Move, Refused, Step, decide
from holdfast.core.machines import (
    EXECUTION,
    GRANT,
    JOB,
    PROCEDURE,
    SETTING,
    STEP,
    SWITCH,
    VALUE,
    ExecutionStatus,
    GrantState,
    JobState,
    ProcedureState,
    SettingState,
    StepState,
    SwitchState,
    ValueState,
)
from holdfast.core.records import LOSSES_EXCUSED, Attempt
from holdfast.core.rulings import Lapse, Revoke
from tests.core.asking import (
    NOW,
    TICK,
    TOKEN,
    attempt,
    execution,
    grant,
    job,
    procedure_run,
    setting,
    step,
    switch,
    value,
)

SOON = NOW + timedelta(hours=1)
WRONG = TOKEN + 1


Budget = tuple[int, int, int, int]


def fields_of(budget: Budget) -> dict[str, Any]:
    return dict(zip(("max_attempts", "replay_attempts", "attempts", "excused"), budget, strict=True))


def decision(record: object, command: object) -> str:
    """Return an answer in one line: the steps it takes, `no-op`, or the code of the refusal."""
    answer = decide(record, command, NOW)
    if isinstance(answer, Refused):
        return answer.code
    return " + ".join(f"{step.machine} {step.event}: {step.source} → {step.target}" for step in answer.steps) or "no-op"


def moved(record: object, command: object) -> Move:
    answer = decide(record, command, NOW)
    assert isinstance(answer, Move), answer
    return answer


def refused(record: object, command: object) -> Refused:
    answer = decide(record, command, NOW)
    assert isinstance(answer, Refused), answer
    return answer


# -- a job, from outside ----------------------------------------------------------------------------------------------

OUTSIDE: dict[str, msgspec.Struct] = {
    "submit": ask.Submit(),
    "claim": ask.Claim(),
    "retry": ask.Retry(),
    "replay": ask.Replay("incident"),
    "quarantine": ask.Quarantine("poison", "it keeps failing"),
    "cancel": ask.Cancel(),
    "release": governed.Release("ann", "repaired", 4),
}

FROM_OUTSIDE = {
    ("pending", "submit"): "exists",
    ("pending", "claim"): "JOB claim: pending → running + EXECUTION begin: None → IN_PROGRESS",
    ("pending", "retry"): "no-op",
    ("pending", "replay"): "no-op",
    ("pending", "quarantine"): "JOB quarantine: pending → quarantined",
    ("pending", "cancel"): "JOB cancel: pending → quarantined",
    ("pending", "release"): "no-op",
    ("running", "submit"): "exists",
    ("running", "claim"): "wrong_state",
    ("running", "retry"): "wrong_state",
    ("running", "replay"): "wrong_state",
    ("running", "quarantine"): "wrong_state",
    ("running", "cancel"): "wrong_state",
    ("running", "release"): "wrong_state",
    ("succeeded", "submit"): "exists",
    ("succeeded", "claim"): "wrong_state",
    ("succeeded", "retry"): "wrong_state",
    ("succeeded", "replay"): "wrong_state",
    ("succeeded", "quarantine"): "wrong_state",
    ("succeeded", "cancel"): "wrong_state",
    ("succeeded", "release"): "wrong_state",
    ("failed", "submit"): "exists",
    ("failed", "claim"): "wrong_state",
    ("failed", "retry"): "JOB retry: failed → pending",
    ("failed", "replay"): "JOB replay: failed → pending",
    ("failed", "quarantine"): "JOB quarantine: failed → quarantined",
    ("failed", "cancel"): "JOB cancel: failed → quarantined",
    ("failed", "release"): "wrong_state",
    ("quarantined", "submit"): "exists",
    ("quarantined", "claim"): "wrong_state",
    ("quarantined", "retry"): "wrong_state",
    ("quarantined", "replay"): "wrong_state",
    ("quarantined", "quarantine"): "no-op",
    ("quarantined", "cancel"): "no-op",
    ("quarantined", "release"): "JOB release: quarantined → pending",
}


@pytest.mark.req("X-01", "X-03", "K-10", "K-11", "K-14", "K-15", "K-16", "K-17", "K-18", "X-05")
@pytest.mark.parametrize("state", JobState)
@pytest.mark.parametrize("command", OUTSIDE)
def test_every_command_to_a_job_in_every_state(state: JobState, command: str) -> None:
    assert decision(job(state), OUTSIDE[command]) == FROM_OUTSIDE[state, command]


@pytest.mark.req("X-03")
@pytest.mark.parametrize("case", [pair for pair, answer in FROM_OUTSIDE.items() if answer == "no-op"])
def test_a_request_for_the_current_state_is_an_empty_move(case: tuple[str, str]) -> None:
    state, command = case
    assert decide(job(JobState(state)), OUTSIDE[command], NOW) == Move()


@pytest.mark.req("K-10")
def test_a_submit_takes_the_birth_of_a_job() -> None:
    assert moved(None, ask.Submit()) == Move(steps=(Step("JOB", None, "submit", None, "pending", 1, 0),))


@pytest.mark.req("K-11", "K-20", "X-06")
def test_a_claim_matches_the_version_and_gives_a_lease() -> None:
    first = Step("JOB", 1, "claim", "pending", "running", 1, 3)
    begun = Step("EXECUTION", None, "begin", None, "IN_PROGRESS", 2, 0)
    leased = Step("EXECUTION", None, "lease", None, "LEASED", 1, 0)
    assert moved(job(), ask.Claim()) == Move(steps=(first, begun))
    assert moved(job(), ask.Claim(begin=False)) == Move(steps=(first, leased))


@pytest.mark.parametrize("delay, answer", [(-TICK, None), (timedelta(0), None), (TICK, "not_due")])
def test_a_job_is_claimed_when_it_is_due(delay: timedelta, answer: str | None) -> None:
    decided = decide(job(run_at=NOW + delay), ask.Claim(), NOW)
    assert (decided.code if isinstance(decided, Refused) else None) == answer


@pytest.mark.req("K-14", "X-06")
@pytest.mark.parametrize(
    "budget, allowed",
    [
        # max_attempts, replay_attempts, attempts, excused
        ((5, 5, 1, 0), True),
        ((5, 5, 5, 0), True),  # automatic retry is spent; replay has five more
        ((5, 5, 9, 0), True),
        ((5, 5, 10, 0), False),  # the sum
        ((5, 5, 11, 0), False),
        ((5, 5, 11, 2), True),  # excused claims are not spent
        ((5, 5, 11, 1), False),
        ((1, 0, 1, 0), False),
        ((1, 0, 2, 1), False),
        ((1, 0, 1, 1), True),
    ],
)
@pytest.mark.parametrize("command", [ask.Retry(SOON), ask.Replay("backfill", SOON)], ids=["retry", "replay"])
def test_a_failed_job_is_retried_if_it_has_attempts_left(
    command: ask.Retry | ask.Replay, budget: Budget, allowed: bool
) -> None:
    failed = job(JobState.FAILED, **fields_of(budget))
    event = type(command).__name__.lower()
    if allowed:
        step = Step("JOB", 1, event, "failed", "pending", 1, 3)
        assert moved(failed, command) == Move(steps=(step,), run_at=SOON)
    else:
        refusal = refused(failed, command)
        assert refusal.code == "attempts_exhausted"
        assert "job 1 " in refusal.message
        assert f" {failed.spent} used" in refusal.message


@pytest.mark.req("K-14")
def test_a_replay_needs_a_known_reason() -> None:
    assert {"dlq-drain", "incident", "backfill", "test"} == REPLAY_REASONS
    for reason in REPLAY_REASONS:
        assert decision(job(JobState.FAILED), ask.Replay(reason)) == "JOB replay: failed → pending"
    for reason in ("", "because", "INCIDENT"):
        # Before anything else: a bad reason is bad also where a replay would do nothing.
        assert refused(job(JobState.PENDING), ask.Replay(reason)).code == "replay_reason_unknown"


@pytest.mark.req("K-15")
def test_a_quarantine_gives_a_reason_only_to_a_job_that_has_none() -> None:
    step = Step("JOB", 1, "quarantine", "failed", "quarantined", 1, 3)
    command = ask.Quarantine("poison", "it keeps failing")
    assert moved(job(JobState.FAILED), command) == Move(
        steps=(step,), error_code="poison", error_message="it keeps failing", quarantine_code="poison"
    )
    assert moved(job(JobState.FAILED, last_error_code="io_error"), command) == Move(
        steps=(step,), quarantine_code="poison"
    )


def test_cancelling_is_quarantine_with_a_code_of_its_own() -> None:
    step = Step("JOB", 1, "cancel", "pending", "quarantined", 1, 3)
    assert moved(job(), ask.Cancel()) == Move(steps=(step,), error_code="cancelled", quarantine_code="cancelled")


@pytest.mark.req("K-17", "X-01")
@pytest.mark.parametrize(
    "operator, reason, grant_id, code",
    [
        ("ann", "repaired", 4, None),
        ("", "repaired", 4, "operator_required"),
        (" \t", "repaired", 4, "operator_required"),
        ("ann", "", 4, "operator_required"),
        ("ann", "\n", 4, "operator_required"),
        ("ann", "repaired", None, "grant_required"),
    ],
)
def test_a_release_names_its_operator_its_reason_and_its_grant(
    operator: str, reason: str, grant_id: int | None, code: str | None
) -> None:
    answer = decide(job(JobState.QUARANTINED), governed.Release(operator, reason, grant_id, SOON), NOW)
    if code is None:
        step = Step("JOB", 1, "release", "quarantined", "pending", 1, 3)
        assert answer == Move(steps=(step,), run_at=SOON)
    else:
        assert isinstance(answer, Refused)
        assert answer.code == code


@pytest.mark.req("K-17")
def test_a_release_is_allowed_when_all_attempts_are_used() -> None:
    spent = job(JobState.QUARANTINED, attempts=10)
    assert decision(spent, governed.Release("ann", "repaired", 4)) == "JOB release: quarantined → pending"


@pytest.mark.req("K-17", "X-09")
def test_a_job_that_retention_has_emptied_is_not_released() -> None:
    emptied = job(JobState.QUARANTINED, payload=None)
    assert decision(emptied, governed.Release("ann", "repaired", 4)) == "slimmed"
    assert decision(job(JobState.PENDING, payload=None), governed.Release("ann", "repaired", 4)) == "no-op"


# -- an attempt -------------------------------------------------------------------------------------------------------


def held(name: str, token: int) -> Any:
    return {
        "start": ask.Start(token),
        "commit": ask.Commit(token),
        "finish": ask.Finish(token),
        "complete": ask.Complete(token),
        "fail": ask.Fail(token, "io_error", "no disk"),
        "give_back": ask.GiveBack(token, SOON),
        "beat": ask.Beat(token),
    }[name]


STARTED = "EXECUTION start: LEASED → IN_PROGRESS"
COMMITTED = "EXECUTION commit: IN_PROGRESS → COMMITTED"
PUT_BACK = "JOB expire: running → pending"
FINISHED = "EXECUTION finish: COMMITTED → DONE + JOB succeed: running → succeeded"
COMPLETED = "EXECUTION complete: IN_PROGRESS → DONE + JOB succeed: running → succeeded"

# By status and command: the answer under a live lease, and under one that has expired. A wrong token never gets past
# `lease_lost`, whatever the status and the clock say.
BY_ITS_HOLDER = {
    ("LEASED", "start"): (STARTED, "lease_expired"),
    ("LEASED", "commit"): ("wrong_state", "wrong_state"),
    ("LEASED", "finish"): ("wrong_state", "wrong_state"),
    ("LEASED", "complete"): ("wrong_state", "wrong_state"),
    ("LEASED", "fail"): ("EXECUTION abort: LEASED → ABORTED + JOB fail: running → failed", "lease_expired"),
    ("LEASED", "give_back"): (
        "EXECUTION abort: LEASED → ABORTED + JOB give_back: running → pending",
        "lease_expired",
    ),
    ("LEASED", "beat"): ("no-op", "lease_expired"),
    ("IN_PROGRESS", "start"): ("wrong_state", "wrong_state"),
    ("IN_PROGRESS", "commit"): (COMMITTED, "lease_expired"),
    ("IN_PROGRESS", "finish"): ("wrong_state", "wrong_state"),
    ("IN_PROGRESS", "complete"): (COMPLETED, "lease_expired"),
    ("IN_PROGRESS", "fail"): ("EXECUTION abort: IN_PROGRESS → ABORTED + JOB fail: running → failed", "lease_expired"),
    ("IN_PROGRESS", "give_back"): (
        "EXECUTION abort: IN_PROGRESS → ABORTED + JOB give_back: running → pending",
        "lease_expired",
    ),
    ("IN_PROGRESS", "beat"): ("no-op", "lease_expired"),
    ("COMMITTED", "start"): ("wrong_state", "wrong_state"),
    ("COMMITTED", "commit"): ("wrong_state", "wrong_state"),
    ("COMMITTED", "finish"): (FINISHED, FINISHED),  # past the boundary it is never too late for its own worker
    ("COMMITTED", "complete"): ("wrong_state", "wrong_state"),
    ("COMMITTED", "fail"): ("wrong_state", "wrong_state"),
    ("COMMITTED", "give_back"): ("wrong_state", "wrong_state"),
    ("COMMITTED", "beat"): ("no-op", "lease_expired"),
    ("DONE", "start"): ("wrong_state", "wrong_state"),
    ("DONE", "commit"): ("wrong_state", "wrong_state"),
    ("DONE", "finish"): ("no-op", "no-op"),
    ("DONE", "complete"): ("wrong_state", "wrong_state"),
    ("DONE", "fail"): ("wrong_state", "wrong_state"),
    ("DONE", "give_back"): ("wrong_state", "wrong_state"),
    ("DONE", "beat"): ("wrong_state", "wrong_state"),
    ("ABORTED", "start"): ("wrong_state", "wrong_state"),
    ("ABORTED", "commit"): ("wrong_state", "wrong_state"),
    ("ABORTED", "finish"): ("wrong_state", "wrong_state"),
    ("ABORTED", "complete"): ("wrong_state", "wrong_state"),
    ("ABORTED", "fail"): ("wrong_state", "wrong_state"),
    ("ABORTED", "give_back"): ("wrong_state", "wrong_state"),
    ("ABORTED", "beat"): ("wrong_state", "wrong_state"),
}

# The reaper's two commands need no token.
BY_THE_REAPER = {
    ("LEASED", "expire"): ("lease_live", f"EXECUTION abort: LEASED → ABORTED + {PUT_BACK}"),
    ("LEASED", "finish"): ("wrong_state", "wrong_state"),
    ("IN_PROGRESS", "expire"): (
        "lease_live",
        "EXECUTION abort: IN_PROGRESS → ABORTED + JOB expire: running → pending",
    ),
    ("IN_PROGRESS", "finish"): ("wrong_state", "wrong_state"),
    ("COMMITTED", "expire"): ("wrong_state", "wrong_state"),
    ("COMMITTED", "finish"): ("lease_live", FINISHED),
    ("DONE", "expire"): ("wrong_state", "wrong_state"),
    ("DONE", "finish"): ("no-op", "no-op"),
    ("ABORTED", "expire"): ("wrong_state", "wrong_state"),
    ("ABORTED", "finish"): ("wrong_state", "wrong_state"),
}


@pytest.mark.req("X-05", "M-03", "M-06", "M-09", "M-18", "G-13", "K-12", "K-13")
@pytest.mark.parametrize("pair", BY_ITS_HOLDER, ids="-".join)
def test_every_command_of_the_holder_of_a_lease(pair: tuple[str, str]) -> None:
    status, command = ExecutionStatus(pair[0]), pair[1]
    live, expired = BY_ITS_HOLDER[pair]
    assert decision(attempt(status), held(command, TOKEN)) == live
    assert decision(attempt(status, expired=True), held(command, TOKEN)) == expired
    assert decision(attempt(status), held(command, WRONG)) == "lease_lost"
    assert decision(attempt(status, expired=True), held(command, WRONG)) == "lease_lost"


@pytest.mark.req("K-19", "M-04", "M-09")
@pytest.mark.parametrize("pair", BY_THE_REAPER, ids="-".join)
def test_every_command_of_the_reaper(pair: tuple[str, str]) -> None:
    status = ExecutionStatus(pair[0])
    command = ask.Expire(SOON) if pair[1] == "expire" else ask.Finish()
    live, expired = BY_THE_REAPER[pair]
    assert decision(attempt(status), command) == live
    assert decision(attempt(status, expired=True), command) == expired


@pytest.mark.req("M-06", "M-18")
def test_a_lease_ends_with_its_last_tick() -> None:
    """At the exact time that it names, a lease has ended: for its holder, and for the reaper."""
    ends_now = attempt(ExecutionStatus.IN_PROGRESS, expired=True)
    assert ends_now.execution.lease_expires_at == NOW
    assert decision(ends_now, ask.Complete(TOKEN)) == "lease_expired"
    assert decision(ends_now, ask.Expire(SOON)).startswith("EXECUTION abort")
    a_tick_left = attempt(ExecutionStatus.IN_PROGRESS)
    assert decision(a_tick_left, ask.Complete(TOKEN)) == COMPLETED
    assert decision(a_tick_left, ask.Expire(SOON)) == "lease_live"


@pytest.mark.req("X-05", "K-12")
def test_a_write_of_a_worker_needs_its_token_and_a_live_lease() -> None:
    in_progress = attempt(ExecutionStatus.IN_PROGRESS)
    assert moved(in_progress, ask.Complete(TOKEN, '{"n":1}')) == Move(
        steps=(
            Step("EXECUTION", TOKEN, "complete", "IN_PROGRESS", "DONE", 2, 2),
            Step("JOB", 1, "succeed", "running", "succeeded", 1, 3),
        ),
        token=TOKEN,
        lease_live=True,
        result='{"n":1}',
    )
    assert moved(in_progress, ask.Commit(TOKEN, "null")) == Move(
        steps=(Step("EXECUTION", TOKEN, "commit", "IN_PROGRESS", "COMMITTED", 1, 2),),
        token=TOKEN,
        lease_live=True,
        result="null",
    )
    assert moved(attempt(ExecutionStatus.LEASED), ask.Start(TOKEN)) == Move(
        steps=(Step("EXECUTION", TOKEN, "start", "LEASED", "IN_PROGRESS", 1, 2),), token=TOKEN, lease_live=True
    )
    assert moved(in_progress, ask.Beat(TOKEN)) == Move(token=TOKEN, lease_live=True)


@pytest.mark.req("M-09")
def test_finishing_a_committed_attempt_needs_no_live_lease() -> None:
    committed = attempt(ExecutionStatus.COMMITTED, expired=True)
    steps = (
        Step("EXECUTION", TOKEN, "finish", "COMMITTED", "DONE", 1, 2),
        Step("JOB", 1, "succeed", "running", "succeeded", 1, 3),
    )
    assert moved(committed, ask.Finish(TOKEN)) == Move(steps=steps, token=TOKEN, lease_live=None)
    assert moved(committed, ask.Finish()) == Move(steps=steps, token=TOKEN, lease_live=False)


# max_attempts, replay_attempts, attempts, excused: what each kind of failure makes of the job.
BUDGETS = [
    # spent below max_attempts
    ((5, 5, 1, 0), "retry", "fail", "expire"),
    ((5, 5, 4, 0), "retry", "fail", "expire"),
    ((5, 5, 7, 3), "retry", "fail", "expire"),
    # spent at max_attempts, or above: only a replay can go on
    ((5, 5, 5, 0), "fail", "fail", "fail"),
    ((5, 5, 9, 0), "fail", "fail", "fail"),
    ((5, 5, 12, 3), "fail", "fail", "fail"),
    ((1, 1, 1, 0), "fail", "fail", "fail"),
    # spent at the sum: nothing is left
    ((5, 5, 10, 0), "quarantine", "quarantine", "quarantine"),
    ((5, 5, 11, 0), "quarantine", "quarantine", "quarantine"),
    ((5, 5, 13, 3), "quarantine", "quarantine", "quarantine"),
    ((1, 0, 1, 0), "quarantine", "quarantine", "quarantine"),
    ((1, 0, 2, 2), "retry", "fail", "expire"),
]
TARGETS = {"retry": "pending", "expire": "pending", "fail": "failed", "quarantine": "quarantined"}


@pytest.mark.req("X-06", "K-13", "K-14", "K-18", "K-19", "M-05")
@pytest.mark.parametrize("budget, with_retry, without_retry, when_lost", BUDGETS)
def test_the_state_after_a_failure_follows_from_the_attempts_left(
    budget: Budget, with_retry: str, without_retry: str, when_lost: str
) -> None:
    def failure(event: str, *, retry_at: bool) -> Move:
        return Move(
            steps=(
                Step("EXECUTION", TOKEN, "abort", "IN_PROGRESS", "ABORTED", 1, 2),
                Step("JOB", 1, event, "running", TARGETS[event], 1 if event == "fail" else 2, 3),
            ),
            token=TOKEN,
            lease_live=True,
            run_at=SOON if retry_at and event == "retry" else None,
            error_code="io_error",
            error_message="no disk",
            quarantine_code="io_error" if event == "quarantine" else None,
        )

    held_now = attempt(ExecutionStatus.IN_PROGRESS, expired=False, **fields_of(budget))
    assert moved(held_now, ask.Fail(TOKEN, "io_error", "no disk", SOON)) == failure(with_retry, retry_at=True)
    assert moved(held_now, ask.Fail(TOKEN, "io_error", "no disk")) == failure(without_retry, retry_at=False)
    lost = attempt(ExecutionStatus.IN_PROGRESS, expired=True, **fields_of(budget), lost=LOSSES_EXCUSED)
    assert moved(lost, ask.Expire(SOON)) == Move(
        steps=(
            Step("EXECUTION", TOKEN, "abort", "IN_PROGRESS", "ABORTED", 1, 2),
            Step("JOB", 1, when_lost, "running", TARGETS[when_lost], 1 if when_lost == "fail" else 2, 3),
        ),
        token=TOKEN,
        lease_live=False,
        run_at=SOON if when_lost == "expire" else None,
        error_code=LEASE_EXPIRED,
        error_message="the lease of w expired during attempt 1",
        quarantine_code=LEASE_EXPIRED if when_lost == "quarantine" else None,
        lost=True,
    )


@pytest.mark.parametrize("lost", [None, 0, 1])
def test_the_first_two_lost_leases_are_excused(lost: int | None) -> None:
    held = attempt(ExecutionStatus.IN_PROGRESS, expired=True, max_attempts=1, replay_attempts=0, lost=lost)
    answer = moved(held, ask.Expire(SOON))
    assert (answer.steps[1].event, answer.excused, answer.lost, answer.run_at) == ("expire", True, True, SOON)


@pytest.mark.req("K-18")
@pytest.mark.parametrize(
    "command, event, quarantine_code",
    [
        (ask.Fail(TOKEN, "c", "m", permanent=True), "quarantine", "c"),
        (ask.Fail(TOKEN, "c", "m", SOON, permanent=True), "quarantine", "c"),
        (ask.Fail(TOKEN, "c", "m", permanent=True, quarantine_code="governance_hard_fail"), "quarantine",
         "governance_hard_fail"),
        (ask.Fail(TOKEN, "c", "m", permanent=True, quarantine_code=CANCELLED), "cancel", "cancelled"),
        (ask.Fail(TOKEN, "c", "m", quarantine_code=CANCELLED), "cancel", "cancelled"),
        # A code for a quarantine that does not happen is not kept.
        (ask.Fail(TOKEN, "c", "m", SOON, quarantine_code="if_it_comes_to_that"), "retry", None),
    ],
)  # fmt: skip
def test_a_running_job_reaches_quarantine_through_failed(
    command: ask.Fail, event: str, quarantine_code: str | None
) -> None:
    move = moved(attempt(ExecutionStatus.IN_PROGRESS), command)
    step = move.step(JOB)
    assert step is not None
    assert (step.event, step.edges) == (event, 2)
    assert JOB.path(event, "running").edges[0].target == "failed"
    assert move.quarantine_code == quarantine_code


@pytest.mark.req("X-06")
def test_a_lease_given_back_is_excused_and_costs_nothing() -> None:
    held_now = attempt(ExecutionStatus.IN_PROGRESS, attempts=50, excused=0)
    assert moved(held_now, ask.GiveBack(TOKEN, SOON, "not_published")) == Move(
        steps=(
            Step("EXECUTION", TOKEN, "abort", "IN_PROGRESS", "ABORTED", 1, 2),
            Step("JOB", 1, "give_back", "running", "pending", 2, 3),
        ),
        token=TOKEN,
        lease_live=True,
        run_at=SOON,
        error_code="not_published",
        excused=True,
    )


@pytest.mark.req("K-20", "X-06")
def test_only_a_claim_changes_the_number_of_attempts() -> None:
    """A move has no way to say so: attempts are not among its facts, and only a claim makes an execution."""
    assert "attempts" not in Move.__struct_fields__
    births = []
    for record, command in [
        *((job(state), command) for state in JobState for command in OUTSIDE.values()),
        *(
            (attempt(status, expired=expired), held(name, TOKEN))
            for status in ExecutionStatus
            for expired in (False, True)
            for name in ("start", "commit", "finish", "complete", "fail", "give_back", "beat")
        ),
    ]:
        answer = decide(record, command, NOW)
        step = answer.step(EXECUTION) if isinstance(answer, Move) else None
        if step and step.source is None:
            births.append(type(command))
    assert births == [ask.Claim]


# -- grants, procedure runs, values -----------------------------------------------------------------------------------

GRANTS = {
    ("draft", "approve"): "GRANT approve: draft → active",
    ("draft", "revoke"): "GRANT revoke: draft → revoked",
    ("active", "consume"): "GRANT consume: active → consumed",
    ("active", "revoke"): "GRANT revoke: active → revoked",
    ("active", "expire"): "not_expired",
}
GRANTS_TOO_LATE = {
    ("draft", "approve"): "grant_expired",
    ("draft", "revoke"): "GRANT revoke: draft → revoked",
    ("active", "consume"): "grant_expired",
    ("active", "revoke"): "GRANT revoke: active → revoked",
    ("active", "expire"): "GRANT expire: active → expired",
}


@pytest.mark.parametrize("state", GrantState)
@pytest.mark.parametrize("event", [*GRANT.events, "unheard"])
def test_every_event_of_a_grant(state: GrantState, event: str) -> None:
    command = governed.GrantEvent(event, "bob")
    assert decision(grant(state, expires_at=NOW + TICK), command) == GRANTS.get((state, event), "wrong_state")
    assert decision(grant(state, expires_at=NOW), command) == GRANTS_TOO_LATE.get((state, event), "wrong_state")


def test_a_requester_approves_its_own_request_only_if_allowed() -> None:
    draft = grant(GrantState.DRAFT, requested_by="ann")
    assert decision(draft, governed.GrantEvent("approve", "ann")) == "self_approval"
    assert (
        decision(draft, governed.GrantEvent("approve", "ann", may_self_approve=True)) == "GRANT approve: draft → active"
    )
    assert decision(draft, governed.GrantEvent("revoke", "ann")) == "GRANT revoke: draft → revoked"


def test_a_move_of_a_grant_matches_its_version() -> None:
    step = Step("GRANT", 4, "consume", "active", "consumed", 1, 2)
    assert moved(grant(GrantState.ACTIVE), governed.GrantEvent("consume", "bob")) == Move(steps=(step,))


@pytest.mark.parametrize("state", ProcedureState)
@pytest.mark.parametrize("event", [*PROCEDURE.events, "unheard"])
def test_every_event_of_a_procedure_run(state: ProcedureState, event: str) -> None:
    lawful = {
        ("planned", "run"): "running", ("planned", "abort"): "stopped", ("running", "finish"): "done",
        ("running", "abort"): "stopped", ("running", "compensate"): "compensating",
        ("compensating", "stop"): "stopped", ("stopped", "resume"): "running",
    }.get((state, event))  # fmt: skip
    answer = decide(procedure_run(state), governed.ProcedureEvent(event), NOW)
    if lawful is None:
        assert isinstance(answer, Refused)
        assert answer.code == "wrong_state"
    else:
        assert answer == Move(steps=(Step("PROCEDURE", 5, event, state, lawful, 1, 2),))


@pytest.mark.parametrize("state", ValueState)
@pytest.mark.parametrize("event", [*VALUE.events, "unheard"])
def test_every_event_of_a_registry_value(state: ValueState, event: str) -> None:
    target = {("active", "supersede"): "superseded", ("active", "retire"): "retired"}.get((state, event))
    answer = decide(value(state), governed.ValueEvent(event, 4, ("o", "2.0.0")), NOW)
    if target is None:
        assert isinstance(answer, Refused)
        assert answer.code == "wrong_state"
    else:
        assert answer == Move(steps=(Step("VALUE", 6, event, state, target, 1, 1),))


def test_a_value_moves_under_a_grant_and_is_superseded_by_something() -> None:
    active = value(ValueState.ACTIVE)
    assert decision(active, governed.ValueEvent("retire", None)) == "grant_required"
    assert decision(active, governed.ValueEvent("supersede", None, ("o", "2.0.0"))) == "grant_required"
    assert decision(active, governed.ValueEvent("supersede", 4)) == "successor_required"
    assert decision(active, governed.ValueEvent("retire", 4)) == "VALUE retire: active → retired"


@pytest.mark.parametrize("state", StepState)
@pytest.mark.parametrize("event", [*STEP.events, "unheard"])
def test_every_event_of_a_performed_step(state: StepState, event: str) -> None:
    answer = decide(step(state), governed.StepEvent(event), NOW)
    if (state, event) == ("performed", "undo"):
        assert answer == Move(steps=(Step("STEP", 8, "undo", "performed", "undone", 1, 1),))
    else:
        assert isinstance(answer, Refused)
        assert answer.code == "wrong_state"


@pytest.mark.parametrize("state", SettingState)
@pytest.mark.parametrize("event", [*SETTING.events, "unheard"])
def test_a_setting_that_was_replaced_or_removed_does_not_move_again(state: SettingState, event: str) -> None:
    allowed = SETTING.allows(event, state)
    assert decision(setting(state), governed.SettingEvent(event)).startswith("SETTING" if allowed else "wrong_state")
    assert allowed <= (state == "active")


@pytest.mark.parametrize("state", SwitchState)
@pytest.mark.parametrize("event", [*SWITCH.events, "unheard"])
@pytest.mark.parametrize("grant_id", [4, None])
def test_a_switch_is_lifted_once_and_under_a_grant(state: SwitchState, event: str, grant_id: int | None) -> None:
    answer = decide(switch(state), governed.SwitchEvent(event, grant_id), NOW)
    if (state, event) != ("on", "lift"):
        assert isinstance(answer, Refused)
        assert answer.code == "wrong_state"
    elif grant_id is None:
        assert isinstance(answer, Refused)
        assert answer.code == "grant_required"
        assert "switch replay" in answer.message
    else:
        assert answer == Move(steps=(Step("SWITCH", 9, "lift", "on", "off", 1, 1),))


# -- what holds for every answer --------------------------------------------------------------------------------------


def test_a_refusal_names_the_record_its_state_the_event_and_what_to_do() -> None:
    again = "To run the work again, submit it with a new key."
    release = "`holdfast quarantine release 1 --reason TEXT`"
    for record, command, code, named, advice in (
        (job(JobState.SUCCEEDED), ask.Retry(), "wrong_state", ("job 1 ", "succeeded", "retry"), again),
        (job(JobState.QUARANTINED), ask.Retry(), "wrong_state", ("job 1 ",), f"To release it: {release}."),
        (
            job(JobState.FAILED),
            governed.Release("ann", "why", 4),
            "wrong_state",
            ("job 1 ",),
            "To retry it: `holdfast retry 1`.",
        ),
        (
            job(JobState.RUNNING),
            ask.Retry(),
            "wrong_state",
            ("job 1 ",),
            "Wait until its attempt ends: `holdfast show 1`.",
        ),
        (grant(GrantState.DRAFT), governed.GrantEvent("fly", "bob"), "wrong_state", ("grant ", "'fly'"), None),
        (
            attempt(ExecutionStatus.IN_PROGRESS),
            ask.Complete(WRONG),
            "lease_lost",
            (f"execution {TOKEN}", f"{WRONG} is not the current"),
            None,
        ),
    ):
        refusal = refused(record, command)
        assert (refusal.code, refusal.next_step) == (code, advice)
        assert [words for words in named if words not in refusal.message] == []


def test_an_answer_has_at_most_one_step_of_a_machine_and_finds_it() -> None:
    move = moved(attempt(ExecutionStatus.IN_PROGRESS), ask.Complete(TOKEN))
    assert [step.machine for step in move.steps] == ["EXECUTION", "JOB"]
    assert move.step(JOB) == move.steps[1]
    assert move.step(GRANT) is None


def test_decide_is_deterministic() -> None:
    record = attempt(ExecutionStatus.IN_PROGRESS)
    assert decide(record, ask.Complete(TOKEN), NOW) == decide(record, ask.Complete(TOKEN), NOW)
    assert execution() == execution()


def test_commands_records_and_decisions_are_frozen() -> None:
    """A record is what one row said at one moment: nothing may change it on its way to the store."""
    kinds = {
        kind
        for module in (ask, decisions, governed, machine, records)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind is not msgspec.Struct
    }
    assert len(kinds) > 30
    assert {kind.__name__ for kind in kinds if not kind.__struct_config__.frozen} == set()


@pytest.mark.parametrize("state", JobState)
def test_a_deadline_ends_only_a_job_that_waits(state: JobState) -> None:
    answers = {
        JobState.PENDING: "JOB lapse: pending → quarantined",
        JobState.QUARANTINED: "no-op",  # it was taken out before
    }
    assert decision(job(state), Lapse(NOW)) == answers.get(state, "wrong_state")


REVOKED = {(5, 5, 1, 0): "pending", (1, 1, 1, 0): "failed", (1, 0, 1, 0): "quarantined"}


@pytest.mark.parametrize("budget", REVOKED)
def test_an_attempt_that_is_revoked_counts_and_its_job_is_due_again_at_the_given_time(budget: Budget) -> None:
    answer = moved(attempt(ExecutionStatus.IN_PROGRESS, **fields_of(budget)), Revoke(NOW + TICK, "it hangs"))
    state = REVOKED[budget]
    assert [(taken.machine, taken.target) for taken in answer.steps] == [("EXECUTION", "ABORTED"), ("JOB", state)]
    assert (answer.run_at, answer.error_code, answer.excused) == (
        NOW + TICK if state == "pending" else None, "lease_revoked", False,
    )  # fmt: skip
    assert answer.quarantine_code == ("lease_revoked" if state == "quarantined" else None)


@pytest.mark.parametrize("status", [ExecutionStatus.COMMITTED, ExecutionStatus.DONE, ExecutionStatus.ABORTED])
def test_an_attempt_that_has_committed_or_ended_is_not_revoked(status: ExecutionStatus) -> None:
    assert decision(attempt(status), Revoke(NOW, "it hangs")) == "wrong_state"


def test_a_cancelled_attempt_keeps_the_code_of_its_failure_if_it_has_one() -> None:
    held = Attempt(job(JobState.RUNNING), execution(ExecutionStatus.IN_PROGRESS, cancel_requested_at=NOW))
    for command, code in ((ask.Fail(TOKEN, "value_error", "m"), "value_error"), (ask.GiveBack(TOKEN, NOW), CANCELLED)):
        answer = moved(held, command)
        assert (answer.error_code, answer.quarantine_code, answer.run_at, answer.excused) == (
            code, CANCELLED, None, False,
        )  # fmt: skip
