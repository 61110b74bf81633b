"""Faults of `core/decide.py`: one guard at a time lets through what it must refuse, or one answer says less or else."""

from __future__ import annotations

from tests.faults.seeded import Patch, SeededFault

FILE = "core/decide.py"
NEVER = "if False:"
TESTS = ("tests/core/test_decide.py",)


def _without(part: str, guard: str) -> tuple[Patch, ...]:
    """Return the patch that takes one guard out of a function."""
    return (Patch(FILE, part, guard, NEVER),)


# ---------------------------------------------------------------------------------------------------------------------
# Guards of a job

JOBS = (
    SeededFault(
        id="decide.job_submitted_twice",
        meaning="A submit is accepted for a job that exists.",
        patches=_without("_submit", "if job is not None:"),
        tests=TESTS,
        guards=(("_submit", "exists"),),
    ),
    SeededFault(
        id="decide.job_claimed_before_it_is_due",
        meaning="A claim does not ask whether the job is due.",
        patches=_without("_claim", "if job.run_at > now:"),
        tests=TESTS,
        guards=(("_claim", "not_due"),),
    ),
    SeededFault(
        id="decide.replay_reason_not_checked",
        meaning="A replay is accepted for any reason, also one that is not managed.",
        patches=_without("_replay", "if command.replay_reason not in REPLAY_REASONS:"),
        tests=TESTS,
        guards=(("_replay", "replay_reason_unknown"),),
    ),
    SeededFault(
        id="decide.replay_budget_not_compared",
        meaning="A failed job is put back although it has spent its whole budget.",
        patches=_without("_put_back", "if not job.may_replay:"),
        tests=TESTS,
        guards=(("_put_back", "attempts_exhausted"),),
    ),
    SeededFault(
        id="decide.running_job_put_back_from_outside",
        meaning="A retry from outside is accepted for a job that a worker is running.",
        patches=(
            Patch(
                FILE,
                "_put_back",
                "if job.state != JobState.FAILED:",
                "if job.state not in (JobState.FAILED, JobState.RUNNING):",
            ),
        ),
        tests=TESTS,
        guards=(("_put_back", "wrong_state"),),
    ),
    SeededFault(
        id="decide.running_job_taken_out_from_outside",
        meaning="A quarantine or a cancel from outside is accepted for a job that a worker is running.",
        patches=_without("_take_out", "if job.state not in (JobState.PENDING, JobState.FAILED):"),
        tests=TESTS,
        guards=(("_take_out", "wrong_state"),),
    ),
    SeededFault(
        id="decide.slimmed_job_released",
        meaning="A release is accepted for a job whose payload retention has removed.",
        patches=_without("_release", "if job.slimmed:"),
        tests=TESTS,
        guards=(("_release", "slimmed"),),
    ),
    SeededFault(
        id="decide.release_names_no_operator",
        meaning="A release is accepted without an operator or without a reason.",
        patches=_without("_release", "if not command.operator.strip() or not command.reason.strip():"),
        tests=TESTS,
        guards=(("_release", "operator_required"),),
    ),
    SeededFault(
        id="decide.release_needs_no_grant",
        meaning="A release is accepted without a grant.",
        patches=_without("_release", "if command.grant_id is None:"),
        tests=TESTS,
        guards=(("_release", "grant_required"),),
    ),
)

# ---------------------------------------------------------------------------------------------------------------------
# Guards of an attempt

