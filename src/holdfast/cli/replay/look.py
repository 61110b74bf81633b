"""`holdfast replay select` and `dry-run`: show which jobs a selection matches, and what a run would do.

Invariants: these commands write nothing to the ledger; a selection is checked before a ledger is opened.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import click
import msgspec

from holdfast.cli.declare import option
from holdfast.cli.documents import write_new, write_tree
from holdfast.cli.options import REFUSED, actor
from holdfast.cli.replay import views
from holdfast.cli.replay.context import ReplayContext, logger, replay_context, selection_named
from holdfast.cli.replay.flags import GlobalFlags, ModeFlag, PaceFlags, SelectionFlags, typed
from holdfast.cli.replay.formats import answer
from holdfast.cli.replay.request import FlagValue, SelectionRequest, flag_values, selection_request
from holdfast.cli.replay.spec_files import tree_of
from holdfast.core.selection import Selection
from holdfast.governance.replay import replay as engine
from holdfast.governance.replay.replay import DryRun
from holdfast.store import Store

Examples = Annotated[int, option("--show-examples", metavar="N", min=0, max=1000, help="Show N of the jobs.")]
SaveSpec = Annotated[
    Path | None, option("--save-spec", metavar="FILE", help="Write the selection to a file: YAML, or .json.")
]
Operator = Annotated[
    str | None,
    option("--operator", metavar="NAME", help="Name of the person who would replay (default: the current user)."),
]
Save = Annotated[
    Path | None, option("--save", metavar="FILE", help="Write the dry run to a file, for run --dry-run-file.")
]


def select(
    ctx: click.Context,
    common: GlobalFlags,
    chosen: SelectionFlags,
    *,
    mode: ModeFlag = None,
    save_spec: SaveSpec = None,
    show_examples: Examples = 0,
) -> None:
    """Show which jobs a selection matches."""
    context = replay_context(ctx, common)
    program = context.program
    request = requested(context, flag_values(program, chosen, PaceFlags(mode=mode)))
    with context.ledger(request.env) as (store, env):
        selection = context.selection(request, env)
        with selection_named(selection):
            found = engine.select(store, selection, examples=show_examples)
        logger.info("select: selection %s, candidates %s, %d jobs", selection.hash, found.hash, found.total)
    if save_spec:
        write_tree(save_spec, tree_of(selection, program.spec))
    value = views.candidates_value(selection, found, show_examples, program)
    answer(value, lambda: views.print_candidates(selection, found, show_examples, program), context.format)


def dry_run(
    ctx: click.Context,
    common: GlobalFlags,
    chosen: SelectionFlags,
    paced: PaceFlags,
    *,
    operator: Operator = None,
    save: Save = None,
) -> None:
    """Show what a run would do and the verdict of every guard. Nothing is changed.

    The exit code is 3 if a guard refuses.
    """
    context = replay_context(ctx, common)
    request = requested(context, flag_values(context.program, chosen, paced))
    again = [*typed(context.flags, chosen, paced), *(["--operator", shlex.quote(operator)] if operator else [])]
    show_dry_run(context, request, operator or actor(), again=["run", *again], save=save)


def requested(context: ReplayContext, flags: list[FlagValue], file: Path | None = None) -> SelectionRequest:
    """Return the selection that a file and flags request; it is checked before a ledger is opened."""
    request = selection_request(context.program.spec, file or context.flags.selection_file, flags)
    context.selection(request)
    return request


def show_dry_run(
    context: ReplayContext, request: SelectionRequest, operator: str, *, again: Sequence[str], save: Path | None = None
) -> None:
    """Make a dry run, save it if a file was named, and print it; exit with 3 if a guard refuses.

    `again` is the command that runs the same selection.
    """
    program = context.program
    with context.ledger(request.env) as (store, env):
        made = make_dry_run(store, context, context.selection(request, env), operator)
        notes = _notes(store, made.selection, program.queue)
    if save:
        write_new(save, msgspec.json.format(msgspec.json.encode(made)).decode() + "\n")
    words = ["run", "--dry-run-file", shlex.quote(str(save))] if save else again
    step = " ".join([program.name, *words, "--reason", "TEXT"])
    value = views.dry_run_value(made, notes, program)
    answer(value, lambda: views.print_dry_run(made, step, program, notes), context.format)
    if not made.ok:
        raise click.exceptions.Exit(REFUSED)


def make_dry_run(store: Store[Any], context: ReplayContext, selection: Selection, operator: str) -> DryRun:
    """Return a dry run of a selection under the limits of the command."""
    with selection_named(selection):
        made = engine.dry_run(store, selection, actor=operator, policy=context.policy(selection))
    logger.info("dry-run: selection %s, candidates %s, %d jobs", made.selection_hash, made.candidates_hash, made.total)
    return made


def _notes(store: Store[Any], selection: Selection, queue: str) -> list[str]:
    """Return a note for each selected queue without any job: its name may be misspelt."""
    if not selection.filters.queues:
        return []
    with store.reading() as reading:
        known = {count.queue for count in reading.counts.current()}
    return [
        f"this ledger has no jobs of {queue} {name}; check the spelling"
        for name in selection.filters.queues
        if name not in known
    ]
