"""`holdfast quarantine add | purge`: quarantine a job, delete old payloads.

Invariants: a purge needs an operator, a reason and the age of the jobs; the printed result is what the ledger returned.
"""

from typing import Annotated, Any

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.commands.quarantine.options import JobId, quarantined_value
from holdfast.cli.declare import option
from holdfast.cli.options import Operator, RequiredReason, actor, word
from holdfast.core.errors import InputError
from holdfast.explain.times import age
from holdfast.store import Store

MayWhy = Annotated[
    str | None,
    option("--reason", metavar="TEXT", help="Reason; stored in the journal; not needed for a dry run."),
]


@command(Location.open)
def add(
    store: Store[Any],
    *,
    job_id: JobId,
    code: Annotated[str, word("--code", "Quarantine code: a reason (parse_error, timeout, …), or a code of your own.")],
    reason: RequiredReason,
    operator: Operator = None,
) -> Answer:
    """Quarantine a pending or failed job: it does not run until it is released."""
    from holdfast.governance.quarantine import add as put  # noqa: PLC0415 - see above

    added = put(store, job_id, code, operator=actor() if operator is None else operator, reason=reason)
    held = added.job.quarantine_code
    message = f"Job {job_id} {'is' if added.changed else 'was already'} quarantined with code {held}."
    return Answer({**quarantined_value(added.job), "changed": added.changed}, message)


@command(Location.unopened)
def purge(
    location: Location,
    *,
    older_than: Annotated[
        str, option("--older-than", metavar="AGE", help="Purge jobs quarantined for longer than this: 30d, 12h.")
    ],
    apply: Annotated[bool, option("--apply", help="Delete; without it, only count.")] = False,
    reason: MayWhy = None,
    operator: Operator = None,
) -> Answer:
    """Delete payload and result of jobs that were quarantined long ago; the job, its key and its history stay.

    Cancelled jobs are included. A purged job can never be released.
    """
    from holdfast.governance.quarantine import purge as drop  # noqa: PLC0415 - see above

    oldest, why = age(older_than, "--older-than"), reason_given(reason, required=apply)
    with location.open() as store:
        report = drop(store, oldest, operator=actor() if operator is None else operator, reason=why, apply=apply)
    n = f"{report.quarantined} {'job' if report.quarantined == 1 else 'jobs'}"
    value = {"applied": apply, "jobs": report.quarantined, "older_than_s": oldest.total_seconds()}

    def human() -> None:
        output.line(f"Payload and result of {n} {'deleted' if apply else 'would be deleted'}.")
        if not apply and report.quarantined:
            output.line("Nothing has been changed. To delete, add --apply and --reason.")

    return Answer(value, human)


def reason_given(reason: str | None, *, required: bool) -> str:
    """Return the reason; raise InputError if it is missing where it is required."""
    if required and reason is None:
        raise InputError("--reason is required.", next_step="Add --reason TEXT.", context={"field": "reason"})
    return reason or "dry run"
