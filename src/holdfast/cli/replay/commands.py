"""`holdfast replay`: select jobs, see what replaying them would do, do it, and look at what was done.

Invariants: `select`, `dry-run` and `inspect` write nothing to the ledger; a run is confirmed by somebody or by a flag;
what is replayed is what was shown, or nothing is; the same commands make up `nodd-replay`.
"""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from holdfast.cli import output
from holdfast.cli.documents import converted, load_tree, write_new, write_tree
from holdfast.cli.options import actor
from holdfast.cli.replay import output as told
from holdfast.cli.replay.flags import Acting, Asked, Chosen, Common, Mode, Paced, asked, expanded, said
from holdfast.cli.replay.forms import AnsweringGroup, Form, answer
from holdfast.cli.replay.inspect import inspect, stop
from holdfast.cli.replay.place import Place, logger, placed, snapshot
from holdfast.cli.replay.spec_files import tree_of
from holdfast.core.errors import InputError, ReplayGuardError, SpecInvalidError
from holdfast.core.selection import ReplayMode, ReplayReason, Selection, selection_fault
from holdfast.governance.replay import replay as engine
from holdfast.governance.replay.replay import DryRun, GuardType, ReplayBatch, ReplayReport, Stop
from holdfast.store import Store

SUMMARY = "Put failed jobs back under rules."
EPILOG = "Every command takes --json. Guide: docs/replay.md."
DRY_RUN_BYTES_MAX = 1 << 20
STOPS = {str(Stop.KILL_SWITCH): GuardType.KILL_SWITCH_ACTIVE, str(Stop.SLO_RISK): GuardType.SLO_RISK}

Examples = Annotated[int, typer.Option("--show-examples", metavar="N", min=0, max=1000, help="Show so many jobs.")]
SaveSpec = Annotated[Path | None, typer.Option("--save-spec", metavar="FILE", help="Write the selection: YAML, .json.")]
Operator = Annotated[str | None, typer.Option("--operator", metavar="NAME", help="Who would replay; else the user.")]
Save = Annotated[Path | None, typer.Option("--save", metavar="FILE", help="Keep it, for run --dry-run-file.")]
DryRunFile = Annotated[
    Path | None, typer.Option("--dry-run-file", metavar="FILE", help="Run exactly what this dry run saw.")
]
Continue = Annotated[str | None, typer.Option("--continue", metavar="RUN", help="Go on with a run that stopped.")]
Spec = Annotated[Path | None, typer.Argument(metavar="FILE", help="The spec; or give --selection-file.")]
Dry = Annotated[bool, typer.Option("--dry-run", help="A dry run, whatever the spec says.")]
Real = Annotated[bool, typer.Option("--run", help="A run; without either, as the spec says.")]


# ---------------------------------------------------------------------------------------------------------------------
# select, dry-run


def select(
    ctx: typer.Context,
    common: Common,
    chosen: Chosen,
    *,
    mode: Mode = None,
    save_spec: SaveSpec = None,
    show_examples: Examples = 0,
) -> None:
    """Show which jobs a selection is about, and perhaps keep it as a spec."""
    place = placed(ctx, common)
    ask = _asked(place, said(chosen, Paced(mode=mode)))
    with place.ledger(ask.env) as (store, env):
        selection = place.selection(ask, env)
        with snapshot(selection):
            found = engine.select(store, selection, examples=show_examples)
        logger.info("select: selection %s, candidates %s, %d jobs", selection.hash, found.hash, found.total)
    if save_spec:
        write_tree(save_spec, tree_of(selection))
    value = told.candidates_value(selection, found, show_examples)
    answer(value, lambda: told.print_candidates(selection, found, show_examples), place.form)


def dry_run(
    ctx: typer.Context,
    common: Common,
    chosen: Chosen,
    paced: Paced,
    *,
    operator: Operator = None,
    save: Save = None,
) -> None:
    """Show what a run would do and what every guard says; nothing is changed.

    Exit code 3 if a guard would refuse.
    """
    place = placed(ctx, common)
    _rehearse(place, _asked(place, said(chosen, paced)), operator or actor(), save)


def _rehearse(place: Place, ask: Asked, operator: str, save: Path | None = None) -> None:
    with place.ledger(ask.env) as (store, env):
        made = _dry_run(store, place, place.selection(ask, env), operator)
        notes = _notes(store, made.selection)
    if save:
        write_new(save, msgspec.json.format(msgspec.json.encode(made)).decode() + "\n")
    program = place.common.program
    kept = f"{program} run --dry-run-file {shlex.quote(str(save))} --reason TEXT" if save else None
    step = kept or f"{program} run, with the same selection"
    answer(told.dry_run_value(made, notes), lambda: told.print_dry_run(made, step, notes), place.form)
    if not made.ok:
        raise typer.Exit(3)


