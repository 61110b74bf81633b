"""`holdfast quarantine`: what was taken out of automatic flows, and the governed way back.

Invariants: nothing is released or dropped unless the command says so in full: who, why, and how many or since when;
what a command did is what the ledger answered.
"""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from holdfast.cli import output
from holdfast.cli.commands.jobs import LIMIT_MAX
from holdfast.cli.commands.submit import due_moment
from holdfast.cli.options import ID_MAX, Db, Json, Schema, actor, opened, word
from holdfast.cli.output import Column
from holdfast.cli.times import UNITS
from holdfast.cli.values import job_value, row_value
from holdfast.core.errors import InputError
from holdfast.core.machines import JobState
from holdfast.core.records import Job, time_text
from holdfast.governance.reasons import Reason, declare, reason_for
from holdfast.nodd.reasons import REASONS

if TYPE_CHECKING:  # the engine is imported only by the commands that need it
    from holdfast.governance.quarantine import PastRelease, QuarantineDetails, QuarantineFilters, QuarantineStatistics
    from holdfast.governance.releases import BulkRelease

declare(REASONS)  # so that a ledger of nodd is answered for as nodd itself does

quarantine = typer.Typer(
    help="Look at what was taken out; release it.",
    epilog="Every command takes --json. Guide: docs/quarantine.md.",
    add_completion=False,
)

AGE_S_MAX = 100 * 366 * 86400
_AGE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*([a-z]*)")
SHOWN = ("quarantine_code", "replay_attempts", "excused", "replaces")  # of a job, beside what every command shows

