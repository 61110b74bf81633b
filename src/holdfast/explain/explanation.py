"""What an explanation says: a verdict, and findings with stable codes, the evidence and the next command.

Invariants: the codes stand in the order in which they decide; what a user reads off one of them never changes.
"""

from enum import StrEnum

import msgspec

from holdfast.core.machines import JobState


class JobVerdict(StrEnum):
    """What is to be done about it."""

    FINISHED = "finished"  # nothing: it is over
    RUNNING = "running"  # nothing: it runs
    WAITING = "waiting"  # nothing: it will run by itself
    BLOCKED = "blocked"  # something: it will not run by itself


class FindingCode(StrEnum):
    """What can be found. The order is the order in which findings of one job are told."""

    SUCCEEDED = "succeeded"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    QUARANTINED = "quarantined"
    NOT_RETRIED = "not_retried"
    ATTEMPTS_SPENT = "attempts_spent"
    BUDGET_GONE = "budget_gone"
    NO_EXECUTION = "no_execution"
    LEASE_EXPIRED_UNSEEN = "lease_expired_unseen"
    LEASE_EXPIRED = "lease_expired"
    COMMITTED = "committed"
    RUNNING = "running"
    CANCEL_ASKED = "cancel_asked"
    OWNER_SILENT = "owner_silent"
    KILL_SWITCH = "kill_switch"
    LOG_ENTRY = "log_entry"
    QUEUE_PAUSED = "queue_paused"
    NO_WORKER = "no_worker"
    OPERATION_NOT_SERVED = "operation_not_served"
    NOT_DUE = "not_due"  # after these: its time comes by itself, and a worker does not
    WORKERS_BUSY = "workers_busy"
    BEHIND_OTHERS = "behind_others"
    ABOUT_TO_START = "about_to_start"
    FAILED_BEFORE = "failed_before"
    SLIMMED = "slimmed"


_VERDICTS = {
    JobVerdict.FINISHED: {FindingCode.SUCCEEDED, FindingCode.CANCELLED, FindingCode.SUPERSEDED},
    JobVerdict.RUNNING: {FindingCode.RUNNING, FindingCode.COMMITTED},
    JobVerdict.WAITING: {
        FindingCode.NOT_DUE,
        FindingCode.WORKERS_BUSY,
        FindingCode.BEHIND_OTHERS,
        FindingCode.ABOUT_TO_START,
    },
}
_AFTER_LEASE = {JobState.PENDING: JobVerdict.WAITING, JobState.SUCCEEDED: JobVerdict.RUNNING}  # by what the job is then


class Finding(msgspec.Struct, frozen=True):
    """One reason: a stable code, a sentence, what was seen, and the command to type next."""

    code: FindingCode
    message: str
    evidence: dict[str, object]
    next: str


class Explanation(msgspec.Struct, frozen=True):
    """Why a job is not running, or that it is."""

    job_id: int
    state: JobState
    verdict: JobVerdict
    findings: tuple[Finding, ...]


def verdict_of(first: Finding) -> JobVerdict:
    """Return what is to be done, by the finding that decides."""
    if first.code is FindingCode.LEASE_EXPIRED:
        return _AFTER_LEASE.get(JobState(str(first.evidence["then"])), JobVerdict.BLOCKED)
    return next((verdict for verdict, codes in _VERDICTS.items() if first.code in codes), JobVerdict.BLOCKED)
