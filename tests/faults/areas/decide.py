"""Faults of `decide`: one guard at a time lets through what it must refuse, or one answer says less or else."""

from __future__ import annotations

from holdfast.model.catalogue import RUNS
from holdfast.model.guards import AUTOMATIC, BUDGETED, KEEPS, LOST, SPENT
from tests.faults.seeded import Broken, Patch, SeededFault

FILE = "core/decide.py"
STEPWISE = ("_start", "_commit", "_finish", "_fail", "_give_back", "_beat")
RULINGS = ("_replay", "_put_back", "_take_out", "_expire", "_revoke")
NEVER = "if False:"
TESTS = ("tests/core/test_decide.py",)


def _broken(invariant: str) -> Broken:
    """Return the model in which `decide` alone keeps an invariant, and the invariant."""
    return Broken(
        next(run.name for run in RUNS if run.name.startswith("guards:") and invariant in run.model().invariants),
        invariant,
    )


def _file(function: str) -> str:
    """Return where a guard is: those of governance, of rulings and of single steps have modules of their own."""
    if function in RULINGS:
        return "core/rulings.py"
    if function in STEPWISE:
        return "core/stepwise.py"
    return "core/governed.py" if function.endswith("_event") or function == "_release" else FILE


def _guard(name: str, meaning: str, function: str, code: str, condition: str, *, instead: str = NEVER) -> SeededFault:
    """Return the fault that takes one guard out of a function, or makes it narrower."""
    return SeededFault(
        id=f"decide.{name}",
        meaning=meaning,
        patches=(Patch(_file(function), function, condition, instead),),
        tests=TESTS,
        guards=((function, code),),
        breaks=_broken(KEEPS[function, code]),
    )


