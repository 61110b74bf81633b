"""`holdfast procedure`: run a procedure, resume or undo a run, and show its status.

Invariants: without --mode nothing is written; a procedure is found by its name, in the module that --app names or among
the built-in ones; exit code 0 means done or go, 3 stopped or refused.
"""

import shlex
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import msgspec

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command, group
from holdfast.cli.declare import argument, option
from holdfast.cli.documents import read_file
from holdfast.cli.modules import imported
from holdfast.cli.options import ID_MAX, REFUSED, OperatorWord, ReasonWord, actor, word
from holdfast.cli.shell import APP
from holdfast.cli.text import Column
from holdfast.core.digest import PAYLOAD_BYTES_MAX
from holdfast.core.environments import DEV
from holdfast.core.errors import InputError, PayloadTooLargeError, SpecInvalidError
from holdfast.core.governed import ProcedureRun
from holdfast.core.json_input import loads
from holdfast.core.machines import ProcedureState
from holdfast.diagrams.run import FINE, PLAIN, run_lines
from holdfast.explain.values import row_value
from holdfast.governance.approval import environment_of
from holdfast.governance.runs import procedure as procedures
from holdfast.governance.runs.procedure import BUILT_IN
from holdfast.governance.runs.status import RunStatus, run_status, stop_cause
from holdfast.governance.runs.steps import Mode, Procedure, ProcedureReport
from holdfast.store import Store

procedure = group("Run a procedure: all of its steps are done, or all are undone.", "procedures")

PAGE_MAX = 1000
GLANCE = 100  # characters of an outcome in a table; --json has all of it
STYLES = {
    "performed": "green", "passed": "green", "skipped": "dim green", "undone": "yellow", "failed": "red",
    "stuck": "bold red", "open": "dim", "way": "dim", "planned": "cyan", "running": "yellow",
    "compensating": "magenta", "stopped": "red", "done": "green",
}  # fmt: skip

Root = Annotated[str, argument(metavar="ROOT", help="Idempotency root of the run.")]
App = Annotated[
    str | None,
    word("--app", "Module that declares the procedure; not needed for a built-in one.", metavar="MODULE[:NAME]"),
]
GrantId = Annotated[
    int | None, option("--grant", min=1, max=ID_MAX, metavar="ID", help="Id of the grant that permits this.")
]


# ---------------------------------------------------------------------------------------------------------------------
# run, resume, undo


@procedure.subcommand()
@command(Location.unopened)
def run(
    location: Location,
    *,
    name: Annotated[str, argument(metavar="NAME", help="Name of the procedure.")],
    root: Annotated[str, word("--root", "Idempotency root; the same root continues the same run.")],
    reason: ReasonWord,
    app: App = None,
    params: Annotated[
        str, option("--params", metavar="JSON", help="Parameters: a JSON object, or a file that contains one.")
    ] = "{}",
    mode: Annotated[Mode, option("--mode", help="Mode of the run.")] = Mode.DRY_RUN,
    operator: OperatorWord = None,
    grant: GrantId = None,
) -> Answer:
    """Run a procedure, or continue the run of the root. Without --mode it is a dry run.

    PLAN_ONLY does not open the ledger, VERIFY_ONLY only reads, DRY_RUN does everything and rolls it back.
    """
    given, what, who = _params(params), _found(name, app), operator or actor()
    with ExitStack() as opened:
        # A plan needs no ledger.
        store: Any = None if mode is Mode.PLAN_ONLY else opened.enter_context(location.open())
        report = procedures.run(store, what, given, root=root, actor=who, reason=reason, mode=mode, grant_id=grant)
        return _answer(store, what, report)


@procedure.subcommand()
@command(Location.open)
def resume(
    store: Store[Any],
    *,
    root: Root,
    reason: ReasonWord,
    app: App = None,
    operator: OperatorWord = None,
    grant: GrantId = None,
) -> Answer:
    """Continue a run that was interrupted or stopped: with its first open step, or with its compensation."""
    what = _found(_name_of(store, root), app)
    report = procedures.resume(store, what, root=root, actor=operator or actor(), reason=reason, grant_id=grant)
    return _answer(store, what, report)


@procedure.subcommand()
@command(Location.open)
def undo(
    store: Store[Any], *, root: Root, reason: ReasonWord, app: App = None, operator: OperatorWord = None
) -> Answer:
    """Undo a run that was interrupted, instead of continuing it."""
    what = _found(_name_of(store, root), app)
    report = procedures.undo(store, what, root=root, actor=operator or actor(), reason=reason)
    return _answer(store, what, report, expected="stopped")


