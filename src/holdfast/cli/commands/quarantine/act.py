"""`holdfast quarantine add | release | purge`: take a job out of automatic flows, and the governed way back.

Invariants: nothing is released or dropped unless the command says so in full: who, why, and how many or since when;
what a command did is what the ledger answered.
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
    age_of,
    filters,
    quarantined_value,
)
from holdfast.cli.commands.submit import due_moment
from holdfast.cli.options import ID_MAX, actor, word
from holdfast.core.errors import InputError
from holdfast.governance.reasons import Reason
from holdfast.store import Store

if TYPE_CHECKING:  # the engine is imported only by the commands that need it
    from holdfast.governance.quarantine import QuarantineFilters
    from holdfast.governance.releases import BulkRelease

Operator = Annotated[str | None, typer.Option("--operator", "--as", metavar="NAME", help="Who acts (the user).")]
Why = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the journal.")]
MayWhy = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Why, for the journal; not needed where nothing is done.")
]


@command(Location.open)
def add(
    store: Store[Any],
    *,
    job_id: JobId,
    code: Annotated[str, word("--code", "A reason (parse_error, timeout, …), or a code of your own.")],
    reason: Why,
    operator: Operator = None,
) -> Answer:
    """Take a waiting or failed job out of automatic flows."""
    from holdfast.governance.quarantine import add as put  # noqa: PLC0415 - see above

    added = put(store, job_id, code, operator=actor() if operator is None else operator, reason=reason)
    held = added.job.quarantine_code
    said = f"job {job_id} is in quarantine as {held}" if added.changed else f"job {job_id} was there already, as {held}"
    return Answer({**quarantined_value(added.job), "changed": added.changed}, said)


@command(Location.unopened)
def release(
    location: Location,
    *,
    job_ids: Annotated[
        list[int] | None, typer.Argument(metavar="[JOB]...", min=1, max=ID_MAX, help="The job, or several.")
    ] = None,
    reason: MayWhy = None,
    grant: Annotated[
        int | None, typer.Option("--grant", min=1, max=ID_MAX, metavar="ID", help="The grant that permits it.")
    ] = None,
    run_at: Annotated[
        str | None, typer.Option("--run-at", metavar="TIME", help="Not before: 2030-01-31T12:00:00Z (now).")
    ] = None,
    matching: Annotated[
        bool, typer.Option("--all-matching", help="All that the filters leave; needs --expected.")
    ] = False,
    expected: Annotated[int | None, typer.Option("--expected", min=1, metavar="N", help="How many these are.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say which jobs these are, and what a grant for them is for.")
    ] = False,
    code: Code = None,
    because: Annotated[Reason | None, typer.Option("--because", help="Only what is there for this reason.")] = None,
    operation: Operation = None,
    queue: Queue = None,
    older_than: OlderThan = None,
    cancelled: Cancelled = False,
    operator: Operator = None,
) -> Answer:
    """Put a job back, or several together, under a grant that is used up with it.

    One grant lets one job go, once. Several jobs, or --all-matching, take one grant for that very set: all go, or none.
    """
    from holdfast.governance import releases  # noqa: PLC0415 - see above

    meant = filters(code, because, operation, queue, older_than, cancelled=cancelled)
    which = _which(job_ids or [], meant, expected, matching=matching, dry_run=dry_run)
    due, who, why = due_moment(run_at), actor() if operator is None else operator, _why(reason, acts=not dry_run)
    with location.open() as store:
        if dry_run:
            many = releases.plan_release(store, which, operator=who, expected=expected, grant_id=grant)
        elif isinstance(which, int):
            one = releases.release(store, which, operator=who, reason=why, grant_id=grant, run_at=due)
            value = {**quarantined_value(one.job), "changed": one.changed, "grant_id": one.grant_id}
            under = f", under grant {one.grant_id}" if one.changed else " already"
            return Answer(value, f"job {which} is {one.job.state}{under}")
        else:
            many = releases.release_many(
                store, which, operator=who, reason=why, expected=expected, grant_id=grant, run_at=due
            )
    return Answer(msgspec.to_builtins(many), lambda: _print_many(many))


def _which(
    job_ids: list[int], meant: "QuarantineFilters", expected: int | None, *, matching: bool, dry_run: bool
) -> "int | QuarantineFilters | list[int]":
    """Return what is to be released: one job, some, or all that match; never both, and never nothing."""
    filtered = meant != type(meant)()
    if matching == bool(job_ids) or (filtered and not matching):
        raise InputError(
            "a release names its jobs, or says --all-matching",
            next_step="Give the ids of jobs, or --all-matching with filters and --expected N.",
        )
    if matching and expected is None and not dry_run:
        raise InputError(
            "--all-matching needs --expected N",
            next_step="Look first: the same command with --dry-run says how many there are.",
        )
    if matching:
        return meant
    return job_ids[0] if len(job_ids) == 1 else job_ids


def _print_many(many: "BulkRelease") -> None:
    n = f"{len(many.job_ids)} {'job' if len(many.job_ids) == 1 else 'jobs'}"
    if many.grant_id is not None:
        output.line(f"{n} released, under grant {many.grant_id}")
        return
    output.line(f"{n} would be released: {', '.join(map(str, many.job_ids))}")
    facts = {"GO": "there is a grant", "OWN": "a grant of your own is made out: this is a dev ledger"}
    output.fields([("needs a grant for", many.target), ("authority", facts.get(many.authority, many.authority))])


@command(Location.unopened)
def purge(
    location: Location,
    *,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="What has been there for longer: 30d, 12h.")
    ],
    apply: Annotated[bool, typer.Option("--apply", help="Do it; without, only count.")] = False,
    reason: MayWhy = None,
    operator: Operator = None,
) -> Answer:
    """Drop payload and result of what has rested for long; the record, its key and its history stay.

    What was cancelled is in quarantine too. What was dropped can never be released.
    """
    from holdfast.governance.quarantine import purge as drop  # noqa: PLC0415 - see above

    age, why = age_of(older_than), _why(reason, acts=apply)
    with location.open() as store:
        report = drop(store, age, operator=actor() if operator is None else operator, reason=why, apply=apply)
    n = f"{report.quarantined} {'job' if report.quarantined == 1 else 'jobs'}"
    value = {"applied": apply, "jobs": report.quarantined, "older_than_s": age.total_seconds()}

    def human() -> None:
        output.line(f"{n} {'lost' if apply else 'would lose'} payload and result")
        if not apply and report.quarantined:
            output.line("Nothing has been changed. To do it, give --apply.")

    return Answer(value, human)


def _why(reason: str | None, *, acts: bool) -> str:
    if acts and reason is None:
        raise InputError("an act says why it is done", next_step="Give --reason TEXT.", context={"field": "reason"})
    return reason or "dry run"
