"""`holdfast quarantine release`: releases quarantined jobs under a grant, or requests the grant for them.

Invariants: a release needs an operator, a reason, and the jobs: their ids, their number, or the grant that was
requested for them; the printed result is what the ledger returned.
"""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.commands.quarantine.act import MayWhy, reason_given
from holdfast.cli.commands.quarantine.options import (
    Cancelled,
    Code,
    OlderThan,
    Operation,
    Queue,
    filters,
    quarantined_value,
)
from holdfast.cli.declare import argument, option
from holdfast.cli.options import ID_MAX, GrantId, Operator, actor, word
from holdfast.core.errors import InputError
from holdfast.explain.times import due_moment, duration
from holdfast.governance.reasons import Reason
from holdfast.store import Store

if TYPE_CHECKING:  # the engine is imported only by the commands that need it
    from holdfast.governance.quarantine import QuarantineFilters
    from holdfast.governance.release_runs import ReleaseReport, ReleaseRequest
    from holdfast.governance.releases import BulkRelease, ReleaseResult


class _Act(NamedTuple):
    """Who releases, why, how many jobs, under which grant, and when they become due."""

    who: str
    why: str
    expected: int | None
    grant: int | None
    run_at: datetime | None
    rate: float | None


@command(Location.unopened)
def release(
    location: Location,
    *,
    job_ids: Annotated[
        list[int] | None, argument(metavar="[JOB]...", min=1, max=ID_MAX, help="Id of a job; repeatable.")
    ] = None,
    reason: MayWhy = None,
    grant: GrantId = None,
    run_at: Annotated[
        str | None,
        option("--run-at", metavar="TIME", help="Earliest start, with a zone: 2030-01-31T12:00:00Z (default: now)."),
    ] = None,
    rate: Annotated[
        float | None, option("--rate", metavar="N", help="How many jobs become due per second (default: all).")
    ] = None,
    matching: Annotated[
        bool,
        option("--all-matching", help="Release all jobs that match the filters; needs --expected or --request."),
    ] = False,
    expected: Annotated[int | None, option("--expected", min=1, metavar="N", help="Expected number of jobs.")] = None,
    dry_run: Annotated[
        bool, option("--dry-run", help="Print the jobs and the grant that they need; change nothing.")
    ] = False,
    request: Annotated[
        bool, option("--request", help="Request the grant for these jobs; release them with --grant ID alone.")
    ] = False,
    executor: Annotated[
        str | None, word("--executor", "Name of the person who will release them (default: the operator).")
    ] = None,
    rollback_plan: Annotated[
        str | None, word("--rollback-plan", "How to undo the release; needed by --request.", metavar="TEXT")
    ] = None,
    ttl: Annotated[str, word("--ttl", "Time until the requested grant expires: 30m, 2h, 1d.", metavar="TIME")] = "2h",
    code: Code = None,
    because: Annotated[Reason | None, option("--because", help="Only jobs quarantined for this reason.")] = None,
    operation: Operation = None,
    queue: Queue = None,
    older_than: OlderThan = None,
    cancelled: Cancelled = False,
    operator: Operator = None,
) -> Answer:
    """Release one or more quarantined jobs under a grant, which is consumed.

    One grant permits one release. Several jobs, or --all-matching, need one grant for exactly that set. --request
    requests it and stores the set; after the approval, --grant ID releases it in batches, and continues a release that
    was killed.
    """
    meant = filters(code, because, operation, queue, older_than, cancelled=cancelled)
    who, why = actor() if operator is None else operator, reason_given(reason, required=not dry_run)
    by_grant = grant is not None and not (job_ids or matching or request or dry_run)
    if by_grant and meant != type(meant)():
        raise InputError("--grant names the jobs already.", next_step="Remove the filters, or add --all-matching.")
    act = _Act(who, why, expected, grant, due_moment(run_at), rate)
    with location.open() as store:
        if by_grant and grant is not None:
            return _by_grant(store, grant, act)
        which = _which(job_ids or [], meant, expected, matching=matching, counted=not (dry_run or request))
        if request:
            given = {"executor": executor or who, "rollback_plan": rollback_plan, "ttl": duration(ttl, "--ttl")}
            return _requested(store, which, act, given)
        return _released(store, which, act, dry_run=dry_run)


