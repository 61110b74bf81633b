"""The table of commands, and the one place that turns errors into messages and exit codes.

Invariants: the module of a command is imported only when that command runs; with `--json` standard output holds exactly
one JSON value, the answer or the error; a traceback is printed only if HOLDFAST_DEBUG is set. Exit codes: 0 ok, 1 error
or violation, 2 bad arguments or spec, 3 refused by a guard, 4 database unreachable or unfit, 130 interrupted.
"""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from enum import EnumType
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand
from typer.main import get_command

from holdfast.cli import output
from holdfast.core.errors import HoldfastError, InputError

INTERRUPTED = 130
# Typer has its own copy of click's classes, in a module that differs between versions of Typer.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


class Command(NamedTuple):
    """One line of the help, and the `module:name` of the function or group of commands."""

    panel: str
    target: str
    summary: str


COMMANDS = {
    "init": Command("The ledger", "holdfast.cli.commands.init:init", "Create a ledger, or report the one that exists."),
    "migrate": Command(
        "The ledger", "holdfast.cli.commands.migrate:migrate", "Upgrade a ledger to this version of Holdfast."
    ),
    "machines": Command("The ledger", "holdfast.cli.commands.machines:machines", "Draw the state machines."),
    "submit": Command("Work", "holdfast.cli.commands.submit:submit", "Submit a job."),
    "jobs": Command("Work", "holdfast.cli.commands.jobs:jobs", "List jobs, newest first."),
    "show": Command("Work", "holdfast.cli.commands.job:show", "Show one job with its payload, attempts and history."),
    "explain": Command(
        "Work", "holdfast.cli.commands.explain:explain", "Explain why a job is not running, and print the next command."
    ),
    "worker": Command("Work", "holdfast.cli.commands.worker:worker", "Run a worker until it is stopped."),
    "simulate": Command(
        "Work", "holdfast.cli.commands.simulate:simulate", "Run the handlers of an application under random faults."
    ),
    "cancel": Command(
        "Operate", "holdfast.cli.commands.job:cancel", "Cancel a job; a running job receives a request to stop."
    ),
    "revoke": Command(
        "Operate", "holdfast.cli.commands.job:revoke", "End an attempt that hangs, although its lease is valid."
    ),
    "retry": Command("Operate", "holdfast.cli.commands.job:retry", "Retry a failed job if it has attempts left."),
    "pause": Command("Operate", "holdfast.cli.commands.queue:pause", "Pause a queue; jobs that are running continue."),
    "resume": Command("Operate", "holdfast.cli.commands.queue:resume", "Resume a paused queue."),
    "limit": Command("Operate", "holdfast.cli.commands.queue:limit", "Limit how many jobs may wait in a queue."),
    "erase": Command("Govern", "holdfast.cli.commands.erase:erase", "Erase the personal data of a job, under a grant."),
    "queues": Command(
        "Operate",
        "holdfast.cli.commands.queues:queues",
        "List the queues, and limit them.",
    ),
    "workers": Command(
        "Operate",
        "holdfast.cli.commands.queues:workers",
        "List the workers that run, with their queues and operations.",
    ),
    "metrics": Command(
        "Operate", "holdfast.cli.commands.metrics:metrics", "Print the state of a ledger for Prometheus."
    ),
    "batches": Command("Work", "holdfast.cli.commands.batches:batches", "See how far batches of jobs are."),
    "status": Command(
        "Operate",
        "holdfast.cli.commands.status:status",
        "Show queues, workers, throughput and the ledger in one report.",
    ),
    "health": Command("Operate", "holdfast.cli.commands.status:health", "Check whether a ledger is healthy."),
    "top": Command("Operate", "holdfast.cli.commands.status:top", "Watch queues, workers and throughput live."),
    "doctor": Command(
        "Operate", "holdfast.cli.commands.doctor:doctor", "Look for problems of this machine and of the database."
    ),
    "config": Command("The ledger", "holdfast.cli.commands.config:config", "Show the settings of this process."),
    "limits": Command(
        "Operate",
        "holdfast.cli.commands.limits:limits",
        "Limit how many jobs run at once, and how many start in a time.",
    ),
    "schedules": Command("Work", "holdfast.cli.commands.schedules:schedules", "Submit work at certain times."),
    "console": Command(
        "Operate",
        "holdfast.cli.commands.console:console",
        "Serve the console and the HTTP API; manage accounts.",
    ),
    "stalled": Command(
        "Operate", "holdfast.cli.commands.stalled:stalled", "List running jobs whose lease has expired."
    ),
    "recover": Command("Operate", "holdfast.cli.commands.stalled:recover", "Recover jobs whose lease has expired."),
    "gc": Command("Operate", "holdfast.cli.commands.gc:gc", "Delete and archive data that is past its retention age."),
    "snapshot": Command(
        "Operate",
        "holdfast.cli.commands.snapshot:snapshot",
        "Create, restore, compare and verify snapshots of a ledger.",
    ),
    "audit": Command("Operate", "holdfast.cli.commands.audit:audit", "Verify, sign and export the sealed history."),
    "check": Command(
        "Operate", "holdfast.cli.commands.check:check", "Check the invariants of a ledger and report violations."
    ),
    "prove": Command(
        "Operate", "holdfast.cli.commands.prove:prove", "Check a recorded journal against the model, move by move."
    ),
    "repair": Command(
        "Operate", "holdfast.cli.commands.repair:repair", "Plan the repair of a broken ledger, and apply the plan."
    ),
    "environment": Command(
        "Govern", "holdfast.cli.commands.environment:environment", "Raise the environment of a ledger."
    ),
    "grant": Command("Govern", "holdfast.cli.commands.grant:grant", "Request, approve, revoke and list grants."),
    "procedure": Command(
        "Govern", "holdfast.cli.commands.procedure:procedure", "Run several steps that end done, or undone."
    ),
    "registry": Command(
        "Govern", "holdfast.cli.commands.registry:registry", "Manage which operations a governed ledger accepts."
    ),
    "replay": Command("Govern", "holdfast.cli.replay.commands:replay", "Replay failed jobs, under guards."),
    "quarantine": Command(
        "Govern", "holdfast.cli.commands.quarantine:quarantine", "List, add, release and purge quarantined jobs."
    ),
    "switch": Command(
        "Govern",
        "holdfast.cli.commands.switch:switch",
        "Stop an operation, or replays, for all workers; allow it again.",
    ),
    "nodd": Command("Applications", "holdfast.cli.nodd.commands:nodd", "Ingest and catalogue NOAA's open data."),
    "stats": Command("Work", "holdfast.cli.commands.jobs:stats", "Count jobs by state and operation."),
}


