"""`holdfast show`, `cancel`, `revoke` and `retry`: show one job, cancel it, end its attempt, or retry it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.declare import argument, option
from holdfast.cli.job_names import JobName, KeyClient, job_id_of
from holdfast.cli.options import ID_MAX, At, Reason, actor
from holdfast.cli.text import Column
from holdfast.core.digest import canonical
from holdfast.core.frames import where
from holdfast.core.journal import JournalRow
from holdfast.core.machine import NOTHING
from holdfast.core.machines import EXECUTION, JOB, REQUEST
from holdfast.core.records import Execution, Job, time_text
from holdfast.explain.times import past_moment
from holdfast.explain.values import (
    JOB_FIELDS,
    job_history,
    job_value,
    payload_value,
    row_value,
    traceback_values,
    tries_in_words,
)
from holdfast.store import Store
from holdfast.store.verbs.tracebacks import tracebacks_of

if TYPE_CHECKING:  # the engine and the past are imported only by the commands that need them
    from holdfast.audit.as_of import Past, PastExecution, PastJob
    from holdfast.engine.ledger import Ledger

UNKNOWN = "unknown"
JobId = Annotated[int, argument(metavar="ID", min=1, max=ID_MAX, help="Id of the job.")]


# ---------------------------------------------------------------------------------------------------------------------
# show


@command(Location.open)
def show(
    store: Store[Any],
    *,
    name: JobName,
    client: KeyClient = None,
    at: At = None,
    payload: Annotated[bool, option("--payload/--no-payload", help="Show the payload, without secrets.")] = True,
    traceback: Annotated[bool, option("--traceback", help="Print where each failed attempt failed.")] = False,
) -> Answer:
    """Show one job with its payload, attempts and history.

    The history contains the journal rows of the job (machine JOB), of its executions (machine EXECUTION) and of
    requests to cancel (machine REQUEST), in the order in which they were written; the rows of one move have the same
    seq. With --at, fields that the journal does not record are null.
    """
    with store.reading() as reading:
        now = store.now()
        job_id = job_id_of(reading, name, client)
        job = reading.jobs.get(job_id)
        more = More(payload_value(job) if payload else None, tracebacks_of(reading, job_id), print_traces=traceback)
        if at is not None:
            from holdfast.audit.as_of import job_at  # noqa: PLC0415 - for the past only

            return _shown_at(job_at(reading, job_id, past_moment(at, "--at", now), now), more)
        executions = reading.lists.executions(job_id)
        journal = job_history(reading, job_id)
    value = {
        "job": job_value(job),
        "executions": [row_value(execution) for execution in executions],
        "journal": [row_value(row) for row in journal],
        **more.value,
    }
    return Answer(value, lambda: _print_job(job, executions, journal, now, more))


class More(NamedTuple):
    """What is shown of a job beside its records."""

    payload: object
    traces: Mapping[int, str]
    print_traces: bool

    @property
    def value(self) -> dict[str, object]:
        return {"payload": self.payload, "tracebacks": traceback_values(self.traces)}


def _shown_at(past: "Past", more: More) -> Answer:
    ended = {execution.attempt for execution in past.executions if execution.finished_at is not None}
    more = more._replace(traces={attempt: text for attempt, text in more.traces.items() if attempt in ended})
    value = {
        "at": time_text(past.at),
        "job": job_value(past.job),
        "executions": [row_value(execution) for execution in past.executions],
        "journal": [row_value(row) for row in past.journal],
        "unknown": [name for name in past.unknown if name in JOB_FIELDS],
        "archived_before": time_text(past.archived_before) if past.archived_before else None,
        **more.value,
    }
    return Answer(value, lambda: _print_past(past, more))


def _print_past(past: "Past", more: More) -> None:
    output.line(f"State at {output.instant(past.at, parts='microseconds')} UTC")
    _print_job(past.job, past.executions, past.journal, past.at, more)
    if past.archived_before is not None:
        output.line(f"History before {output.instant(past.archived_before, parts='microseconds')} UTC is archived.")


def _print_job(
    job: "Job | PastJob",
    executions: "Sequence[Execution] | Sequence[PastExecution]",
    journal: Sequence[JournalRow],
    now: datetime,
    more: More,
) -> None:
    head = output.styled(f"job {job.job_id} ", "bold") + output.state(job.state)
    output.show(head + output.styled(f" {job.operation}"))
    facts = [*_facts(job, now), ("payload", None if more.payload is None else canonical(more.payload))]
    output.fields((name, value) for name, value in facts if value is not None)
    if executions:
        output.line("")
        _print_executions(executions, now, more.traces)
    output.line("")
    _print_journal(journal, {execution.exec_id: execution.attempt for execution in executions})
    for attempt, text in more.traces.items() if more.print_traces else ():
        output.line(f"\nattempt {attempt}\n{text}")


def _facts(job: "Job | PastJob", now: datetime) -> list[tuple[str, str | None]]:
    def at(moment: datetime | None) -> str:
        return UNKNOWN if moment is None else f"{output.instant(moment)} UTC ({output.age(moment, now)})"

    error = ": ".join(filter(None, (job.last_error_code, job.last_error_message)))
    return [
        ("operation", f"{job.operation} {job.operation_version}"),
        ("client", job.client),
        ("key", job.key),
        ("queue", job.queue),
        ("priority", str(job.priority) if job.priority else None),
        ("attempts", tries_in_words(job) + (f", {job.excused} excused" if job.excused else "")),
        ("run at", at(job.run_at)),
        ("created", at(job.created_at)),
        ("updated", at(job.updated_at)),
        ("last error", error or None),
        ("quarantined as", job.quarantine_code),
        ("replay reason", job.replay_reason),
        ("replaces", str(job.replaces) if job.replaces else None),
        ("result", job.result),
    ]


def _print_executions(
    executions: "Sequence[Execution] | Sequence[PastExecution]", now: datetime, traces: Mapping[int, str]
) -> None:
    output.table(
        [
            Column("ATTEMPT", right=True), Column("STATUS"), Column("OWNER"), Column("STARTED"), Column("DURATION"),
            Column("LEASE"), Column("PROGRESS"), Column("ERROR", folds=True),
        ],
        [
            (
                execution.attempt, output.state(execution.status), execution.lease_owner,
                output.instant(execution.created_at), _duration(execution),
                _lease(execution, now),
                "" if execution.progress is None else f"{execution.progress:.0%} {execution.progress_note or ''}",
                ": ".join(filter(None, (execution.error_code, execution.error_message)))
                + (" (excused)" if execution.excused else "")
                + (f" (at {place})" if (place := where(traces.get(execution.attempt))) else ""),
            )
            for execution in executions
        ],
        title="executions",
    )  # fmt: skip


def _lease(execution: "Execution | PastExecution", now: datetime) -> str:
    if execution.status in EXECUTION.final:
        return ""
    ends = execution.lease_expires_at
    return UNKNOWN if ends is None else f"expires {output.age(ends, now)}"


def _duration(execution: "Execution | PastExecution") -> str:
    if execution.finished_at is None:
        return ""
    return output.span((execution.finished_at - execution.created_at).total_seconds())


def _print_journal(journal: Sequence[JournalRow], attempts: dict[int, int]) -> None:
    rows = []
    # Rows without a time were written in the same transaction as the row above.
    for _, moves in groupby(journal, key=lambda row: row.move_id):
        for position, row in enumerate(moves):
            attempt = row.attempt if row.machine == REQUEST.name else attempts.get(row.subject, "?")
            whose = "job" if row.machine == JOB.name else f"attempt {attempt}"
            under = [f"grant {row.grant_id}"] if row.grant_id else []
            under += [f"maintenance {row.maintenance_id}"] if row.maintenance_id else []
            rows.append(
                (
                    "" if position else output.instant(row.at, parts="milliseconds"),
                    whose,
                    output.styled(f"{row.source or NOTHING} → ") + output.state(row.target),
                    row.event,
                    row.actor,
                    ", ".join(under),
                    row.reason or "",
                )
            )
    columns = ("TIME (UTC)", "SUBJECT", "TRANSITION", "EVENT", "ACTOR", "AUTHORITY")
    output.table([*map(Column, columns), Column("REASON", folds=True)], rows, title="journal")


# ---------------------------------------------------------------------------------------------------------------------
# cancel, retry


@command(Location.ledger)
def cancel(ledger: "Ledger", *, job_id: JobId, reason: Reason = None) -> Answer:
    """Cancel a job; a running job receives a request to stop."""
    state = ledger.cancel(job_id, actor=actor(), reason=reason)
    running = state == "running"
    text = f"Job {job_id} is running; stop requested." if running else f"Job {job_id} is {state}."
    return Answer({"job_id": job_id, "state": state, "stop_requested": running}, text)


@command(Location.ledger)
def revoke(
    ledger: "Ledger",
    *,
    job_id: JobId,
    reason: Annotated[str, option("--reason", metavar="TEXT", help="Reason; it is journalled.")],
) -> Answer:
    """End an attempt that hangs, although its lease is valid.

    The attempt counts. Its worker can no longer write anything for the job; the job runs again if it has attempts left.
    """
    state = ledger.revoke(job_id, actor=actor(), reason=reason)
    return Answer({"job_id": job_id, "state": state}, f"Job {job_id} is {state}; its lease is revoked.")


@command(Location.ledger)
def retry(ledger: "Ledger", *, job_id: JobId, reason: Reason = None) -> Answer:
    """Retry a failed job if it has attempts left."""
    state = ledger.retry(job_id, actor=actor(), reason=reason)
    return Answer({"job_id": job_id, "state": state}, f"Job {job_id} is {state}.")