def _dry_run(store: Store[Any], place: Place, selection: Selection, operator: str) -> DryRun:
    with snapshot(selection):
        made = engine.dry_run(store, selection, actor=operator, policy=place.policy(selection))
    logger.info("dry-run: selection %s, candidates %s, %d jobs", made.selection_hash, made.candidates_hash, made.total)
    return made


def _notes(store: Store[Any], selection: Selection) -> list[str]:
    """Return what a selection says that may be a slip: a dataset of which there has never been a job."""
    if not selection.filters.datasets:
        return []
    with store.reading() as reading:
        there = {count.queue for count in reading.counts.current()}
    return [f"this ledger has never had a job of {name}" for name in selection.filters.datasets if name not in there]


def _asked(place: Place, flags: list[Any], file: Path | None = None) -> Asked:
    """Return what was asked for, after a first check: nothing is opened for what cannot be taken."""
    ask = asked(file or place.common.selection_file, flags)
    place.selection(ask)
    return ask


# ---------------------------------------------------------------------------------------------------------------------
# run


def run(
    ctx: typer.Context,
    common: Common,
    chosen: Chosen,
    paced: Paced,
    acting: Acting,
    *,
    dry_run_file: DryRunFile = None,
    continue_: Continue = None,
) -> None:
    """Replay what a selection is about, in batches, within the limits.

    It asks first; --confirm says yes, and must be given where nobody can be asked.
    """
    place = placed(ctx, common)
    flags = said(chosen, paced)
    _require_confirmation(place, acting)
    if continue_ is None and dry_run_file is None:
        _perform(place, _asked(place, flags), acting)
        return
    beside = [flag for flag, _, _ in flags] + (["--selection-file"] if place.common.selection_file else [])
    beside += ["--dry-run-file"] if continue_ and dry_run_file else []
    if beside:
        what = "a run that is continued" if continue_ else "a dry run"
        raise InputError(f"{beside[0]} does not go with {what}: its selection is settled", context={"flag": beside[0]})
    if continue_ is not None:
        _go_on(place, continue_, acting)
    elif dry_run_file is not None:
        expected = _load_dry_run(dry_run_file)
        _perform(place, expected.selection, acting, expected)


def from_spec(
    ctx: typer.Context,
    common: Common,
    paced: Paced,
    acting: Acting,
    *,
    file: Spec = None,
    dry: Dry = False,
    real: Real = False,
) -> None:
    """Do a dry run, or a run, of a spec file.

    Without --dry-run or --run it does what the spec's options.dry_run says, and a dry run if that says nothing.
    """
    place = placed(ctx, common)
    if dry and real:
        raise InputError("--dry-run and --run ask for two things", next_step="Give one.", context={"flag": "--run"})
    named = place.common.selection_file
    if file and named and file != named:
        raise InputError("two spec files were named", next_step="Give FILE or --selection-file.")
    if not (file or named):
        raise InputError("no spec file was named", next_step="Give FILE.")
    ask = _asked(place, said(Chosen(), paced), file or named)
    if dry or (not real and place.selection(ask).options.dry_run is not False):
        _rehearse(place, ask, acting.operator or actor())
    else:
        _require_confirmation(place, acting)
        _perform(place, ask, acting)


def _perform(place: Place, what: Asked | Selection, acting: Acting, expected: DryRun | None = None) -> None:
    """Replay a selection, or what a dry run saw."""
    meant = what.env
    with place.ledger(meant) as (store, env):
        selection = what if isinstance(what, Selection) else place.selection(what, env)
        if selection.options.dry_run:
            raise SpecInvalidError(
                "spec.options.dry_run: this selection is for dry runs only",
                next_step="Set it to false, or leave it out, once it may be run.",
                context={"path": "spec.options.dry_run"},
            )
        operator, word = acting.operator or actor(), _replay_reason(selection, acting)
        reason = _reason(place, selection, acting, word)
        with snapshot(selection), place.common.telling(store) as bus:
            if not acting.confirm:
                expected = _agreed(store, place, selection, operator, expected)
            report = _with_progress(
                place,
                lambda on_batch: engine.run(
                    store,
                    selection,
                    actor=operator,
                    reason=reason,
                    replay_reason=word,
                    grant_id=acting.grant,
                    expected=expected,
                    policy=place.policy(selection),
                    stop_after=acting.stop_after,
                    on_batch=on_batch,
                    bus=bus,
                ),
            )
    _end(place, report, acting)


def _go_on(place: Place, run_id: str, acting: Acting) -> None:
    reason = acting.reason
    if reason is None and place.common.reason_needed:
        raise InputError("a run names why it is continued", next_step="Give --reason.")
    with place.ledger() as (store, _):
        standing = engine.inspect(store, run_id, limit=0)
        if not acting.confirm:
            told.print_report(standing, place.common.program)
            _ask(f"Go on with {run_id}?")
        with place.common.telling(store) as bus:
            report = _with_progress(
                place,
                lambda on_batch: engine.continue_run(
                    store,
                    run_id,
                    actor=acting.operator or actor(),
                    reason=reason or f"{place.common.program} run --continue",
                    grant_id=acting.grant,
                    stop_after=acting.stop_after,
                    on_batch=on_batch,
                    bus=bus,
                ),
            )
    _end(place, report, acting)