def _by_grant(store: Store[Any], grant_id: int, act: _Act) -> Answer:
    """Release what a grant was requested for: one job, or a stored selection."""
    from holdfast.core.authority import Act  # noqa: PLC0415 - see above
    from holdfast.governance import release_runs, releases  # noqa: PLC0415 - see above
    from holdfast.governance.approval import existing_grant  # noqa: PLC0415 - see above
    from holdfast.governance.quarantine import JOB_TARGET  # noqa: PLC0415 - see above

    with store.reading() as reading:
        grant = existing_grant(reading, grant_id)
    number = grant.target.removeprefix(JOB_TARGET)
    if grant.action == Act.RELEASE and number.isdecimal():
        return _one(
            releases.release(store, int(number), operator=act.who, reason=act.why, grant_id=grant_id, run_at=act.run_at)
        )
    report = release_runs.run_release(
        store, grant_id, operator=act.who, reason=act.why, rate=act.rate, run_at=act.run_at
    )
    return Answer(msgspec.to_builtins(report), lambda: _print_run(report), 0 if report.done else 3)


def _requested(
    store: Store[Any], which: "int | QuarantineFilters | list[int]", act: _Act, given: dict[str, Any]
) -> Answer:
    from holdfast.governance.release_runs import request_release  # noqa: PLC0415 - see above

    if given["rollback_plan"] is None:
        raise InputError("--request needs --rollback-plan.", next_step="Add --rollback-plan TEXT.")
    these = [which] if isinstance(which, int) else which
    made = request_release(store, these, requester=act.who, reason=act.why, expected=act.expected, **given)
    value = {
        "grant_id": made.grant.grant_id,
        "target": made.grant.target,
        "total": made.total,
        "executor": given["executor"],
    }
    return Answer(value, lambda: _print_requested(made))


def _print_requested(made: "ReleaseRequest") -> None:
    number = made.grant.grant_id
    output.line(f"Grant {number} is a draft: it releases {made.total} jobs.")
    output.line(f"Another person approves it: holdfast grant approve {number} --key FILE")
    output.line(f"Then release them: holdfast quarantine release --grant {number} --reason TEXT")


def _released(store: Store[Any], which: "int | QuarantineFilters | list[int]", act: _Act, *, dry_run: bool) -> Answer:
    from holdfast.governance import releases  # noqa: PLC0415 - see above

    if dry_run:
        many = releases.plan_release(store, which, operator=act.who, expected=act.expected, grant_id=act.grant)
    elif isinstance(which, int):
        return _one(
            releases.release(store, which, operator=act.who, reason=act.why, grant_id=act.grant, run_at=act.run_at)
        )
    else:
        many = releases.release_many(
            store,
            which,
            operator=act.who,
            reason=act.why,
            expected=act.expected,
            grant_id=act.grant,
            run_at=act.run_at,
            rate=act.rate,
        )
    return Answer(msgspec.to_builtins(many), lambda: _print_many(many))


def _one(one: "ReleaseResult") -> Answer:
    value = {**quarantined_value(one.job), "changed": one.changed, "grant_id": one.grant_id}
    under = f", under grant {one.grant_id}" if one.changed else " already"
    return Answer(value, f"Job {one.job.job_id} is {one.job.state}{under}.")


def _which(
    job_ids: list[int], meant: "QuarantineFilters", expected: int | None, *, matching: bool, counted: bool
) -> "int | QuarantineFilters | list[int]":
    """Return the selection: one job, several jobs, or the filters; raise InputError if it is empty or ambiguous."""
    filtered = meant != type(meant)()
    if matching == bool(job_ids) or (filtered and not matching):
        raise InputError(
            "A release needs job ids, --all-matching with filters, or --grant ID of a requested release.",
            next_step="Give the ids of the jobs, or --all-matching, filters and --request.",
        )
    if matching and expected is None and counted:
        raise InputError(
            "--all-matching needs --expected N, or --request.",
            next_step="Run the same command with --dry-run to see the number of jobs.",
        )
    if matching:
        return meant
    return job_ids[0] if len(job_ids) == 1 else job_ids


def _print_many(many: "BulkRelease") -> None:
    n = f"{len(many.job_ids)} {'job' if len(many.job_ids) == 1 else 'jobs'}"
    if many.grant_id is not None:
        output.line(f"{n} released, under grant {many.grant_id}.")
        return
    output.line(f"{n} would be released: {', '.join(map(str, many.job_ids))}")
    facts = {"GO": "a grant exists", "OWN": "a grant will be created automatically (dev ledger)"}
    output.fields([("needs a grant for", many.target), ("authority", facts.get(many.authority, many.authority))])


def _print_run(report: "ReleaseReport") -> None:
    skipped = "".join(f", {n} skipped ({reason})" for reason, n in report.skipped.items())
    output.line(f"{report.released} of {report.total} jobs released{skipped}, under grant {report.grant_id}.")
    if report.rate is not None:
        last = output.instant(report.last_run_at)
        output.line(f"{report.rate:g} jobs become due per second; the last one at {last} UTC.")
    if not report.done:
        output.line(f"Stopped: {report.failure or report.state}.")
        output.line(f"To continue: holdfast quarantine release --grant {report.grant_id} --reason TEXT")
