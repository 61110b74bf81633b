"""The commands, and the one place where their errors become words and exit codes.

Invariants: a command's module is imported only when that command runs; with `--json` standard output holds exactly one
JSON value, the answer or the error; no traceback is printed unless HOLDFAST_DEBUG is set. Exit codes: 0 ok, 1 error or
violation, 2 bad arguments or spec, 3 a guard refused, 4 the database is out of reach, 130 interrupted.
"""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand
from typer.main import get_command

from holdfast.cli import output
from holdfast.core.errors import HoldfastError, InputError

INTERRUPTED = 130
# Typer brings its own copy of these classes, in a place that moves between its versions.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


class Command(NamedTuple):
    """A line of the help, and where its function (or its Typer, for a group of commands) lives."""

    panel: str
    target: str
    summary: str


COMMANDS = {
    "init": Command("The ledger", "holdfast.cli.commands.init:init", "Make a ledger, or say that there is one."),
    "migrate": Command(
        "The ledger", "holdfast.cli.commands.migrate:migrate", "Bring a ledger to this version of Holdfast."
    ),
    "machines": Command("The ledger", "holdfast.cli.commands.machines:machines", "Draw the state machines."),
    "submit": Command("Work", "holdfast.cli.commands.submit:submit", "Record a unit of work."),
    "jobs": Command("Work", "holdfast.cli.commands.jobs:jobs", "List jobs, newest first."),
    "show": Command("Work", "holdfast.cli.commands.job:show", "Show one job: its attempts and its history."),
    "explain": Command(
        "Work", "holdfast.cli.commands.explain:explain", "Say why a job is not running, and what to type next."
    ),
    "worker": Command("Work", "holdfast.cli.commands.worker:worker", "Run the operations of a ledger until stopped."),
    "cancel": Command("Operate", "holdfast.cli.commands.job:cancel", "Cancel a job; a running one is asked to stop."),
    "retry": Command("Operate", "holdfast.cli.commands.job:retry", "Put a failed job back, within its whole budget."),
    "pause": Command(
        "Operate", "holdfast.cli.commands.queue:pause", "Stop giving out work of a queue; what is running goes on."
    ),
    "resume": Command("Operate", "holdfast.cli.commands.queue:resume", "Give out work of a queue again."),
    "stalled": Command(
        "Operate", "holdfast.cli.commands.stalled:stalled", "List the attempts whose lease has run out."
    ),
    "recover": Command("Operate", "holdfast.cli.commands.stalled:recover", "End what expired leases left behind."),
    "gc": Command("Operate", "holdfast.cli.commands.gc:gc", "Drop and archive what is past its age."),
    "snapshot": Command(
        "Operate", "holdfast.cli.commands.snapshot:snapshot", "Keep a ledger in a file; restore or compare it."
    ),
    "audit": Command(
        "Operate", "holdfast.cli.commands.audit:audit", "Prove that history is what it was: verify, head, export."
    ),
    "check": Command(
        "Operate", "holdfast.cli.commands.check:check", "Ask the ledger every invariant, and say what is broken."
    ),
    "repair": Command(
        "Operate", "holdfast.cli.commands.repair:repair", "Show what would put a broken ledger right, and do it."
    ),
    "grant": Command("Govern", "holdfast.cli.commands.grant:grant", "Ask for permission, give it, take it back."),
    "procedure": Command(
        "Govern", "holdfast.cli.commands.procedure:procedure", "Run several steps that end done, or undone."
    ),
    "registry": Command("Govern", "holdfast.cli.commands.registry:registry", "Govern which operations may be used."),
    "replay": Command("Govern", "holdfast.cli.replay.commands:replay", "Replay failed jobs, under guards."),
    "quarantine": Command(
        "Govern", "holdfast.cli.commands.quarantine:quarantine", "Look at what was taken out; release it."
    ),
    "switch": Command(
        "Govern", "holdfast.cli.commands.switch:switch", "Stop something for the fleet; lift it by a grant."
    ),
    "nodd": Command("Applications", "holdfast.cli.nodd.commands:nodd", "NOAA's open data, catalogued exactly once."),
    "stats": Command("Work", "holdfast.cli.commands.jobs:stats", "Count jobs by state and operation."),
}


