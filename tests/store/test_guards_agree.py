"""Each guard in `decide` against its WHERE: the statement alone accepts exactly the moves that `decide` makes.

`decide` judges what the caller read; the WHERE judges what is there when the write comes. So for every record as it
truly is and every record as a caller may believe it to be, the move that follows from the belief is written without
asking `decide` again, and must be accepted if and only if it is also the move that follows from the truth.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from holdfast.core.commands import (
    Beat,
    Cancel,
    Claim,
    Commit,
    Complete,
    Expire,
    Fail,
    Finish,
    GiveBack,
    Quarantine,
    Replay,
    Retry,
    Start,
)
from holdfast.core.decide import COMPLETED, Move, Refused, decide
from holdfast.core.governed import (
    GrantEvent,
    PerformedStep,
    ProcedureEvent,
    ProcedureRun,
    Release,
    StepEvent,
    Switch,
    SwitchEvent,
)
from holdfast.core.machines import PROCEDURE, ExecutionStatus, JobState, ProcedureState, StepState, SwitchState
from holdfast.core.records import Attempt, Job
from holdfast.store import Lease
from tests.store.verbs import OPERATOR, WORKER, Verbs, changed, found

LEASE_S = 30

pytestmark = pytest.mark.req("G-10", "G-13", "M-06", "X-05")


@contextmanager
def deciding(monkeypatch: pytest.MonkeyPatch, move: Move) -> Iterator[None]:
    """Let the verbs write a given move without a decision of their own."""
    with monkeypatch.context() as patched:
        for module in ("rulings", "executions", "moving"):
            patched.setattr(f"holdfast.store.verbs.{module}.decide", lambda *_: move)
        yield


# ---------------------------------------------------------------------------------------------------------------------
# Attempts: status by token by lease by command


def worker_commands(verbs: Verbs, token: int) -> list[object]:
    at = verbs.clock.after(60)
    return [
        Start(token),
        Commit(token, '"r"'),
        Finish(token),
        Finish(),
        Complete(token, '"r"'),
        Fail(token, "boom", "it broke"),
        Fail(token, "boom", "it broke", retry_at=at),
        Fail(token, "boom", "it broke", permanent=True),
        Fail(token, "boom", "it broke", quarantine_code="cancelled"),
        GiveBack(token, at),
        Expire(at),
    ]


def attempts_in_every_status(verbs: Verbs) -> list[Attempt]:
    """Return one attempt for each status and each of: the lease is live, the lease has expired."""
    made = []
    for lease_s in (LEASE_S, 2 * LEASE_S):
        for status in ExecutionStatus:
            verbs.submit()
            attempt = verbs.claim_one(seconds=lease_s, begin=status is not ExecutionStatus.LEASED)
            token = attempt.execution.lease_token
            command = {
                ExecutionStatus.COMMITTED: Commit(token),
                ExecutionStatus.DONE: Complete(token),
                ExecutionStatus.ABORTED: Fail(token, "boom", "it broke"),
            }.get(status)
            if command is not None:
                assert isinstance(verbs.work(attempt, command), Move)
            made.append(attempt.execution.exec_id)
    verbs.clock.advance(LEASE_S)
    truths = [verbs.attempt(exec_id) for exec_id in made]
    assert [truth.execution.status for truth in truths] == [*ExecutionStatus, *ExecutionStatus]
    live = [truth.execution.lease_expires_at > verbs.clock() for truth in truths]
    done = 3  # its lease ended with it
    assert live == [False] * 5 + [n != done for n in range(5)]
    return truths


def beliefs(verbs: Verbs, truth: Attempt) -> Iterator[Attempt]:
    """Yield the attempt as callers may take it to be: any status, another token, a lease that lives or is over."""
    for status in ExecutionStatus:
        for token in (truth.execution.lease_token, truth.execution.lease_token + 1):
            for left_s in (0, 5):
                yield Attempt(
                    # A caller that holds an attempt takes its job to be running; versions only move with the state.
                    changed(truth.job, state=JobState.RUNNING),
                    changed(
                        truth.execution,
                        status=status,
                        lease_token=token,
                        lease_expires_at=verbs.clock.after(left_s),
                    ),
                )


def test_a_move_of_an_attempt_is_written_exactly_when_decide_would_make_it(
    verbs: Verbs, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, accepted = set(), set()
    for truth in attempts_in_every_status(verbs):
        for belief in beliefs(verbs, truth):
            for command in worker_commands(verbs, belief.execution.lease_token):
                move = decide(belief, command, verbs.clock())
                if isinstance(move, Refused) or not move.steps:
                    continue
                case = (truth.execution.exec_id, repr(command), repr(move))
                if case in tried:
                    continue
                tried.add(case)
                expected = decide(truth, command, verbs.clock()) == move
                with verbs.undone() as transaction:
                    with deciding(monkeypatch, move):
                        [answer] = transaction.executions.move([(truth, command)], actor=WORKER)
                    after = transaction.lists.attempt(truth.execution.exec_id)
                    assert (answer == move or answer is COMPLETED) == expected, (truth, command)
                    assert isinstance(answer, Refused) != expected
                    assert (after == truth) == (not expected), (truth, command)
                if expected:
                    accepted.add(
                        (truth.execution.status, type(command), truth.execution.lease_expires_at > verbs.clock())
                    )
    # Every listed way out of every status was taken at least once, and a way that is not listed never.
    assert {(str(status), command.__name__, live) for status, command, live in accepted} == {
        ("LEASED", "Start", True),
        ("LEASED", "Fail", True),
        ("LEASED", "GiveBack", True),
        ("LEASED", "Expire", False),
        ("IN_PROGRESS", "Commit", True),
        ("IN_PROGRESS", "Complete", True),
        ("IN_PROGRESS", "Fail", True),
        ("IN_PROGRESS", "GiveBack", True),
        ("IN_PROGRESS", "Expire", False),
        ("COMMITTED", "Finish", True),
        ("COMMITTED", "Finish", False),
    }
    assert len(tried) > 200


def test_heartbeats_progress_and_checkpoints_agree_with_decide(verbs: Verbs) -> None:
    held = set()
    for truth in attempts_in_every_status(verbs):
        execution = truth.execution
        for token in (execution.lease_token, execution.lease_token + 1):
            expected = isinstance(decide(truth, Beat(token), verbs.clock()), Move)
            with verbs.undone() as transaction:
                shown = changed(execution, lease_token=token)
                beaten = execution.exec_id in transaction.executions.extend_leases([(shown, 60)])
                assert beaten == expected
            with verbs.undone() as transaction:
                noted = execution.exec_id in transaction.notes.save_progress([(shown, 0.5, "half")])
                assert noted == expected
            with verbs.undone() as transaction:
                kept = transaction.notes.save_checkpoints(Attempt(truth.job, shown), {"name": "1"})
                # A value is kept by an attempt that is being worked on.
                assert kept == (expected and execution.status is ExecutionStatus.IN_PROGRESS)
                assert (transaction.notes.checkpoints(truth.job.job_id) == {"name": "1"}) == kept
            if expected:
                held.add(execution.status)
    assert held == {ExecutionStatus.LEASED, ExecutionStatus.IN_PROGRESS, ExecutionStatus.COMMITTED}


# ---------------------------------------------------------------------------------------------------------------------
# Jobs: state by version by command


def jobs_in_every_state(verbs: Verbs) -> list[Job]:
    return [verbs.job_in(state, queue=state) for state in JobState]


def ruling_commands(verbs: Verbs, grant_id: int) -> list[object]:
    return [
        Retry(),
        Retry(verbs.clock.after(9)),
        Replay("incident"),
        Quarantine("poison", "it cannot be read"),
        Cancel(),
        Release(OPERATOR, "mended", grant_id),
    ]


def test_a_ruling_is_written_exactly_when_decide_would_make_it(verbs: Verbs, monkeypatch: pytest.MonkeyPatch) -> None:
    truths = jobs_in_every_state(verbs)
    grant = verbs.active_grant(0)
    accepted = set()
    for truth in truths:
        for command in ruling_commands(verbs, grant.grant_id):
            for state in JobState:
                for version in (truth.version - 1, truth.version, truth.version + 1):
                    move = decide(changed(truth, state=state, version=version), command, verbs.clock())
                    if isinstance(move, Refused) or not move.steps:
                        continue
                    expected = decide(truth, command, verbs.clock()) == move
                    assert expected == (state == truth.state and version == truth.version)
                    with verbs.undone() as transaction:
                        signed: dict[str, Any] = {}
                        if isinstance(command, Release):
                            signed = {"move_id": "m", "grant_id": grant.grant_id}
                            transaction.grants.move(grant, GrantEvent("consume", OPERATOR), move_id="m")
                        with deciding(monkeypatch, move):
                            [answer] = transaction.rulings.rule([(truth, command)], actor=OPERATOR, **signed)
                        after = transaction.jobs.get(truth.job_id)
                        assert (answer == move or answer is COMPLETED) == expected, (truth, command)
                        assert isinstance(answer, Refused) != expected
                        assert (after == truth) == (not expected)
                    if expected:
                        accepted.add((truth.state, type(command)))
    assert accepted == {
        (JobState.FAILED, Retry),
        (JobState.FAILED, Replay),
        (JobState.FAILED, Quarantine),
        (JobState.FAILED, Cancel),
        (JobState.PENDING, Quarantine),
        (JobState.PENDING, Cancel),
        (JobState.QUARANTINED, Release),
    }


@pytest.mark.req("K-11", "M-14")
@pytest.mark.parametrize("begin", [True, False])
def test_a_claim_is_made_exactly_when_decide_would_make_it(verbs: Verbs, begin: bool) -> None:
    truths = [
        verbs.job(verbs.submit(queue=f"due-{after_s}", run_at=verbs.clock.after(after_s)))
        for after_s in (-1, 0, 0.000001, 1)
    ]
    truths += jobs_in_every_state(verbs)
    won = 0
    for truth in truths:
        expected = decide(truth, Claim(begin), verbs.clock())
        with verbs.undone() as transaction:
            lease = Lease(owner=WORKER, seconds=LEASE_S, queues=(truth.queue,), begin=begin)
            attempts = transaction.executions.claim(lease)
            assert [attempt.job.job_id for attempt in attempts] == (
                [truth.job_id] if isinstance(expected, Move) else []
            )
            if isinstance(expected, Move):
                [attempt] = attempts
                job_step, birth = expected.steps
                assert (attempt.job.state, attempt.job.version) == (job_step.target, truth.version + job_step.edges)
                assert (attempt.execution.status, attempt.execution.version) == (birth.target, birth.edges)
                won += 1
    assert won == 3


# ---------------------------------------------------------------------------------------------------------------------
# Grants: state by version by event


def test_a_grant_moves_exactly_when_decide_would_move_it(verbs: Verbs, monkeypatch: pytest.MonkeyPatch) -> None:
    with verbs.store.transaction() as transaction:
        grant_id = transaction.grants.request(
            action="release",
            target="job/1",
            scope="one job",
            actor=OPERATOR,
            reason="why",
            expires_at=verbs.clock.after(60),
        )
        draft = found(transaction.grants.get(grant_id))
    truths = [draft, verbs.active_grant(1)]
    accepted = set()
    for truth in truths:
        for event in ("approve", "consume", "revoke"):
            for belief in (changed(g, grant_id=truth.grant_id) for g in truths):
                for version in (truth.version - 1, truth.version, truth.version + 1):
                    command = GrantEvent(event, "approver-1")
                    move = decide(changed(belief, version=version), command, verbs.clock())
                    if isinstance(move, Refused):
                        continue
                    expected = decide(truth, command, verbs.clock()) == move
                    with verbs.undone() as transaction:
                        with deciding(monkeypatch, move):
                            answer = transaction.grants.move(truth, command)
                        assert (answer == move) == expected
                        assert (transaction.grants.get(truth.grant_id) == truth) == (not expected)
                    if expected:
                        accepted.add((str(truth.state), event))
    assert accepted == {("draft", "approve"), ("draft", "revoke"), ("active", "consume"), ("active", "revoke")}


# ---------------------------------------------------------------------------------------------------------------------
# Runs of procedures, their steps, and switches: state by version by event


def runs_in_every_state(verbs: Verbs) -> list[ProcedureRun]:
    ways = {"planned": (), "running": ("run",), "compensating": ("run", "compensate"), "stopped": ("abort",),
            "done": ("run", "finish")}  # fmt: skip
    made = []
    for state in ProcedureState:
        with verbs.store.transaction() as transaction:
            assert transaction.runs.begin(
                state, "build", params="{}", plan="p", lease="build", grant_id=None, actor=OPERATOR, reason=None
            )
            for event in ways[state]:
                assert isinstance(
                    transaction.runs.move(found(transaction.runs.get(state)), event, actor=OPERATOR), Move
                )
            made.append(found(transaction.runs.get(state)))
    assert [run.state for run in made] == list(ProcedureState)
    return made


def test_a_run_moves_exactly_when_decide_would_move_it(verbs: Verbs, monkeypatch: pytest.MonkeyPatch) -> None:
    accepted = set()
    for truth in runs_in_every_state(verbs):
        for event in (path.event for path in PROCEDURE.moves()):
            for state in ProcedureState:
                for version in (truth.version - 1, truth.version, truth.version + 1):
                    move = decide(changed(truth, state=state, version=version), ProcedureEvent(event), verbs.clock())
                    if isinstance(move, Refused):
                        continue
                    expected = decide(truth, ProcedureEvent(event), verbs.clock()) == move
                    with verbs.undone() as transaction:
                        with deciding(monkeypatch, move):
                            answer = transaction.runs.move(truth, event, actor=OPERATOR)
                        assert (answer == move) == expected, (truth, event)
                        assert (transaction.runs.get(truth.idempotency_root) == truth) == (not expected)
                    if expected:
                        accepted.add((str(truth.state), event))
    assert accepted == {
        ("planned", "run"), ("planned", "abort"), ("running", "finish"), ("running", "abort"),
        ("running", "compensate"), ("compensating", "stop"), ("stopped", "resume"),
    }  # fmt: skip


def test_a_step_is_undone_exactly_when_decide_would_undo_it(verbs: Verbs, monkeypatch: pytest.MonkeyPatch) -> None:
    run = runs_in_every_state(verbs)[1]
    with verbs.store.transaction() as transaction:
        for number in (0, 1):
            transaction.runs.perform_step(run.run_id, number, f"S{number}", "{}", actor=OPERATOR)
        undone = transaction.runs.performed_steps(run.run_id)[0]
        assert isinstance(transaction.runs.undo_step(undone, actor=OPERATOR), Move)
        truths = transaction.runs.steps(run.run_id)
    assert [(step.number, step.state, step.version) for step in truths] == [(0, "undone", 2), (1, "performed", 1)]
    accepted = []
    for truth in truths:
        for state in StepState:
            for version in (truth.version - 1, truth.version, truth.version + 1):
                belief: PerformedStep = changed(truth, state=state, version=version)
                move = decide(belief, StepEvent("undo"), verbs.clock())
                if isinstance(move, Refused):
                    continue
                expected = (state, version) == (truth.state, truth.version)
                with verbs.undone() as transaction:
                    with deciding(monkeypatch, move):
                        answer = transaction.runs.undo_step(truth, actor=OPERATOR)
                    assert (answer == move) == expected
                    assert (transaction.runs.steps(run.run_id) == truths) == (not expected)
                if expected:
                    accepted.append(truth.number)
    assert accepted == [1]


def test_a_switch_is_lifted_exactly_when_decide_would_lift_it(verbs: Verbs, monkeypatch: pytest.MonkeyPatch) -> None:
    with verbs.store.transaction() as transaction:
        assert transaction.switches.throw("lifted", actor=OPERATOR, reason="harm")
        assert transaction.switches.throw("thrown", actor=OPERATOR, reason="harm")
        assert not transaction.switches.throw("thrown", actor="another", reason="again")
    first = verbs.active_grant(1)
    with verbs.store.transaction() as transaction:
        assert isinstance(transaction.grants.move(first, GrantEvent("consume", OPERATOR), move_id="first"), Move)
        lifted = transaction.switches.on()["lifted"]
        answer = transaction.switches.lift(
            lifted, grant_id=first.grant_id, actor=OPERATOR, reason="over", move_id="first"
        )
        assert isinstance(answer, Move)
        truths = transaction.switches.page()
    assert [(switch.name, switch.state, switch.version) for switch in truths] == [
        ("thrown", "on", 1),
        ("lifted", "off", 2),
    ]
    grant, accepted = verbs.active_grant(2), []
    for truth in truths:
        for state in SwitchState:
            for version in (truth.version - 1, truth.version, truth.version + 1):
                belief: Switch = changed(truth, state=state, version=version)
                move = decide(belief, SwitchEvent("lift", grant.grant_id), verbs.clock())
                if isinstance(move, Refused):
                    continue
                expected = (state, version) == (truth.state, truth.version)
                with verbs.undone() as transaction:
                    transaction.grants.move(grant, GrantEvent("consume", OPERATOR), move_id="m")
                    with deciding(monkeypatch, move):
                        answer = transaction.switches.lift(
                            truth, grant_id=grant.grant_id, actor=OPERATOR, reason="over", move_id="m"
                        )
                    assert (answer == move) == expected
                    assert (transaction.switches.page() == truths) == (not expected)
                if expected:
                    accepted.append(truth.name)
    assert accepted == ["thrown"]


def test_structs_compare_by_every_field() -> None:
    """These tests rely on this: two moves are equal only if every field is."""
    move = Move(token=1)
    for field in msgspec.structs.fields(Move):
        assert changed(move, **{field.name: "other"}) != move