def _answer(name: str, meaning: str, function: str, old: str, new: str, *, breaks: Broken) -> SeededFault:
    """Return the fault that makes a function answer something else."""
    return SeededFault(
        id=f"decide.{name}",
        meaning=meaning,
        patches=(Patch(_file(function), function, old, new),),
        tests=TESTS,
        breaks=breaks,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Guards of a job

JOBS = (
    _guard(
        "job_submitted_twice",
        "A submit is accepted for a job that exists.",
        "_submit",
        "exists",
        "if job is not None:",
    ),
    _guard(
        "job_claimed_before_it_is_due",
        "A claim does not ask whether the job is due.",
        "_claim",
        "not_due",
        "if job.run_at > now:",
    ),
    _guard(
        "replay_reason_not_checked",
        "A replay is accepted for any reason, also one that is not managed.",
        "_replay",
        "replay_reason_unknown",
        "if command.replay_reason not in REPLAY_REASONS:",
    ),
    _guard(
        "replay_budget_not_compared",
        "A failed job is put back although it has spent its whole budget.",
        "_put_back",
        "attempts_exhausted",
        "if not job.may_replay:",
    ),
    _guard(
        "running_job_put_back_from_outside",
        "A retry from outside is accepted for a job that a worker is running.",
        "_put_back",
        "wrong_state",
        "if job.state != JobState.FAILED:",
        instead="if job.state not in (JobState.FAILED, JobState.RUNNING):",
    ),
    _guard(
        "running_job_taken_out_from_outside",
        "A quarantine or a cancel from outside is accepted for a job that a worker is running.",
        "_take_out",
        "wrong_state",
        "if job.state not in (JobState.PENDING, JobState.FAILED):",
    ),
    _guard(
        "slimmed_job_released",
        "A release is accepted for a job whose payload retention has removed.",
        "_release",
        "slimmed",
        "if job.slimmed:",
    ),
    _guard(
        "release_names_no_operator",
        "A release is accepted without an operator or without a reason.",
        "_release",
        "operator_required",
        "if not command.operator.strip() or not command.reason.strip():",
    ),
    _guard(
        "release_needs_no_grant",
        "A release is accepted without a grant.",
        "_release",
        "grant_required",
        "if command.grant_id is None:",
    ),
)

# ---------------------------------------------------------------------------------------------------------------------
# Guards of an attempt

ATTEMPTS = (
    _guard(
        "token_not_compared",
        "A worker's move is accepted under any token.",
        "not_held",
        "lease_lost",
        "if token != execution.lease_token:",
    ),
    _guard(
        "expired_lease_accepted",
        "A worker's move is accepted after its lease has expired.",
        "not_held",
        "lease_expired",
        "if execution.lease_expires_at <= now:",
    ),
    _guard(
        "finish_token_not_compared",
        "The finish of a committed execution is accepted under any token.",
        "_finish",
        "lease_lost",
        "if command.token is not None and command.token != execution.lease_token:",
    ),
    _guard(
        "live_committed_execution_finished_by_the_reaper",
        "The reaper finishes a committed execution whose lease has not expired.",
        "_finish",
        "lease_live",
        "if command.token is None and execution.lease_expires_at > now:",
    ),
    _guard(
        "live_lease_reclaimed",
        "The reaper ends an execution whose lease has not expired.",
        "_expire",
        "lease_live",
        "if execution.lease_expires_at > now:",
    ),
    _guard(
        "beat_token_not_compared",
        "A heartbeat extends a lease under any token.",
        "_beat",
        "lease_lost",
        "if command.token != execution.lease_token:",
    ),
    _guard(
        "beat_revives_an_expired_lease",
        "A heartbeat extends a lease that has expired.",
        "_beat",
        "lease_expired",
        "if execution.lease_expires_at <= now:",
    ),
    _guard(
        "beat_of_an_ended_execution",
        "A heartbeat is accepted for an execution that has ended.",
        "_beat",
        "wrong_state",
        "if execution.status in EXECUTION.final:",
    ),
    _answer(
        "failure_retried_beyond_its_budget",
        "A failure is retried automatically although the automatic attempts are spent.",
        "_fail",
        "elif command.retry_at is not None and job.may_retry:",
        "elif command.retry_at is not None:",
        breaks=_broken(AUTOMATIC),
    ),
    _answer(
        "spent_job_rests_in_failed",
        "A job that has spent its whole budget rests in failed after a failure, not in quarantine.",
        "_fail",
        "elif command.permanent or not job.may_replay:",
        "elif command.permanent:",
        breaks=_broken(SPENT),
    ),
    _answer(
        "expiry_ignores_the_budget",
        "A job whose lease expired is pending again whatever it has spent.",
        "_expire",
        'event = "expire" if excused or job.may_retry else',
        'event = "expire" if True else',
        breaks=_broken(AUTOMATIC),
    ),
    _answer(
        "give_back_spends_an_attempt",
        "An attempt that a worker gives back counts against the budget.",
        "_give_back",
        "excused=True",
        "excused=False",
        breaks=_broken(BUDGETED),
    ),
    _answer(
        "write_does_not_require_a_live_lease",
        "A completion does not require of the store that the lease is still unexpired at the write.",
        "_complete",
        "lease_live=True",
        "lease_live=None",
        breaks=Broken("fleet: no job is given back", LOST),
    ),
)

# ---------------------------------------------------------------------------------------------------------------------
# Guards of grants, values and switches

GOVERNED = (
    _guard(
        "expired_grant_accepted",
        "A grant is approved or consumed after it has expired.",
        "_grant_event",
        "grant_expired",
        'if command.event in ("approve", "consume") and expired:',
    ),
    _guard(
        "live_grant_expired",
        "A grant is expired before its time.",
        "_grant_event",
        "not_expired",
        'if command.event == "expire" and not expired:',
    ),
    _guard(
        "own_request_approved",
        "The person who requested a grant approves it.",
        "_grant_event",
        "self_approval",
        'if command.event == "approve" and command.actor == grant.requested_by and not command.may_self_approve:',
    ),
    _guard(
        "switch_lifted_without_a_grant",
        "A switch is lifted without a grant.",
        "_switch_event",
        "grant_required",
        "if command.grant_id is None:",
    ),
    _guard(
        "value_moved_without_a_grant",
        "A registry value is retired or superseded without a grant.",
        "_value_event",
        "grant_required",
        "if command.grant_id is None:",
    ),
    _guard(
        "superseded_by_nothing",
        "A registry value is superseded without a successor.",
        "_value_event",
        "successor_required",
        'if command.event == "supersede" and command.successor is None:',
    ),
)

FAULTS = (*JOBS, *ATTEMPTS, *GOVERNED)
