"""`holdfast jobs` and `stats`: list and count jobs. They only read."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.declare import option
from holdfast.cli.options import At, JobsBefore, word
from holdfast.cli.text import Column
from holdfast.core.machines import JobState
from holdfast.core.records import Job, time_text
from holdfast.explain.times import past_moment
from holdfast.explain.values import counts_value, job_value, tries
from holdfast.store import Store

LIMIT_MAX = 10_000


@command(Location.open)
def jobs(
    store: Store[Any],
    *,
    state: Annotated[JobState | None, option("--state", help="List only jobs in this state.")] = None,
    operation: Annotated[str | None, word("--operation", "List only jobs of this operation.")] = None,
    queue: Annotated[str | None, word("--queue", "List only jobs of this queue.")] = None,
    client: Annotated[str | None, word("--client", "List only jobs of this client.")] = None,
    limit: Annotated[int, option("--limit", min=1, max=LIMIT_MAX, help="Maximum number of jobs.")] = 50,
    before: JobsBefore = None,
) -> Answer:
    """List jobs, newest first."""
    with store.reading() as reading:
        found = reading.lists.jobs(
            state=state, operation=operation, queue=queue, client=client, before=before, limit=limit
        )
        now = store.now()
    return Answer([job_value(job) for job in found], lambda: _print_jobs(found, now, limit))


def _print_jobs(found: Sequence[Job], now: datetime, limit: int) -> None:
    output.table(
        [
            Column("ID", right=True), Column("STATE"), Column("OPERATION"), Column("QUEUE"), Column("CLIENT"),
            Column("KEY", folds=True), Column("ATTEMPTS", right=True), Column("AGE"), Column("NOTE", folds=True),
        ],
        [
            (
                job.job_id, output.state(job.state), job.operation, job.queue, job.client, job.key or "",
                tries(job), output.age(job.created_at, now), _note(job, now),
            )
            for job in found
        ],
        none="No jobs.",
    )  # fmt: skip
    if len(found) == limit:
        output.line(f"There may be more jobs; to continue, add --before {found[-1].job_id}")


def _note(job: Job, now: datetime) -> str:
    if job.state == JobState.PENDING and job.run_at > now:
        return f"due {output.age(job.run_at, now)}"
    return job.quarantine_code or job.last_error_code or ""


# ---------------------------------------------------------------------------------------------------------------------
# stats


@command(Location.open)
def stats(store: Store[Any], *, at: At = None) -> Answer:
    """Count jobs by state and operation.

    With --at, counts the jobs as they were at that time.
    """
    moment: datetime | None = None
    paused: list[str] = []
    with store.reading() as reading:
        if at is None:
            counts, paused = reading.counts.current(), reading.queues.paused()
        else:
            from holdfast.audit.as_of import counts_at  # noqa: PLC0415 - for the past only

            moment = past_moment(at, "--at", store.now())
            counts = counts_at(reading, moment, store.now())
    value = counts_value(counts)
    if moment is None:
        value["paused"] = paused

    def human() -> None:
        if moment is not None:
            output.line(f"State at {output.instant(moment, parts='microseconds')} UTC")
        _print_stats(value["states"], value["operations"])
        if paused:
            output.line(f"Paused queues: {', '.join(paused)}")

    return Answer(value if moment is None else {"at": time_text(moment), **value}, human)


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
