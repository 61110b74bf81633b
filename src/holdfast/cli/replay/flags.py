"""The flags of replay, each declared once, in groups that commands take as one parameter.

Invariants: a global flag may be given before or after the name of the command, but not with two values; a flag
wins over a variable of the environment.
"""

import inspect
import os
import re
import shlex
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from holdfast.cli.declare import option
from holdfast.cli.options import OPERATOR_HELP, REASON_HELP, Schema, db_named
from holdfast.cli.replay.formats import OutputFormat
from holdfast.cli.replay.program import Program
from holdfast.core.errors import InputError
from holdfast.core.records import time_text
from holdfast.core.selection import COUNT_MAX, ReplayMode, ReplayReason
from holdfast.engine.events import Bus
from holdfast.explain.times import past_moment
from holdfast.store import Store
from holdfast.store.configuration import configuration, variable_of

_AGE = re.compile(r"\bago\s*$|^\s*-", re.IGNORECASE)  # '2h ago' or -2h

GLOBAL = "For every command"
SELECTING = "Which jobs"
ACTING = "Who and why"
HOW = "How"


class LogLevel(StrEnum):
    """What is logged to standard error."""

    ERROR = "error"
    WARN = "warn"
    INFO = "info"
    DEBUG = "debug"


def flag(name: str, help_text: str, *, metavar: str = "TEXT", panel: str = SELECTING, **more: Any) -> Any:
    """Declare a flag with a value; `name` may be several names with spaces."""
    return option(*name.split(), metavar=metavar, help=help_text, panel=panel, **more)


def _number(name: str, help_text: str, *, least: int = 1, panel: str = SELECTING) -> Any:
    return option(name, metavar="N", min=least, max=COUNT_MAX, help=help_text, panel=panel)


ModeFlag = Annotated[ReplayMode | None, option("--mode", help="Replay mode (default: failed-only).", panel=HOW)]


@dataclass(frozen=True, kw_only=True)
class GlobalFlags:
    """The flags of every command."""

    program: ClassVar[Program] = Program()

    db: Annotated[
        str | None, flag("--db", "Ledger (default: HOLDFAST_URL).", metavar="URL", panel=GLOBAL, callback=db_named)
    ] = None
    schema: Schema = None
    env: Annotated[
        str | None,
        flag("--env", "dev, stage or prod (default: that of the ledger).", metavar="NAME", panel=GLOBAL),
    ] = None
    config: Annotated[
        Path | None, flag("--config", "Overlay file, which sets limits.", metavar="FILE", panel=GLOBAL)
    ] = None
    selection_file: Annotated[
        Path | None, flag("--selection-file", "Spec file: YAML or JSON.", metavar="FILE", panel=GLOBAL)
    ] = None
    output: Annotated[OutputFormat | None, option("--output", help="Output format (default: table).", panel=GLOBAL)] = (
        None
    )
    log_level: Annotated[
        LogLevel | None, option("--log-level", help="Lowest level to log (default: warn).", panel=GLOBAL)
    ] = None
    as_json: Annotated[bool, option("--json", help="Same as --output json.", panel=GLOBAL)] = False

    def within(self, outer: object) -> Self:
        """Return these flags together with those before the name of the command."""
        given: dict[str, Any] = {}
        for field in fields(self):
            inner, before = getattr(self, field.name), getattr(outer, field.name, field.default)
            if inner != field.default and before not in (field.default, inner):
                raise InputError(f"--{field.name.replace('_', '-')} was given twice, with two values")
            given[field.name] = inner if inner != field.default else before
        return type(self)(**given)

    @property
    def format(self) -> OutputFormat:
        if self.as_json and self.output not in (None, OutputFormat.JSON):
            raise InputError(
                f"--json and --output {self.output} name two output formats", next_step="Give one of them."
            )
        return OutputFormat.JSON if self.as_json else self.output or OutputFormat.TABLE

    @property
    def url(self) -> str | None:
        variable = self.program.url_variable
        return self.db or (configuration().url if variable == variable_of("url") else os.environ.get(variable))

    @property
    def environment(self) -> str | None:
        """Return the environment that was named, or None."""
        variable = self.program.env_variable
        return self.env or (os.environ.get(variable) if variable else None)

    def require_endpoints(self, env: str | None) -> None:
        """Raise ReplayGuardError if a flag names something of another environment."""

    @contextmanager
    def event_bus(self, store: Store[Any]) -> Iterator[Bus | None]:  # noqa: ARG002 - without telemetry
        """Yield the bus for events of this replay, or None if there are no subscribers."""
        yield None


