"""The audit logger gets every transition that happened, and no other."""

import logging
from datetime import timedelta

import pytest

from holdfast.compat import AuditEvent, IdempotentJobQueue, JobStatus, StateMachineValidator
from holdfast.testing import START, VirtualClock
from tests.compat.actor import Memory, job
from tests.compat.conftest import Open
from tests.compat.support import JOURNAL, NAMES, edges, put, random_histories, rows

PENDING, RUNNING, SUCCEEDED, FAILED, QUARANTINED = JobStatus


@pytest.mark.req("G-05")
def test_an_event_says_who_what_and_why() -> None:
    audit = Memory()
    validator = StateMachineValidator(audit, clock=VirtualClock())
    transition = validator.validate_transition("a", RUNNING, FAILED, operator="ada", reason="no disk")
    assert (transition.timestamp, transition.operator, transition.reason) == (START, "ada", "no disk")
    assert validator.history == (transition,)
    assert audit.events == [
        AuditEvent(
            job_id="a",
            source="state_machine",
            action="transition_running_to_failed",
            status="validated",
            timestamp=START,
            metadata={"from_status": "running", "to_status": "failed", "operator": "ada", "reason": "no disk"},
        )
    ]


@pytest.mark.req("G-05")
def test_the_history_is_bounded_and_keeps_the_latest() -> None:
    validator = StateMachineValidator(history_max=3)
    for name in "abcde":
        validator.validate_transition(name, PENDING, RUNNING)
    assert [transition.job_id for transition in validator.history] == ["c", "d", "e"]


@pytest.mark.req("G-05", "G-12", "G-26")
def test_transition_audit_trail(opened: Open, ledger_url: str, clock: VirtualClock) -> None:
    audit = Memory()
    validator = StateMachineValidator(audit, clock=clock)
    queue = opened(validator)
    queue.enqueue(job("a"))
    queue.claim()
    clock.advance(1)
    queue.mark_failed("a", error_code="timeout")
    queue.reschedule("a", operator="ada", reason="network is back")
    queue.mark_running("a")
    clock.advance(600)
    queue.mark_completed("a")  # too late: skipped
    queue.expire("a")
    queue.reschedule("a")  # pending already: nothing happens
    queue.mark_completed("a")  # not running: skipped
    queue.mark_quarantined("a", code="parse_error", operator="bob", reason="broken file")
    queue.cancel_job("a")  # quarantined already

    expected = [
        ("pending", "running", "claim", queue.worker, None, None),
        ("running", "failed", "fail", queue.worker, None, None),
        ("failed", "pending", "retry", "ada", "ada", "network is back"),
        ("pending", "running", "claim", queue.worker, None, None),
        ("running", "failed", "expire", queue.worker, None, "stalled"),
        ("failed", "pending", "expire", queue.worker, None, "stalled"),
        ("pending", "quarantined", "quarantine", "bob", "bob", "broken file"),
    ]
    # The journal, written by the database with each move…
    assert [step[2:7] for step in rows(ledger_url, JOURNAL)[1:]] == [
        (source, target, event, actor, reason) for source, target, event, actor, _, reason in expected
    ]
    # … and the audit logger, called after each commit, have the same transitions.
    assert [(event.action, event.metadata["operator"], event.metadata["reason"]) for event in audit.events] == [
        (f"transition_{source}_to_{target}", operator, reason) for source, target, _, _, operator, reason in expected
    ]
    assert {(event.job_id, event.source, event.status) for event in audit.events} == {
        ("a", "state_machine", "validated")
    }
    times = [0, 1, 1, 1, 601, 601, 601]
    assert [event.timestamp for event in audit.events] == [START + timedelta(seconds=s) for s in times]
    assert [(item.job_id, item.from_status, item.to_status) for item in validator.history] == [
        ("a", source, target) for source, target, *_ in expected
    ]


@pytest.mark.req("G-12")
def test_the_trail_of_many_workers_is_the_journal_edge_for_edge(ledger_url: str) -> None:
    with IdempotentJobQueue(ledger_url) as queue:
        for name in NAMES:
            queue.enqueue(job(name))
    history, _ = random_histories(ledger_url, 7, NAMES)
    assert history.actions() == edges(ledger_url)
    claimed = rows(
        ledger_url, "SELECT lease_owner, count(*) FROM holdfast_executions GROUP BY lease_owner ORDER BY lease_owner"
    )
    reported = {
        worker: sum(event[::2] == (worker, "transition_pending_to_running") for event in history.events)
        for worker in history.workers()
    }
    assert dict(claimed) == {worker: n for worker, n in reported.items() if n}


@pytest.mark.req("G-12")
def test_an_audit_logger_that_fails_does_not_undo_or_hide_the_move(
    opened: Open, ledger_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def record(self, event: AuditEvent, /) -> None:
            raise OSError("no space left")

    queue = opened(StateMachineValidator(Broken()))
    put(queue, SUCCEEDED, "a")
    assert [step[3] for step in rows(ledger_url, JOURNAL)] == ["pending", "running", "succeeded"]
    assert [(record.levelno, record.message) for record in caplog.records] == [
        (logging.ERROR, "The audit logger failed")
    ] * 2