def _answer(store: Store[Any], what: Procedure, report: ProcedureReport, *, expected: str | None = None) -> Answer:
    """Return the answer to a run; the exit code is 0 if it is done, or in the expected state."""
    exit_code = 0 if report.ok or report.state == expected else REFUSED
    value = msgspec.to_builtins(report)
    if report.mode is Mode.REAL_RUN and report.state != "none":
        with store.reading() as reading:
            status = run_status(reading, report.root)
        return Answer(value, lambda: _print_status(status), exit_code)
    steps = _before_a_real_run(store, what, report) if report.ok and report.mode is Mode.DRY_RUN else []
    return Answer(value, lambda: _print_report(what, report, steps), exit_code)


def _print_report(what: Procedure, report: ProcedureReport, next_steps: list[str]) -> None:
    kind = {Mode.PLAN_ONLY: "plan", Mode.VERIFY_ONLY: "verification", Mode.DRY_RUN: "dry run"}.get(
        report.mode, "refused"
    )
    title = f"{report.verdict}: {what.name} {what.version}, {kind}; nothing was written"
    output.show(output.styled(title, "bold green" if report.ok else "bold red"))
    output.fields(
        (name, value)
        for name, value in (
            ("root", report.root),
            ("target", report.target),
            ("plan", report.plan),
            ("manifest", report.manifest),
            ("authority", report.authority),
            ("steps", ", ".join(f"{n} {fate}" for fate, n in report.counts.items())),
            ("failure", report.failure),
        )
        if value
    )
    output.line("")
    output.table(
        [Column("STEP"), Column("FATE"), Column("OUTCOME", folds=True)],
        [
            (
                step.name,
                output.styled(step.fate, STYLES.get(step.fate, "")),
                "" if step.name == what.reserve else _short(step.outcome),  # its outcome is the list of steps
            )
            for step in report.steps
        ],
    )
    for line in next_steps:
        output.line(output.clean(line))


def _before_a_real_run(store: Store[Any], what: Procedure, report: ProcedureReport) -> list[str]:
    last = ["", "next: the same command with --mode REAL_RUN"]
    if not report.authority.startswith("REJECT"):
        return last
    with store.reading() as reading:
        environment = environment_of(reading)
    if environment == DEV:
        return [*last, "It needs a grant; a dev ledger issues it automatically."]
    given = {"--plan": report.plan, "--manifest": report.manifest, "--actions": ",".join(what.names)}
    flags = "".join(f" {flag} {shlex.quote(value)}" for flag, value in given.items() if value)
    request = f"  holdfast grant request {what.act} {shlex.quote(report.target)}{flags}"
    return [
        "",
        "first: request a grant and get it approved:",
        f"{request} --executor NAME --rollback-plan TEXT --reason TEXT",
        *last[1:],
    ]


def _short(outcome: object) -> str:
    text = "" if outcome is None else msgspec.json.encode(outcome).decode()
    return text if len(text) <= GLANCE else f"{text[: GLANCE - 1]}…"


# ---------------------------------------------------------------------------------------------------------------------
# show, list


@procedure.subcommand()
@command(Location.open)
def show(store: Store[Any], *, root: Root) -> Answer:
    """Show the status of a run: each step, the stop, the lease and the grant."""
    with store.reading() as reading:
        found = run_status(reading, root)
    return Answer(_status_value(found), lambda: _print_status(found))


def _status_value(found: RunStatus) -> dict[str, object]:
    return {
        "run": _run_value(found.run),
        "version": found.version,
        "steps": [row_value(step) for step in found.steps],
        "failure": found.failure,
        "trouble": found.trouble,
        "lease": row_value(found.lease) if found.lease else None,
        "grant": row_value(found.grant) if found.grant else None,
        "journal": [row_value(row) for row in found.history],
    }


def _run_value(run: ProcedureRun) -> dict[str, object]:
    return {**row_value(run), "params": msgspec.json.decode(run.params)}


def _print_status(found: RunStatus) -> None:
    run, first = found.run, found.history[0] if found.history else None
    output.fields(
        (name, value)
        for name, value in (
            ("run", run.idempotency_root),
            ("procedure", f"{run.procedure} {found.version or ''}".strip()),
            ("state", f"{run.state}{f': {run.stop_state}' if run.stop_state else ''}"),
            ("begun", f"{output.instant(run.created_at)} by {first.actor if first else run.actor}"),
            ("reason", first.reason if first else run.reason),
            ("moved", f"{output.instant(run.updated_at)} by {run.actor}"),
            ("target", run.lease),
            ("lease", _lease(found)),
            ("grant", _grant(found)),
            ("failure", found.failure),
            ("not undone", found.trouble),
        )
        if value
    )
    output.line("")
    for text, fate in run_lines(found, FINE if output.draws_lines() else PLAIN):
        output.show(output.styled(text, STYLES[fate]))
    for line in _next(found):
        output.line(output.clean(line))


