"""`check` compares the slots of limits with the jobs that run, in both directions; a sweep repairs both."""

from __future__ import annotations

from holdfast.audit.check.findings import Severity
from holdfast.audit.check.runner import check
from holdfast.core.limits import Limit
from holdfast.store import Declared, Lease, Submission, create_store
from holdfast.testing import VirtualClock


def test_slots_and_running_jobs_agree(ledger_url: str) -> None:
    with create_store(ledger_url, VirtualClock()) as store:
        with store.transaction() as transaction:
            transaction.operations.declare({"echo": Declared()})
            transaction.limits.set("queue:default", Limit(running=2), actor="ann", reason="r")
            transaction.jobs.submit([Submission(operation="echo", payload="{}") for _ in range(3)])
        with store.transaction() as transaction:
            running = transaction.executions.claim(Lease(owner="w", seconds=30, n=10))
        assert len(running) == 2
        assert check(store, only=["slots_true"]).violations == ()
        with store.transaction() as transaction:
            transaction.execute("DELETE FROM holdfast_slots WHERE slot = 1")
            waiting = transaction.limits.waiting()
            transaction.execute("INSERT INTO holdfast_slots (bucket, slot, job_id) VALUES ('queue:default', 7, 3)")
        assert waiting == [("queue:default", "default", 1)]
        found = check(store, only=["slots_true"]).violations
        assert {(one.subject, one.evidence["kind"], one.severity) for one in found} == {
            ("SLOT queue:default/7", "leaked", Severity.WARNING),
            ("SLOT queue:default", "missing", Severity.WARNING),
        }
        with store.transaction() as transaction:
            transaction.limits.sweep()
        assert check(store, only=["slots_true"]).violations == ()
        with store.reading() as reading:
            assert sorted(job_id for _, _, job_id in reading.limits.held()) == [one.job_id for one in running]
