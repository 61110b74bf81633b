"""`holdfast quarantine list | show | statistics | history`: what was taken out of automatic flows. Nothing writes."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

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
from holdfast.cli.options import ID_MAX
from holdfast.cli.output import Column
from holdfast.cli.values import row_value
from holdfast.core.records import Job, time_text
from holdfast.governance.reasons import Reason, reason_for
from holdfast.store import Store

if TYPE_CHECKING:  # the engine is imported only by the commands that need it
    from holdfast.governance.quarantine import PastRelease, QuarantineDetails, QuarantineStatistics

Limit = Annotated[int, typer.Option("--limit", min=1, max=LIMIT_MAX, help="How many at most.")]


@command(Location.unopened)
def list_quarantined(
    location: Location,
    *,
    code: Code = None,
    reason: Annotated[
        Reason | None, typer.Option("--reason", "--because", help="Only what is there for this reason.")
    ] = None,
    operation: Operation = None,
    queue: Queue = None,
    older_than: OlderThan = None,
    cancelled: Cancelled = False,
    limit: Limit = 50,
    before: Annotated[
        int | None, typer.Option("--before", min=1, max=ID_MAX, metavar="ID", help="Only jobs older than this one.")
    ] = None,
) -> Answer:
    """List what is in quarantine, newest job first."""
    from holdfast.governance.quarantine import find  # noqa: PLC0415 - see above

    meant = filters(code, reason, operation, queue, older_than, cancelled=cancelled)
    with location.open() as store, store.reading() as reading:
        found = find(reading, meant, limit=limit, before=before)
        now = store.now()
    narrowed = before is not None or meant != type(meant)(cancelled=cancelled)
    nothing = "nothing in quarantine matches" if narrowed else "nothing is in quarantine"
    return Answer([quarantined_value(job) for job in found], lambda: _print_list(found, now, limit, nothing))


def _print_list(found: Sequence[Job], now: datetime, limit: int, nothing: str) -> None:
    if not found:
        output.line(nothing)
        return
    columns = ("REASON", "CODE", "OPERATION", "QUEUE", "CLIENT", "KEY", "TRIES", "SINCE")
    output.table(
        [Column("ID", right=True), *map(Column, columns), Column("LAST ERROR", folds=True)],
        [
            (
                job.job_id, reason_for(job).value, job.quarantine_code, job.operation, job.queue, job.client,
                job.key or "", f"{job.attempts}/{job.max_attempts}", output.age(job.updated_at, now),
                _error(job) + (" (its payload was dropped)" if job.slimmed else ""),
            )
            for job in found
        ],
    )  # fmt: skip
    if len(found) == limit:
        output.line(f"there may be more: --before {found[-1].job_id}")


@command(Location.open)
def show(store: Store[Any], *, job_id: JobId) -> Answer:
    """Show why a job is in quarantine, how it came and went, and what to type next."""
    from holdfast.governance.quarantine import show as shown_by  # noqa: PLC0415 - see above

    with store.reading() as reading:
        shown = shown_by(reading, job_id)
        now = store.now()
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
    head = output.styled(f"job {job.job_id} ", "bold").append_text(output.state(job.state))
    output.console().print(head.append(f" {output.clean(job.operation)}"))
    facts = [
        ("reason", shown.reason.value if shown.reason else None),
        ("code", job.quarantine_code),
        ("since", f"{output.instant(shown.since)} UTC ({output.age(shown.since, now)})" if shown.since else None),
        ("by", shown.by),
        ("why", shown.why),
        ("last error", _error(job) or None),
        ("attempts", f"{job.spent} spent of {job.max_attempts}, and {job.replay_attempts} more by replay"),
        ("payload", "dropped: it cannot be released" if job.slimmed else None),
        ("a release", _after(shown) if shown.reason and not job.slimmed else None),
    ]
    output.fields((name, value) for name, value in facts if value is not None)
    if shown.moves:
        output.table(
            [*map(Column, ("AT (UTC)", "EVENT", "BY", "GRANT")), Column("WHY", folds=True)],
            [
                (output.instant(row.at), row.event, row.actor, row.grant_id or "", row.reason or "")
                for row in shown.moves
                if row.event != "fail"
            ],
            title="in and out",
        )
    for step in shown.next:
        output.line(f"next: {step}")


def _after(shown: "QuarantineDetails") -> str:
    if shown.reason is Reason.SUPERSEDED:
        return "brings it back here: something newer has taken its place, and there is nothing to do"
    times = "once" if shown.left == 1 else f"up to {shown.left} times"
    return f"lets it run {times} by itself; if it goes on failing, it is then {shown.then}"


@command(Location.open)
def statistics(store: Store[Any], *, cancelled: Cancelled = False) -> Answer:
    """Count what is in quarantine: by reason, operation, queue and age."""
    from holdfast.governance.quarantine import statistics as counted  # noqa: PLC0415 - see above

    with store.reading() as reading:
        found = counted(reading, cancelled=cancelled)
    return Answer(msgspec.to_builtins(found), lambda: _print_statistics(found))


def _print_statistics(found: "QuarantineStatistics") -> None:
    beside = "" if found.cancelled == 0 else f"; {found.cancelled} cancelled"
    output.line(f"{found.total} in quarantine, {found.slimmed} of them without their payload{beside}")
    by = {"REASON": found.by_reason, "OPERATION": found.by_operation, "QUEUE": found.by_queue, "AGE": found.by_age}
    for title, counts in by.items():
        if found.total:
            rows = [(name, n) for name, n in counts.items() if n]
            output.table([Column(title), Column("JOBS", right=True)], rows)


@command(Location.open)
def history(
    store: Store[Any],
    *,
    job: Annotated[int | None, typer.Option("--job", min=1, max=ID_MAX, metavar="ID", help="Only of this job.")] = None,
    limit: Limit = 50,
    before: Annotated[
        int | None, typer.Option("--before", min=1, max=ID_MAX, metavar="GRANT", help="Only under older grants.")
    ] = None,
) -> Answer:
    """List the releases that were made, newest first: by whom, why, under which grant, and what came of them."""
    from holdfast.governance.quarantine import history as told  # noqa: PLC0415 - see above

    with store.reading() as reading:
        found = told(reading, job_id=job, limit=limit, before=before)
    return Answer([row_value(past) for past in found], lambda: _print_history(found))


def _print_history(found: Sequence["PastRelease"]) -> None:
    if not found:
        output.line("nothing was released")
        return
    columns = ("AT (UTC)", "BY", "GRANT", "APPROVED BY", "HOW", "NOW")
    output.table(
        [Column("JOB", right=True), *map(Column, columns), Column("WHY", folds=True)],
        [
            (
                past.job_id, output.instant(past.at), past.by, past.grant_id, past.approved_by or "",
                f"under grant {past.under}" if past.under else past.approved_how or "",
                output.state(past.state) if past.state else "", past.reason,
            )
            for past in found
        ],
    )  # fmt: skip


def _error(job: Job) -> str:
    return ": ".join(filter(None, (job.last_error_code, job.last_error_message)))
