"""Checks the global flags of a replay command, and opens the ledger that they name.

Invariants: files and flags are checked before a ledger is opened; if the environment that a flag, a variable or a file
names is not that of the ledger, the command does nothing.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click
import msgspec

from holdfast.cli import output
from holdfast.cli.documents import invalid
from holdfast.cli.logs import log_handler
from holdfast.cli.options import ledger_url, opened
from holdfast.cli.replay.flags import GlobalFlags, LogLevel
from holdfast.cli.replay.formats import OutputFormat, require_writable
from holdfast.cli.replay.overlays import Overlay, load_overlay
from holdfast.cli.replay.program import Program
from holdfast.cli.replay.request import SelectionRequest
from holdfast.core.environments import ENVIRONMENTS
from holdfast.core.errors import HoldfastError, InputError, ReplayGuardError
from holdfast.core.selection import Attempts, Selection
from holdfast.governance.approval import environment_of
from holdfast.governance.replay.guards import GuardType, ReplayPolicy
from holdfast.store import Store

logger = logging.getLogger("holdfast.replay")
LEVELS = {
    LogLevel.ERROR: logging.ERROR,
    LogLevel.WARN: logging.WARNING,
    LogLevel.INFO: logging.INFO,
    LogLevel.DEBUG: logging.DEBUG,
}


@dataclass(frozen=True)
class ReplayContext:
    """The checked global flags of a command."""

    flags: GlobalFlags
    format: OutputFormat
    env: str | None  # None: that of the ledger
    overlay: Overlay | None

    @property
    def program(self) -> Program:
        return self.flags.program

    @property
    def interactive(self) -> bool:
        """Return whether the command can ask a question."""
        return self.format is OutputFormat.TABLE and sys.stdin.isatty() and sys.stdout.isatty()

    @contextmanager
    def ledger(self, file_env: str | None = None) -> Iterator[tuple[Store[Any], str]]:
        """Open the ledger and yield it with its environment; raise ReplayGuardError if another one was named."""
        flags, program = self.flags, self.program
        url = ledger_url(flags.url, flags.schema, flag=program.url_flag, variable=program.url_variable)
        with _logging(flags.log_level), opened(url, flags.schema) as store:
            with store.reading() as reading:
                here = environment_of(reading)
            named = self.env or file_env or here
            if named != here:
                raise ReplayGuardError(
                    f"the environment is {named}, but this ledger is for {here}",
                    code=GuardType.ENV_MISMATCH,
                    next_step=f"Name the {named} ledger with {program.url_flag}, or give --env {here}.",
                    context={"guard_type": str(GuardType.ENV_MISMATCH), "env": named, "ledger": here},
                )
            yield store, here

    def selection(self, request: SelectionRequest, env: str | None = None, *, to_replay: bool = True) -> Selection:
        """Return the checked selection of a request; `env` is that of the ledger, once it is known."""
        selection = request.selection(self.env or env, to_replay=to_replay)
        return _capped(selection, self.overlay.attempts_max) if self.overlay and to_replay else selection

    def policy(self, selection: Selection) -> ReplayPolicy | None:
        """Return the limits that the overlay sets, or None for those of the environment."""
        if self.overlay is None:
            return None
        if not selection.options.respect_kill_switch:
            return self.overlay.policy
        stopped = sorted(self.overlay.stopped & set(selection.filters.queues))
        if stopped:
            raise ReplayGuardError(
                f"the overlay switches replays of {self.program.queue} {stopped[0]} off",
                code=GuardType.KILL_SWITCH_ACTIVE,
                next_step=f"Leave {stopped[0]} out, or change safety_flags.kill_switch_defaults in the overlay.",
                context={"guard_type": str(GuardType.KILL_SWITCH_ACTIVE), self.program.queue: stopped[0]},
            )
        # Jobs of these queues that a broader selection matches are skipped and counted.
        never = (*self.overlay.policy.never_queues, *sorted(self.overlay.stopped))
        return msgspec.structs.replace(self.overlay.policy, never_queues=never)


def _capped(selection: Selection, most: int | None) -> Selection:
    """Return the selection without jobs that have more attempts than the overlay allows, or raise."""
    if most is None:
        return selection
    attempts = selection.filters.attempts or Attempts()
    if max(attempts.min or 0, attempts.max or 0) > most:
        raise ReplayGuardError(
            f"the overlay allows replays of jobs with at most {most} attempts",
            code=GuardType.ATTEMPTS_EXCEEDED,
            next_step=f"Give --attempts-max {most}, or less.",
            context={"guard_type": str(GuardType.ATTEMPTS_EXCEEDED)},
        )
    if attempts.max is None:
        attempts = msgspec.structs.replace(attempts, max=most)
    filters = msgspec.structs.replace(selection.filters, attempts=attempts)
    return msgspec.structs.replace(selection, filters=filters)


def replay_context(ctx: click.Context, flags: GlobalFlags) -> ReplayContext:
    """Return the checked global flags of a command, or raise."""
    flags = flags.within(ctx.obj)
    program = flags.program
    if flags.url and not flags.db and program.url_variable != Program.url_variable:
        output.ledger_flags().name_by(program.url_variable)
    fmt = flags.format
    require_writable(fmt)
    overlay = load_overlay(flags.config, program.overlay) if flags.config else None
    env = flags.environment
    if env is None and program.env_variable:
        raise InputError(
            "--env is required", next_step=f"Give --env dev, stage or prod, or set {program.env_variable}."
        )
    if env is not None and env not in ENVIRONMENTS:
        known = ", ".join(ENVIRONMENTS)
        raise InputError(f"{env!r} is not an environment; use one of {known}", context={"flag": "--env"})
    if overlay and env and overlay.env != env:
        raise invalid("metadata.env", f"the overlay is for {overlay.env}, but --env is {env}")
    flags.require_endpoints(env)
    return ReplayContext(flags, fmt, env or (overlay.env if overlay else None), overlay)


@contextmanager
def selection_named(selection: Selection) -> Iterator[None]:
    """Add the environment and the hash of the selection to an error."""
    try:
        yield
    except HoldfastError as error:
        error.context = {"env": selection.env, "selection_hash": selection.hash, **error.context}
        raise


@contextmanager
def _logging(level: LogLevel | None) -> Iterator[None]:
    """Write Holdfast's log to standard error while a command runs."""
    root = logging.getLogger("holdfast")
    handler = log_handler()
    before = root.level
    root.addHandler(handler)
    root.setLevel(LEVELS[level or LogLevel.WARN])
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
