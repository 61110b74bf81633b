"""`holdfast replay run` and `from-spec`: replay the jobs of a selection in batches.

Invariants: a run is confirmed by a person or by --confirm; it replays exactly what the confirmed dry run showed, or
nothing; a run that a guard stopped ends with exit code 3 and its whole report.
"""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import click

from holdfast.cli import output
from holdfast.cli.declare import argument, option
from holdfast.cli.documents import converted, load_tree
from holdfast.cli.options import actor
from holdfast.cli.replay import views
from holdfast.cli.replay.context import ReplayContext, logger, replay_context, selection_named
from holdfast.cli.replay.flags import GlobalFlags, PaceFlags, RunFlags, SelectionFlags, typed
from holdfast.cli.replay.formats import OutputFormat, answer
from holdfast.cli.replay.look import make_dry_run, requested, show_dry_run
from holdfast.cli.replay.request import SelectionRequest, flag_values
from holdfast.core.errors import InputError, ReplayGuardError, SpecInvalidError
from holdfast.core.selection import ReplayMode, ReplayReason, Selection, selection_fault
from holdfast.core.spans import counted
from holdfast.governance.replay import replay as engine
from holdfast.governance.replay.events import ReplayBatch
from holdfast.governance.replay.guards import GuardType
from holdfast.governance.replay.record import ReplayReport
from holdfast.governance.replay.replay import DryRun
from holdfast.governance.runs.runner import Stop
from holdfast.store import Store

DRY_RUN_BYTES_MAX = 1 << 20
STOPS = {str(Stop.KILL_SWITCH): GuardType.KILL_SWITCH_ACTIVE, str(Stop.SLO_RISK): GuardType.SLO_RISK}

DryRunFile = Annotated[
    Path | None, option("--dry-run-file", metavar="FILE", help="Run exactly what this dry run showed.")
]
Continue = Annotated[str | None, option("--continue", metavar="RUN", help="Continue a run that stopped.")]
Spec = Annotated[Path | None, argument(metavar="FILE", help="The spec file; or give --selection-file.")]
Dry = Annotated[bool, option("--dry-run", help="Make a dry run, whatever the spec says.")]
Real = Annotated[bool, option("--run", help="Make a run; without both flags, the spec decides.")]


def run(
    ctx: click.Context,
    common: GlobalFlags,
    chosen: SelectionFlags,
    paced: PaceFlags,
    acting: RunFlags,
    *,
    dry_run_file: DryRunFile = None,
    continue_: Continue = None,
) -> None:
    """Replay the jobs of a selection, in batches, within the limits.

    The command asks first. --confirm answers yes; it is required without a terminal and with JSON or YAML.
    """
    context = replay_context(ctx, common)
    flags = flag_values(context.program, chosen, paced)
    _require_confirmation(context, acting)
    if continue_ is None and dry_run_file is None:
        _perform(context, requested(context, flags), acting)
        return
    extra = [flag for flag, _, _ in flags] + (["--selection-file"] if context.flags.selection_file else [])
    extra += ["--dry-run-file"] if continue_ and dry_run_file else []
    if extra:
        source = f"--continue {continue_}" if continue_ else f"--dry-run-file {dry_run_file}"
        raise InputError(
            f"{extra[0]} cannot be combined with {source}, which has its own selection",
            next_step=f"Leave out {extra[0]}.",
            context={"flag": extra[0]},
        )
    if continue_ is not None:
        _continue(context, continue_, acting)
    elif dry_run_file is not None:
        expected = _load_dry_run(dry_run_file)
        _perform(context, expected.selection, acting, expected)


def from_spec(
    ctx: click.Context,
    common: GlobalFlags,
    paced: PaceFlags,
    acting: RunFlags,
    *,
    file: Spec = None,
    dry: Dry = False,
    real: Real = False,
) -> None:
    """Make a dry run, or a run, of a spec file.

    Without --dry-run and --run, options.dry_run of the spec decides; if it is not set, a dry run is made.
    """
    context = replay_context(ctx, common)
    if dry and real:
        raise InputError(
            "--dry-run and --run exclude each other", next_step="Give one of them.", context={"flag": "--run"}
        )
    named = context.flags.selection_file
    if file and named and file != named:
        raise InputError(
            f"two spec files were named: {file} and {named}", next_step="Give FILE or --selection-file, not both."
        )
    if not (file or named):
        raise InputError("FILE is required", next_step=f"{context.program.name} from-spec FILE")
    request = requested(context, flag_values(context.program, SelectionFlags(), paced), file or named)
    if dry or (not real and context.selection(request).options.dry_run is not False):
        operator = ["--operator", shlex.quote(acting.operator)] if acting.operator else []
        again = ["from-spec", shlex.quote(str(file or named)), "--run", *typed(paced), *operator]
        show_dry_run(context, request, acting.operator or actor(), again=again)
    else:
        _require_confirmation(context, acting)
        _perform(context, request, acting)


def _perform(
    context: ReplayContext, what: SelectionRequest | Selection, acting: RunFlags, expected: DryRun | None = None
) -> None:
    """Replay a selection, or exactly what a dry run showed."""
    with context.ledger(what.env) as (store, env):
        selection = what if isinstance(what, Selection) else context.selection(what, env)
        if selection.options.dry_run:
            raise SpecInvalidError(
                "spec.options.dry_run: this selection is for dry runs only",
                next_step="Set spec.options.dry_run to false, or remove it.",
                context={"path": "spec.options.dry_run"},
            )
        operator, word = acting.operator or actor(), _replay_reason(selection, acting)
        reason = _reason(context, selection, acting, word)
        with selection_named(selection), context.flags.event_bus(store) as bus:
            if not acting.confirm:
                expected = _confirmed(store, context, selection, operator, expected)
            report = _with_progress(
                context,
                lambda on_batch: engine.run(
                    store,
                    selection,
                    actor=operator,
                    reason=reason,
                    replay_reason=word,
                    grant_id=acting.grant,
                    expected=expected,
                    policy=context.policy(selection),
                    stop_after=acting.stop_after,
                    on_batch=on_batch,
                    bus=bus,
                ),
            )
    _end(context, report, acting)


