"""`holdfast jobs`, `show` and `stats`: what the ledger says about work. Nothing here writes."""

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from typing import Annotated

import typer

from holdfast.audit.as_of import Past, PastExecution, PastJob, counts_at, job_at
from holdfast.cli import output
from holdfast.cli.options import ID_MAX, Db, Json, Schema, opened, word
from holdfast.cli.output import Column
from holdfast.cli.times import past_moment
from holdfast.cli.values import JOB_FIELDS, job_value, row_value
from holdfast.core.machine import NOTHING
from holdfast.core.machines import EXECUTION, JOB, JobState
from holdfast.core.records import Execution, Job, JournalRow, time_text
from holdfast.store.verbs.counts import Count

LIMIT_MAX = 10_000
NOT_KNOWN = "not known"
At = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="As it was then: 2030-01-31T12:00:00Z, a date, '2h ago' or -2h."),
]


# ---------------------------------------------------------------------------------------------------------------------
# jobs


def jobs(
    *,
    state: Annotated[JobState | None, typer.Option("--state", help="Only jobs in this state.")] = None,
    operation: Annotated[str | None, word("--operation", "Only jobs of this operation.")] = None,
    queue: Annotated[str | None, word("--queue", "Only jobs of this queue.")] = None,
    client: Annotated[str | None, word("--client", "Only jobs of this client.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=LIMIT_MAX, help="How many at most.")] = 50,
    before: Annotated[
        int | None, typer.Option("--before", min=1, max=ID_MAX, metavar="ID", help="Only jobs older than this one.")
    ] = None,
    db: Db = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """List jobs, newest first."""
    with opened(db, schema) as store, store.reading() as reading:
        found = reading.jobs.page(
            state=state, operation=operation, queue=queue, client=client, before=before, limit=limit
        )
        now = store.now()
    output.answer([job_value(job) for job in found], lambda: _print_jobs(found, now, limit), as_json=as_json)


def _print_jobs(found: Sequence[Job], now: datetime, limit: int) -> None:
    if not found:
        output.line("no jobs")
        return
    output.table(
        [
            Column("ID", right=True), Column("STATE"), Column("OPERATION"), Column("QUEUE"), Column("CLIENT"),
            Column("KEY", folds=True), Column("TRIES", right=True), Column("AGE"), Column("NOTE", folds=True),
        ],
        [
            (
                job.job_id, output.state(job.state), job.operation, job.queue, job.client, job.key or "",
                f"{job.attempts}/{job.max_attempts}", output.age(job.created_at, now), _note(job, now),
            )
            for job in found
        ],
    )  # fmt: skip
    if len(found) == limit:
        output.line(f"there may be more: --before {found[-1].job_id}")


def _note(job: Job, now: datetime) -> str:
    if job.state == JobState.PENDING and job.run_at > now:
        return f"due {output.age(job.run_at, now)}"
    return job.quarantine_code or job.last_error_code or ""


# ---------------------------------------------------------------------------------------------------------------------
# show


def show(
    *,
    job_id: Annotated[int, typer.Argument(metavar="ID", min=1, max=ID_MAX, help="The job's id.")],
    at: At = None,
    db: Db = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Show one job: its attempts and its history.

    The journal holds the job's own rows (machine JOB) and those of its executions (machine EXECUTION), in the order in
    which they were written. With --at, everything is as it was then; what the journal does not tell is null.
    """
    with opened(db, schema) as store, store.reading() as reading:
        if at is not None:
            past = job_at(reading, job_id, past_moment(at, "--at", store.now()), store.now())
            output.answer(_past_value(past), lambda: _print_past(past), as_json=as_json)
            return
        job = reading.jobs.get(job_id)
        executions = reading.executions.of_job(job_id)
        journal = [*reading.journal.of(job_id), *reading.journal.of_executions(job_id)]
        now = store.now()
    journal.sort(key=lambda row: row.seq)
    value = {
        "job": job_value(job),
        "executions": [row_value(execution) for execution in executions],
        "journal": [row_value(row) for row in journal],
    }
    output.answer(value, lambda: _print_job(job, executions, journal, now), as_json=as_json)


def _past_value(past: Past) -> dict[str, object]:
    return {
        "at": time_text(past.at),
        "job": job_value(past.job),
        "executions": [row_value(execution) for execution in past.executions],
        "journal": [row_value(row) for row in past.journal],
        "unknown": [name for name in past.unknown if name in JOB_FIELDS],
        "archived_before": time_text(past.archived_before) if past.archived_before else None,
    }


def _print_past(past: Past) -> None:
    output.line(f"as it was at {output.instant(past.at, parts='microseconds')} UTC")
    _print_job(past.job, past.executions, past.journal, past.at)
    if past.archived_before is not None:
        output.line(f"history before {output.instant(past.archived_before, parts='microseconds')} UTC is archived")


def _print_job(
    job: Job | PastJob,
    executions: Sequence[Execution] | Sequence[PastExecution],
    journal: Sequence[JournalRow],
    now: datetime,
) -> None:
    output.console().print(
        output.styled(f"job {job.job_id}", "bold"), output.state(job.state), output.styled(job.operation)
    )
    output.fields((name, value) for name, value in _facts(job, now) if value is not None)
    if executions:
        output.line("")
        _print_executions(executions, now)
    output.line("")
    _print_journal(journal, {execution.exec_id: execution.attempt for execution in executions})


def _facts(job: Job | PastJob, now: datetime) -> list[tuple[str, str | None]]:
    def at(moment: datetime | None) -> str:
        return NOT_KNOWN if moment is None else f"{output.instant(moment)} UTC ({output.age(moment, now)})"

    error = ": ".join(filter(None, (job.last_error_code, job.last_error_message)))
    return [
        ("operation", f"{job.operation} {job.operation_version}"),
        ("client", job.client),
        ("key", job.key),
        ("queue", job.queue),
        ("priority", str(job.priority) if job.priority else None),
        ("attempts", f"{job.attempts} of {job.max_attempts}" + (f", {job.excused} excused" if job.excused else "")),
        ("run at", at(job.run_at)),
        ("created", at(job.created_at)),
        ("updated", at(job.updated_at)),
        ("last error", error or None),
        ("quarantined as", job.quarantine_code),
        ("replay reason", job.replay_reason),
        ("replaces", str(job.replaces) if job.replaces else None),
        ("result", job.result),
    ]


def _print_executions(executions: Sequence[Execution] | Sequence[PastExecution], now: datetime) -> None:
    output.table(
        [
            Column("ATTEMPT", right=True), Column("STATUS"), Column("OWNER"), Column("BEGAN"), Column("TOOK"),
            Column("LEASE"), Column("PROGRESS"), Column("ERROR", folds=True),
        ],
        [
            (
                execution.attempt, output.state(execution.status), execution.lease_owner,
                output.instant(execution.created_at), _took(execution),
                _lease(execution, now),
                "" if execution.progress is None else f"{execution.progress:.0%} {execution.progress_note or ''}",
                ": ".join(filter(None, (execution.error_code, execution.error_message)))
                + (" (excused)" if execution.excused else ""),
            )
            for execution in executions
        ],
        title="executions",
    )  # fmt: skip


def _lease(execution: Execution | PastExecution, now: datetime) -> str:
    if execution.status in EXECUTION.final:
        return ""
    ends = execution.lease_expires_at
    return NOT_KNOWN if ends is None else f"ends {output.age(ends, now)}"


def _took(execution: Execution | PastExecution) -> str:
    if execution.finished_at is None:
        return ""
    return output.span((execution.finished_at - execution.created_at).total_seconds())


def _print_journal(journal: Sequence[JournalRow], attempts: dict[int, int]) -> None:
    rows = []
    # A moment is written once: what follows without one happened in the same write.
    for _, moves in groupby(journal, key=lambda row: row.move_id):
        for position, row in enumerate(moves):
            whose = "job" if row.machine == JOB.name else f"attempt {attempts.get(row.subject, '?')}"
            under = [f"grant {row.grant_id}"] if row.grant_id else []
            under += [f"maintenance {row.maintenance_id}"] if row.maintenance_id else []
            rows.append(
                (
                    "" if position else output.instant(row.at, parts="milliseconds"),
                    whose,
                    output.styled(f"{row.source or NOTHING} → ").append_text(output.state(row.target)),
                    row.event,
                    row.actor,
                    ", ".join(under),
                    row.reason or "",
                )
            )
    columns = ("AT (UTC)", "OF", "MOVE", "EVENT", "BY", "UNDER")
    output.table([*map(Column, columns), Column("REASON", folds=True)], rows, title="journal")


# ---------------------------------------------------------------------------------------------------------------------
# stats


def stats(*, at: At = None, db: Db = None, schema: Schema = None, as_json: Json = False) -> None:
    """Count jobs by state and operation.

    With --at, as they stood then.
    """
    moment: datetime | None = None
    with opened(db, schema) as store, store.reading() as reading:
        if at is None:
            counts = reading.counts.current()
        else:
            moment = past_moment(at, "--at", store.now())
            counts = counts_at(reading, moment, store.now())
    states, operations = _totals(counts)
    value: dict[str, object] = {"states": states, "operations": operations}

    def human() -> None:
        if moment is not None:
            output.line(f"as it was at {output.instant(moment, parts='microseconds')} UTC")
        _print_stats(states, operations)

    output.answer(value if moment is None else {"at": time_text(moment), **value}, human, as_json=as_json)


def _totals(counts: Sequence[Count]) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
    """Return the counts by state, and by operation and state."""
    operations: dict[str, dict[str, int]] = {}
    for count in counts:
        by_state = operations.setdefault(count.operation, dict.fromkeys(JOB.states, 0))
        by_state[count.state] += count.n
    states = {state: sum(by_state[state] for by_state in operations.values()) for state in JOB.states}
    return states, operations


def _print_stats(states: dict[str, int], operations: dict[str, dict[str, int]]) -> None:
    rows: list[list[object]] = [
        [operation, *(_count(state, n) for state, n in by_state.items()), sum(by_state.values())]
        for operation, by_state in operations.items()
    ]
    rows.append([output.styled("all", "bold"), *(_count(s, n) for s, n in states.items()), sum(states.values())])
    columns = [Column("OPERATION"), *(Column(state.upper(), right=True) for state in states)]
    output.table([*columns, Column("ALL", right=True)], rows)


def _count(state: str, n: int) -> object:
    return output.styled(n, output.STYLES[state] if n else "dim")
