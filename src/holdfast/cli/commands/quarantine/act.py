"""`holdfast quarantine add | release | purge`: quarantine a job, release jobs under a grant, delete old payloads.

Invariants: a release or a purge needs an operator, a reason, and the number or the age of the jobs; the printed result
is what the ledger returned.
"""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.commands.quarantine.options import (
    Cancelled,
    Code,
    JobId,
    OlderThan,
    Operation,
    Queue,
    filters,
    quarantined_value,
)
from holdfast.cli.options import GRANT_HELP, ID_MAX, OPERATOR_HELP, REASON_HELP, actor, word
from holdfast.cli.times import age, due_moment
from holdfast.core.errors import InputError
from holdfast.governance.reasons import Reason
from holdfast.store import Store

if TYPE_CHECKING:  # the engine is imported only by the commands that need it
    from holdfast.governance.quarantine import QuarantineFilters
    from holdfast.governance.releases import BulkRelease

Operator = Annotated[str | None, typer.Option("--operator", "--as", metavar="NAME", help=OPERATOR_HELP)]
Why = Annotated[str, typer.Option("--reason", metavar="TEXT", help=REASON_HELP)]
MayWhy = Annotated[
    str | None,
    typer.Option("--reason", metavar="TEXT", help="Reason; stored in the journal; not needed for a dry run."),
]


@command(Location.open)
def add(
    store: Store[Any],
    *,
    job_id: JobId,
    code: Annotated[str, word("--code", "Quarantine code: a reason (parse_error, timeout, …), or a code of your own.")],
    reason: Why,
    operator: Operator = None,
) -> Answer:
    """Quarantine a pending or failed job: it does not run until it is released."""
    from holdfast.governance.quarantine import add as put  # noqa: PLC0415 - see above

    added = put(store, job_id, code, operator=actor() if operator is None else operator, reason=reason)
    held = added.job.quarantine_code
    message = f"Job {job_id} {'is' if added.changed else 'was already'} quarantined with code {held}."
    return Answer({**quarantined_value(added.job), "changed": added.changed}, message)


@command(Location.unopened)
def release(
    location: Location,
    *,
    job_ids: Annotated[
        list[int] | None, typer.Argument(metavar="[JOB]...", min=1, max=ID_MAX, help="Id of a job; repeatable.")
    ] = None,
    reason: MayWhy = None,
    grant: Annotated[int | None, typer.Option("--grant", min=1, max=ID_MAX, metavar="ID", help=GRANT_HELP)] = None,
    run_at: Annotated[
        str | None,
        typer.Option(
            "--run-at", metavar="TIME", help="Earliest start, with a zone: 2030-01-31T12:00:00Z (default: now)."
        ),
    ] = None,
    matching: Annotated[
        bool, typer.Option("--all-matching", help="Release all jobs that match the filters; needs --expected.")
    ] = False,
    expected: Annotated[
        int | None, typer.Option("--expected", min=1, metavar="N", help="Expected number of jobs.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the jobs and the grant that they need; change nothing.")
    ] = False,
    code: Code = None,
    because: Annotated[Reason | None, typer.Option("--because", help="Only jobs quarantined for this reason.")] = None,
    operation: Operation = None,
    queue: Queue = None,
    older_than: OlderThan = None,
    cancelled: Cancelled = False,
    operator: Operator = None,
) -> Answer:
    """Release one or more quarantined jobs under a grant, which is consumed.

    One grant permits one release. Several jobs, or --all-matching, need one grant for exactly that set; all of them are
    released, or none.
    """
    from holdfast.governance import releases  # noqa: PLC0415 - see above

    meant = filters(code, because, operation, queue, older_than, cancelled=cancelled)
    which = _which(job_ids or [], meant, expected, matching=matching, dry_run=dry_run)
    due, who, why = due_moment(run_at), actor() if operator is None else operator, _reason(reason, required=not dry_run)
    with location.open() as store:
        if dry_run:
            many = releases.plan_release(store, which, operator=who, expected=expected, grant_id=grant)
        elif isinstance(which, int):
            one = releases.release(store, which, operator=who, reason=why, grant_id=grant, run_at=due)
            value = {**quarantined_value(one.job), "changed": one.changed, "grant_id": one.grant_id}
            under = f", under grant {one.grant_id}" if one.changed else " already"
            return Answer(value, f"Job {which} is {one.job.state}{under}.")
        else:
            many = releases.release_many(
                store, which, operator=who, reason=why, expected=expected, grant_id=grant, run_at=due
            )
    return Answer(msgspec.to_builtins(many), lambda: _print_many(many))


def _which(
    job_ids: list[int], meant: "QuarantineFilters", expected: int | None, *, matching: bool, dry_run: bool
) -> "int | QuarantineFilters | list[int]":
    """Return the selection: one job, several jobs, or the filters; raise InputError if it is empty or ambiguous."""
    filtered = meant != type(meant)()
    if matching == bool(job_ids) or (filtered and not matching):
        raise InputError(
            "A release needs job ids, or --all-matching with filters.",
            next_step="Give the ids of the jobs, or --all-matching, filters and --expected N.",
        )
    if matching and expected is None and not dry_run:
        raise InputError(
            "--all-matching needs --expected N.",
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


@command(Location.unopened)
def purge(
    location: Location,
    *,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="Purge jobs quarantined for longer than this: 30d, 12h.")
    ],
    apply: Annotated[bool, typer.Option("--apply", help="Delete; without it, only count.")] = False,
    reason: MayWhy = None,
    operator: Operator = None,
) -> Answer:
    """Delete payload and result of jobs that were quarantined long ago; the job, its key and its history stay.

    Cancelled jobs are included. A purged job can never be released.
    """
    from holdfast.governance.quarantine import purge as drop  # noqa: PLC0415 - see above

    oldest, why = age(older_than, "--older-than"), _reason(reason, required=apply)
    with location.open() as store:
        report = drop(store, oldest, operator=actor() if operator is None else operator, reason=why, apply=apply)
    n = f"{report.quarantined} {'job' if report.quarantined == 1 else 'jobs'}"
    value = {"applied": apply, "jobs": report.quarantined, "older_than_s": oldest.total_seconds()}

    def human() -> None:
        output.line(f"Payload and result of {n} {'deleted' if apply else 'would be deleted'}.")
        if not apply and report.quarantined:
            output.line("Nothing has been changed. To delete, add --apply and --reason.")

    return Answer(value, human)


def _reason(reason: str | None, *, required: bool) -> str:
    if required and reason is None:
        raise InputError("--reason is required.", next_step="Add --reason TEXT.", context={"field": "reason"})
    return reason or "dry run"
