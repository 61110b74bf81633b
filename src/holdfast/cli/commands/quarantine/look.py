"""`holdfast quarantine list | show | statistics | history`: show quarantined jobs and releases. They only read."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.commands.jobs import LIMIT_MAX
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
from holdfast.cli.declare import option
from holdfast.cli.options import ID_MAX, JobsBefore
from holdfast.cli.text import Column
from holdfast.core.records import Job, time_text
from holdfast.explain.values import row_value, tries, tries_left
from holdfast.governance.reasons import Reason, reason_for
from holdfast.store import Store

if TYPE_CHECKING:  # the engine is imported only by the commands that need it
    from holdfast.governance.quarantine import PastRelease, QuarantineDetails, QuarantineStatistics

Limit = Annotated[int, option("--limit", min=1, max=LIMIT_MAX, help="Maximum number of rows.")]


@command(Location.unopened)
def list_quarantined(
    location: Location,
    *,
    code: Code = None,
    reason: Annotated[
        Reason | None, option("--reason", "--because", help="Only jobs quarantined for this reason.")
    ] = None,
    operation: Operation = None,
    queue: Queue = None,
    older_than: OlderThan = None,
    cancelled: Cancelled = False,
    limit: Limit = 50,
    before: JobsBefore = None,
) -> Answer:
    """List quarantined jobs, newest first."""
    from holdfast.governance.quarantine import find  # noqa: PLC0415 - see above

    meant = filters(code, reason, operation, queue, older_than, cancelled=cancelled)
    with location.open() as store, store.reading() as reading:
        found = find(reading, meant, limit=limit, before=before)
        now = store.now()
    narrowed = before is not None or meant != type(meant)(cancelled=cancelled)
    nothing = "No quarantined jobs match." if narrowed else "No quarantined jobs."
    return Answer([quarantined_value(job) for job in found], lambda: _print_list(found, now, limit, nothing))


def _print_list(found: Sequence[Job], now: datetime, limit: int, nothing: str) -> None:
    columns = ("REASON", "CODE", "OPERATION", "QUEUE", "CLIENT", "KEY", "ATTEMPTS", "SINCE")
    output.table(
        [Column("ID", right=True), *map(Column, columns), Column("LAST ERROR", folds=True)],
        [
            (
                job.job_id, reason_for(job).value, job.quarantine_code, job.operation, job.queue, job.client,
                job.key or "", tries(job), output.age(job.updated_at, now),
                _error(job) + (" (payload deleted)" if job.slimmed else ""),
            )
            for job in found
        ],
        none=nothing,
    )  # fmt: skip
    if len(found) == limit:
        output.line(f"There may be more jobs; to continue, add --before {found[-1].job_id}")


@command(Location.open)
def show(store: Store[Any], *, job_id: JobId) -> Answer:
    """Show why a job is quarantined, its releases, and the next command."""
    from holdfast.governance.quarantine import show as shown_by  # noqa: PLC0415 - see above

    with store.reading() as reading:
        shown = shown_by(reading, job_id)
        now = store.now()
    if shown.reason is not None and shown.job.operation.startswith("nodd."):
        from holdfast.nodd.units import next_command  # noqa: PLC0415 - for its own jobs alone

        instead = next_command(shown.job, "quarantined")  # as `explain` does: a release of a damaged object fails again
        shown = msgspec.structs.replace(shown, next=(instead,)) if instead else shown
    value = {
        "job": quarantined_value(shown.job),
        "in_quarantine": shown.reason is not None,
        "since": time_text(shown.since) if shown.since else None,
        "by": shown.by,
        "why": shown.why,
        "after_release": {"attempts": shown.left, "then": shown.then},
        "moves": [row_value(row) for row in shown.moves],
        "releases": [row_value(past) for past in shown.releases],
        "next": list(shown.next),
    }
    return Answer(value, lambda: _print_shown(shown, now))


def _print_shown(shown: "QuarantineDetails", now: datetime) -> None:
    job = shown.job
    head = output.styled(f"job {job.job_id} ", "bold") + output.state(job.state)
    output.show(head + output.styled(f" {job.operation}"))
    facts = [
        ("reason", shown.reason.value if shown.reason else None),
        ("code", job.quarantine_code),
        ("since", f"{output.instant(shown.since)} UTC ({output.age(shown.since, now)})" if shown.since else None),
        ("by", shown.by),
        ("reason given", shown.why),
        ("last error", _error(job) or None),
        ("attempts", tries_left(job)),
        ("payload", "deleted; the job cannot be released" if job.slimmed else None),
        ("after a release", _after(shown) if shown.reason and not job.slimmed else None),
    ]
    output.fields((name, value) for name, value in facts if value is not None)
    if shown.moves:
        output.table(
            [*map(Column, ("TIME (UTC)", "EVENT", "ACTOR", "GRANT")), Column("REASON", folds=True)],
            [
                (output.instant(row.at), row.event, row.actor, row.grant_id or "", row.reason or "")
                for row in shown.moves
                if row.event != "fail"
            ],
            title="quarantine history",
        )
    for step in shown.next:
        output.line(f"next: {step}")


def _after(shown: "QuarantineDetails") -> str:
    if shown.reason is Reason.SUPERSEDED:
        return "it is quarantined again, because a newer job supersedes it; no action is needed"
    times = "once" if shown.left == 1 else f"up to {shown.left} times"
    return f"it runs {times}; if all attempts fail, it becomes {shown.then}"


@command(Location.open)
def statistics(store: Store[Any], *, cancelled: Cancelled = False) -> Answer:
    """Count quarantined jobs by reason, operation, queue and age."""
    from holdfast.governance.quarantine import statistics as counted  # noqa: PLC0415 - see above

    with store.reading() as reading:
        found = counted(reading, cancelled=cancelled)
    return Answer(msgspec.to_builtins(found), lambda: _print_statistics(found))


def _print_statistics(found: "QuarantineStatistics") -> None:
    beside = "" if found.cancelled == 0 else f"; {found.cancelled} cancelled"
    output.line(f"{found.total} quarantined jobs, {found.slimmed} of them without payload{beside}.")
    by = {"REASON": found.by_reason, "OPERATION": found.by_operation, "QUEUE": found.by_queue, "AGE": found.by_age}
    for title, counts in by.items():
        if found.total:
            rows = [(name, n) for name, n in counts.items() if n]
            output.table([Column(title), Column("JOBS", right=True)], rows)


@command(Location.open)
def history(
    store: Store[Any],
    *,
    job: Annotated[
        int | None, option("--job", min=1, max=ID_MAX, metavar="ID", help="List only releases of this job.")
    ] = None,
    limit: Limit = 50,
    before: Annotated[
        int | None,
        option(
            "--before",
            min=1,
            max=ID_MAX,
            metavar="GRANT",
            help="List only releases under grants with a smaller id, to continue a page.",
        ),
    ] = None,
) -> Answer:
    """List releases, newest first, with operator, reason, grant and the current state of the job."""
    from holdfast.governance.quarantine import history as past_releases  # noqa: PLC0415 - see above

    with store.reading() as reading:
        found = past_releases(reading, job_id=job, limit=limit, before=before)
    return Answer([row_value(past) for past in found], lambda: _print_history(found))


def _print_history(found: Sequence["PastRelease"]) -> None:
    columns = ("TIME (UTC)", "ACTOR", "GRANT", "APPROVED BY", "APPROVED VIA", "STATE NOW")
    output.table(
        [Column("JOB", right=True), *map(Column, columns), Column("REASON", folds=True)],
        [
            (
                past.job_id, output.instant(past.at), past.by, past.grant_id, past.approved_by or "",
                f"under grant {past.under}" if past.under else past.approved_how or "",
                output.state(past.state) if past.state else "", past.reason,
            )
            for past in found
        ],
        none="No releases.",
    )  # fmt: skip


def _error(job: Job) -> str:
    return ": ".join(filter(None, (job.last_error_code, job.last_error_message)))
