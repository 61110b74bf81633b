"""`holdfast replay`: select jobs, see what replaying them would do, replay them, and inspect what was done.

Invariants: `select`, `dry-run` and `inspect` write nothing to the ledger; an application's
command has the same commands under names of its own.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from holdfast.cli.declare import Group
from holdfast.cli.replay.flags import GlobalFlags, SelectionFlags, expanded
from holdfast.cli.replay.formats import AnsweringGroup
from holdfast.cli.replay.inspect import inspect, stop
from holdfast.cli.replay.look import dry_run, select
from holdfast.cli.replay.program import Program
from holdfast.cli.replay.run import from_spec, run
from holdfast.core.errors import HoldfastError

SUMMARY = "Replay failed jobs, under guards."
EPILOG = "Every command takes --json. Guide: docs/replay.md."

COMMANDS: dict[str, Callable[..., None]] = {
    "select": select,
    "dry-run": dry_run,
    "run": run,
    "from-spec": from_spec,
    "inspect": inspect,
}


def command_group(
    commands: dict[str, Callable[..., None]],
    summary: str,
    common: type[GlobalFlags] = GlobalFlags,
    chosen: type[SelectionFlags] = SelectionFlags,
) -> Group:
    """Return a group of these commands that takes the global flags before their names too."""
    group = AnsweringGroup(help=summary, epilog=EPILOG)

    def root(ctx: click.Context, common: GlobalFlags) -> None:
        ctx.obj = common

    group.alone(runs=False)(expanded(root, common=common))
    for name, function in commands.items():
        group.subcommand(name)(expanded(_in_words_of(common.program, function), common=common, chosen=chosen))
    return group


def _in_words_of(program: Program, function: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose errors name the flags of the program."""

    @wraps(function)
    def command(**given: Any) -> None:
        try:
            function(**given)
        except HoldfastError as error:
            error.hint = program.text(error.hint)
            raise

    return command


replay = command_group({**COMMANDS, "stop": stop}, SUMMARY)
