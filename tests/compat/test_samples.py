"""What the document's own samples do, written anew against `holdfast.compat`: each sample's meaning holds.

The names, the fields and the ways of calling are the document's; the code is ours.
"""

from __future__ import annotations

import logging
import shlex
from datetime import datetime
from pathlib import Path

import pytest

from holdfast.compat import (
    AuditLogger,
    DeadlockDetector,
    IdempotentJobQueue,
    IngestionJob,
    IngestionOrchestrator,
    InvalidStateTransitionError,
    JobQueue,
    JobRow,
    JobStatus,
    StateMachineInvariants,
    StateMachineValidator,
    validate_database_integrity,
)
from holdfast.core.errors import RefusedError
from holdfast.testing import VirtualClock
from tests.cli.commands import holdfast
from tests.compat.conftest import Open
from tests.compat.support import put


@pytest.mark.req("G-05", "G-23")
def test_a_validator_alone_records_what_it_validated(
    queue: IdempotentJobQueue, tmp_path: Path, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    audit = AuditLogger(queue, tmp_path)
    validator = StateMachineValidator(audit, clock=clock)
    made = validator.validate_transition(
        job_id="never enqueued",
        from_status=JobStatus.PENDING,
        to_status=JobStatus.RUNNING,
        operator="ada",
        reason="trial",
    )
    assert made.is_valid()
    assert not made.is_idempotent()
    [event] = audit.events("never enqueued")
    assert (event.source, event.action, event.status) == (
        "state_machine",
        "transition_pending_to_running",
        "validated",
    )
    assert event.metadata == {"from_status": "pending", "to_status": "running", "operator": "ada", "reason": "trial"}
    with caplog.at_level(logging.DEBUG), pytest.raises(InvalidStateTransitionError) as caught:
        validator.validate_transition("x", JobStatus.SUCCEEDED, JobStatus.RUNNING)
    assert str(caught.value) == "Invalid transition: succeeded → running"
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert len(audit.events("x")) == 0
    assert audit.verify()


@pytest.mark.req("G-12", "G-23")
def test_a_move_of_the_queue_is_recorded_once(
    opened: Open, queue: IdempotentJobQueue, tmp_path: Path, clock: VirtualClock
) -> None:
    audit = AuditLogger(queue, tmp_path)
    audited = opened(StateMachineValidator(audit, clock=clock))
    audited.enqueue(IngestionJob("a", "local_files", {}))
    audited.mark_running("a")
    audited.mark_completed("a")
    actions = [event.action for event in audit.events("a")]
    assert actions == ["job_enqueued", "transition_pending_to_running", "transition_running_to_succeeded"]
    assert audit.head()[0] == 0  # all of it is in the journal


@pytest.mark.req("G-14", "G-18")
def test_the_rows_of_a_snapshot_are_those_that_a_detector_of_ones_own_reads(
    queue: IdempotentJobQueue, clock: VirtualClock
) -> None:
    put(queue, JobStatus.RUNNING, "slow")
    clock.advance(400)
    put(queue, JobStatus.RUNNING, "quick")
    clock.advance(250)
    stalled = []
    for row in queue.snapshot(status=JobStatus.RUNNING):
        age_s = (clock() - datetime.fromisoformat(row["updated_at"])).total_seconds()
        if age_s > 600:
            stalled.append(row["job_id"])
    assert stalled == ["slow"] == DeadlockDetector(queue, timeout_seconds=600).detect_stalled_jobs()


@pytest.mark.req("G-02", "G-21", "K-17")
def test_a_manual_retry_from_quarantine_names_the_command_to_use(queue: IdempotentJobQueue, ledger_url: str) -> None:
    put(queue, JobStatus.QUARANTINED, "a")
    with pytest.raises(RefusedError) as refused:
        queue.reschedule("a", operator="ada", reason="fixed", idempotent=False)
    assert refused.value.context["refusal"] == "grant_required"
    step = refused.value.hint.split("`")[1]
    assert step.split()[:4] == ["holdfast", "quarantine", "release", str(queue.get_job("a")["ledger_id"])]
    assert holdfast(*step.split()[1:], "--db", ledger_url).code == 0
    assert queue.get_job("a")["status"] is JobStatus.PENDING
    shown = holdfast("show", "a", "--client", "compat", "--json", "--db", ledger_url)
    assert shown.json["job"]["job_id"] == queue.get_job("a")["ledger_id"]
    assert holdfast("explain", "a", "--client", "compat", "--db", ledger_url).code == 0
    missing = holdfast("show", "b", "--json", "--db", ledger_url)
    assert (missing.code, missing.json["error_code"]) == (1, "job_not_found")


@pytest.mark.req("G-04")
def test_the_next_step_of_a_refused_move_shows_the_job(queue: IdempotentJobQueue, ledger_url: str) -> None:
    name = "inbox of ann"
    put(queue, JobStatus.FAILED, name)
    queue.reschedule(name, retry_delay_seconds=60)
    for refused in (queue.mark_completed, queue.mark_running):  # by the table, and by a guard: it is not due
        with pytest.raises(RefusedError) as caught:
            refused(name, idempotent=False)
        step = shlex.split(caught.value.hint.split("`")[1])
        shown = holdfast(*step[1:], "--json", "--db", ledger_url)
        assert (shown.code, shown.json["job"]["key"]) == (0, name), step


@pytest.mark.req("G-06", "G-07")
def test_an_orchestrator_runs_jobs_and_has_those_in_work_in_its_map(
    queue: IdempotentJobQueue, clock: VirtualClock
) -> None:
    seen: list[tuple[str, list[str]]] = []

    def ingest(row: JobRow) -> None:
        seen.append((row["job_id"], StateMachineInvariants.check_invariants(orchestrator)))
        assert orchestrator._active_jobs_map[row["job_id"]]["job_type"] == "local_files"
        if row["payload"].get("fails"):
            raise OSError("disk full")

    orchestrator = IngestionOrchestrator(queue, {"local_files": ingest}, max_retries=1)
    assert isinstance(queue, JobQueue)
    queue.enqueue(IngestionJob("good", "local_files", {}))
    queue.enqueue(IngestionJob("bad", "local_files", {"fails": True}))
    queue.enqueue(IngestionJob("odd", "imap_mailbox", {}))
    assert orchestrator.run_until_idle() == 3
    assert seen == [("good", []), ("bad", [])]
    assert orchestrator._active_jobs_map == {}
    assert queue.get_job("good")["status"] is JobStatus.SUCCEEDED
    assert queue.get_job("bad")["status"] is JobStatus.PENDING  # put back, due in a minute
    assert orchestrator.run_until_idle() == 0
    clock.advance(60)
    assert orchestrator.run_until_idle() == 2
    bad = queue.get_job("bad")
    assert (bad["status"], bad["attempts"], bad["last_error_code"]) == (JobStatus.QUARANTINED, 2, "OSError")
    assert queue.get_job("odd")["last_error_code"] == "unknown_job_type"
    assert validate_database_integrity(queue) == []


@pytest.mark.req("G-13")
def test_an_orchestrator_that_lost_its_lease_changes_nothing(
    queue: IdempotentJobQueue, other: IdempotentJobQueue, clock: VirtualClock
) -> None:
    def slow(_row: JobRow) -> None:
        clock.advance(601)  # past the lease
        DeadlockDetector(other).recover_stalled_job("a")
        clock.advance(61)
        assert other.claim("a") is not None

    queue.enqueue(IngestionJob("a", "local_files", {}))
    assert IngestionOrchestrator(queue, {"local_files": slow}).process_next()
    assert queue.get_job("a")["status"] is JobStatus.RUNNING  # the second worker's attempt
