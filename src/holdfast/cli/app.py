"""The table of commands, and the one place that turns errors into messages and exit codes.

Invariants: the module of a command is imported only when that command runs; with `--json` standard output holds exactly
one JSON value, the answer or the error; a traceback is printed only if HOLDFAST_DEBUG is set. Exit codes: 0 ok, 1 error
or violation, 2 bad arguments or spec, 3 refused by a guard, 4 database unreachable or unfit, 130 interrupted.
"""

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, NamedTuple

import click

from holdfast.cli import output
from holdfast.cli.declare import Group, built, option
from holdfast.core.errors import HoldfastError, InputError

INTERRUPTED = 130


class Command(NamedTuple):
    """One line of the help, and the `module:name` of the function or group of commands, below holdfast.cli."""

    panel: str
    target: str
    summary: str


COMMANDS = {
    "init": Command("The ledger", "commands.init:init", "Create a ledger, or report the one that exists."),
    "migrate": Command("The ledger", "commands.migrate:migrate", "Upgrade a ledger to this version of Holdfast."),
    "machines": Command("The ledger", "commands.machines:machines", "Draw the state machines."),
    "submit": Command("Work", "commands.submit:submit", "Submit a job."),
    "jobs": Command("Work", "commands.jobs:jobs", "List jobs, newest first."),
    "show": Command("Work", "commands.job:show", "Show one job with its payload, attempts and history."),
    "explain": Command(
        "Work", "commands.explain:explain", "Explain why a job is not running, and print the next command."
    ),
    "worker": Command("Work", "commands.worker:worker", "Run a worker until it is stopped."),
    "simulate": Command(
        "Work", "commands.simulate:simulate", "Run the handlers of an application under random faults."
    ),
    "cancel": Command("Operate", "commands.job:cancel", "Cancel a job; a running job receives a request to stop."),
    "revoke": Command("Operate", "commands.job:revoke", "End an attempt that hangs, although its lease is valid."),
    "retry": Command("Operate", "commands.job:retry", "Retry a failed job if it has attempts left."),
    "pause": Command("Operate", "commands.queue:pause", "Pause a queue; jobs that are running continue."),
    "resume": Command("Operate", "commands.queue:resume", "Resume a paused queue."),
    "limit": Command("Operate", "commands.queue:limit", "Limit how many jobs may wait in a queue."),
    "erase": Command("Govern", "commands.erase:erase", "Erase the personal data of a job, under a grant."),
    "queues": Command("Operate", "commands.queues:queues", "List the queues, and limit them."),
    "workers": Command(
        "Operate", "commands.queues:workers", "List the workers that run, with their queues and operations."
    ),
    "metrics": Command("Operate", "commands.metrics:metrics", "Print the state of a ledger for Prometheus."),
    "batches": Command("Work", "commands.batches:batches", "See how far batches of jobs are."),
    "status": Command(
        "Operate", "commands.status:status", "Show queues, workers, throughput and the ledger in one report."
    ),
    "health": Command("Operate", "commands.status:health", "Check whether a ledger is healthy."),
    "top": Command("Operate", "commands.status:top", "Watch queues, workers and throughput live."),
    "doctor": Command("Operate", "commands.doctor:doctor", "Look for problems of this machine and of the database."),
    "config": Command("The ledger", "commands.config:config", "Show the settings of this process."),
    "limits": Command(
        "Operate", "commands.limits:limits", "Limit how many jobs run at once, and how many start in a time."
    ),
    "schedules": Command("Work", "commands.schedules:schedules", "Submit work at certain times."),
    "console": Command("Operate", "commands.console:console", "Serve the console and the HTTP API; manage accounts."),
    "stalled": Command("Operate", "commands.stalled:stalled", "List running jobs whose lease has expired."),
    "recover": Command("Operate", "commands.stalled:recover", "Recover jobs whose lease has expired."),
    "gc": Command("Operate", "commands.gc:gc", "Delete and archive data that is past its retention age."),
    "snapshot": Command(
        "Operate", "commands.snapshot:snapshot", "Create, restore, compare and verify snapshots of a ledger."
    ),
    "audit": Command("Operate", "commands.audit:audit", "Verify, sign and export the sealed history."),
    "check": Command("Operate", "commands.check:check", "Check the invariants of a ledger and report violations."),
    "prove": Command(
        "Operate", "commands.prove:prove", "Check the journal of a ledger, or of files, against the model."
    ),
    "repair": Command("Operate", "commands.repair:repair", "Plan the repair of a broken ledger, and apply the plan."),
    "environment": Command("Govern", "commands.init:environment", "Raise the environment of a ledger."),
    "grant": Command("Govern", "commands.grant:grant", "Request, approve, revoke and list grants."),
    "procedure": Command(
        "Govern", "commands.procedure:procedure", "Run a procedure: all of its steps are done, or all are undone."
    ),
    "registry": Command("Govern", "commands.registry:registry", "Manage which operations a governed ledger accepts."),
    "replay": Command("Govern", "replay.commands:replay", "Replay failed jobs, under guards."),
    "quarantine": Command("Govern", "commands.quarantine:quarantine", "List, add, release and purge quarantined jobs."),
    "switch": Command(
        "Govern", "commands.switch:switch", "Stop an operation, or replays, for all workers; allow it again."
    ),
    "nodd": Command("Applications", "nodd.commands:nodd", "Ingest and catalogue NOAA's open data."),
    "stats": Command("Work", "commands.jobs:stats", "Count jobs by state and operation."),
}