ATTEMPTS = (
    SeededFault(
        id="decide.token_not_compared",
        meaning="A worker's move is accepted under any token.",
        patches=_without("_held", "if token != execution.lease_token:"),
        tests=TESTS,
        guards=(("_held", "lease_lost"),),
    ),
    SeededFault(
        id="decide.expired_lease_accepted",
        meaning="A worker's move is accepted after its lease has expired.",
        patches=_without("_held", "if execution.lease_expires_at <= now:"),
        tests=TESTS,
        guards=(("_held", "lease_expired"),),
    ),
    SeededFault(
        id="decide.finish_token_not_compared",
        meaning="The finish of a committed execution is accepted under any token.",
        patches=_without("_finish", "if command.token is not None and command.token != execution.lease_token:"),
        tests=TESTS,
        guards=(("_finish", "lease_lost"),),
    ),
    SeededFault(
        id="decide.live_committed_execution_finished_by_the_reaper",
        meaning="The reaper finishes a committed execution whose lease has not expired.",
        patches=_without("_finish", "if command.token is None and execution.lease_expires_at > now:"),
        tests=TESTS,
        guards=(("_finish", "lease_live"),),
    ),
    SeededFault(
        id="decide.live_lease_reclaimed",
        meaning="The reaper ends an execution whose lease has not expired.",
        patches=_without("_expire", "if execution.lease_expires_at > now:"),
        tests=TESTS,
        guards=(("_expire", "lease_live"),),
    ),
    SeededFault(
        id="decide.beat_token_not_compared",
        meaning="A heartbeat extends a lease under any token.",
        patches=_without("_beat", "if command.token != execution.lease_token:"),
        tests=TESTS,
        guards=(("_beat", "lease_lost"),),
    ),
    SeededFault(
        id="decide.beat_revives_an_expired_lease",
        meaning="A heartbeat extends a lease that has expired.",
        patches=_without("_beat", "if execution.lease_expires_at <= now:"),
        tests=TESTS,
        guards=(("_beat", "lease_expired"),),
    ),
    SeededFault(
        id="decide.beat_of_an_ended_execution",
        meaning="A heartbeat is accepted for an execution that has ended.",
        patches=_without("_beat", "if execution.status in EXECUTION.final:"),
        tests=TESTS,
        guards=(("_beat", "wrong_state"),),
    ),
    SeededFault(
        id="decide.failure_retried_beyond_its_budget",
        meaning="A failure is retried automatically although the automatic attempts are spent.",
        patches=(
            Patch(
                FILE,
                "_fail",
                "elif command.retry_at is not None and job.may_retry:",
                "elif command.retry_at is not None:",
            ),
        ),
        tests=TESTS,
    ),
    SeededFault(
        id="decide.spent_job_rests_in_failed",
        meaning="A job that has spent its whole budget rests in failed after a failure, not in quarantine.",
        patches=(Patch(FILE, "_fail", "elif command.permanent or not job.may_replay:", "elif command.permanent:"),),
        tests=TESTS,
    ),
    SeededFault(
        id="decide.expiry_ignores_the_budget",
        meaning="A job whose lease expired is pending again whatever it has spent.",
        patches=(Patch(FILE, "_expire", 'event = "expire" if job.may_retry else', 'event = "expire" if True else'),),
        tests=TESTS,
    ),
    SeededFault(
        id="decide.give_back_spends_an_attempt",
        meaning="An attempt that a worker gives back counts against the budget.",
        patches=(Patch(FILE, "_give_back", "excused=True", "excused=False"),),
        tests=TESTS,
    ),
    SeededFault(
        id="decide.write_does_not_require_a_live_lease",
        meaning="A completion does not require of the store that the lease is still unexpired at the write.",
        patches=(Patch(FILE, "_complete", "lease_live=True", "lease_live=None"),),
        tests=TESTS,
    ),
)

# ---------------------------------------------------------------------------------------------------------------------
# Guards of grants, values and switches

GOVERNED = (
    SeededFault(
        id="decide.expired_grant_accepted",
        meaning="A grant is approved or consumed after it has expired.",
        patches=_without("_grant_event", 'if command.event in ("approve", "consume") and expired:'),
        tests=TESTS,
        guards=(("_grant_event", "grant_expired"),),
    ),
    SeededFault(
        id="decide.live_grant_expired",
        meaning="A grant is expired before its time.",
        patches=_without("_grant_event", 'if command.event == "expire" and not expired:'),
        tests=TESTS,
        guards=(("_grant_event", "not_expired"),),
    ),
    SeededFault(
        id="decide.own_request_approved",
        meaning="The person who requested a grant approves it.",
        patches=_without(
            "_grant_event",
            'if command.event == "approve" and command.actor == grant.requested_by and not command.may_self_approve:',
        ),
        tests=TESTS,
        guards=(("_grant_event", "self_approval"),),
    ),
    SeededFault(
        id="decide.switch_lifted_without_a_grant",
        meaning="A switch is lifted without a grant.",
        patches=_without("_switch_event", "if command.grant_id is None:"),
        tests=TESTS,
        guards=(("_switch_event", "grant_required"),),
    ),
    SeededFault(
        id="decide.value_moved_without_a_grant",
        meaning="A registry value is retired or superseded without a grant.",
        patches=_without("_value_event", "if command.grant_id is None:"),
        tests=TESTS,
        guards=(("_value_event", "grant_required"),),
    ),
    SeededFault(
        id="decide.superseded_by_nothing",
        meaning="A registry value is superseded without a successor.",
        patches=_without("_value_event", 'if command.event == "supersede" and command.successor is None:'),
        tests=TESTS,
        guards=(("_value_event", "successor_required"),),
    ),
)

FAULTS = (*JOBS, *ATTEMPTS, *GOVERNED)
