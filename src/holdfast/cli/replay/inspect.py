"""`holdfast replay inspect` and `stop`: show a run, a job, or the jobs of a selection; stop a run.

Invariants: `inspect` writes nothing; it shows jobs whether they can be replayed or not.
"""

import heapq
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

import click

from holdfast.cli.declare import argument, option
from holdfast.cli.options import ID_MAX, OPERATOR_HELP, REASON_HELP, actor
from holdfast.cli.replay import views
from holdfast.cli.replay.context import ReplayContext, replay_context
from holdfast.cli.replay.flags import GlobalFlags, SelectionFlags
from holdfast.cli.replay.formats import answer
from holdfast.cli.replay.program import Program
from holdfast.cli.replay.request import SelectionRequest, flag_values, selection_request
from holdfast.core.errors import InputError, JobNotFoundError, RecordNotFoundError
from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.core.selection import Selection, matches
from holdfast.governance.replay import replay as engine
from holdfast.governance.replay.record import ReplayReport
from holdfast.store import Store

LIMIT = 20  # jobs of a selection that are shown without --limit
Target = Annotated[
    str | None, argument(metavar="[RUN|JOB]", help="A run, or a job; without it, the jobs of a selection.")
]
Fields = Annotated[str | None, option("--show-fields", metavar="NAMES", help="Further fields: A,B.")]


def inspect(
    ctx: click.Context,
    common: GlobalFlags,
    chosen: SelectionFlags,
    *,
    target: Target = None,
    show_fields: Fields = None,
) -> None:
    """Show a run and its batches, one job, or the jobs of a selection."""
    context = replay_context(ctx, common)
    program = context.program
    names = [name.strip() for name in show_fields.split(",")] if show_fields else []
    if not all(names):
        raise InputError("--show-fields has an empty name", context={"flag": "--show-fields"})
    flags, file = flag_values(program, chosen), context.flags.selection_file
    if target is None:
        _inspect_selection(context, selection_request(program.spec, file, flags), names)
        return
    if flags or file:
        raise InputError(
            f"inspect takes {target} or a selection, not both", next_step="Leave out the flags that select jobs."
        )
    with context.ledger() as (store, _):
        found = _run_or_job(store, target, program)
    names = [*program.record_fields, *names]
    if isinstance(found, Job):
        value = views.record_value(found, names, program)
        answer(value, lambda: views.print_record(found, names, program), context.format)
    else:
        answer(views.report_value(found, program), lambda: views.print_report(found, program), context.format)


def _inspect_selection(context: ReplayContext, request: SelectionRequest, names: list[str]) -> None:
    program = context.program
    context.selection(request, to_replay=False)
    with context.ledger(request.env) as (store, env):
        selection = context.selection(request, env, to_replay=False)
        jobs = list(islice(_matching(store, selection), selection.limits.max_records or LIMIT))
    columns = [*program.columns, *(name for name in names if name not in program.columns)]
    shown = [*program.record_fields, *names]
    value = [views.record_value(job, shown, program) for job in jobs]
    answer(value, lambda: views.print_records(jobs, columns, program), context.format)


def _matching(store: Store[Any], selection: Selection) -> Iterator[Job]:
    """Yield the jobs that match a selection, by ascending id, whether they can be replayed or not."""
    walks = [_walk(store, selection, state) for state in dict.fromkeys(selection.filters.status)]
    return (job for job in heapq.merge(*walks, key=lambda job: job.job_id) if matches(selection, job))


def _walk(store: Store[Any], selection: Selection, state: JobState) -> Iterator[Job]:
    filters, last = selection.filters, 0
    while True:
        with store.reading() as reading:
            page = reading.replay.jobs_after(last, state, queues=filters.queues, operations=filters.operations)
        if not page:
            return
        yield from page
        last = page[-1].job_id


def _run_or_job(store: Store[Any], target: str, program: Program) -> ReplayReport | Job:
    """Return a run by its name, or a job by its id or by another name that the program knows."""
    try:
        return engine.inspect(store, target)
    except RecordNotFoundError:
        job = program.find(store, target)
        if job is not None:
            return job
        if not (target.isascii() and target.isdecimal()):
            raise
    job_id = int(target) if len(target) < 20 else ID_MAX + 1
    if not 1 <= job_id <= ID_MAX:
        raise JobNotFoundError(f"there is no job {target}")
    with store.reading() as reading:
        return reading.jobs.get(job_id)


def stop(
    ctx: click.Context,
    common: GlobalFlags,
    *,
    run_id: Annotated[str, argument(metavar="RUN", help="Id of the run.")],
    reason: Annotated[str, option("--reason", metavar="TEXT", help=REASON_HELP)],
    operator: Annotated[str | None, option("--operator", metavar="NAME", help=OPERATOR_HELP)] = None,
) -> None:
    """Stop a run before its next batch. It can be continued."""
    context = replay_context(ctx, common)
    with context.ledger() as (store, _):
        report = engine.stop(store, run_id, actor=operator or actor(), reason=reason)
    value = views.report_value(report, context.program)
    answer(value, lambda: views.print_report(report, context.program), context.format)
