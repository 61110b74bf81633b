"""The parts of an explanation: a verdict, and findings with a stable code, the evidence and the next command.

Invariants: the codes are listed in the order in which they decide; the meaning of a code never changes.
"""

from enum import StrEnum

import msgspec

from holdfast.core.machines import JobState


class JobVerdict(StrEnum):
    """Whether a job needs action."""

    FINISHED = "finished"  # no action: the job has ended
    RUNNING = "running"  # no action: it is running
    WAITING = "waiting"  # no action: it will run
    BLOCKED = "blocked"  # needs action: it will not run without it


class FindingCode(StrEnum):
    """What can be found, in the order in which the findings of one job are reported."""

    SUCCEEDED = "succeeded"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    DEADLINE_PASSED = "deadline_passed"
    QUARANTINED = "quarantined"
    NOT_RETRIED = "not_retried"
    ATTEMPTS_SPENT = "attempts_spent"
    BUDGET_GONE = "budget_gone"
    NO_EXECUTION = "no_execution"
    LEASE_EXPIRED_UNSEEN = "lease_expired_unseen"
    LEASE_EXPIRED = "lease_expired"
    COMMITTED = "committed"
    RUNNING = "running"
    CANCEL_REQUESTED = "cancel_requested"
    CANCEL_TOO_LATE = "cancel_too_late"
    OWNER_SILENT = "owner_silent"
    KILL_SWITCH = "kill_switch"
    LOG_ENTRY = "log_entry"
    QUEUE_PAUSED = "queue_paused"
    HELD_BY_JOB = "held_by_job"
    AFTER_JOB = "after_job"
    LIMITED = "limited"
    NO_WORKER = "no_worker"
    OPERATION_NOT_SERVED = "operation_not_served"
    NOT_DUE = "not_due"  # after those about workers: time passes without action, a missing worker stays missing
    WORKERS_BUSY = "workers_busy"
    BEHIND_OTHERS = "behind_others"
    ABOUT_TO_START = "about_to_start"
    NOTHING_STARTS = "nothing_starts"
    FAILED_BEFORE = "failed_before"
    DEADLINE = "deadline"
    SUSPECT = "suspect"
    SLIMMED = "slimmed"
    ERASED = "erased"


_VERDICTS = {
    JobVerdict.FINISHED: {
        FindingCode.SUCCEEDED,
        FindingCode.CANCELLED,
        FindingCode.SUPERSEDED,
        FindingCode.DEADLINE_PASSED,
    },
    JobVerdict.RUNNING: {FindingCode.RUNNING, FindingCode.COMMITTED},
    JobVerdict.WAITING: {
        FindingCode.AFTER_JOB,
        FindingCode.NOT_DUE,
        FindingCode.WORKERS_BUSY,
        FindingCode.BEHIND_OTHERS,
        FindingCode.ABOUT_TO_START,
    },
}
_AFTER_LEASE = {
    JobState.PENDING: JobVerdict.WAITING,
    JobState.SUCCEEDED: JobVerdict.RUNNING,
}  # by the state of the job after recovery


class Finding(msgspec.Struct, frozen=True):
    """One cause: a stable code, a sentence, the evidence, and the next command."""

    code: FindingCode
    message: str
    evidence: dict[str, object]
    next: str


class Explanation(msgspec.Struct, frozen=True):
    """Why a job is not running, or that it is running."""

    job_id: int
    state: JobState
    verdict: JobVerdict
    findings: tuple[Finding, ...]


def verdict_of(first: Finding) -> JobVerdict:
    if first.code is FindingCode.LEASE_EXPIRED:
        return _AFTER_LEASE.get(JobState(str(first.evidence["then"])), JobVerdict.BLOCKED)
    return next((verdict for verdict, codes in _VERDICTS.items() if first.code in codes), JobVerdict.BLOCKED)
