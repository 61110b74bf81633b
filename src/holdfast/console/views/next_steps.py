"""The next safe step after a finding, as a page of the console.

Invariants: a step leads to a page, never acts by itself; a finding without a page of its own has none, and its command
line is shown instead.
"""

from __future__ import annotations

import msgspec

from holdfast.console.views.links import path, replay_draft
from holdfast.core.records import Job
from holdfast.explain.explanation import Finding, FindingCode


class NextStep(msgspec.Struct, frozen=True):
    """A step: its words, its page, and whether it needs a grant."""

    words: str
    href: str
    governed: bool = False


def next_step(job: Job, finding: Finding) -> NextStep | None:
    """Return the page for the next step after a finding, or None if there is none."""
    code = finding.code
    if code in (FindingCode.NOT_RETRIED, FindingCode.ATTEMPTS_SPENT):
        if f"holdfast retry {job.job_id}" == finding.next:
            return NextStep("Retry…", f"/jobs/{job.job_id}/retry")
        return NextStep("Prepare a replay", replay_draft(operation=job.operation, code=job.last_error_code))
    if code is FindingCode.QUARANTINED and finding.next.startswith(("holdfast quarantine release", "holdfast grant")):
        return NextStep("Release…", f"/jobs/{job.job_id}/release", governed=True)
    if code is FindingCode.KILL_SWITCH:
        return NextStep("Lift the switch…", path("/switches", str(finding.evidence["switch"]), "lift"), governed=True)
    if code is FindingCode.QUEUE_PAUSED:
        return NextStep("Resume the queue…", path("/queues", job.queue, "resume"), governed=True)
    if code is FindingCode.OWNER_SILENT:
        return NextStep("End the attempt…", f"/jobs/{job.job_id}/revoke")
    if code in (FindingCode.NO_WORKER, FindingCode.OPERATION_NOT_SERVED):
        return NextStep("Workers", path("/workers", queue=job.queue))
    if code is FindingCode.LEASE_EXPIRED_UNSEEN:
        return NextStep("Recover…", "/recover")
    if code in (FindingCode.WORKERS_BUSY, FindingCode.BEHIND_OTHERS):
        return NextStep("The queue", path("/queues", job.queue))
    if code in (FindingCode.HELD_BY_JOB, FindingCode.AFTER_JOB):
        parent = finding.next.rpartition(" ")[2]
        return NextStep(f"Job {parent}", path("/jobs", parent))
    if code is FindingCode.NO_EXECUTION:
        return NextStep("Checks", "/checks")
    return None