def _continue(context: ReplayContext, run_id: str, acting: RunFlags) -> None:
    program, reason = context.program, acting.reason
    if reason is None and program.reason_needed:
        raise _reason_required("Give --reason TEXT.")
    with context.ledger() as (store, _):
        before = engine.inspect(store, run_id, limit=0)
        if not acting.confirm:
            views.print_report(before, program)
            _ask(f"Continue {run_id}?")
        with context.flags.event_bus(store) as bus:
            report = _with_progress(
                context,
                lambda on_batch: engine.continue_run(
                    store,
                    run_id,
                    actor=acting.operator or actor(),
                    reason=reason or f"{program.name} run --continue",
                    grant_id=acting.grant,
                    stop_after=acting.stop_after,
                    on_batch=on_batch,
                    bus=bus,
                ),
            )
    _end(context, report, acting)


def _require_confirmation(context: ReplayContext, acting: RunFlags) -> None:
    if not acting.confirm and not context.interactive:
        raise InputError(
            "--confirm is required: there is no terminal to ask on",
            next_step="Make a dry run first, then give --confirm.",
            context={"flag": "--confirm"},
        )


def _confirmed(
    store: Store[Any], context: ReplayContext, selection: Selection, operator: str, expected: DryRun | None
) -> DryRun:
    """Show a dry run, ask for confirmation, and return the dry run that was confirmed."""
    made = expected or make_dry_run(store, context, selection, operator)
    views.print_dry_run(made, "", context.program)
    if made.ok:
        _ask(f"Replay {counted(made.total, 'job')} in the {made.environment} ledger?")
    return made


def _ask(question: str) -> None:
    if not click.confirm(question):
        output.line("Nothing was replayed.")
        raise click.exceptions.Exit(1)


def _replay_reason(selection: Selection, acting: RunFlags) -> str:
    """Return the replay reason of the flag or of the label, which must not differ, or the default of the mode."""
    label = selection.labels.get("replay_reason")
    given = acting.replay_reason
    if given and label and given != label:
        raise InputError(
            f"--replay-reason {given} contradicts metadata.labels.replay_reason, which is {label}",
            next_step="Leave out --replay-reason, or change the label.",
            context={"flag": "--replay-reason", "path": "metadata.labels.replay_reason"},
        )
    if given is ReplayReason.TEST and selection.env == "prod":
        raise InputError("--replay-reason test is not allowed in prod", context={"flag": "--replay-reason"})
    backfill = selection.mode is ReplayMode.BACKFILL
    return given or label or (ReplayReason.BACKFILL if backfill else ReplayReason.INCIDENT)


def _reason(context: ReplayContext, selection: Selection, acting: RunFlags, word: str) -> str:
    reason = acting.reason or selection.options.notes or selection.description
    if reason:
        return reason
    if context.program.reason_needed:
        raise _reason_required("Give --reason TEXT, or set spec.options.notes.")
    return f"{context.program.name} run: {word}"


def _reason_required(next_step: str) -> InputError:
    return InputError("--reason is required", next_step=next_step, context={"flag": "--reason"})


def _with_progress(
    context: ReplayContext, act: Callable[[Callable[[ReplayBatch], None]], ReplayReport]
) -> ReplayReport:
    with output.progress(as_json=context.format is not OutputFormat.TABLE) as show:

        def on_batch(batch: ReplayBatch) -> None:
            logger.info("%s of %d: %d jobs", batch, batch.batches, sum(batch.replayed.values()))
            if show:
                show("replaying", batch.number, batch.batches)

        return act(on_batch)


def _end(context: ReplayContext, report: ReplayReport, acting: RunFlags) -> None:
    """Print the report; raise ReplayGuardError if a guard stopped the run."""
    logger.info("%s is %s, selection %s: %d jobs", report.run_id, report.state, report.selection_hash, report.replayed)
    program, by_operator = context.program, report.done or report.stop_reason == Stop.OPERATOR
    value = views.report_value(report, program)
    if by_operator or context.format is OutputFormat.TABLE:
        answer(value, lambda: views.print_report(report, program), context.format)
    if not by_operator:
        guard = STOPS.get(report.stop_reason or "")
        raise ReplayGuardError(
            report.failure or f"{report.run_id} was stopped",
            code=str(guard or report.stop_reason).lower(),
            next_step=f"When the cause is resolved: `{program.name} run --continue {report.run_id}`.",
            context={**({"guard_type": str(guard)} if guard else {}), "report": value},
        )
    if not report.done and acting.stop_after is None:
        raise click.exceptions.Exit(1)  # another operator stopped it, or the user interrupted it


def _load_dry_run(path: Path) -> DryRun:
    made = converted(load_tree(path, size_max=DRY_RUN_BYTES_MAX), DryRun)
    fault = selection_fault(made.selection)
    if fault:
        message = f"{path}: {fault.path}: {fault.message}"
        raise SpecInvalidError(message, next_step=fault.next_step, context={"path": fault.path})
    return made