class Lazy(TyperCommand):
    """A command that is known by its line of help until it is run."""

    def __init__(self, name: str, command: Command) -> None:
        super().__init__(name=name, help=command.summary, rich_help_panel=command.panel)
        self._target = command.target

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        return self.load().make_context(info_name, args, parent=parent, **extra)

    def load(self) -> Any:
        """Import the command and build it."""
        module, _, attribute = self._target.partition(":")
        target = getattr(import_module(module), attribute)
        if not isinstance(target, typer.Typer):
            function, target = target, typer.Typer(add_completion=False)
            target.command(self.name)(function)
        return quick(get_command(target))


class _Trivial:
    """Takes values that need no conversion as they are, and leaves the others to Typer.

    Typer makes a pydantic adapter for each option, given or not; that takes longer than everything else of a command.
    """

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        kind = param.type_descriptor.annotation
        if param.nargs == 1 and not param.multiple and (value is None or isinstance(value, kind)):
            return value
        param._runtime_param = None  # noqa: SLF001 - Typer's own place for what it makes
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def quick(command: Any) -> Any:
    """Return a command, or a group with all its commands, that converts only what needs it."""
    params_of = command.get_params

    def get_params(ctx: Any) -> Any:
        params = params_of(ctx)
        for param in params:
            if getattr(param, "_runtime_param", param) is None:  # a Typer without it converts in its own way
                param._runtime_param = _Trivial()  # noqa: SLF001 - see above
        return params

    command.get_params = get_params
    for inner in getattr(command, "commands", {}).values():
        quick(inner)
    return command


app = typer.Typer(
    help="Holdfast: a durable work ledger.",
    epilog="Every command takes --json. Guide: docs/cli.md.",
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:  # noqa: FBT001 - Typer's own convention for a callback
    if asked:
        from importlib.metadata import version  # noqa: PLC0415 - slow, and only for this

        output.line(version("holdfast"))
        raise typer.Exit


@app.callback()
def _root(
    *,
    _version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None: ...


def run(arguments: Sequence[str], answered: Callable[[list[str]], Any] | None = None) -> int:
    """Run one command line, of `holdfast` or of another command with the same ways, and return its exit code."""
    output.make_printable()
    output.forget_place()
    as_json = "--json" in arguments[: arguments.index("--") if "--" in arguments else None]
    try:
        code = (answered or _answered)(list(arguments) or ["--help"])
        output.end()
        return _code(code)
    except BrokenPipeError:
        # Whoever read the output has gone: there is nobody left to tell.
        output.give_up()
        return 1
    except (KeyboardInterrupt, typer.Abort):
        output.error({"error_code": "interrupted", "error_message": "interrupted", "context": {}}, as_json=as_json)
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last resort: nothing may reach the user as a traceback
        told, code = explained(error)
        output.error(told, as_json=as_json)
        return code


def explained(error: Exception) -> tuple[dict[str, object], int]:
    """Return what is told of an error that is being handled, and the exit code that goes with it."""
    if os.environ.get("HOLDFAST_DEBUG"):
        traceback.print_exc()
    known = error if isinstance(error, HoldfastError) else _understood(error)
    return (known.as_dict(), known.exit_code) if known else (_internal(error), 1)


def main() -> None:
    """Run the command line of this process."""
    sys.exit(run(sys.argv[1:]))


def _answered(arguments: list[str]) -> Any:
    group = quick(get_command(app))
    for name, command in COMMANDS.items():
        group.add_command(Lazy(name, command))
    return group.main(arguments, prog_name="holdfast", standalone_mode=False)


def _code(code: object) -> int:
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    # Now, while an error can still be told: at exit Python would only mumble.
    sys.stdout.flush()
    return code if isinstance(code, int) else 0


def _understood(error: Exception) -> HoldfastError | None:
    """Return the typed form of an error of the command line, if it is one."""
    if not isinstance(error, _UsageError):
        return None
    context: Any = getattr(error, "ctx", None)
    path = context.command_path if context else "holdfast"
    words: Any = error
    return InputError(words.format_message(), next_step=f"See `{path} --help`.")


def _internal(error: Exception) -> dict[str, object]:
    # Its text may quote anything, a payload or a password too: only the kind of the error is told.
    kind = type(error)
    return {
        "error_code": "internal",
        "error_message": f"an unexpected {kind.__name__}: a defect of Holdfast or of its surroundings",
        "context": {
            "exception": f"{kind.__module__}.{kind.__qualname__}",
            "next_step": "Set HOLDFAST_DEBUG=1 to see where it happened, and report it.",
        },
    }