@dataclass(frozen=True, kw_only=True)
class SelectionFlags:
    """The flags that select jobs."""

    queue: Annotated[str | None, flag("--queue", "Only jobs of this queue.", metavar="NAME")] = None
    queue_in: Annotated[str | None, flag("--queue-in", "Only jobs of these queues: A,B.", metavar="NAMES")] = None
    operation: Annotated[str | None, flag("--operation", "Only jobs of this operation.", metavar="NAME")] = None
    status: Annotated[str | None, flag("--status", "Only jobs in these states: A,B (failed).")] = None
    error_code: Annotated[str | None, flag("--error-code", "Only jobs with this last error.", metavar="CODE")] = None
    error_code_in: Annotated[
        str | None, flag("--error-code-in", "Only jobs with one of these last errors: A,B.", metavar="CODES")
    ] = None
    event_time_start: Annotated[
        str | None, flag("--event-time-start", "Only jobs with this event time or later.", metavar="TIME")
    ] = None
    event_time_end: Annotated[
        str | None, flag("--event-time-end", "Only jobs with an earlier event time.", metavar="TIME")
    ] = None
    created_after: Annotated[
        str | None, flag("--created-after", "Only jobs created at this time or later; also '2h ago'.", metavar="TIME")
    ] = None
    created_before: Annotated[
        str | None, flag("--created-before", "Only jobs created before this time.", metavar="TIME")
    ] = None
    attempts_max: Annotated[
        int | None, _number("--attempts-max", "Only jobs with at most N attempts used.", least=0)
    ] = None
    limit: Annotated[int | None, _number("--limit", "At most N jobs, lowest ids first.")] = None

    def __post_init__(self) -> None:
        """Replace each age by its time, once: the next command is printed with the time, and selects the same jobs."""
        for name in ("event_time_start", "event_time_end", "created_after", "created_before"):
            text = getattr(self, name)
            if text is not None and _AGE.search(text):
                moment = past_moment(text, f"--{name.replace('_', '-')}", datetime.now(UTC))
                object.__setattr__(self, name, time_text(moment))


@dataclass(frozen=True, kw_only=True)
class PaceFlags:
    """The flags that say how jobs are replayed."""

    batch_size: Annotated[int | None, _number("--batch-size", "Jobs per batch.", panel=HOW)] = None
    max_batches: Annotated[int | None, _number("--max-batches", "At most N batches.", panel=HOW)] = None
    mode: ModeFlag = None


@dataclass(frozen=True, kw_only=True)
class RunFlags:
    """The flags that say who replays, why, and under which grant."""

    operator: Annotated[str | None, flag("--operator", OPERATOR_HELP, metavar="NAME", panel=ACTING)] = None
    reason: Annotated[str | None, flag("--reason", REASON_HELP, panel=ACTING)] = None
    replay_reason: Annotated[ReplayReason | None, option("--replay-reason", help="Kind of reason.", panel=ACTING)] = (
        None
    )
    grant: Annotated[int | None, _number("--grant", "Id of the grant that permits this.", panel=ACTING)] = None
    confirm: Annotated[bool, option("--confirm", help="Do not ask for confirmation.", panel=ACTING)] = False
    stop_after: Annotated[int | None, _number("--stop-after", "Stop after N batches.", panel=HOW)] = None


def expanded(function: Callable[..., None], **kinds: type) -> Callable[..., None]:
    """Return a command that has the fields of each dataclass parameter of `function` as flags.

    `kinds` replaces the dataclass of a parameter by one that is derived from it.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        kind = kinds.get(name, hints[name])
        if is_dataclass(kind):
            groups[name] = kind
            inner = typing.get_type_hints(kind, include_extras=True)
            parameters += [_parameter(field.name, inner[field.name], field.default) for field in fields(kind)]
        else:
            parameters.append(_parameter(name, kind, parameter.default))

    @wraps(function)
    def command(**given: Any) -> None:
        made = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)}) for name, kind in groups.items()
        }
        function(**given, **made)

    del command.__wrapped__  # its parameters are not those of the command
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def typed(*groups: Any) -> list[str]:
    """Return the flags that the user gave, as they are typed, without those for the ledger and the output.

    The code that prints a command adds the flags of the ledger.
    """
    words: list[str] = []
    for group in groups:
        hints = typing.get_type_hints(type(group), include_extras=True)
        for field in fields(group):
            value = getattr(group, field.name)
            if value != field.default and field.name not in ("db", "schema", "output", "log_level", "as_json"):
                [declared] = hints[field.name].__metadata__
                words += [declared.names[0], shlex.quote(str(value))]
    return words


def _parameter(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