def _lease(found: RunStatus) -> str:
    if found.lease is None:
        return "free"
    return f"{found.lease.holder}, until {output.instant(found.lease.expires_at)}"


def _grant(found: RunStatus) -> str | None:
    grant = found.grant
    if grant is None:
        return None
    return f"{grant.grant_id}, {grant.state}: requested by {grant.requested_by}, approved by {grant.approved_by}"


def _next(found: RunStatus) -> list[str]:
    state, root = found.run.state, found.run.idempotency_root
    # A procedure that is not built in needs --app, and the ledger does not store its module.
    flags = f"{shlex.quote(root)} --reason TEXT" if found.run.procedure in BUILT_IN else "--help"
    again = f"  holdfast procedure resume {flags}"
    if state == ProcedureState.DONE:
        return []
    if found.trouble:
        return ["", "next: make it possible to undo the step, then continue:", again]
    if state == ProcedureState.STOPPED:
        return ["", "next: everything was undone; to run it again:", again]
    cause = "it may be running; if its process has crashed" if found.lease else "it was interrupted"
    lines = ["", f"next: {cause}, continue it:", again]
    other = f"  holdfast procedure undo {flags}"
    return [*lines, "or undo it:", other] if state == ProcedureState.RUNNING else lines


@procedure.subcommand("list")
@command(Location.open)
def list_(
    store: Store[Any],
    *,
    name: Annotated[str | None, word("--procedure", "List only runs of this procedure.")] = None,
    state: Annotated[ProcedureState | None, option("--state", help="List only runs in this state.")] = None,
    limit: Annotated[int, option("--limit", min=1, max=PAGE_MAX, help="Maximum number of runs.")] = 100,
    before: Annotated[
        int | None,
        option(
            "--before", min=1, max=ID_MAX, metavar="ID", help="List only runs with a smaller id, to continue a page."
        ),
    ] = None,
) -> Answer:
    """List runs, newest first."""
    with store.reading() as reading:
        runs = reading.runs.page(procedure=name, state=state, before=before, limit=limit)
        now = reading.now()

    def human() -> None:
        output.table(
            [Column("ID", right=True), Column("ROOT"), Column("PROCEDURE"), Column("STATE"), Column("STOP"),
             Column("MOVED"), Column("FAILURE", folds=True)],
            [
                (run.run_id, run.idempotency_root, run.procedure, output.styled(run.state, STYLES[run.state]),
                 run.stop_state or "", output.age(run.updated_at, now), stop_cause(run.failure) or "")
                for run in runs
            ],
            none="No runs.",
        )  # fmt: skip

    return Answer([_run_value(run) for run in runs], human)


# ---------------------------------------------------------------------------------------------------------------------
# Arguments


def _params(text: str) -> dict[str, Any]:
    """Return the parameters: a JSON object, or the one in a file."""
    raw: str | bytes = text
    if not text.lstrip().startswith("{"):
        raw = read_file(Path(text.removeprefix("@")), PAYLOAD_BYTES_MAX, field="params")
        if len(raw) > PAYLOAD_BYTES_MAX:
            raise PayloadTooLargeError(f"the parameters have more than {PAYLOAD_BYTES_MAX} bytes, the limit")
    given = loads(raw)
    if not isinstance(given, dict):
        raise SpecInvalidError("the parameters must be a JSON object", context={"field": "params"})
    return given


def _name_of(store: Store[Any], root: str) -> str:
    with store.reading() as reading:
        return run_status(reading, root).run.procedure


def _found(name: str, app: str | None) -> Procedure:
    """Return a procedure by its name: of the module that was named, or a built-in one."""
    known = _declared(app) if app else {}
    if app:
        output.ledger_flags().name(APP, app)  # printed commands repeat it: only the caller knows the module
    if name in known:
        return known[name]
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        built_in: Procedure = getattr(import_module(module), attribute)
        return built_in
    where = f"in {app}" if app else "among the built-in ones"
    names = sorted({*known, *BUILT_IN})
    raise InputError(
        f"there is no procedure {name!r} {where}",
        next_step=f"Use one of: {', '.join(names)}; or name its module with --app MODULE.",
        context={"procedure": name, "procedures": names},
    )


def _declared(app: str) -> dict[str, Procedure]:
    """Import a module and return the procedures in it, or the one that was named."""
    named = imported(app)
    listed = [named] if isinstance(named, Procedure) else vars(imported(app.partition(":")[0])).values()
    return {each.name: each for each in listed if isinstance(each, Procedure)}