def _require_confirmation(place: Place, acting: Acting) -> None:
    if not acting.confirm and not place.interactive:
        raise InputError(
            "a run must be confirmed, and there is nobody to ask",
            next_step="Look at a dry run, then give --confirm.",
            context={"flag": "--confirm"},
        )


def _agreed(store: Store[Any], place: Place, selection: Selection, operator: str, expected: DryRun | None) -> DryRun:
    """Show a dry run and ask; return what the run will be held against."""
    made = expected or _dry_run(store, place, selection, operator)
    told.print_dry_run(made, "")
    if made.ok:
        _ask(f"Replay {told.jobs(made.total)} in the {made.environment} ledger?")
    return made


def _ask(question: str) -> None:
    if not typer.confirm(question):
        output.line("nothing was replayed")
        raise typer.Exit(1)


def _replay_reason(selection: Selection, acting: Acting) -> str:
    """Return why, in one word: of a flag or a label, which may not differ, or what the mode suggests."""
    label = selection.labels.get("replay_reason")
    given = acting.replay_reason
    if given and label and given != label:
        raise InputError(
            f"--replay-reason {given} says something else than metadata.labels.replay_reason, {label}",
            context={"flag": "--replay-reason", "path": "metadata.labels.replay_reason"},
        )
    if given is ReplayReason.TEST and selection.env == "prod":
        raise InputError("nothing is replayed as a test in prod", context={"flag": "--replay-reason"})
    backfill = selection.mode is ReplayMode.BACKFILL
    return given or label or (ReplayReason.BACKFILL if backfill else ReplayReason.INCIDENT)


def _reason(place: Place, selection: Selection, acting: Acting, word: str) -> str:
    reason = acting.reason or selection.options.notes or selection.description
    if reason:
        return reason
    if place.common.reason_needed:
        raise InputError("a run names why it is made", next_step="Give --reason, or notes in the spec.")
    return f"{place.common.program} run: {word}"


def _with_progress(place: Place, act: Callable[[Callable[[ReplayBatch], None]], ReplayReport]) -> ReplayReport:
    with output.progress(as_json=place.form is not Form.TABLE) as show:

        def on_batch(batch: ReplayBatch) -> None:
            logger.info("%s of %d: %d jobs", batch, batch.batches, sum(batch.replayed.values()))
            if show:
                show("replaying", batch.number, batch.batches)

        return act(on_batch)


def _end(place: Place, report: ReplayReport, acting: Acting) -> None:
    """Tell how a run ended: one that a guard stopped half-way is a refusal, with all that was done."""
    logger.info("%s is %s, selection %s: %d jobs", report.run_id, report.state, report.selection_hash, report.replayed)
    by_hand = report.done or report.stop_reason == Stop.OPERATOR
    if by_hand or place.form is Form.TABLE:
        answer(told.plain(report), lambda: told.print_report(report, place.common.program), place.form)
    if not by_hand:
        guard = STOPS.get(report.stop_reason or "")
        raise ReplayGuardError(
            report.failure or f"{report.run_id} was stopped",
            code=str(guard or report.stop_reason).lower(),
            next_step=f"When that is over: `{place.common.program} run --continue {report.run_id}`.",
            context={**({"guard_type": str(guard)} if guard else {}), "report": told.plain(report)},
        )
    if not report.done and acting.stop_after is None:
        raise typer.Exit(1)  # somebody else stopped it, or the user interrupted it


def _load_dry_run(path: Path) -> DryRun:
    made = converted(load_tree(path, size_max=DRY_RUN_BYTES_MAX), DryRun)
    fault = selection_fault(made.selection)
    if fault:
        raise SpecInvalidError(f"{path}: {fault.path}: {fault.message}", context={"path": fault.path})
    return made


# ---------------------------------------------------------------------------------------------------------------------
# The command


COMMANDS: dict[str, Callable[..., None]] = {
    "select": select,
    "dry-run": dry_run,
    "run": run,
    "from-spec": from_spec,
    "inspect": inspect,
}


def made_of(commands: dict[str, Callable[..., None]], common: type[Common], summary: str) -> typer.Typer:
    """Return a command with these commands in it, which takes the global flags before their names too."""
    group = typer.Typer(
        cls=AnsweringGroup, help=summary, epilog=EPILOG, add_completion=False, pretty_exceptions_enable=False
    )

    def root(ctx: typer.Context, common: Common) -> None:
        ctx.obj = common

    group.callback()(expanded(root, common=common))
    for name, function in commands.items():
        group.command(name)(expanded(function, common=common))
    return group


replay = made_of({**COMMANDS, "stop": stop}, Common, SUMMARY)