class Program(Group):
    """The program: a command is imported when it is named, and its line of the help needs no import."""

    def names(self) -> list[str]:
        return list(COMMANDS)

    def find(self, name: str) -> click.Command | None:
        """Return a command, imported and built; None if there is none of that name."""
        if name not in self.commands and name in COMMANDS:
            module, _, attribute = COMMANDS[name].target.partition(":")
            found = getattr(import_module(f"holdfast.cli.{module}"), attribute)
            self.commands[name] = found if isinstance(found, Group) else built(found, name)
        return self.commands.get(name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, command in COMMANDS.items():
            panels.setdefault(command.panel, []).append((name, command.summary))
        for panel, lines in panels.items():
            with formatter.section(panel):
                formatter.write_dl(lines)


app = Program(
    help="Holdfast: a durable work ledger.",
    epilog="Every command takes --json. Guide: docs/cli.md.",
)


def _print_version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - a callback
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 - slow, and only for this

        output.line(version("holdfast"))
        ctx.exit()


@app.alone(runs=False)
def _root(
    *,
    _version: Annotated[
        bool,
        option(
            "--version", callback=_print_version, is_eager=True, expose_value=False, help="Print the version and exit."
        ),
    ] = False,
) -> None: ...


def run(arguments: Sequence[str], program: click.Group = app, name: str = "holdfast") -> int:
    """Run one command line of a program and return its exit code."""
    output.make_printable()
    output.forget_ledger()
    as_json = "--json" in arguments[: arguments.index("--") if "--" in arguments else None]
    try:
        code = _ended(program, name, list(arguments) or ["--help"])
        output.end()
        sys.stdout.flush()  # now, while an error can still be reported; at exit Python only prints a warning
        return code
    except BrokenPipeError:
        # The reader of the output has closed it, so nothing more can be printed.
        output.give_up()
        return 1
    except (KeyboardInterrupt, click.Abort):
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
    """Run the command line of this process, or answer a shell that completes one."""
    if "_HOLDFAST_COMPLETE" in os.environ:
        app.main(prog_name="holdfast")
    sys.exit(run(sys.argv[1:]))


def _ended(program: click.Group, name: str, arguments: list[str]) -> int:
    """Run a command and return its exit code. Unlike `main` of click, it prints nothing when it is interrupted."""
    try:
        with program.make_context(name, arguments) as context:
            program.invoke(context)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    return 0


def _understood(error: Exception) -> HoldfastError | None:
    """Return a usage error of the command line as an InputError; None for any other error."""
    if not isinstance(error, click.UsageError):
        return None
    path = error.ctx.command_path if error.ctx else "holdfast"
    return InputError(error.format_message(), next_step=f"See `{path} --help`.")


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