class Lazy(TyperCommand):
    """A command of which only the help line is known until it runs."""

    def __init__(self, name: str, command: Command) -> None:
        super().__init__(name=name, help=command.summary, rich_help_panel=command.panel)
        self._target = command.target

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        return self.load().make_context(info_name, args, parent=parent, **extra)

    def load(self) -> Any:
        """Import the command and build it."""
        return _built(self._target, self.name)


@cache
def _built(target: str, name: str | None) -> Any:
    """Return the command at `module:attribute`. Kept, because building it takes as long as running it."""
    module, _, attribute = target.partition(":")
    found = getattr(import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        function, found = found, typer.Typer(add_completion=False)
        found.command(name)(function)
    from holdfast.cli.examples import add_examples  # noqa: PLC0415 - with the first command that is built

    made = get_command(found)
    add_examples(made, name or "")
    return quick(made)


class _Trivial:
    """Passes values on that need no conversion, and leaves the others to Typer.

    Typer builds a pydantic adapter for each option, used or not; that takes longer than the rest of the command.
    """

    def __init__(self) -> None:
        self._adapter: Any = None

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        kind = param.type_descriptor.annotation
        if param.nargs == 1 and param.multiple and (value is None or kind == list[str]):
            return tuple(value or ())
        if param.nargs == 1 and not param.multiple and (value is None or isinstance(value, kind)):
            return value
        if isinstance(kind, EnumType) and value in kind._value2member_map_:
            return kind(value)
        if self._adapter is None:
            param._runtime_param = None  # noqa: SLF001 - the attribute where Typer caches its adapter
            self._adapter = param.get_runtime_param()
            param._runtime_param = self  # noqa: SLF001 - see above
        return self._adapter.coerce(value, param=param, ctx=ctx)


def quick(command: Any) -> Any:
    """Return a command, or a group with all its commands, that converts only the values that need it."""
    params_of = command.get_params

    def get_params(ctx: Any) -> Any:
        params = params_of(ctx)
        for param in params:
            if getattr(param, "_runtime_param", param) is None:  # other versions of Typer convert without it
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


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - Typer's own convention for a callback
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 - slow, and only for this

        output.line(version("holdfast"))
        raise typer.Exit


@app.callback()
def _root(
    *,
    _version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None: ...


def run(arguments: Sequence[str], program: Callable[[list[str]], Any] | None = None) -> int:
    """Run one command line and return its exit code; `program` is another program than `holdfast`."""
    output.make_printable()
    output.forget_ledger()
    as_json = "--json" in arguments[: arguments.index("--") if "--" in arguments else None]
    try:
        code = (program or _holdfast)(list(arguments) or ["--help"])
        output.end()
        return _code(code)
    except BrokenPipeError:
        # The reader of the output has closed it, so nothing more can be printed.
        output.give_up()
        return 1
    except (KeyboardInterrupt, typer.Abort):
        output.error({"error_code": "interrupted", "error_message": "Interrupted.", "context": {}}, as_json=as_json)
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last resort: the user must not see a traceback
        value, code = explained(error)
        output.error(value, as_json=as_json)
        return code


def explained(error: Exception) -> tuple[dict[str, object], int]:
    """Return the JSON value of an error that is being handled, and its exit code."""
    if os.environ.get("HOLDFAST_DEBUG"):
        traceback.print_exc()
    known = error if isinstance(error, HoldfastError) else _understood(error)
    return (known.as_dict(), known.exit_code) if known else (_internal(error), 1)


def main() -> None:
    """Run the command line of this process."""
    sys.exit(run(sys.argv[1:]))


def _holdfast(arguments: list[str]) -> Any:
    return _program().main(arguments, prog_name="holdfast", standalone_mode=False)


@cache
def _program() -> Any:
    group = quick(get_command(app))
    for name, command in COMMANDS.items():
        group.add_command(Lazy(name, command))
    return group


def _code(code: object) -> int:
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    # Flush now, while an error can still be reported; at exit Python only prints a warning.
    sys.stdout.flush()
    return code if isinstance(code, int) else 0


def _understood(error: Exception) -> HoldfastError | None:
    """Return a usage error of the command line as an InputError; None for any other error."""
    if not isinstance(error, _UsageError):
        return None
    context: Any = getattr(error, "ctx", None)
    path = context.command_path if context else "holdfast"
    usage: Any = error
    return InputError(usage.format_message(), next_step=f"See `{path} --help`.")


def _internal(error: Exception) -> dict[str, object]:
    # The text may quote a payload or a password, so only the type of the error is reported.
    kind = type(error)
    return {
        "error_code": "internal",
        "error_message": f"Unexpected {kind.__name__}: a bug in Holdfast or in its environment.",
        "context": {
            "exception": f"{kind.__module__}.{kind.__qualname__}",
            "next_step": "Set HOLDFAST_DEBUG=1 to see the traceback, and report the bug.",
        },
    }
