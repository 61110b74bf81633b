"""`holdfast replay inspect` and `stop`: what a run did, what a job is, which jobs a selection is about.

Invariants: `inspect` writes nothing; it shows jobs whether they may be replayed or not.
"""

import heapq
import re
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

import typer

from holdfast.cli.options import ID_MAX, actor
from holdfast.cli.replay import output as told
from holdfast.cli.replay.flags import Asked, Chosen, Common, asked, said
from holdfast.cli.replay.forms import answer
from holdfast.cli.replay.place import Place, placed
from holdfast.core.errors import InputError, JobNotFoundError, RecordNotFoundError
from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.core.selection import Selection, matches
from holdfast.governance.replay import replay as engine
from holdfast.governance.replay.replay import ReplayReport
from holdfast.store import Store

_WAL_ID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
LIMIT = 20  # jobs of a selection that are shown unless told otherwise
Target = Annotated[
    str | None, typer.Argument(metavar="[RUN|JOB]", help="A run, a job, or a wal_id; without it, a selection.")
]
Fields = Annotated[str | None, typer.Option("--show-fields", metavar="NAMES", help="More fields, with commas.")]


def inspect(
    ctx: typer.Context, common: Common, chosen: Chosen, *, target: Target = None, show_fields: Fields = None
) -> None:
    """Show a run and what it touched, one job, or the jobs that a selection is about."""
    place = placed(ctx, common)
    names = [name.strip() for name in show_fields.split(",")] if show_fields else []
    if not all(names):
        raise InputError("--show-fields has an empty name", context={"flag": "--show-fields"})
    flags = said(chosen)
    if target is None:
        _inspect_selection(place, asked(place.common.selection_file, flags), names)
        return
    if flags or place.common.selection_file:
        raise InputError("inspect takes a run, a job, or a selection, not two of them")
    with place.ledger() as (store, _):
        found = _run_or_job(store, target, place.common)
    names = [*place.common.record_fields, *names]
    if isinstance(found, Job):
        answer(told.record_value(found, names), lambda: told.print_record(found, names), place.form)
    else:
        answer(told.plain(found), lambda: told.print_report(found, place.common.program), place.form)


def _inspect_selection(place: Place, ask: Asked, names: list[str]) -> None:
    place.selection(ask, to_replay=False)
    with place.ledger(ask.env) as (store, env):
        selection = place.selection(ask, env, to_replay=False)
        jobs = list(islice(_records(store, selection), selection.limits.max_records or LIMIT))
    columns = [*told.SHOWN, *(name for name in names if name not in told.SHOWN)]
    shown = [*place.common.record_fields, *names]
    answer([told.record_value(job, shown) for job in jobs], lambda: told.print_records(jobs, columns), place.form)


def _records(store: Store[Any], selection: Selection) -> Iterator[Job]:
    """Yield the jobs that a selection is about, whether they may be replayed or not, in order."""
    walks = [_walk(store, selection, state) for state in dict.fromkeys(selection.filters.status)]
    return (job for job in heapq.merge(*walks, key=lambda job: job.job_id) if matches(selection, job))


def _walk(store: Store[Any], selection: Selection, state: JobState) -> Iterator[Job]:
    filters, last = selection.filters, 0
    while True:
        with store.reading() as reading:
            page = reading.replay.jobs_after(last, state, queues=filters.datasets, operations=filters.operations)
        if not page:
            return
        yield from page
        last = page[-1].job_id


def _run_or_job(store: Store[Any], target: str, common: Common) -> ReplayReport | Job:
    """Return a run by its name, or a job by its id, or by its key where one client's jobs are records."""
    try:
        return engine.inspect(store, target)
    except RecordNotFoundError:
        record = _record(store, target, common.client) if common.client else None
        if record is not None:
            return record
        if common.client and _WAL_ID.fullmatch(target):
            raise RecordNotFoundError(f"there is no record {target}", next_step=common.records_step) from None
        if not (target.isascii() and target.isdecimal()):
            raise
    job_id = int(target) if len(target) < 20 else ID_MAX + 1
    if not 1 <= job_id <= ID_MAX:
        raise JobNotFoundError(f"there is no job {target}")
    with store.reading() as reading:
        return reading.jobs.get(job_id)


def _record(store: Store[Any], wal_id: str, client: str) -> Job | None:
    """Return the job that carries a record: the first, or the last that has replaced it and succeeded."""
    with store.reading() as reading:
        job = reading.jobs.by_key([(client, wal_id)]).get((client, wal_id))
        later = job
        while later is not None:
            if later.state is JobState.SUCCEEDED:
                job = later
            replaced = reading.replay.replaced_by([later.job_id]).get(later.job_id)
            later = None if replaced is None else reading.jobs.get(replaced)
        return job


def stop(
    ctx: typer.Context,
    common: Common,
    *,
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="The run.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why: it stays on record.")],
    operator: Annotated[str | None, typer.Option("--operator", metavar="NAME", help="Who; else the user.")] = None,
) -> None:
    """Stop a run before its next batch; it can be continued."""
    place = placed(ctx, common)
    with place.ledger() as (store, _):
        report = engine.stop(store, run_id, actor=operator or actor(), reason=reason)
    answer(told.plain(report), lambda: told.print_report(report, place.common.program), place.form)
