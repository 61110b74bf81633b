"""Why is this job not running: one test for every finding, on both databases, with its code, evidence and command."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast import Execution, Ledger
from holdfast.cli.app import COMMANDS
from holdfast.compat.wal import Wal
from holdfast.core.commands import Cancel, Commit, Complete, Expire, GiveBack, Quarantine, Replay
from holdfast.core.decide import Move
from holdfast.core.errors import JobNotFoundError
from holdfast.core.limits import Limit
from holdfast.core.machines import JobState
from holdfast.core.records import Attempt, time_text
from holdfast.engine.worker.heartbeat import BEATS_A_LEASE, LOOK_S, Heartbeat
from holdfast.engine.worker.pace import POLL_S, SEEN_S
from holdfast.explain.explain import explain
from holdfast.explain.explanation import Explanation, Finding, FindingCode, JobVerdict
from holdfast.explain.pending import AHEAD_MAX
from holdfast.governance.erasure import erase
from holdfast.governance.quarantine import release_commands
from holdfast.governance.switches import throw
from holdfast.store import Declared, Lease, Submission, create_store
from holdfast.store.verbs.alive import ALIVE_S, SILENT_S
from holdfast.store.verbs.flow import Flow
from holdfast.testing import VirtualClock
from tests.audit.knife import unguarded
from tests.engine.working import PATIENCE_S, eventually, working
from tests.store.verbs import OPERATOR, WORKER, Verbs, fail

TO_COME = {"check", "repair", "gc", "audit", "snapshot"}


@pytest.fixture
def verbs(ledger_url: str) -> Iterator[Verbs]:
    clock = VirtualClock()
    with create_store(ledger_url, clock) as store:
        with store.transaction() as transaction:
            transaction.operations.declare({"echo": Declared()})
        yield Verbs(store, clock)


def explained(verbs: Verbs, job_id: int) -> Explanation:
    with verbs.store.reading() as reading:
        answer = explain(reading, job_id, verbs.clock())
    assert (answer.job_id, answer.state) == (job_id, verbs.job(job_id).state)
    for finding in answer.findings:
        program, command, *_ = finding.next.split()
        assert program == "holdfast"
        assert command in COMMANDS.keys() | TO_COME
    return answer


def codes(answer: Explanation) -> tuple[JobVerdict, list[str]]:
    return answer.verdict, [finding.code.value for finding in answer.findings]


def only(answer: Explanation, verdict: JobVerdict, code: str) -> Finding:
    """Return the one finding, which gives the verdict."""
    assert codes(answer) == (verdict, [code])
    return answer.findings[0]


def names(finding: Finding, *values: str) -> None:
    """Assert that the sentence names these values: ids, times and numbers, whatever its words."""
    assert [value for value in values if value not in finding.message] == []


def hello(
    verbs: Verbs,
    name: str = WORKER,
    queues: tuple[str, ...] = ("default",),
    operations: tuple[str, ...] = ("noop",),
    concurrency: int = 2,
) -> None:
    with verbs.store.transaction() as transaction:
        transaction.workers.seen(name, queues, operations, concurrency)


def text(verbs: Verbs, seconds: float = 0) -> str:
    return time_text(verbs.clock.after(seconds))


# ---------------------------------------------------------------------------------------------------------------------
# A job that waits


def test_not_due(verbs: Verbs) -> None:
    hello(verbs)
    job_id = verbs.submit(run_at=verbs.clock.after(7200))
    found = only(explained(verbs, job_id), JobVerdict.WAITING, "not_due")
    names(found, "2026-03-14 11:26:53 UTC (in 2 h)")
    assert found.evidence == {
        "run_at": text(verbs, 7200), "seconds": 7200.0, "attempts": 0, "spent": 0, "max_attempts": 5,
        "replay_attempts": 5, "last_error_code": None, "last_error_message": None, "excuse": None,
    }  # fmt: skip
    assert found.next == f"holdfast show {job_id}"
    verbs.clock.advance(7200)
    hello(verbs)
    only(explained(verbs, job_id), JobVerdict.WAITING, "about_to_start")


def test_a_deadline_ahead_and_one_that_passed(verbs: Verbs) -> None:
    hello(verbs)
    job_id = verbs.submit(run_at=verbs.clock.after(3600), flow=Flow(deadline_s=7200))
    answer = explained(verbs, job_id)
    assert codes(answer) == (JobVerdict.WAITING, ["not_due", "deadline"])
    assert answer.findings[1].evidence == {"deadline_at": text(verbs, 7200)}
    passed = text(verbs, 7200)
    verbs.clock.advance(7200)
    with verbs.store.transaction() as transaction:
        transaction.flow.lapse(actor=WORKER)
    found = only(explained(verbs, job_id), JobVerdict.FINISHED, "deadline_passed")
    assert (found.evidence["deadline_at"], found.evidence["by"]) == (passed, WORKER)


def test_a_job_follows_others_that_run_or_rest(verbs: Verbs) -> None:
    hello(verbs)
    first, second = verbs.submit(), verbs.submit()
    job_id = verbs.submit(flow=Flow(after=(first, second)))
    found = only(explained(verbs, job_id), JobVerdict.WAITING, "after_job")
    assert found.evidence == {
        "job_id": first, "state": "pending", "quarantine_code": None, "holding": 2, "parents": 2,
        "if_unsuccessful": "wait", "batch_id": None,
    }  # fmt: skip
    with verbs.store.transaction() as transaction:
        transaction.rulings.rule([(verbs.job(second), Quarantine("poison"))], actor=OPERATOR)
    found = only(explained(verbs, job_id), JobVerdict.BLOCKED, "held_by_job")
    assert (found.evidence["job_id"], found.evidence["quarantine_code"]) == (second, "poison")
    assert found.next == f"holdfast explain {second}"


def test_not_due_and_no_worker_serves_it(verbs: Verbs) -> None:
    """It becomes due by itself, but a worker does not start by itself: that finding is first and gives the verdict."""
    job_id = verbs.submit(run_at=verbs.clock.after(7200))
    assert codes(explained(verbs, job_id)) == (JobVerdict.BLOCKED, ["no_worker", "not_due"])
    hello(verbs, operations=("echo",))
    assert codes(explained(verbs, job_id)) == (JobVerdict.BLOCKED, ["operation_not_served", "not_due"])


def test_not_due_because_an_attempt_failed(verbs: Verbs) -> None:
    hello(verbs)
    job_id = verbs.submit()
    attempt = verbs.claim_one()
    verbs.work(attempt, fail(attempt, code="io_error", retry_at=verbs.clock.after(20)))
    found = only(explained(verbs, job_id), JobVerdict.WAITING, "not_due")
    names(found, "2026-03-14 09:27:13 UTC (in 20 s)", "1 of 5", "(io_error)")
    assert (found.evidence["last_error_code"], found.evidence["spent"], found.evidence["excuse"]) == (
        "io_error",
        1,
        None,
    )


def test_not_due_because_it_was_given_back(verbs: Verbs) -> None:
    hello(verbs)
    job_id = verbs.submit()
    attempt = verbs.claim_one()
    verbs.work(attempt, GiveBack(attempt.execution.lease_token, verbs.clock.after(20), "snoozed"))
    found = only(explained(verbs, job_id), JobVerdict.WAITING, "not_due")
    names(found, "(snoozed)")
    assert (found.evidence["excuse"], found.evidence["spent"], found.evidence["attempts"]) == ("snoozed", 0, 1)


@pytest.mark.req("K-55")
def test_an_operation_that_is_switched_off(verbs: Verbs) -> None:
    hello(verbs, operations=("noop", "echo"))
    job_id = verbs.submit()
    behind = verbs.submit(operation="echo")
    switch = throw(verbs.store, "operation:noop", actor=OPERATOR, reason="it eats disks").switch
    thrown_at = text(verbs)
    verbs.clock.advance(10)
    found = only(explained(verbs, job_id), JobVerdict.BLOCKED, "kill_switch")
    names(found, "noop", "operator-1", "2026-03-14 09:26:53 UTC (10 s ago)", "it eats disks")
    assert found.evidence == {
        "switch": switch.name, "thrown_at": thrown_at, "thrown_by": OPERATOR, "reason": "it eats disks"
    }  # fmt: skip
    assert found.next == "holdfast switch lift operation:noop --reason TEXT"
    # A job that cannot be claimed is not ahead of others.
    only(explained(verbs, behind), JobVerdict.WAITING, "about_to_start")


def test_an_entry_of_a_log_is_not_for_workers(ledger_url: str) -> None:
    """Its queue stays paused: no command to resume it is given."""
    with Ledger(ledger_url) as ledger:
        entry = Wal(ledger, name="main").append("web", "Create", b"x")
        with ledger.store.reading() as reading:
            answer = explain(reading, entry, ledger.store.now())
    found = only(answer, JobVerdict.BLOCKED, "log_entry")
    names(found, "log main")
    assert (found.evidence["log"], found.evidence["operation"]) == ("main", "wal.main.Create")
    assert found.next == f"holdfast show {entry}"


def test_a_paused_queue(verbs: Verbs) -> None:
    hello(verbs, queues=("a b",))
    job_id = verbs.submit(queue="a b")
    with verbs.store.transaction() as transaction:
        transaction.queues.pause("a b", actor=OPERATOR, reason="the service is down")
    paused_at = text(verbs)
    verbs.clock.advance(10)
    found = only(explained(verbs, job_id), JobVerdict.BLOCKED, "queue_paused")
    names(found, "a b", "operator-1", "2026-03-14 09:26:53 UTC (10 s ago)", "the service is down")
    assert found.evidence == {
        "queue": "a b", "paused_at": paused_at, "paused_by": OPERATOR, "reason": "the service is down"
    }  # fmt: skip
    assert found.next == "holdfast resume --queue 'a b'"
    # Even when it is resumed, nothing happens before the job is due: both are said, and the pause first.
    later = verbs.submit(queue="a b", run_at=verbs.clock.after(60))
    assert codes(explained(verbs, later)) == (JobVerdict.BLOCKED, ["queue_paused", "not_due"])


def test_no_worker(verbs: Verbs) -> None:
    job_id = verbs.submit(queue="slow")
    found = only(explained(verbs, job_id), JobVerdict.BLOCKED, "no_worker")
    names(found, "slow")
    assert found.evidence == {"queue": "slow", "last_seen_at": None, "living_workers": []}
    assert found.next == "holdfast worker --help"  # none has ever run
    hello(verbs, "worker-of-others")
    assert only(explained(verbs, job_id), JobVerdict.BLOCKED, "no_worker").next == "holdfast workers --all"
    hello(verbs, "worker-of-slow", queues=("default", "slow"))
    seen_at = text(verbs)
    verbs.clock.advance(ALIVE_S)
    only(explained(verbs, job_id), JobVerdict.WAITING, "about_to_start")
    verbs.clock.advance(0.000001)
    hello(verbs, "worker-of-others")
    found = only(explained(verbs, job_id), JobVerdict.BLOCKED, "no_worker")
    names(found, "slow", "2026-03-14 09:26:53 UTC (30 s ago)")
    assert found.evidence == {"queue": "slow", "last_seen_at": seen_at, "living_workers": ["worker-of-others"]}


def test_a_stopped_worker_does_not_count(verbs: Verbs) -> None:
    job_id = verbs.submit()
    hello(verbs)
    only(explained(verbs, job_id), JobVerdict.WAITING, "about_to_start")
    with verbs.store.transaction() as transaction:
        transaction.workers.stopped(WORKER)
    only(explained(verbs, job_id), JobVerdict.BLOCKED, "no_worker")


def test_a_worker_with_recent_heartbeats_is_alive(verbs: Verbs) -> None:
    """The longest pause between heartbeats is far below the limit for a dead worker."""
    ledger = Ledger(verbs.store.url)
    periods, pauses = [], []
    for lease_s in (3600.0, 30.0, 1.0):
        ledger.operation(f"of-{lease_s:g}", lease_s=lease_s)(lambda run: None)
        heartbeat = Heartbeat.__new__(Heartbeat)
        heartbeat._ledger = ledger
        periods.append(heartbeat.period_s())
        pauses.append(heartbeat.pause_s())
    assert periods == [30 / BEATS_A_LEASE, 30 / BEATS_A_LEASE, 1 / BEATS_A_LEASE]
    assert pauses == [LOOK_S, LOOK_S, 1 / BEATS_A_LEASE]
    assert max(pauses) + SEEN_S <= SILENT_S == ALIVE_S / 3 == 10.0
    assert SEEN_S >= 5 * POLL_S


def test_no_worker_knows_the_operation(verbs: Verbs) -> None:
    hello(verbs, "worker-a", operations=("noop", "thumbnail"))
    hello(verbs, "worker-b", queues=("other",), operations=("echo",))
    job_id = verbs.submit(operation="echo")
    found = only(explained(verbs, job_id), JobVerdict.BLOCKED, "operation_not_served")
    names(found, "default", "echo 1.0.0")
    assert found.evidence == {
        "operation": "echo", "version": "1.0.0", "workers": {"worker-a": ["noop", "thumbnail"]}
    }  # fmt: skip
    assert found.next == "holdfast workers --all"


def test_all_slots_are_busy(verbs: Verbs) -> None:
    hello(verbs, "worker-a", concurrency=2)
    hello(verbs, "worker-b", concurrency=1)
    hello(verbs, "worker-of-others", queues=("other",))
    for _ in range(3):
        verbs.submit()
    verbs.claim(2, owner="worker-a")
    job_id = verbs.submit()
    verbs.claim(1, owner="worker-b", queues=("nothing here",))
    assert codes(explained(verbs, job_id)) == (JobVerdict.WAITING, ["behind_others"])
    verbs.claim(1, owner="worker-b")
    found = only(explained(verbs, job_id), JobVerdict.WAITING, "workers_busy")
    names(found, "3 attempts", "3 slots")
    assert found.evidence == {"busy": {"worker-a": 2, "worker-b": 1}, "slots": {"worker-a": 2, "worker-b": 1}}
    assert found.next == "holdfast jobs --state running --queue default"
    # An expired lease of a live worker takes no slot.
    verbs.clock.advance(30)
    only(explained(verbs, job_id), JobVerdict.BLOCKED, "no_worker")
    hello(verbs, "worker-a", concurrency=2)
    only(explained(verbs, job_id), JobVerdict.WAITING, "about_to_start")


def test_other_jobs_are_ahead(verbs: Verbs) -> None:
    hello(verbs)
    first = verbs.submit()
    second = verbs.submit()
    verbs.submit(priority=1, run_at=verbs.clock.after(-5))
    verbs.submit(priority=9)
    verbs.submit(priority=9, run_at=verbs.clock.after(60))  # not due: it is not ahead
    verbs.submit(priority=-1, run_at=verbs.clock.after(-60))
    verbs.submit(queue="other", priority=9)
    earlier = verbs.submit(run_at=verbs.clock.after(-1))
    found = [only(explained(verbs, job_id), JobVerdict.WAITING, "behind_others") for job_id in (earlier, first, second)]
    assert [finding.evidence["ahead"] for finding in found] == [2, 3, 4]
    last = found[-1]
    names(last, "default", "4")
    assert last.evidence == {"ahead": 4, "counted_to": AHEAD_MAX, "priority": 0, "run_at": text(verbs)}
    assert last.next == "holdfast jobs --state pending --queue default"
    # The order shown is the order of the claims.
    order = [verbs.claim_one().job.job_id for _ in range(5)]
    assert order[2:] == [earlier, first, second]


def test_counting_jobs_ahead_stops_at_a_limit(verbs: Verbs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.explain.pending.AHEAD_MAX", 3)
    hello(verbs)
    verbs.submit_all([Submission(operation="noop", payload="{}") for _ in range(5)])
    found = only(explained(verbs, verbs.submit()), JobVerdict.WAITING, "behind_others")
    names(found, "3 or more")
    assert (found.evidence["ahead"], found.evidence["counted_to"]) == (3, 3)


def test_a_job_that_nothing_blocks(verbs: Verbs) -> None:
    hello(verbs)
    job_id = verbs.submit()
    found = only(explained(verbs, job_id), JobVerdict.WAITING, "about_to_start")
    names(found, "within 1 s")
    assert found.evidence == {"workers": [WORKER], "free": 2, "last_seen_at": text(verbs)}
    assert found.next == f"holdfast show {job_id}"


def test_a_due_job_that_free_workers_do_not_claim(verbs: Verbs) -> None:
    """The handlers of ended attempts may hang in slots that the ledger counts as free."""
    hello(verbs)
    job_id = verbs.submit()
    verbs.clock.advance(121)
    hello(verbs)
    found = only(explained(verbs, job_id), JobVerdict.BLOCKED, "nothing_starts")
    assert found.evidence == {"workers": [WORKER], "busy": {WORKER: 0}, "slots": {WORKER: 2}}
    assert found.next == "holdfast workers"


def test_earlier_failed_attempts_are_listed(verbs: Verbs) -> None:
    hello(verbs)
    job_id = verbs.submit(max_attempts=3)
    attempt = verbs.claim_one()
    verbs.work(attempt, fail(attempt, code="io_error", message="the disk said no\nat line 3", retry_at=verbs.clock()))
    answer = explained(verbs, job_id)
    assert codes(answer) == (JobVerdict.WAITING, ["about_to_start", "failed_before"])
    found = answer.findings[1]
    names(found, "1 of 3", "io_error: the disk said no at line 3")
    assert found.evidence == {
        "attempts": 1, "spent": 1, "max_attempts": 3, "replay_attempts": 5, "last_error_code": "io_error",
        "last_error_message": "the disk said no at line 3",
    }  # fmt: skip


def test_never_more_attempts_than_there_are_are_said_to_be_used(verbs: Verbs) -> None:
    """The number of an attempt also counts those that cost nothing, and replays have a budget of their own."""
    hello(verbs)
    job_id = verbs.submit(max_attempts=2)
    attempt = verbs.claim_one()
    verbs.work(attempt, GiveBack(attempt.execution.lease_token, verbs.clock(), "snoozed"))
    attempt = verbs.claim_one()
    verbs.work(attempt, fail(attempt, retry_at=verbs.clock.after(20)))
    names(only(explained(verbs, job_id), JobVerdict.WAITING, "not_due"), "Attempt 2", "1 of 2")
    verbs.clock.advance(20)
    hello(verbs)
    attempt = verbs.claim_one()
    verbs.work(attempt, fail(attempt))
    for more in (1, 2):
        assert isinstance(verbs.rule(verbs.job(job_id), Replay("incident")), Move)
        if more == 2:
            names(explained(verbs, job_id).findings[1], "2 of 2, and 1 of 5 replays")
        attempt = verbs.claim_one()
        verbs.work(attempt, fail(attempt))


# ---------------------------------------------------------------------------------------------------------------------
# A job that runs


def lease_of(attempt: Attempt, verbs: Verbs, **changes: object) -> dict[str, object]:
    execution = verbs.attempt(attempt.execution.exec_id).execution
    assert execution.started_at is not None
    return {
        "exec_id": execution.exec_id, "attempt": execution.attempt, "status": "IN_PROGRESS", "lease_owner": WORKER,
        "progress": None, "progress_note": None, "started_at": time_text(execution.started_at),
        "lease_expires_at": time_text(execution.lease_expires_at), **changes,
    }  # fmt: skip


def test_running_under_a_lease(verbs: Verbs) -> None:
    hello(verbs)
    job_id = verbs.submit()
    attempt = verbs.claim_one(seconds=90)
    verbs.clock.advance(10)
    found = only(explained(verbs, job_id), JobVerdict.RUNNING, "running")
    names(found, "ttempt 1", "worker-1", "2026-03-14 09:26:53 UTC (10 s ago)", "2026-03-14 09:28:23 UTC (in 1 min)")
    assert found.evidence == lease_of(attempt, verbs)
    assert found.next == f"holdfast show {job_id}"
    verbs.progress(attempt, 0.5, "rendered")
    found = only(explained(verbs, job_id), JobVerdict.RUNNING, "running")
    names(found, "50% done (rendered)")
    assert found.evidence == lease_of(attempt, verbs, progress=0.5, progress_note="rendered")


def test_leased_and_not_begun(verbs: Verbs) -> None:
    job_id = verbs.submit()
    verbs.claim_one(begin=False)
    found = only(explained(verbs, job_id), JobVerdict.RUNNING, "running")
    names(found, "ttempt 1", "leased", "worker-1")
    assert (found.evidence["status"], found.evidence["started_at"]) == ("LEASED", None)


def test_a_cancellation_was_requested(verbs: Verbs) -> None:
    job_id = verbs.submit()
    verbs.claim_one()
    with verbs.store.transaction() as transaction:
        transaction.notes.request_cancel(job_id, actor="ann", reason="not wanted")
    requested_at = text(verbs)
    verbs.clock.advance(3)
    answer = explained(verbs, job_id)
    assert codes(answer) == (JobVerdict.RUNNING, ["running", "cancel_requested"])
    found = answer.findings[1]
    names(found, "2026-03-14 09:26:53 UTC (3 s ago)")
    assert found.evidence == {"cancel_requested_at": requested_at, "by": "ann", "reason": "not wanted", "attempt": 1}


@pytest.mark.parametrize("ended", ["silent", "lost", "stopped"])
def test_its_worker_is_silent(verbs: Verbs, ended: str) -> None:
    hello(verbs)
    seen_at = text(verbs)
    job_id = verbs.submit()
    verbs.claim_one(seconds=3600)
    if ended == "stopped":
        with verbs.store.transaction() as transaction:
            transaction.workers.stopped(WORKER)
    verbs.clock.advance(after := SILENT_S + 1 if ended == "silent" else ALIVE_S + 1)
    answer = explained(verbs, job_id)
    assert codes(answer) == (JobVerdict.RUNNING, ["running", "owner_silent"])
    found = answer.findings[1]
    said = "stopped" if ended == "stopped" else "was last seen"
    names(found, said, f"2026-03-14 09:26:53 UTC ({after:g} s ago)")
    stopped_at = seen_at if ended == "stopped" else None
    assert found.evidence == {"worker_id": WORKER, "seen_at": seen_at, "stopped_at": stopped_at}
    assert found.next == "holdfast stalled"


def test_committed_and_not_finished(verbs: Verbs) -> None:
    hello(verbs)
    job_id = verbs.submit()
    attempt = verbs.claim_one()
    verbs.work(attempt, Commit(attempt.execution.lease_token, "1"))
    found = only(explained(verbs, job_id), JobVerdict.RUNNING, "committed")
    names(found, "ttempt 1", "worker-1")
    assert found.evidence == lease_of(attempt, verbs, status="COMMITTED")


@pytest.mark.parametrize(
    "lost, max_attempts, replay_attempts, committed, then, verdict",
    [
        (0, 1, 0, False, "pending", JobVerdict.WAITING),
        (2, 2, 5, False, "pending", JobVerdict.WAITING),
        (2, 1, 5, False, "failed", JobVerdict.BLOCKED),
        (2, 1, 0, False, "quarantined", JobVerdict.BLOCKED),
        (0, 1, 0, True, "succeeded", JobVerdict.RUNNING),
    ],
)
def test_a_lease_that_ran_out_and_is_about_to_be_reaped(
    verbs: Verbs, *, lost: int, max_attempts: int, replay_attempts: int, committed: bool, then: str, verdict: JobVerdict
) -> None:
    """The explanation matches what the reaper then does."""
    job_id = verbs.submit(max_attempts=max_attempts, replay_attempts=replay_attempts)
    for _ in range(lost):
        verbs.claim_one(owner="worker-dead", seconds=30)
        verbs.clock.advance(30)
        verbs.recover()
    attempt = verbs.claim_one(owner="worker-dead", seconds=30)
    if committed:
        verbs.work(attempt, Commit(attempt.execution.lease_token))
    verbs.clock.advance(30)
    hello(verbs, "worker-a", queues=("other",))
    answer = explained(verbs, job_id)
    assert codes(answer) == (verdict, ["lease_expired", *(["suspect"] if lost else [])])
    found, at = answer.findings[0], "09:28:23" if lost else "09:27:23"
    names(found, "worker-dead", f"attempt {lost + 1}", f"2026-03-14 {at} UTC (now)", "worker-a", "1 s", then)
    status = "COMMITTED" if committed else "IN_PROGRESS"
    assert found.evidence == lease_of(
        attempt, verbs, lease_owner="worker-dead", status=status, reapers=["worker-a"], reaped_within_s=1.0, then=then
    )
    assert found.next == "holdfast stalled"
    verbs.recover()
    assert verbs.job(job_id).state == then


def test_an_expired_lease_without_a_worker_to_recover_it(verbs: Verbs) -> None:
    job_id = verbs.submit()
    attempt = verbs.claim_one()
    verbs.clock.advance(31)
    found = only(explained(verbs, job_id), JobVerdict.BLOCKED, "lease_expired_unseen")
    names(found, "worker-1", "attempt 1", "2026-03-14 09:27:23 UTC (1 s ago)", "pending")
    assert found.evidence == lease_of(attempt, verbs, reapers=[], reaped_within_s=None, then="pending")
    assert found.next == "holdfast recover"


def test_a_silent_worker_is_not_said_to_recover_a_lease(verbs: Verbs) -> None:
    hello(verbs, "worker-old")
    job_id = verbs.submit()
    verbs.claim_one(seconds=SILENT_S + 1)
    verbs.clock.advance(1)
    hello(verbs, "worker-silent")
    verbs.clock.advance(SILENT_S + 0.5)
    found = only(explained(verbs, job_id), JobVerdict.BLOCKED, "lease_expired_unseen")
    assert (found.evidence["reapers"], found.next) == ([], "holdfast recover")
    hello(verbs, "worker-new")
    found = only(explained(verbs, job_id), JobVerdict.WAITING, "lease_expired")
    assert found.evidence["reapers"] == ["worker-new"]


def test_a_worker_whose_own_lease_ran_out_is_not_taken_for_living(verbs: Verbs) -> None:
    """It was killed some seconds ago: it will end nothing, and take nothing."""
    hello(verbs)
    job_id = verbs.submit()
    attempt = verbs.claim_one(seconds=3)
    waiting = verbs.submit()
    assert codes(explained(verbs, waiting)) == (JobVerdict.WAITING, ["about_to_start"])
    verbs.clock.advance(5)
    found = only(explained(verbs, job_id), JobVerdict.BLOCKED, "lease_expired_unseen")
    assert found.evidence == lease_of(attempt, verbs, reapers=[], reaped_within_s=None, then="pending")
    found = only(explained(verbs, waiting), JobVerdict.BLOCKED, "no_worker")
    names(found, "default", "2026-03-14 09:26:53 UTC (5 s ago)")
    hello(verbs, "worker-b")
    assert only(explained(verbs, job_id), JobVerdict.WAITING, "lease_expired").evidence["reapers"] == ["worker-b"]
    found = only(explained(verbs, waiting), JobVerdict.WAITING, "about_to_start")
    assert found.evidence["workers"] == ["worker-b"]
    # A worker seen after that is alive: it only abandoned that attempt.
    hello(verbs)
    assert only(explained(verbs, job_id), JobVerdict.WAITING, "lease_expired").evidence["reapers"] == [
        WORKER,
        "worker-b",
    ]


def test_running_without_a_live_worker(verbs: Verbs, ledger_url: str) -> None:
    """Only damage can bring this about: a CHECK forbids it, under the maintenance door too."""
    job_id = verbs.submit()
    verbs.claim_one()
    with unguarded(ledger_url, cast("Any", None)) as knife:
        knife.set("JOB", job_id, status=None)
    found = only(explained(verbs, job_id), JobVerdict.BLOCKED, "no_execution")
    assert (found.evidence, found.next) == ({"open_executions": 0}, "holdfast check")


# ---------------------------------------------------------------------------------------------------------------------
# A job that rests


def test_attempts_spent(verbs: Verbs) -> None:
    job_id = verbs.submit(max_attempts=2)
    for _ in range(2):
        attempt = verbs.claim_one()
        verbs.work(attempt, fail(attempt, code="io_error", message="the disk said no", retry_at=verbs.clock()))
    found = only(explained(verbs, job_id), JobVerdict.BLOCKED, "attempts_spent")
    names(found, "2 automatic attempts", "io_error: the disk said no")
    assert found.evidence == {
        "attempts": 2, "spent": 2, "max_attempts": 2, "replay_attempts": 5, "last_error_code": "io_error",
        "last_error_message": "the disk said no",
    }  # fmt: skip
    assert found.next == f"holdfast retry {job_id}"


def test_failed_with_attempts_left(verbs: Verbs) -> None:
    job = verbs.job_in(JobState.FAILED)
    found = only(explained(verbs, job.job_id), JobVerdict.BLOCKED, "not_retried")
    names(found, "1 of 5", "boom: it broke")
    assert found.next == f"holdfast retry {job.job_id}"


def test_a_failed_job_whose_budget_was_taken_away(verbs: Verbs) -> None:
    job = verbs.job_in(JobState.FAILED, max_attempts=1)
    with verbs.store.transaction() as transaction, transaction.maintenance.open(who="test", why="no more replays"):
        verbs.store.execute(transaction.connection, "UPDATE holdfast_calls SET replay_attempts = 0")
    found = only(explained(verbs, job.job_id), JobVerdict.BLOCKED, "budget_gone")
    assert found.next == f"holdfast show {job.job_id}"


def test_budget_gone(verbs: Verbs) -> None:
    job_id = verbs.submit(max_attempts=1, replay_attempts=0)
    attempt = verbs.claim_one()
    verbs.work(attempt, fail(attempt, retry_at=verbs.clock()))
    answer = explained(verbs, job_id)
    assert codes(answer) == (JobVerdict.BLOCKED, ["quarantined", "budget_gone"])
    found = answer.findings[1]
    names(found, "1 attempt")
    assert (found.evidence["spent"], found.evidence["max_attempts"], found.evidence["replay_attempts"]) == (1, 1, 0)


def test_quarantined(verbs: Verbs) -> None:
    job_id = verbs.submit()
    verbs.rule(verbs.job(job_id), Quarantine("poison", "it cannot be read"), "looks wrong")
    at = text(verbs)
    verbs.clock.advance(60)
    found = only(explained(verbs, job_id), JobVerdict.BLOCKED, "quarantined")
    names(
        found, "poison", "operator-1", "2026-03-14 09:26:53 UTC (1 min ago)", "looks wrong", "poison: it cannot be read"
    )
    assert found.evidence == {
        "code": "poison", "reason": "looks wrong", "by": OPERATOR, "at": at, "attempts": 0, "spent": 0,
        "max_attempts": 5, "replay_attempts": 5, "last_error_code": "poison", "last_error_message": "it cannot be read",
    }  # fmt: skip
    assert found.next == f"holdfast quarantine release {job_id} --reason TEXT"


def test_cancelled(verbs: Verbs) -> None:
    job_id = verbs.submit()
    verbs.rule(verbs.job(job_id), Cancel(), "not wanted")
    found = only(explained(verbs, job_id), JobVerdict.FINISHED, "cancelled")
    names(found, "operator-1", "2026-03-14 09:26:53 UTC (now)", "not wanted")
    assert (found.evidence["code"], found.evidence["by"]) == ("cancelled", OPERATOR)


@pytest.mark.parametrize("by_handler", [False, True])
def test_superseded(verbs: Verbs, *, by_handler: bool) -> None:
    """Its successor is named, and no command is advised: a release would only quarantine it again."""
    job_id = verbs.submit()
    words = "a later write was admitted as job 7"
    if by_handler:
        [attempt] = verbs.claim(1)
        verbs.work(attempt, fail(attempt, code="superseded", message=f"Quarantine: {words}", permanent=True))
    else:
        verbs.rule(verbs.job(job_id), Quarantine("superseded", words), "a later write came")
    found = only(explained(verbs, job_id), JobVerdict.FINISHED, "superseded")
    who = WORKER if by_handler else OPERATOR
    names(found, who, "2026-03-14 09:26:53 UTC (now)", words)
    assert (found.evidence["code"], found.evidence["by"]) == ("superseded", who)
    assert found.next == f"holdfast show {job_id}"
    with verbs.store.reading() as reading:
        assert release_commands(reading, verbs.job(job_id)) == (f"holdfast show {job_id}",)


def test_superseded_by_hand_shows_the_given_reason(verbs: Verbs) -> None:
    job_id = verbs.submit()
    verbs.rule(verbs.job(job_id), Quarantine("superseded", ""), "job 9 does it now")
    found = only(explained(verbs, job_id), JobVerdict.FINISHED, "superseded")
    names(found, "(now)", "job 9 does it now")


def test_a_log_whose_operation_is_switched_off_says_that_first(ledger_url: str) -> None:
    with Ledger(ledger_url) as ledger:
        entry_id = Wal(ledger, name="orders").append("alice", "Create", b"x")
        throw(ledger.store, "operation:wal.orders.Create", actor=OPERATOR, reason="it eats disks")
        with ledger.store.reading() as reading:
            answer = explain(reading, entry_id, ledger.store.now())
    assert codes(answer) == (JobVerdict.BLOCKED, ["kill_switch", "log_entry"])


def test_succeeded(verbs: Verbs) -> None:
    job_id = verbs.submit()
    attempt = verbs.claim_one()
    verbs.work(attempt, Complete(attempt.execution.lease_token, '"result"'))
    found = only(explained(verbs, job_id), JobVerdict.FINISHED, "succeeded")
    names(found, "2026-03-14 09:26:53 UTC (now)", "1 attempt")
    assert found.evidence == {"succeeded_at": text(verbs), "attempts": 1, "has_result": True}
    assert found.next == f"holdfast show {job_id}"


def test_a_request_to_cancel_came_too_late(verbs: Verbs) -> None:
    job_id = verbs.submit()
    attempt = verbs.claim_one()
    with verbs.store.transaction() as transaction:
        transaction.notes.request_cancel(job_id, actor="ann", reason="not wanted")
    requested_at = text(verbs)
    verbs.work(attempt, Complete(attempt.execution.lease_token, '"result"'))
    answer = explained(verbs, job_id)
    assert codes(answer) == (JobVerdict.FINISHED, ["succeeded", "cancel_too_late"])
    assert answer.findings[1].evidence == {
        "cancel_requested_at": requested_at, "by": "ann", "reason": "not wanted", "attempt": 1,
    }  # fmt: skip


def test_a_suspect_runs_alone(verbs: Verbs) -> None:
    job_id = verbs.submit()
    for _ in range(2):
        attempt = verbs.claim_one()
        verbs.clock.advance(60)
        verbs.work(attempt, Expire(verbs.clock()))
    found = next(finding for finding in explained(verbs, job_id).findings if finding.code == "suspect")
    assert (found.evidence["lost"], found.evidence["excused"]) == (2, 2)
    verbs.claim_one()
    assert "suspect" in {finding.code for finding in explained(verbs, job_id).findings}


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.QUARANTINED])
def test_slimmed(verbs: Verbs, state: JobState) -> None:
    job = verbs.job_in(state, key="a", client="web")
    with verbs.store.transaction() as transaction, transaction.maintenance.open(who="gc", why="retention"):
        verbs.store.execute(transaction.connection, "UPDATE holdfast_calls SET payload = NULL")
        verbs.store.execute(transaction.connection, "UPDATE holdfast_jobs SET result = NULL")
    answer = explained(verbs, job.job_id)
    first = state.value
    verdict = JobVerdict.FINISHED if state is JobState.SUCCEEDED else JobVerdict.BLOCKED
    assert codes(answer) == (verdict, [first, "slimmed"])
    found = answer.findings[1]
    assert found.next == f"holdfast show {job.job_id}"
    assert found.evidence == {"digest": job.digest, "key": "a"}


# ---------------------------------------------------------------------------------------------------------------------
# All of it


def test_there_is_no_such_job(verbs: Verbs) -> None:
    with pytest.raises(JobNotFoundError) as caught:
        explained(verbs, 7)
    assert caught.value.context == {"job_id": 7}


def test_erased(verbs: Verbs) -> None:
    job_id = verbs.submit()
    verbs.rule(verbs.job(job_id), Cancel(), "not wanted")
    erase(verbs.store, job_id, actor="ann", reason="a request")
    answer = explained(verbs, job_id)
    assert codes(answer) == (JobVerdict.FINISHED, ["cancelled", "erased"])
    evidence = answer.findings[1].evidence
    assert {name: evidence[name] for name in ("by", "reason", "grant_id", "digest")} == {
        "by": "ann", "reason": "a request", "grant_id": 1, "digest": verbs.job(job_id).digest,
    }  # fmt: skip


def test_the_limit_the_key_and_the_holders_are_named(verbs: Verbs) -> None:
    with verbs.store.transaction() as transaction:
        transaction.limits.set("key:echo", Limit(running=1, path="who"), actor="ann", reason="r")
    first, second = (
        admission.job_id
        for admission in verbs.submit_all([Submission(operation="echo", payload='{"who":"x"}') for _ in range(2)])
    )
    with verbs.store.transaction() as transaction:
        transaction.executions.claim(Lease(owner="worker-7", seconds=30, n=10))
    with verbs.store.reading() as reading:
        [found] = [f for f in explain(reading, second, verbs.clock()).findings if f.code.value == "limited"]
    assert found.evidence == {
        "limit": "key:echo",
        "bucket": 'key:echo="x"',
        "key": '"x"',
        "set_by": "ann",
        "reason": "r",
        "running": 1,
        "holders": [{"slot": 1, "job_id": first, "worker": "worker-7"}],
    }


def test_the_rate_and_its_next_start_are_named(verbs: Verbs) -> None:
    with verbs.store.transaction() as transaction:
        limit = Limit(starts=1, seconds=60.0, burst=1)
        transaction.limits.set("operation:echo", limit, actor="ann", reason="r")
    _, second = (
        admission.job_id
        for admission in verbs.submit_all([Submission(operation="echo", payload="{}") for _ in range(2)])
    )
    verbs.claim(10)
    with verbs.store.reading() as reading:
        [found] = [f for f in explain(reading, second, verbs.clock()).findings if f.code.value == "limited"]
    assert (found.evidence["limit"], found.evidence["rate"]) == ("operation:echo", "1/m")
    assert found.evidence["next_at"] is not None


def test_every_code_has_a_test_here() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert [code for code in FindingCode if f'"{code}"' not in source] == []


def test_a_real_worker_is_seen_to_live_work_and_stop(ledger_url: str) -> None:
    """The same questions of a ledger with a real worker on the real clock."""
    entered, leave = threading.Event(), threading.Event()
    with Ledger(ledger_url) as ledger:

        @ledger.operation("hold")
        def hold(run: Execution) -> None:
            entered.set()
            leave.wait(PATIENCE_S)

        def codes_of(job_id: int) -> list[str]:
            with ledger.store.reading() as reading:
                return [finding.code for finding in explain(reading, job_id, ledger.store.now()).findings]

        first = ledger.submit(hold.call()).job_id
        assert codes_of(first) == ["no_worker"]
        with working(ledger, concurrency=1, batch_max=1):
            assert entered.wait(PATIENCE_S)
            second = ledger.submit(hold.call()).job_id
            foreign = ledger.submit("noop", queue="elsewhere").job_id
            assert codes_of(first) == ["running"]
            eventually(lambda: codes_of(second) == ["workers_busy"], "the worker's hello")
            assert codes_of(foreign) == ["no_worker"]
            leave.set()
            eventually(lambda: codes_of(first) == ["succeeded"], "the end of the job")
            eventually(lambda: codes_of(second) == ["succeeded"], "the end of the other job")
        third = ledger.submit(hold.call()).job_id
        assert codes_of(third) == ["no_worker"]