JobId = Annotated[int, typer.Argument(metavar="JOB", min=1, max=ID_MAX, help="The job.")]
Code = Annotated[str | None, word("--code", "Only what has this code.")]
Operation = Annotated[str | None, word("--operation", "Only jobs of this operation.")]
Queue = Annotated[str | None, word("--queue", "Only jobs of this queue.")]
OlderThan = Annotated[
    str | None, typer.Option("--older-than", metavar="AGE", help="Only what has been there for longer: 30d, 12h.")
]
Cancelled = Annotated[bool, typer.Option("--cancelled", help="Also what was cancelled.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=LIMIT_MAX, help="How many at most.")]
Operator = Annotated[str | None, typer.Option("--operator", "--as", metavar="NAME", help="Who acts (the user).")]
Why = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the journal.")]
MayWhy = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Why, for the journal; not needed where nothing is done.")
]


# ---------------------------------------------------------------------------------------------------------------------
# Looking


@quarantine.command(name="list")
def list_(
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
    db: Db = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """List what is in quarantine, newest job first."""
    from holdfast.governance.quarantine import find  # noqa: PLC0415 - see above

    meant = _filters(code, reason, operation, queue, older_than, cancelled=cancelled)
    with opened(db, schema) as store, store.reading() as reading:
        found = find(reading, meant, limit=limit, before=before)
        now = store.now()
    narrowed = before is not None or meant != type(meant)(cancelled=cancelled)
    nothing = "nothing in quarantine matches" if narrowed else "nothing is in quarantine"
    output.answer([_job(job) for job in found], lambda: _print_list(found, now, limit, nothing), as_json=as_json)


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


@quarantine.command()
def show(*, job_id: JobId, db: Db = None, schema: Schema = None, as_json: Json = False) -> None:
    """Show why a job is in quarantine, how it came and went, and what to type next."""
    from holdfast.governance.quarantine import show as shown_by  # noqa: PLC0415 - see above

    with opened(db, schema) as store, store.reading() as reading:
        shown = shown_by(reading, job_id)
        now = store.now()
    value = {
        "job": _job(shown.job),
        "in_quarantine": shown.reason is not None,
        "since": time_text(shown.since) if shown.since else None,
        "by": shown.by,
        "why": shown.why,
        "after_release": {"attempts": shown.left, "then": shown.then},
        "moves": [row_value(row) for row in shown.moves],
        "releases": [_release(past) for past in shown.releases],
        "next": list(shown.next),
    }
    output.answer(value, lambda: _print_shown(shown, now), as_json=as_json)


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
    for command in shown.next:
        output.line(f"next: {command}")


def _after(shown: "QuarantineDetails") -> str:
    if shown.reason is Reason.SUPERSEDED:
        return "brings it back here: something newer has taken its place, and there is nothing to do"
    times = "once" if shown.left == 1 else f"up to {shown.left} times"
    return f"lets it run {times} by itself; if it goes on failing, it is then {shown.then}"


@quarantine.command()
def statistics(*, cancelled: Cancelled = False, db: Db = None, schema: Schema = None, as_json: Json = False) -> None:
    """Count what is in quarantine: by reason, operation, queue and age."""
    from holdfast.governance.quarantine import statistics as counted  # noqa: PLC0415 - see above

    with opened(db, schema) as store, store.reading() as reading:
        found = counted(reading, cancelled=cancelled)
    output.answer(msgspec.to_builtins(found), lambda: _print_statistics(found), as_json=as_json)


def _print_statistics(found: "QuarantineStatistics") -> None:
    beside = "" if found.cancelled == 0 else f"; {found.cancelled} cancelled"
    output.line(f"{found.total} in quarantine, {found.slimmed} of them without their payload{beside}")
    by = {"REASON": found.by_reason, "OPERATION": found.by_operation, "QUEUE": found.by_queue, "AGE": found.by_age}
    for title, counts in by.items():
        if found.total:
            rows = [(name, n) for name, n in counts.items() if n]
            output.table([Column(title), Column("JOBS", right=True)], rows)


@quarantine.command()
def history(
    *,
    job: Annotated[int | None, typer.Option("--job", min=1, max=ID_MAX, metavar="ID", help="Only of this job.")] = None,
    limit: Limit = 50,
    before: Annotated[
        int | None, typer.Option("--before", min=1, max=ID_MAX, metavar="GRANT", help="Only under older grants.")
    ] = None,
    db: Db = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """List the releases that were made, newest first: by whom, why, under which grant, and what came of them."""
    from holdfast.governance.quarantine import history as told  # noqa: PLC0415 - see above

    with opened(db, schema) as store, store.reading() as reading:
        found = told(reading, job_id=job, limit=limit, before=before)
    output.answer([_release(past) for past in found], lambda: _print_history(found), as_json=as_json)


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


# ---------------------------------------------------------------------------------------------------------------------
# Acting


@quarantine.command()
def add(
    *,
    job_id: JobId,
    code: Annotated[str, word("--code", "A reason (parse_error, timeout, …), or a code of your own.")],
    reason: Why,
    operator: Operator = None,
    db: Db = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Take a waiting or failed job out of automatic flows."""
    from holdfast.governance.quarantine import add as put  # noqa: PLC0415 - see above

    with opened(db, schema) as store:
        added = put(store, job_id, code, operator=actor() if operator is None else operator, reason=reason)
    held = added.job.quarantine_code
    said = f"job {job_id} is in quarantine as {held}" if added.changed else f"job {job_id} was there already, as {held}"
    output.answer({**_job(added.job), "changed": added.changed}, lambda: output.line(said), as_json=as_json)


@quarantine.command()
def release(
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
    db: Db = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Put a job back, or several together, under a grant that is used up with it.

    One grant lets one job go, once. Several jobs, or --all-matching, take one grant for that very set: all go, or none.
    """
    from holdfast.governance import releases  # noqa: PLC0415 - see above

    meant = _filters(code, because, operation, queue, older_than, cancelled=cancelled)
    which = _which(job_ids or [], meant, expected, matching=matching, dry_run=dry_run)
    due, who, why = due_moment(run_at), actor() if operator is None else operator, _why(reason, acts=not dry_run)
    with opened(db, schema) as store:
        if dry_run:
            many = releases.plan_release(store, which, operator=who, expected=expected, grant_id=grant)
        elif isinstance(which, int):
            one = releases.release(store, which, operator=who, reason=why, grant_id=grant, run_at=due)
            value = {**_job(one.job), "changed": one.changed, "grant_id": one.grant_id}
            under = f", under grant {one.grant_id}" if one.changed else " already"
            output.answer(value, lambda: output.line(f"job {which} is {one.job.state}{under}"), as_json=as_json)
            return
        else:
            many = releases.release_many(
                store, which, operator=who, reason=why, expected=expected, grant_id=grant, run_at=due
            )
    output.answer(msgspec.to_builtins(many), lambda: _print_many(many), as_json=as_json)


def _which(
    job_ids: list[int], filters: "QuarantineFilters", expected: int | None, *, matching: bool, dry_run: bool
) -> "int | QuarantineFilters | list[int]":
    """Return what is to be released: one job, some, or all that match; never both, and never nothing."""
    filtered = filters != type(filters)()
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
        return filters
    return job_ids[0] if len(job_ids) == 1 else job_ids


def _print_many(many: "BulkRelease") -> None:
    n = f"{len(many.job_ids)} {'job' if len(many.job_ids) == 1 else 'jobs'}"
    if many.grant_id is not None:
        output.line(f"{n} released, under grant {many.grant_id}")
        return
    output.line(f"{n} would be released: {', '.join(map(str, many.job_ids))}")
    facts = {"GO": "there is a grant", "OWN": "a grant of your own is made out: this is a dev ledger"}
    output.fields([("needs a grant for", many.target), ("authority", facts.get(many.authority, many.authority))])


@quarantine.command()
def purge(
    *,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="What has been there for longer: 30d, 12h.")
    ],
    apply: Annotated[bool, typer.Option("--apply", help="Do it; without, only count.")] = False,
    reason: MayWhy = None,
    operator: Operator = None,
    db: Db = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Drop payload and result of what has rested for long; the record, its key and its history stay.

    What was cancelled is in quarantine too. What was dropped can never be released.
    """
    from holdfast.governance.quarantine import purge as drop  # noqa: PLC0415 - see above

    age, why = _age(older_than), _why(reason, acts=apply)
    with opened(db, schema) as store:
        report = drop(store, age, operator=actor() if operator is None else operator, reason=why, apply=apply)
    n = f"{report.quarantined} {'job' if report.quarantined == 1 else 'jobs'}"
    value = {"applied": apply, "jobs": report.quarantined, "older_than_s": age.total_seconds()}

    def human() -> None:
        output.line(f"{n} {'lost' if apply else 'would lose'} payload and result")
        if not apply and report.quarantined:
            output.line("Nothing has been changed. To do it, give --apply.")

    output.answer(value, human, as_json=as_json)


# ---------------------------------------------------------------------------------------------------------------------
# Words and values


def _filters(
    code: str | None,
    reason: Reason | None,
    operation: str | None,
    queue: str | None,
    older_than: str | None,
    *,
    cancelled: bool,
) -> "QuarantineFilters":
    from holdfast.governance.quarantine import QuarantineFilters  # noqa: PLC0415 - see above

    age = None if older_than is None else _age(older_than)
    return QuarantineFilters(
        code=code, reason=reason, operation=operation, queue=queue, older_than=age, cancelled=cancelled
    )


def _why(reason: str | None, *, acts: bool) -> str:
    if acts and reason is None:
        raise InputError("an act says why it is done", next_step="Give --reason TEXT.", context={"field": "reason"})
    return reason or "dry run"


def _age(text: str) -> timedelta:
    match = _AGE.fullmatch(text.strip().lower())
    unit = UNITS.get(match[2] or "s") if match else None
    if match is None or unit is None or float(match[1]) * unit > AGE_S_MAX:
        raise InputError(
            f"--older-than is not an age: {text}",
            next_step="Write it as 30d, 12h, 90min or 3600s, and no more than a hundred years.",
            context={"older_than": text},
        )
    return timedelta(seconds=float(match[1]) * unit)


def _job(job: Job) -> dict[str, object]:
    why = reason_for(job).value if job.state is JobState.QUARANTINED else None
    return {**job_value(job), **{name: getattr(job, name) for name in SHOWN}, "reason": why}


def _release(past: "PastRelease") -> dict[str, object]:
    return row_value(past)


def _error(job: Job) -> str:
    return ": ".join(filter(None, (job.last_error_code, job.last_error_message)))
