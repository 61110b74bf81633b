"""Where a command of replay works: which ledger, which environment, within which limits, and what it logs.

Invariants: files and flags are checked before a ledger is opened; the environment that was meant, by a flag, a variable
or a file, is the ledger's own, or nothing is done.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import typer

from holdfast.cli import output
from holdfast.cli.documents import invalid
from holdfast.cli.options import ledger_url, opened
from holdfast.cli.replay.flags import Asked, Common, Level
from holdfast.cli.replay.forms import Form, require_writable
from holdfast.cli.replay.overlays import Overlay, load_overlay
from holdfast.core.environments import ENVIRONMENTS
from holdfast.core.errors import HoldfastError, InputError, ReplayGuardError
from holdfast.core.selection import Attempts, Selection
from holdfast.governance.grants import environment_of
from holdfast.governance.replay.replay import GuardType, ReplayPolicy
from holdfast.store import Store

logger = logging.getLogger("holdfast.replay")
LEVELS = {Level.ERROR: logging.ERROR, Level.WARN: logging.WARNING, Level.INFO: logging.INFO, Level.DEBUG: logging.DEBUG}


@dataclass(frozen=True)
class Place:
    """What the global flags come to."""

    common: Common
    form: Form
    env: str | None  # as it was meant; None: whatever the ledger is
    overlay: Overlay | None

    @property
    def interactive(self) -> bool:
        """Tell whether there is somebody who can be asked."""
        return self.form is Form.TABLE and sys.stdin.isatty() and sys.stdout.isatty()

    @contextmanager
    def ledger(self, meant: str | None = None) -> Iterator[tuple[Store[Any], str]]:
        """Open the ledger, and yield it and its environment, if that is the one that was meant."""
        common = self.common
        url = ledger_url(common.url, common.schema, flag=common.url_flag, variable=common.url_variable)
        with _logging(common.log_level), opened(url, common.schema) as store:
            with store.reading() as reading:
                here = environment_of(reading)
            asked = self.env or meant or here
            if asked != here:
                raise ReplayGuardError(
                    f"{asked} was meant, and this is a {here} ledger",
                    code=GuardType.ENV_MISMATCH,
                    next_step="Name the ledger that is meant, or the environment that it is.",
                    context={"guard_type": str(GuardType.ENV_MISMATCH), "env": asked, "ledger": here},
                )
            yield store, here

    def selection(self, asked: Asked, env: str | None = None, *, to_replay: bool = True) -> Selection:
        """Return what was asked for, checked; `env` is the ledger's, once it is known."""
        selection = asked.selection(self.env or env, to_replay=to_replay)
        return _capped(selection, self.overlay.attempts_max) if self.overlay and to_replay else selection

    def policy(self, selection: Selection) -> ReplayPolicy | None:
        """Return the limits that an overlay sets; None if those of the environment stand."""
        if self.overlay is None:
            return None
        if not selection.options.respect_kill_switch:
            return self.overlay.policy
        stopped = sorted(self.overlay.stopped & set(selection.filters.datasets))
        if stopped:
            raise ReplayGuardError(
                f"the overlay keeps the kill switch of {stopped[0]} on",
                code=GuardType.KILL_SWITCH_ACTIVE,
                next_step="Leave that dataset out, or change safety_flags.kill_switch_defaults of the overlay.",
                context={"guard_type": str(GuardType.KILL_SWITCH_ACTIVE), "dataset": stopped[0]},
            )
        # What a broader selection finds of them is passed over, and counted.
        never = (*self.overlay.policy.never_datasets, *sorted(self.overlay.stopped))
        return msgspec.structs.replace(self.overlay.policy, never_datasets=never)


def _capped(selection: Selection, most: int | None) -> Selection:
    """Return a selection of no job that was tried more often than an overlay allows, or raise."""
    if most is None:
        return selection
    attempts = selection.filters.attempts or Attempts()
    if max(attempts.min or 0, attempts.max or 0) > most:
        raise ReplayGuardError(
            f"the overlay lets no job be replayed after more than {most} attempts",
            code=GuardType.ATTEMPTS_EXCEEDED,
            next_step=f"Give --attempts-max {most}, or less.",
            context={"guard_type": str(GuardType.ATTEMPTS_EXCEEDED)},
        )
    if attempts.max is None:
        attempts = msgspec.structs.replace(attempts, max=most)
    filters = msgspec.structs.replace(selection.filters, attempts=attempts)
    return msgspec.structs.replace(selection, filters=filters)


def placed(ctx: typer.Context, common: Common) -> Place:
    """Return what the global flags of a command come to, or raise."""
    common = common.within(ctx.obj)
    if common.url and not common.db and common.url_variable != Common.url_variable:
        output.place().name_by(common.url_variable)
    form = common.form
    require_writable(form)
    overlay = load_overlay(common.config) if common.config else None
    env = common.environment
    if env is None and common.env_variable:
        raise InputError(
            "no environment was named", next_step=f"Give --env dev, stage or prod, or set {common.env_variable}."
        )
    if env is not None and env not in ENVIRONMENTS:
        raise InputError(f"the environment is one of {', '.join(ENVIRONMENTS)}, not {env}", context={"flag": "--env"})
    if overlay and env and overlay.env != env:
        raise invalid("metadata.env", f"the overlay is for {overlay.env}, and {env} was asked for")
    common.require_endpoints(env)
    return Place(common, form, env or (overlay.env if overlay else None), overlay)


@contextmanager
def snapshot(selection: Selection) -> Iterator[None]:
    """Let an error say which selection it was about."""
    try:
        yield
    except HoldfastError as error:
        error.context = {"env": selection.env, "selection_hash": selection.hash, **error.context}
        raise


@contextmanager
def _logging(level: Level | None) -> Iterator[None]:
    """Write what Holdfast logs to standard error, while a command runs."""
    root = logging.getLogger("holdfast")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    before = root.level
    root.addHandler(handler)
    root.setLevel(LEVELS[level or Level.WARN])
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
